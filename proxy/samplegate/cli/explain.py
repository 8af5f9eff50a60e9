"""``samplegate explain``: one request put to a policy: which rule takes it, why the earlier ones do not, what comes of
it. Nothing is sent."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_never

import msgspec

from samplegate.book import compile_book, load_policy
from samplegate.cli import FAILED, OK
from samplegate.cli.files import Unreadable, complain, declared, environment, read, refused
from samplegate.commands import reviewing, spending
from samplegate.commands.reviewing import Waiting
from samplegate.commands.spending import Spending
from samplegate.commands.steps import as_json, lines
from samplegate.policy.capabilities import can_forward, offer_to
from samplegate.policy.decide import explain
from samplegate.policy.decisions import (
    Allowed,
    Decision,
    DenyAs,
    Escalated,
    FixedAnswer,
    Forwarded,
    LeftOpen,
    Situation,
    Step,
)
from samplegate.policy.file.load import PolicyError
from samplegate.policytest import suite
from samplegate.policytest.suite import Scene
from samplegate.protocol import rawjson, results, server_requests
from samplegate.protocol.requests import BadRequest, Origin, Request


@dataclass(frozen=True, slots=True)
class Explained:
    """Everything that is printed."""

    method: str
    request: Request
    decision: Decision
    waiting: Waiting | None
    """Who is asked, if anybody."""
    steps: Sequence[Step]
    spending: Spending


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "request",
        metavar="REQUEST.json",
        help="the server's JSON-RPC request, or only its method and params; - for stdin",
    )
    parser.add_argument("--policy", type=Path, required=True, metavar="FILE")
    parser.add_argument(
        "--env-file", type=Path, metavar="FILE", help="NAME=value lines: values for ${VAR} in the policy"
    )
    parser.add_argument("--server", default="default", metavar="NAME", help="who asks (default: %(default)s)")
    parser.add_argument("--caller", default="local", metavar="NAME", help="on whose behalf (default: %(default)s)")
    parser.add_argument(
        "--tool",
        action="append",
        default=[],
        metavar="NAME",
        help="the tool being called; several are candidates; none by default",
    )
    parser.add_argument(
        "--method",
        action="append",
        default=[],
        metavar="METHOD",
        help="another call in flight: prompts/get or resources/read",
    )
    parser.add_argument("--era", choices=("legacy", "modern"), help="of the session (default: legacy)")
    parser.add_argument("--revision", metavar="DATE", help="of the protocol (default: the newest of the era)")
    parser.add_argument(
        "--client",
        default="",
        metavar="LIST",
        help=(
            "what the client declared, by commas: sampling, sampling.tools, sampling.context, elicitation.form,"
            " elicitation.url, roots"
        ),
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def command(args: argparse.Namespace) -> int:
    """Decide one request and say why; 1 if the policy or the request has a fault, 2 if a file cannot be read."""
    try:
        scene = _scene(args)
        asked = _asked(args.request)
        explained = _explain(args.policy, environment(args.env_file), asked, scene)
    except (Unreadable, PolicyError) as problem:
        return refused(problem)
    if isinstance(explained, BadRequest):
        ends = (
            _ended_call(suite.origin(scene))
            if suite.origin(scene).era == "modern"
            else f"the server gets error {results.BAD_PARAMS}"
        )
        complain(f"{args.request}: malformed: {explained.message}; {ends}")
        return FAILED
    print(json.dumps(_json(explained), indent=2, ensure_ascii=False) if args.json else "\n".join(_report(explained)))
    return OK


def _scene(args: argparse.Namespace) -> Scene:
    scene = Scene(
        server=args.server,
        caller=args.caller,
        era=args.era,
        revision=args.revision,
        tool=args.tool,
        method=args.method,
        client=declared(args.client),
    )
    if (fault := suite.scene_fault(scene)) is not None:
        raise Unreadable(f"--{fault}")
    return scene


def _asked(name: str) -> tuple[str, bytes | None]:
    """The method and params of the request in a file or on stdin; without the white space between them, for `size`
    counts bytes as sent."""
    source = "stdin" if name == "-" else name
    raw = (sys.stdin.read() if name == "-" else read(Path(name))).encode("utf-8", "replace")
    try:
        compact = msgspec.json.format(raw, indent=-1)
        method = rawjson.string(rawjson.lookup(compact, "method"))
        params = rawjson.lookup(compact, "params")
    except (msgspec.DecodeError, rawjson.Malformed, RecursionError) as problem:
        raise Unreadable(f"{source}: is no JSON request: {problem}") from None
    if method is None:
        raise Unreadable(f"{source}: has no method; give a JSON-RPC request, or an object with method and params")
    return method, params


def _explain(
    policy: Path, variables: Mapping[str, str], asked: tuple[str, bytes | None], scene: Scene
) -> Explained | BadRequest:
    book = compile_book(load_policy(read(policy), file=str(policy), environment=variables), policy.parent)
    origin, client = suite.origin(scene), suite.capabilities(scene.client or [])
    item = server_requests.item(*asked, origin, offer_to(book, origin, client))
    if isinstance(item.request, BadRequest):
        return item.request
    decision, steps = explain(book, item.request, Situation(can_forward(item.request, client), item.offered))
    waiting = reviewing.waiting(book, item.request, decision)
    return Explained(
        item.method, item.request, decision, waiting, steps, spending.spending(book, item.request, decision)
    )


def _report(explained: Explained) -> Iterator[str]:
    decision = explained.decision
    yield f"request   {explained.method}, {_where(explained.request.origin)}"
    yield from (f"rule    {line}" for line in lines(explained.steps))
    yield (
        f"decision  {decision.effect}{'' if decision.rule is None else f', by {decision.rule}'}"
        f" ({decision.reason.value})"
    )
    if decision.detail and not any(step.taken and decision.detail in step.why for step in explained.steps):
        yield f"because   {decision.detail}"
    for name, value in _particulars(decision).items():
        yield f"{name:<9} {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
    if explained.waiting is not None:
        yield from reviewing.report(explained.waiting)
    yield from spending.report(explained.spending)
    yield from (f"shadow    {shadow.rule}: {shadow.effect}" for shadow in decision.shadows)
    yield f"declared  {'yes' if decision.declared else 'no: the policy does not offer this capability to the server'}"
    yield f"outcome   {outcome(explained)}"


def _json(explained: Explained) -> dict[str, Any]:
    decision = explained.decision
    return {
        "method": explained.method,
        "effect": decision.effect,
        "rule": decision.rule,
        "reason": decision.reason.value,
        "detail": decision.detail,
        **_particulars(decision),
        "review": None if explained.waiting is None else reviewing.as_json(explained.waiting),
        **spending.as_json(explained.spending),
        "shadows": [{"rule": shadow.rule, "effect": shadow.effect} for shadow in decision.shadows],
        "declared": decision.declared,
        "wire": results.wire_answer(explained.request.kind, explained.request.origin.era, decision),
        "outcome": outcome(explained),
        "rules": as_json(explained.steps),
    }


def _where(origin: Origin) -> str:
    calls = " or ".join(call.method if call.tool is None else f"{call.method} {call.tool}" for call in origin.calls)
    return (
        f"server {origin.server}, caller {origin.caller}, {f'during {calls}' if calls else 'no call in flight'},"
        f" {origin.era} ({origin.revision})"
    )


def _particulars(decision: Decision) -> Mapping[str, Any]:
    """What the act holds, without the request's own content."""
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
    """What goes over the wire, as a sentence: a pushed request in the legacy eras, a key of a round in the modern
    one."""
    request, modern = explained.request, explained.request.origin.era == "modern"
    back = "in the gate's retry of the call" if modern else "as the reply to its request"
    if not explained.decision.declared:
        what = "Denied" if isinstance(explained.decision.act, DenyAs) else "Unanswered"
        return f"{what}: {_ended_call(request.origin) if modern else f'the server gets error {results.BAD_PARAMS}'}"
    match explained.decision.act:
        case Allowed(models=models, review_answer=str(reviewer)):
            return (
                f"Answered: what {models[0]} writes goes to the server {back} once {reviewer} has let it; if not,"
                f" {_refused(request)}"
            )
        case Allowed(models=models):
            return f"Answered: what {models[0]} writes goes to the server {back}; if it fails, {_refused(request)}"
        case FixedAnswer(result={"action": "decline" | "cancel" as action}):
            return f"Answered: {action} goes to the server {back}"
        case FixedAnswer():
            return (
                f"Answered: {'accept with' if request.kind == 'elicitation' else ''} this content goes to the server"
                f" {back}".replace("  ", " ")
            )
        case Forwarded() if modern:
            return "forwarded: the call ends with input_required, and the client's retry of it brings the answer"
        case Forwarded():
            return "forwarded: the client is sent the request, and its reply goes to the server"
        case Escalated():
            return f"escalated: {reviewing.outcome(explained.decision, request, back, _refused)}"
        case DenyAs(as_=action):
            return f"Denied: {_refused(request, action)}"
        case LeftOpen():
            return f"Unanswered: {_refused(request)}"
        case _ as never:
            assert_never(never)


def _refused(request: Request, action: str = "cancel") -> str:
    if request.kind == "elicitation":
        return f"the server gets {action}"
    return "the server gets error -1" if request.origin.era == "legacy" else _ended_call(request.origin)


def _ended_call(origin: Origin) -> str:
    tools_only = all(call.method == "tools/call" for call in origin.calls)
    return f"the client's call ends with {'an isError result' if tools_only else 'error -1'}"
