"""Pure. New reviews: the digest that a verdict is bound to, and the params that no model gets.

The digest covers server, caller, call and reviewer, and the params, models and answer that will be acted on (T13).
Reviewers also see model preferences, includeContext, metadata and unknown params as the server sent them, with the
gate's use of each.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from samplegate.policy import model_choice
from samplegate.policy.decide import CompiledPolicy, worst_of
from samplegate.policy.decisions import Allowed, Decision, Escalated
from samplegate.policy.facts import Facts
from samplegate.policy.prompt import BOUND, max_output_tokens
from samplegate.policy.schema import AllowRule, EscalateRule, ModelRule, Policy, Prepend, seconds
from samplegate.protocol.request_state import params_digest
from samplegate.protocol.requests import Call, Origin, Request, UiRef
from samplegate.protocol.rounds import Round
from samplegate.protocol.strictjson import JsonFault, decode
from samplegate.reviews.review import Also, EditBounds, Review, ReviewUi, Unsent

MAX_BYTES: Final = 64 * 1024  # of all values together, as JSON
MAX_UNKNOWN: Final = 20
_KNOWN: Final = ("modelPreferences", "includeContext", "metadata")
_SENT: Final = frozenset({"messages", "_meta", "task", *BOUND})
"""Params that are sent to models, and members of the protocol."""


def unsent(compiled: CompiledPolicy, rule: ModelRule, allowed: Allowed | None, request: Request) -> tuple[Unsent, ...]:
    """The params of a sampling request that are not sent to the model; none for an elicitation.

    ``allowed``: the decision about the model, None if no model can be called.
    """
    return tuple(_unsent(compiled, rule, allowed, request)) if request.kind == "sampling" else ()


def _unsent(compiled: CompiledPolicy, rule: ModelRule, allowed: Allowed | None, request: Request) -> Iterator[Unsent]:
    params = request.params
    unknown = sorted(params.keys() - _SENT - {*_KNOWN})
    left = MAX_BYTES
    for param in [name for name in _KNOWN if name in params] + unknown[:MAX_UNKNOWN]:
        size = len(param) + len(json.dumps(params[param]))
        value: Any = params[param] if size <= left else f"[{size} bytes: too large to show]"
        left -= size if size <= left else 0
        yield Unsent(
            param[:200],
            value,
            "not used: no model can be called"
            if allowed is None
            else _effect_of(compiled, rule, allowed, request, param),
        )
    if len(unknown) > MAX_UNKNOWN:
        yield Unsent(f"{len(unknown) - MAX_UNKNOWN} more", None, "not sent to the model")


def _effect_of(compiled: CompiledPolicy, rule: ModelRule, allowed: Allowed, request: Request, param: str) -> str:
    match param:
        case "modelPreferences":
            return (
                f"not sent to the model; the gate chose {allowed.models[0]}:"
                f" {model_choice.choose(compiled, rule, Facts(request)).why}"
            )
        case "includeContext" if request.params[param] != "none":  # R18
            return "ignored: the gate has no context to include"
        case _:
            return "not sent to the model"


def digest(
    *,
    server: str,
    caller: str,
    realm: str = "",
    method: str,
    calls: Sequence[Call],
    during: str = "",
    reviewer: str,
    params: Mapping[str, Any],
    models: Sequence[str] = (),
    answer: Mapping[str, Any] | None = None,
    terms: Mapping[str, Any] = MappingProxyType({}),
) -> str:
    """A review's digest: ``sha256:`` and the hex of SHA-256 over canonical JSON (sorted keys, no blanks, ASCII).

    ``terms``: what the reviewer asks of an approval (``_terms``), so that a policy that asks for more finds no verdict
    that was given for less.

    ``_meta`` and ``task`` are left out because they differ between retries. ``realm`` distinguishes servers of the same
    name (``ports.Ports``). ``during`` is the ``calls_digest``: "Really delete?" is another question if another thing is
    deleted.
    """
    bound = {
        "server": server,
        "caller": caller,
        "realm": realm,
        "method": method,
        "calls": [[call.method, call.tool] for call in calls],
        "during": during,
        "reviewer": reviewer,
        "params": {name: value for name, value in params.items() if name not in ("_meta", "task")},
        "models": list(models),
        "answer": answer,
        **({"terms": dict(terms)} if terms else {}),
    }
    text = json.dumps(bound, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def shown(review: Review) -> str:
    """The SHA-256 of the UI that a review shows; "" if it shows none."""
    return "" if review.ui is None else review.ui.sha256


def calls_digest(origin: Origin, round: str) -> str:
    """The digest of the calls in flight to which a request of ``round`` may belong; "" without one. If their params are
    not kept, it is that of this round only, so that no other request gets the verdict."""
    params = [one for of_call in origin.params for one in of_call]
    if origin.calls and (not params or None in params):
        return f"round {round}"
    digests = sorted(map(call_digest, params))
    if len(digests) < 2:
        return "".join(digests)
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()


def call_digest(params: bytes | None) -> str:
    """The digest of a call's params, the same for each retry; "" if the call is unknown."""
    if params is None:
        return ""
    try:
        return params_digest(params)
    except (ValueError, RecursionError):  # no canonical form: bind the verdict to the raw bytes instead
        return hashlib.sha256(params).hexdigest()


