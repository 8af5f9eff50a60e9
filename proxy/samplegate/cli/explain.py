"""``samplegate explain``: shows which rule a request matches, why earlier rules do not, and the outcome.

It also shows the models with their upper bounds of cost, the limits that the request draws on, and the reviewers with
their deadlines. Nothing is sent or reserved, and no reviewer is asked. Whether a limit has room now is not checked.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, assert_never

import msgspec

from samplegate.cli import FAILED, OK
from samplegate.cli.files import capability_names, environment, print_error, read, report_error
from samplegate.cli.test import step_lines, steps_as_json
from samplegate.durations import duration_text
from samplegate.errors import InputError
from samplegate.money import dollars, exact_dollars
from samplegate.policy import cost, model_choice
from samplegate.policy.capabilities import SessionRules, can_forward, offer_to
from samplegate.policy.catalogue import Worst
from samplegate.policy.claims import Claimant
from samplegate.policy.conditions import short_value
from samplegate.policy.decide import CompiledPolicy, draws_of, explain
from samplegate.policy.decisions import (
    Allowed,
    Decision,
    DenyAs,
    Escalated,
    FixedAnswer,
    Forwarded,
    LeftOpen,
    RuleStep,
    Situation,
    wire_answer,
)
from samplegate.policy.facts import Facts
from samplegate.policy.file.load import PolicyError
from samplegate.policy.file.timeouts import can_be_late, review_wait
from samplegate.policy.ledger import SCALE, Draw, LimitSpec, Quantity
from samplegate.policy.model_choice import ModelChoice
from samplegate.policy.schema import AllowRule, EscalateRule, Otherwise, Stage, seconds
from samplegate.policytest import suite
from samplegate.policytest.suite import Scene
from samplegate.protocol import rawjson, results, server_requests
from samplegate.protocol.identity import LOCAL, Identity
from samplegate.protocol.requests import BadRequest, Origin, Request, UiRef
from samplegate.runtime.process import compile_loaded, load_policy

_UNIT: Final[dict[Quantity, str]] = {
    "requests": " requests",
    "input_tokens": " input tokens",
    "output_tokens": " output tokens",
    "usd": "",
    "concurrent": " at once",
}


@dataclass(frozen=True, slots=True)
class LimitDraw:
    """A draw on one account of a limit."""

    spec: LimitSpec
    draw: Draw


@dataclass(frozen=True, slots=True)
class Spending:
    """Models in the order of use, and draws on limits. ``unknown_draws`` is the reason why draws are unknown."""

    choice: ModelChoice | None
    worst: dict[str, Worst]
    draws: Sequence[LimitDraw]
    unknown_draws: str | None


def spending(compiled: CompiledPolicy, request: Request, decision: Decision) -> Spending:
    """The spending of a decision."""
    drawn = draws_of(compiled, decision, Claimant(request.origin, _calls(request), "its session", decision.rule or ""))
    draws, unknown_draws = ((), drawn) if isinstance(drawn, str) else (drawn, None)
    limit_draws = [LimitDraw(compiled.limit_specs[draw.limit], draw) for draw in draws]
    rule = compiled.policy.rules[decision.index] if decision.index >= 0 else None
    allowed = decision.allowed
    if allowed is None or not isinstance(rule, AllowRule | EscalateRule):
        return Spending(None, {}, limit_draws, unknown_draws)
    choice = model_choice.choose(compiled, rule, Facts(request))
    worst = {}
    for model in choice.models:
        facts = compiled.catalogue[model.name]
        worst[model.name] = cost.worst(
            model, facts, model_choice.bounded(rule.with_, model, facts, request.params).params
        )
    first = allowed.models[0]
    worst[first] = cost.worst(compiled.model(first), compiled.catalogue[first], allowed.params)
    return Spending(choice, worst, limit_draws, unknown_draws)


def _calls(request: Request) -> tuple[str, ...]:
    """Placeholder names for the calls that the request may belong to. At run time, the session names them."""
    calls = len(request.origin.calls)
    if calls == 0:
        return ("its session (no call is in flight)",)
    return ("this call",) if calls == 1 else tuple(f"call {number} of {calls}" for number in range(1, calls + 1))


def spending_lines(spent: Spending) -> Iterator[str]:
    """A text line for each model and each draw."""
    if spent.choice is not None:
        width = max(map(len, [*spent.worst, *spent.choice.unfit]))
        for number, (name, worst) in enumerate(spent.worst.items(), 1):
            yield f"model   {number:>3} {name:<{width}}  max {_worst(worst)}{_score(spent.choice, name)}"
        for name, why in spent.choice.unfit.items():
            yield f"model     - {name:<{width}}  skipped: {why}"
    for limit_draw in spent.draws:
        spec, draw = limit_draw.spec, limit_draw.draw
        by = f", for {', '.join(json.loads(draw.key))}" if draw.key != "[]" else ""
        yield (
            f"limit     {spec.name}: {_amount(spec, draw.amount)} of {_amount(spec, spec.max_units)}"
            f"{_UNIT[spec.quantity]}{_per(spec)}{by}"
        )
    if spent.unknown_draws is not None:
        yield f"limit     cannot be reserved: {spent.unknown_draws}"


def _worst(worst: Worst) -> str:
    usd = "unknown price" if worst.usd is None else dollars(worst.usd)
    return f"{worst.input_tokens} input and {worst.output_tokens} output tokens, {usd}"


def _score(choice: ModelChoice, name: str) -> str:
    score = choice.scores.get(name)
    if score is None:
        return ""
    return (
        f"; score {score.total:.2f} (cost {score.cost:.2f}, speed {score.speed:.2f}, intelligence"
        f" {score.intelligence:.2f})"
    )


def _amount(spec: LimitSpec, amount: int) -> str:
    return exact_dollars(amount) if spec.quantity == "usd" else f"{amount / SCALE[spec.quantity]:.15g}"


def _per(spec: LimitSpec) -> str:
    match spec.per:
        case "bucket":
            return f" per {duration_text(spec.period)}"
        case "slots":
            return ""
        case "day" | "month":
            return f" per {spec.per} ({spec.tz})"
        case _:
            return f" per {spec.per}"


def spending_as_json(spent: Spending) -> dict[str, Any]:
    """The same as JSON: dollars as numbers, null for an unknown price."""
    return {
        "choice": None if spent.choice is None else _choice_json(spent, spent.choice),
        "draws": [
            {
                "limit": limit_draw.spec.name,
                "key": limit_draw.draw.key,
                "quantity": limit_draw.spec.quantity,
                "amount": limit_draw.draw.amount / SCALE[limit_draw.spec.quantity],
                "of": limit_draw.spec.max_units / SCALE[limit_draw.spec.quantity],
            }
            for limit_draw in spent.draws
        ],
        "untold": spent.unknown_draws,
    }


def _choice_json(spent: Spending, choice: ModelChoice) -> dict[str, Any]:
    return {
        "why": choice.why,
        "models": [
            {"name": name, "worst": _worst_json(worst), "score": _score_json(choice, name)}
            for name, worst in spent.worst.items()
        ],
        "unfit": dict(choice.unfit),
    }


def _worst_json(worst: Worst) -> dict[str, Any]:
    usd = None if worst.usd is None else worst.usd / SCALE["usd"]
    return {"input_tokens": worst.input_tokens, "output_tokens": worst.output_tokens, "usd": usd}


def _score_json(choice: ModelChoice, name: str) -> dict[str, float] | None:
    score = choice.scores.get(name)
    if score is None:
        return None
    return {"total": score.total, "cost": score.cost, "speed": score.speed, "intelligence": score.intelligence}


_TIMEOUT_EFFECT: Final[dict[Otherwise, str]] = {
    "next": "later rules are tried",
    "deny": "the request is denied",
    "unanswered": "the request is not answered",
}


@dataclass(frozen=True, slots=True)
class ReviewStage:
    """One reviewer in a review. Times are in seconds."""

    reviewer: str
    stage: Stage
    timeout: float
    """Timeout of the review."""
    here: float
    """How long this request can wait."""
    late: float
    approvals: int


@dataclass(frozen=True, slots=True)
class ReviewStages:
    """All reviewers in order, and what follows if there is no verdict on the request."""

    stages: tuple[ReviewStage, ...]
    otherwise: Otherwise | None


def review_stages(compiled: CompiledPolicy, request: Request, decision: Decision) -> ReviewStages | None:
    """The reviews of a decision; None if no reviewer is asked."""
    stages: list[ReviewStage] = []
    if isinstance(decision.act, Escalated):
        stages.append(_review_stage(compiled, request, decision.act.reviewer, "request", decision.act.timeout))
    if decision.allowed is not None and (second := decision.allowed.review_answer) is not None:
        stages.append(
            _review_stage(compiled, request, second, "answer", seconds(compiled.policy.reviewers[second].timeout))
        )
    otherwise = decision.on_timeout if isinstance(decision.act, Escalated) else None
    return ReviewStages(tuple(stages), otherwise) if stages else None


def _review_stage(compiled: CompiledPolicy, request: Request, name: str, stage: Stage, timeout: float) -> ReviewStage:
    reviewer = compiled.policy.reviewers[name]
    waits = review_wait(compiled.policy, request.origin, timeout)
    return ReviewStage(name, stage, timeout, waits, seconds(reviewer.late_verdict), reviewer.approvals)


def review_lines(reviews: ReviewStages) -> Iterator[str]:
    """A text line for each reviewer, and for the timeout."""
    for stage in reviews.stages:
        what = f"reviews the {stage.stage}"
        time = duration_text(stage.here)
        if stage.here != stage.timeout:
            time += f" (the review itself expires after {duration_text(stage.timeout)})"
        may_come_late = stage.late and can_be_late(stage.stage, stage.timeout, stage.here)
        window = duration_text(stage.late)
        late = f"; for {window}, a late decision answers the next identical request, once" if may_come_late else ""
        people = f" with {stage.approvals} approvals" if stage.approvals > 1 else ""
        yield f"reviewer  {stage.reviewer} {what}{people} within {time}{late}"
    if reviews.otherwise is not None:
        yield f"timeout   without a decision, {_TIMEOUT_EFFECT[reviews.otherwise]}"


def review_as_json(reviews: ReviewStages) -> dict[str, Any]:
    """The same as JSON; times are in seconds."""
    stages = [
        {
            "reviewer": stage.reviewer,
            "stage": stage.stage,
            "timeout": stage.timeout,
            "waits": stage.here,
            "late_verdict": stage.late,
            "approvals": stage.approvals,
        }
        for stage in reviews.stages
    ]
    return {"asks": stages, "on_timeout": reviews.otherwise}


def review_outcome(decision: Decision, request: Request, back: str, refused: Callable[[Request, str], str]) -> str:
    """The server's answer after a review, as a sentence."""
    act = decision.act
    assert isinstance(act, Escalated)
    no = f"if rejected, {refused(request, 'decline')}"
    match act.allowed:
        case Allowed(models=models):
            return (
                f"after {act.reviewer} approves, the answer from {models[0]} goes to the server {back};"
                f" {act.reviewer} may also answer directly; {no}"
            )
        case None if request.kind == "sampling":
            why = f"because no model can answer ({act.why})"
            return f"the answer from {act.reviewer} goes to the server {back}, {why}; {no}"
        case None:
            return f"the answer from {act.reviewer} goes to the server {back}; {no}"