MAX_ARGUMENTS: Final = 256 * 1024  # bytes of a call's arguments that reviewers see
MAX_DEPTH: Final = 64
MAX_VALUES: Final = 50_000
LEFT_OUT: Final = frozenset({"_meta", "task", "requestState", "inputResponses"})


class Context(msgspec.Struct, frozen=True):
    """The request and decision that a new review is made from. ``now`` is in Unix seconds."""

    compiled: CompiledPolicy
    policy_hash: str
    round: Round
    request: Request
    decision: Decision
    decision_id: str
    now: float
    realm: str = ""
    ui: UiRef | None = None
    """The server's own UI that the form names, if a page can show it."""


def of_request(at: Context, escalated: Escalated) -> Review:
    """A review of a request, before the gate acts on it. The caller assigns the ID."""
    rule, allowed = _rule(at), escalated.allowed
    params = at.request.params if allowed is None else allowed.params
    ui = _ui(at.ui, escalated) if at.ui is not None and escalated.ui else None
    bound = _digest(at, escalated.reviewer, params, () if allowed is None else allowed.models, ui=ui)
    return _review(
        at, ui=ui,
        reviewer=escalated.reviewer, timeout=escalated.timeout, late=escalated.late,
        unsent=unsent(at.compiled, rule, allowed, at.request),
        stage="request", digest=bound, lookup=bound, params=params, show=rule.show, why=escalated.why,
        bounds=None if allowed is None else _bounds(at.compiled, rule, allowed, at.request.params),
        changed=() if allowed is None else allowed.changed,
        worst_usd=None if allowed is None else worst_of(at.compiled, allowed.models[0], allowed.params).usd,
    )  # fmt: skip


def _ui(ref: UiRef, escalated: Escalated) -> ReviewUi:
    origins = escalated.ui_origins if ref.dialect == "rich" else ()  # SEP-3118 negotiates the MIME type, which is HTML
    return ReviewUi(uri=ref.uri, dialect=ref.dialect, context=ref.context, origins=origins)


def lookup_of_answer(at: Context, allowed: Allowed) -> str:
    """The lookup of all reviews of a model's answers to the same request, whatever the answer is."""
    assert allowed.review_answer is not None
    return _digest(at, allowed.review_answer, allowed.params, ("answer", *allowed.models))


def of_answer(at: Context, allowed: Allowed, result: bytes) -> Review:
    """A review of a model's answer, before the server gets it."""
    rule, reviewer = _rule(at), allowed.review_answer
    assert reviewer is not None
    answer: Mapping[str, Any] = decode(result)
    bound = _digest(at, reviewer, allowed.params, ("answer", *allowed.models), answer)
    return _review(
        at, reviewer=reviewer, timeout=timeout_of(at.compiled, reviewer),
        late=seconds(at.compiled.policy.reviewers[reviewer].late_verdict), stage="answer", digest=bound,
        lookup=lookup_of_answer(at, allowed), unsent=unsent(at.compiled, rule, allowed, at.request),
        params=allowed.params, show=rule.show, why="", bounds=None, changed=allowed.changed, worst_usd=None,
        answer=answer,
    )  # fmt: skip


def timeout_of(compiled: CompiledPolicy, reviewer: str) -> float:
    """The reviewer's own timeout, in seconds."""
    return seconds(compiled.policy.reviewers[reviewer].timeout)


def gone(policy: Policy, review: Review) -> str | None:
    """Why the current policy no longer asks for this review, which an older policy opened; None if it still does.

    Only the review is compared: the rule and the reviewer must exist, the rule must ask that reviewer, and the reviewer
    must ask for the same approvals.
    """
    rule = next((rule for rule in policy.rules if rule.name == review.rule), None)
    if review.reviewer not in policy.reviewers or rule is None:
        what = f"rule {review.rule!r}" if rule is None else f"reviewer {review.reviewer!r}"
        return f"the policy was reloaded and no longer has {what}"
    asks = (
        rule.reviewer
        if isinstance(rule, EscalateRule) and review.stage == "request"
        else getattr(rule, "review_answer", None)
    )
    if asks != review.reviewer:
        return f"the policy was reloaded, and rule {review.rule!r} no longer asks reviewer {review.reviewer!r}"
    if review.ui is not None and isinstance(rule, EscalateRule):
        if rule.ui == "hide":
            return f"the policy was reloaded, and rule {review.rule!r} no longer shows the server's own UI"
        if review.ui.dialect == "rich" and set(review.ui.origins) != set(rule.ui_origins):
            return f"the policy was reloaded, and rule {review.rule!r} now has other ui_origins"
    asked = _votes(policy, review.reviewer)
    return (
        None
        if all(getattr(review, name) == value for name, value in asked.items())
        else f"the policy was reloaded, and reviewer {review.reviewer!r} now asks for other approvals"
    )


def _review(at: Context, *, timeout: float, **values: Any) -> Review:
    origin, request = at.round.origin, at.request
    policy = at.compiled.policy
    after = policy.reviewers[values["reviewer"]].after
    return Review(
        **_votes(policy, values["reviewer"]),
        also_from=None if after is None else at.now + seconds(after),
        id="",
        created=at.now,
        expires=at.now + timeout,
        rule=at.decision.rule or "",
        policy_hash=at.policy_hash,
        decision_id=at.decision_id,
        server=origin.server,
        caller=origin.caller,
        era=origin.era,
        revision=origin.revision,
        kind=request.kind,
        mode=None if request.kind == "sampling" else request.mode,
        calls=origin.calls,
        arguments=_arguments(at.round.arguments),
        **values,
    )


def _digest(
    at: Context,
    reviewer: str,
    params: Mapping[str, Any],
    models: tuple[str, ...],
    answer: Mapping[str, Any] | None = None,
    *,
    ui: ReviewUi | None = None,
) -> str:
    method = "sampling/createMessage" if at.request.kind == "sampling" else "elicitation/create"
    origin = at.round.origin
    return digest(
        server=origin.server, caller=origin.caller, realm=at.realm, method=method, calls=origin.calls,
        during=calls_digest(origin, at.round.id),
        reviewer=reviewer, params=params, models=models, answer=answer,
        terms=_terms(at.compiled.policy, reviewer) | ({} if ui is None else _ui_terms(ui)),
    )  # fmt: skip


def _ui_terms(ui: ReviewUi) -> dict[str, Any]:
    return {"ui": ui.uri} | ({"ui_origins": sorted(ui.origins)} if ui.origins else {})


def _votes(policy: Policy, reviewer: str) -> dict[str, Any]:
    """What the reviewer asks of an approval, as fields of a review."""
    found = policy.reviewers[reviewer]
    return {
        "approvals": found.approvals,
        "not_caller": found.not_ == "caller",
        "groups": tuple(found.groups),
        "also": tuple(Also(name, tuple(policy.reviewers[name].groups)) for name in found.also),
    }


def _terms(policy: Policy, reviewer: str) -> dict[str, Any]:
    """``_votes`` as JSON, without what every reviewer has by default."""
    defaults = {"approvals": 1, "not_caller": False, "groups": (), "also": ()}
    asked = _votes(policy, reviewer)
    return {name: msgspec.to_builtins(value) for name, value in asked.items() if value != defaults[name]}


def _bounds(compiled: CompiledPolicy, rule: ModelRule, allowed: Allowed, params: Mapping[str, Any]) -> EditBounds:
    with_ = rule.with_
    asked = params["maxTokens"]  # the server's own maximum must not be exceeded (R3)
    most = {
        name: max_output_tokens(with_, compiled.model(name), compiled.catalogue[name], asked) for name in allowed.models
    }
    return EditBounds(
        models=allowed.models,
        max_tokens=most,
        temperature_min=None if with_.temperature is None else with_.temperature.min,
        temperature_max=None if with_.temperature is None else with_.temperature.max,
        drops_system_prompt=with_.system_prompt == "drop",
        prepended=with_.system_prompt.prepend if isinstance(with_.system_prompt, Prepend) else "",
    )


def _rule(at: Context) -> ModelRule:
    rule = at.compiled.policy.rules[at.decision.index]
    assert isinstance(rule, AllowRule | EscalateRule)
    return rule


def _arguments(params: bytes | None) -> Any:
    """The params of the call as reviewers see them; None if they are too large or not strict JSON."""
    if params is None or len(params) > MAX_ARGUMENTS:
        return None
    try:
        found = decode(params, max_bytes=MAX_ARGUMENTS, max_depth=MAX_DEPTH, max_values=MAX_VALUES)
    except JsonFault:
        return None
    return {name: value for name, value in found.items() if name not in LEFT_OUT} if isinstance(found, dict) else None