@dataclass(frozen=True, slots=True)
class Explained:
    """All results that are printed."""

    method: str
    request: Request
    decision: Decision
    reviews: ReviewStages | None
    """The reviews, if any."""
    steps: Sequence[RuleStep]
    spending: Spending
    ui: UiRef | None
    """The server's own UI that the form names."""
    cuts_ui: bool = False
    """``ui_forward: cut`` for this server."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "request",
        metavar="REQUEST.json",
        help="the server's JSON-RPC request, or an object with its method and params; - for stdin",
    )
    parser.add_argument("--policy", type=Path, required=True, metavar="FILE", help="the policy file")
    parser.add_argument(
        "--env-file", type=Path, metavar="FILE", help="file of NAME=value lines: values for ${VAR} in the policy"
    )
    parser.add_argument(
        "--server", default="default", metavar="NAME", help="the server that sends the request (default: %(default)s)"
    )
    parser.add_argument(
        "--caller", default="local", metavar="NAME", help="name of the caller in the policy (default: %(default)s)"
    )
    parser.add_argument(
        "--groups",
        metavar="NAME,NAME",
        help="groups of the caller, comma-separated (default: unknown; none for the caller local)",
    )
    parser.add_argument(
        "--claims",
        type=_object,
        metavar="JSON",
        help="claims of the caller's JWT (default: unknown; none for the caller local)",
    )
    parser.add_argument(
        "--tool",
        action="append",
        default=[],
        metavar="NAME",
        help="tool call in flight (default: none); repeat the option for several candidates",
    )
    parser.add_argument(
        "--method",
        action="append",
        default=[],
        metavar="METHOD",
        help="other call in flight: prompts/get or resources/read",
    )
    parser.add_argument(
        "--arguments",
        action="append",
        type=_object,
        metavar="JSON",
        help="arguments of the call in flight (default: unknown); repeat the option for several calls of the tool",
    )
    parser.add_argument(
        "--era",
        choices=("legacy", "modern"),
        help="protocol version: 2025-11-25 and older (legacy, the default) or 2026-07-28 (modern)",
    )
    parser.add_argument("--revision", metavar="DATE", help="exact protocol version (default: the newest for --era)")
    parser.add_argument(
        "--client",
        default="",
        metavar="LIST",
        help=(
            "capabilities that the client declared, comma-separated: sampling, sampling.tools,"
            " sampling.context, elicitation.form,"
            " elicitation.url, roots"
        ),
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def command(args: argparse.Namespace) -> int:
    """Decide one request and explain it. Returns 1 for an invalid policy or request, 2 for an unreadable file."""
    try:
        scene = _scene(args)
        asked = _read_request(args.request)
        explained = _explain(args.policy, environment(args.env_file), asked, scene, _origin(args, scene))
    except (InputError, PolicyError) as problem:
        return report_error(problem)
    if isinstance(explained, BadRequest):
        ends = (
            _failed_call(suite.origin(scene))
            if suite.origin(scene).era == "modern"
            else f"the server gets error {results.BAD_PARAMS}"
        )
        print_error(f"{args.request}: malformed: {explained.message}; {ends}")
        return FAILED
    print(json.dumps(_json(explained), indent=2, ensure_ascii=False) if args.json else "\n".join(_report(explained)))
    return OK


def _object(text: str) -> str:
    """A JSON object as text, because its spelling counts. Raises argparse.ArgumentTypeError."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise argparse.ArgumentTypeError(f"{short_value(text)} is not JSON: {problem}") from None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f"{short_value(text)} is not a JSON object")
    return text


def _scene(args: argparse.Namespace) -> Scene:
    scene = Scene(
        server=args.server,
        caller=args.caller,
        era=args.era,
        revision=args.revision,
        tool=args.tool,
        method=args.method,
        client=capability_names(args.client),
    )
    if (fault := suite.scene_fault(scene)) is not None:
        raise InputError(f"--{fault}")
    if args.arguments and not suite.origin(scene).calls:
        raise InputError("--arguments: no call is in flight; add --tool")
    return scene


def _origin(args: argparse.Namespace, scene: Scene) -> Origin:
    """The origin with arguments, groups and claims as given; others are unknown. The local caller has none."""
    origin = suite.origin(scene)
    given = tuple(f'{{"arguments":{text}}}'.encode("utf-8", "surrogatepass") for text in args.arguments or ())
    default = LOCAL if args.caller == LOCAL.name else Identity(args.caller)
    identity = Identity(
        args.caller,
        default.groups if args.groups is None else frozenset(filter(None, args.groups.split(","))),
        default.claims if args.claims is None else args.claims.encode("utf-8", "surrogatepass"),
    )
    params = (given,) * len(origin.calls) if given else ()
    return msgspec.structs.replace(origin, params=params, identities=(identity,))


def _read_request(name: str) -> tuple[str, bytes | None]:
    """Method and params of the request in a file or on stdin. White space is removed, because `size` counts bytes as
    sent."""
    source = "stdin" if name == "-" else name
    raw = (sys.stdin.read() if name == "-" else read(Path(name))).encode("utf-8", "replace")
    try:
        compact = msgspec.json.format(raw, indent=-1)
        method = rawjson.string(rawjson.lookup(compact, "method"))
        params = rawjson.lookup(compact, "params")
    except (msgspec.DecodeError, rawjson.Malformed, RecursionError) as problem:
        raise InputError(f"{source}: is not a JSON request: {problem}") from None
    if method is None:
        raise InputError(f"{source}: has no method; pass a JSON-RPC request, or an object with method and params")
    return method, params


def _explain(
    policy: Path,
    variables: Mapping[str, str],
    asked: tuple[str, bytes | None],
    scene: Scene,
    origin: Origin,
) -> Explained | BadRequest:
    compiled = compile_loaded(load_policy(read(policy), file=str(policy), environment=variables), policy.parent)
    client = suite.capabilities(scene.client or [])
    # a client that takes forms may also have declared UIs in them, which a scene does not tell
    declared = msgspec.structs.replace(client, ui=client.form)
    item = server_requests.item(*asked, origin, offer_to(compiled, origin, declared, page=True))
    if isinstance(item.request, BadRequest):
        return item.request
    decision, steps = explain(compiled, item.request, Situation(can_forward(item.request, client), item.offered))
    reviews = review_stages(compiled, item.request, decision)
    spent = spending(compiled, item.request, decision)
    cut = SessionRules(compiled).cuts_ui(origin.server)
    return Explained(item.method, item.request, decision, reviews, steps, spent, item.ui, cut)


def _report(explained: Explained) -> Iterator[str]:
    decision = explained.decision
    yield f"request   {explained.method}, {_origin_text(explained.request.origin)}"
    yield from (f"rule    {line}" for line in step_lines(explained.steps))
    yield (
        f"decision  {decision.effect}{'' if decision.rule is None else f' by rule {decision.rule!r}'}"
        f" (reason: {decision.reason.value})"
    )
    if decision.detail and not any(step.taken and decision.detail in step.why for step in explained.steps):
        yield f"detail    {decision.detail}"
    for name, value in _act_details(decision).items():
        text = f"{value:g}s" if name == "timeout" else json.dumps(value, ensure_ascii=False)
        yield f"{name:<9} {text}"
    if (shown := _ui_shown(explained)) is not None:
        yield f"ui        {shown[0]}"
    if explained.reviews is not None:
        yield from review_lines(explained.reviews)
    yield from spending_lines(explained.spending)
    yield from (f"shadow    {shadow.rule}: {shadow.effect}" for shadow in decision.shadows)
    unadvertised = "no: the policy does not advertise this capability to the server"
    yield f"advertised {'yes' if decision.declared else unadvertised}"
    answer = outcome(explained)
    yield f"outcome   {answer[0].upper()}{answer[1:]}"


def _json(explained: Explained) -> dict[str, Any]:
    decision = explained.decision
    return {
        "method": explained.method,
        "effect": decision.effect,
        "rule": decision.rule,
        "reason": decision.reason.value,
        "detail": decision.detail,
        **_act_details(decision),
        "review": None if explained.reviews is None else review_as_json(explained.reviews),
        **spending_as_json(explained.spending),
        "shadows": [{"rule": shadow.rule, "effect": shadow.effect} for shadow in decision.shadows],
        "declared": decision.declared,
        "ui": None if (shown := _ui_shown(explained)) is None else {"shown_to": shown[1]},
        "wire": wire_answer(explained.request.kind, explained.request.origin.era, decision),
        "outcome": outcome(explained),
        "rules": steps_as_json(explained.steps),
    }


def _ui_shown(explained: Explained) -> tuple[str, Literal["reviewer", "client", "nobody"]] | None:
    """What happens to the server's own UI that the form names, as a sentence and as a word; None if it names none."""
    if explained.ui is None:
        return None
    is_rich = explained.ui.dialect == "rich"
    match explained.decision.act:
        case Escalated(ui=True, ui_origins=origins):
            by_url = f", also from {', '.join(origins)}" if origins and is_rich else ""
            return f"the server's own UI is shown to the reviewer{by_url}, if there is a page", "reviewer"
        case Escalated():
            return "the server's own UI is hidden from the reviewer (ui: hide)", "nobody"
        case Forwarded() if is_rich and explained.cuts_ui:
            return "the server's own UI is removed from the form (ui_forward: cut)", "nobody"
        case Forwarded():
            return (
                f"the client gets the server's own UI with the form{'' if is_rich else ', if it declared that'}",
                "client",
            )
        case _:
            return "nobody sees the server's own UI", "nobody"


def _origin_text(origin: Origin) -> str:
    calls = " or ".join(call.method if call.tool is None else f"{call.method} {call.tool}" for call in origin.calls)
    return (
        f"server {origin.server}, caller {origin.caller}, {f'during {calls}' if calls else 'no call in flight'},"
        f" {origin.era} ({origin.revision})"
    )


def _act_details(decision: Decision) -> Mapping[str, Any]:
    """Details of the act, without the request's own content."""
    match decision.act:
        case (
            Allowed(models=models, params=params, timeout=timeout, changed=changed)
            | Escalated(allowed=Allowed(models=models, params=params, timeout=timeout, changed=changed))
        ):
            found = {
                "models": list(models),
                "maxTokens": params.get("maxTokens"),
                "timeout": timeout,
                "changed": list(changed),
            }
            return {name: value for name, value in found.items() if value}
        case FixedAnswer(result=result):
            return {"content": result["content"]} if "content" in result else {}
        case DenyAs() | Escalated() | Forwarded() | LeftOpen():
            return {}
        case _ as never:
            assert_never(never)


def outcome(explained: Explained) -> str:
    """The server's answer as a sentence: to a pushed request in the legacy eras, in a round in the modern era."""
    request, modern = explained.request, explained.request.origin.era == "modern"
    back = "in the gate's retry of the call" if modern else "as the reply to its request"
    if not explained.decision.declared:
        what = "Denied" if isinstance(explained.decision.act, DenyAs) else "Unanswered"
        return f"{what}: {_failed_call(request.origin) if modern else f'the server gets error {results.BAD_PARAMS}'}"
    match explained.decision.act:
        case Allowed(models=models, review_answer=str(reviewer)):
            return (
                f"Answered: after {reviewer} approves, the answer from {models[0]} goes to the server {back}; otherwise"
                f" {_failure_text(request)}"
            )
        case Allowed(models=models):
            return (
                f"Answered: the answer from {models[0]} goes to the server {back}; if the model fails,"
                f" {_failure_text(request)}"
            )
        case FixedAnswer(result={"action": "decline" | "cancel" as action}):
            return f"Answered: the server gets {action} {back}"
        case FixedAnswer():
            accept = "accept with " if request.kind == "elicitation" else ""
            return f"Answered: the server gets {accept}this content {back}"
        case Forwarded() if modern:
            return "forwarded: the call ends with input_required, and the client's retry brings the answer"
        case Forwarded():
            return "forwarded: the client gets the request, and its reply goes to the server"
        case Escalated():
            return f"escalated: {review_outcome(explained.decision, request, back, _failure_text)}"
        case DenyAs(as_=action):
            return f"Denied: {_failure_text(request, action)}"
        case LeftOpen():
            return f"Unanswered: {_failure_text(request)}"
        case _ as never:
            assert_never(never)


def _failure_text(request: Request, action: str = "cancel") -> str:
    if request.kind == "elicitation":
        return f"the server gets {action}"
    return "the server gets error -1" if request.origin.era == "legacy" else _failed_call(request.origin)


def _failed_call(origin: Origin) -> str:
    tools_only = all(call.method == "tools/call" for call in origin.calls)
    return f"the client's call fails with {'an isError result' if tools_only else 'error -1'}"
