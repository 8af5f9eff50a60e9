"""Pure. Results of a case's requests, and their differences from ``expect``.

The gate's record has the result of a request. The rules that it passed, and the reasons, come from ``decide.explain``,
because the record has only the rules that were tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec
import msgspec.structs

from samplegate.audit.record import Record
from samplegate.durations import duration_text
from samplegate.policy import claims
from samplegate.policy.capabilities import can_forward, offer_to
from samplegate.policy.catalogue import Worst
from samplegate.policy.claims import Claimant
from samplegate.policy.decide import CompiledPolicy, after_refusal, explain, unless_matched, worst_of
from samplegate.policy.decisions import (
    Decision,
    DenyAs,
    Escalated,
    FixedAnswer,
    LeftOpen,
    RuleStep,
    Shadow,
    Situation,
    wire_answer,
)
from samplegate.policy.ledger import SCALE
from samplegate.policy.schema import seconds
from samplegate.policytest import suite
from samplegate.policytest.load import Moment, PlacedCase
from samplegate.policytest.suite import Asked, Case, Expect
from samplegate.protocol import results, server_requests
from samplegate.protocol.outcomes import Denied, Reason, Unanswered
from samplegate.protocol.requests import BadRequest, ClientCapabilities, Origin, Request
from samplegate.protocol.rounds import Item
from samplegate.reviews import edits
from samplegate.reviews.review import Verdict

Object: TypeAlias = dict[str, Any]
End: TypeAlias = Literal["taken", "timeout", "otherwise", "limit", "none"]
"""``timeout``: a rule matched, but no verdict or answer came in time."""

_ROUNDING: Final = 1e-6  # share of the amount that rounding to whole units may lose
_USD_DECIMALS: Final = 9  # of a dollar: a thousandth of the lowest price of a token
_OTHER_DECIMALS: Final = 4
_WAIT_TOLERANCE: Final = 0.001  # seconds by which a wait may differ
_NOTHING: Final = Worst(0, 0, 0)
_OF_MODELS: Final = frozenset({Reason.MODEL, Reason.CONTENT})
"""Reasons that cannot be expected, because cases contain no models' texts."""


class RuleWalk(msgspec.Struct, frozen=True):
    """One walk of a request along the rules: its first rule, the number of rules considered, and where and how it ended
    (``none``: after the last rule)."""

    request: Request
    first: int
    looked: int
    end: End
    place: int
    """The index of the rule where it ended, -1 if no rule applied."""
    shadows: tuple[Shadow, ...]


class StepRequest(msgspec.Struct, frozen=True):
    """A step's request as the gate gets it, parsed once for all repetitions."""

    asked: Asked
    compiled: CompiledPolicy
    item: Item
    client: ClientCapabilities
    who: Claimant

    @property
    def situation(self) -> Situation:
        """The decision's other inputs for the request."""
        return Situation(
            not isinstance(self.item.request, BadRequest) and can_forward(self.item.request, self.client),
            self.item.offered,
        )


class Played(msgspec.Struct):
    """The gate's record of one request, and the calls of its ports."""

    scene: StepRequest
    record: Record | None = None
    verdict: Verdict | None = None
    """The reviewer's decision on the request."""
    verdict_problem: str | None = None
    """Why the case's verdict does not apply to it."""
    consulted: bool = False
    """Whether a reviewer was asked."""
    sampled: bool = False
    """Whether a model was called."""
    waits: float | None = None
    drawn: Callable[[str, str], int] = lambda _limit, _key: 0
    """Units of a limit that are drawn for a key right after the request."""


class StepOutcome(msgspec.Struct, frozen=True):
    """The result of a request. ``wire`` is the server's result, by ``decisions.wire_answer``."""

    decision: Decision
    got: Object
    """Actual values by the names of ``Expect``."""
    steps: tuple[RuleStep, ...] = ()
    walks: tuple[RuleWalk, ...] = ()

    @property
    def wire(self) -> str | None:
        """The server's result in one word; None if it depends on a model, a reviewer or the client."""
        return self.got["wire"]  # type: ignore[no-any-return]


class Mismatch(msgspec.Struct, frozen=True):
    """One expectation that was not met, with both values as printed. ``where`` is the step's place, empty for a case
    without steps."""

    what: str
    expected: Any
    got: Any
    where: str = ""


class CaseResult(msgspec.Struct, frozen=True):
    """The result of one case, which passed if there are no mismatches."""

    case: Case
    line: int
    mismatches: tuple[Mismatch, ...]
    outcome: StepOutcome
    """The result of the first unexpected request, else of the last one."""
    walks: tuple[RuleWalk, ...] = ()
    """Every walk of its requests along the rules, without duplicates."""


def step_request(asked: Asked, compiled: CompiledPolicy) -> StepRequest:
    """A step's request with its claimant. Without names, all calls of one tool in a case are one call; with no call,
    the session is the call."""
    origin = suite.origin(asked)
    method, params = suite.wire(asked)
    client = suite.capabilities(asked.client or [])
    item = server_requests.item(method, msgspec.json.encode(params), origin, offer_to(compiled, origin, client))
    return StepRequest(asked, compiled, item, client, _claimant(asked, origin))


def _claimant(asked: Asked, origin: Origin) -> Claimant:
    session = f"{origin.server} {origin.caller}"
    if asked.call is None:
        names = [f"{session} {call.method} {call.tool or ''}" for call in origin.calls]
    else:
        names = [asked.call] if isinstance(asked.call, str) else asked.call
    return Claimant(origin, tuple(names) or (session,), session, "")


# -- results
# ----------------------------------------------------------------------------------------------------------------


def step_outcome(played: Played) -> StepOutcome:
    """The result of a completed request."""
    scene, record = played.scene, played.record
    assert record is not None, "the gate records every request"
    request = scene.item.request
    if isinstance(request, BadRequest) or record.reason is Reason.BRAKE:
        decision = Decision(LeftOpen(), "none", None, record.reason, record.detail, declared=scene.item.offered)
        return StepOutcome(decision, _actual_values(played, record, decision, None))
    decision, cost = Decision(LeftOpen(), "none", None, Reason.NO_RULE), None
    steps: list[RuleStep] = []
    walks: list[RuleWalk] = []
    for left in (*record.tried, None):  # the rules that were left, then the final one
        first, before = decision.index + 1, decision
        decision, looked = explain(scene.compiled, request, scene.situation, first)
        decision = msgspec.structs.replace(decision, shadows=(*before.shadows, *decision.shadows))
        end, why = _end(played, record, decision, left)
        walks.append(RuleWalk(request, first, len(looked), end, decision.index, decision.shadows))
        edited = _edited(played, decision)
        decision = edited if isinstance(edited, Decision) else decision
        known = (
            None
            if decision.allowed is None
            else worst_of(scene.compiled, decision.allowed.models[0], decision.allowed.params).usd
        )
        cost = cost if known is None else known
        if end == "limit":
            looked[-1] = msgspec.structs.replace(
                looked[-1], taken=left is None, why=f"{why}; on_limit: {decision.on_limit}"
            )
            decision = (
                decision if left is not None else after_refusal(scene.compiled, request, scene.situation, decision, why)
            )
        elif clause := _verdict_clause(played, record, decision, edited, end):
            looked[-1] = msgspec.structs.replace(looked[-1], why=f"{looked[-1].why}; {clause}")
        elif record.reason is Reason.LIMIT:
            decision = unless_matched(decision, before, steps[-1].why)
        steps += looked
    return StepOutcome(decision, _actual_values(played, record, decision, cost), tuple(steps), tuple(walks))


def _end(played: Played, record: Record, decision: Decision, left: str | None) -> tuple[End, str]:
    """How a walk ended, with the reason if a limit had no room. ``left`` is the record's reason for leaving a rule."""
    if left is not None:
        why = left.removeprefix(f"{decision.rule}: ")
        return ("limit", why) if why.startswith("limit ") else ("timeout", "")
    if record.reason is Reason.LIMIT and decision.reason is Reason.RULE and not played.consulted:
        return "limit", record.detail.removeprefix(f"rule {decision.rule}: ")
    if record.reason is Reason.TIMEOUT and isinstance(decision.act, Escalated):
        return "timeout", ""
    return (
        "taken" if decision.reason is Reason.RULE else "otherwise" if decision.reason is Reason.CANNOT else "none",
        "",
    )


def _edited(played: Played, decision: Decision) -> Decision | str | None:
    """The decision on the request with the reviewer's edits, or the reason for none; None without edits."""
    if played.verdict is None or played.verdict.edits is None or not isinstance(decision.act, Escalated):
        return None
    request = played.scene.item.request
    assert not isinstance(request, BadRequest)
    again = edits.decide_edited(played.scene.compiled, request, played.scene.situation, decision, played.verdict.edits)
    return (
        again
        if isinstance(again, str)
        else msgspec.structs.replace(decision, act=msgspec.structs.replace(decision.act, allowed=again))
    )


def _verdict_clause(played: Played, record: Record, decision: Decision, edited: Decision | str | None, end: End) -> str:
    """The reviewer's decision as a clause; empty if no reviewer was asked or the case has no verdict."""
    if (
        not isinstance(decision.act, Escalated)
        or not played.consulted
        or played.scene.asked.decided is None
        or played.verdict_problem is not None
    ):
        return f"the model timed out; on_timeout: {decision.on_timeout}" if end == "timeout" else ""
    if played.verdict is None:
        return (
            f"reviewer {decision.act.reviewer} did not decide within {duration_text(decision.act.timeout)};"
            f" on_timeout: {decision.on_timeout}"
        )
    if isinstance(edited, str):
        return f"the edits cannot be applied: {edited}"
    if end == "timeout":
        return f"a reviewer approved it, but the model timed out; on_timeout: {decision.on_timeout}"
    if record.reason is Reason.LIMIT:
        return record.detail.removeprefix(f"rule {decision.rule}: ")
    return {
        "approve": "a reviewer approved it",
        "reject": "a reviewer rejected it",
        "answer": "a reviewer answered it",
    }[played.verdict.word]


def _actual_values(played: Played, record: Record, decision: Decision, cost: int | None) -> Object:
    """The actual values by the names of ``Expect``."""
    item, era, act, asked = played.scene.item, played.scene.who.origin.era, decision.act, decision.allowed
    found: Object = {
        "effect": decision.effect,
        "rule": decision.rule,
        "reason": decision.reason.value,
        "shadows": [shadow.rule for shadow in decision.shadows],
        "declared": decision.declared,
        "ruled": None if decision.ruled is None else decision.ruled.value,
        "outcome": record.outcome if isinstance(act, FixedAnswer | DenyAs | LeftOpen) else None,
        "wire": wire_answer(item.kind, era, decision),
        "limit": record.refused_by,
        "waits": played.waits,
        "cost": None if cost is None else cost / SCALE["usd"],
    }
    if asked is not None:
        found |= {
            "models": list(asked.models),
            "model": asked.models[0],
            "params": dict(asked.params),
            "max_tokens": asked.params.get("maxTokens"),
        }
        found["review_answer"] = asked.review_answer
    if isinstance(act, FixedAnswer):
        found["content"] = act.result.get("content")
    elif isinstance(act, DenyAs):
        found["as"] = act.as_ if decision.declared else None  # an error has no action
    elif isinstance(act, Escalated):
        found["reviewer"] = act.reviewer
        if played.consulted and played.scene.asked.decided is not None and played.verdict_problem is None:
            found |= _verdict_values(played, record, decision)
    return found


def _verdict_values(played: Played, record: Record, decision: Decision) -> Object:
    """The result of the verdict on an escalated request."""
    verdict, kind, era = played.verdict, played.scene.item.kind, played.scene.who.origin.era
    reason = Reason.RULE if record.reason in _OF_MODELS else record.reason
    if (
        played.sampled
        and decision.allowed is not None
        and decision.allowed.review_answer is not None
        and reason is not Reason.TIMEOUT
    ):
        return {"wire": None}  # it depends on the reviewer of the answer
    as_ = "decline" if reason is Reason.REVIEW else "cancel"
    found: Object = {
        "outcome": record.outcome,
        "reason": reason.value,
        "as": as_ if record.outcome == "denied" else None,
    }
    if record.outcome != "answered":
        refused = (
            Denied(reason, "decline" if reason is Reason.REVIEW else "cancel")
            if record.outcome == "denied"
            else Unanswered(reason)
        )
        return found | {"wire": results.refused_answer(kind, era, refused)}
    result = {} if verdict is None or verdict.result is None else verdict.result
    return found | {"wire": result.get("action", "result"), "content": result.get("content")}


# -- expectations
# ----------------------------------------------------------------------------------------------------------------


def compare(placed: PlacedCase, played: Iterable[tuple[Moment, int, Played]]) -> CaseResult:
    """Compare a case with the results of its requests, each with its step and the number of its repetition."""
    mismatches: list[Mismatch] = []
    walks: dict[tuple[int, int, int, str, int], RuleWalk] = {}
    result, differs = None, None
    for moment, turn, one in played:
        found = step_outcome(one)
        for walk in found.walks:
            walks.setdefault((moment.line, walk.first, walk.looked, walk.end, walk.place), walk)
        result = found if differs is None else result
        expect = moment.step.expect
        if expect is None or differs is moment:
            continue
        different = list(_differences(expect, one, found, last=turn == moment.step.repeat))
        mismatches += [msgspec.structs.replace(each, where=_where(moment, turn)) for each in different]
        differs = moment if different else differs
    assert result is not None, "a case has a request"
    return CaseResult(placed.case, placed.line, tuple(mismatches), result, tuple(walks.values()))


def _differences(expect: Expect, played: Played, found: StepOutcome, *, last: bool) -> Iterator[Mismatch]:
    """The differences from ``expect``. Draws on limits are compared only after the last repetition."""
    if (verdict_problem := _verdict_problem(played, found)) is not None:
        yield Mismatch(
            "verdict" if played.scene.asked.votes is None else "votes",
            msgspec.to_builtins(played.scene.asked.decided),
            verdict_problem,
        )
    for what, expected in msgspec.to_builtins(expect).items():
        got = found.got.get(what)
        match what:
            case "reason" if expected == found.got["ruled"]:
                continue  # "no_rule" may be expected although the capability was not declared
            case "params":
                yield from _members(what, expected, got or {}, same)
            case "limits":
                yield from (
                    _members(what, expected, {name: _drawn(played, found, name) for name in expected}, _equals_rounded)
                    if last
                    else ()
                )
            case "cost":
                if not _equals_rounded(expected, got):
                    yield Mismatch(what, _number(expected), _number(got))
            case "waits":
                if got is None or abs(got - seconds(expected)) > _WAIT_TOLERANCE:
                    yield Mismatch(what, expected, None if got is None else f"{got:g}s")
            case _:
                if not same(expected, _words(got) if isinstance(expected, str) else got):
                    yield Mismatch(what, expected, got)


def _verdict_problem(played: Played, found: StepOutcome) -> str | None:
    """Why the case's verdict does not apply to the request, None if it does."""
    if played.scene.asked.decided is None or played.consulted:
        return played.verdict_problem
    return f"no review (effect: {found.decision.effect})"


def _drawn(played: Played, found: StepOutcome, limit: str) -> float | str:
    """The amount of a limit that is drawn for the request's keys, in the limit's unit; with several candidate calls,
    the highest. A text if it cannot be computed."""
    specs = played.scene.compiled.limit_specs
    if limit not in specs:
        return "the policy has no such limit"
    allowed = found.decision.allowed
    who = msgspec.structs.replace(
        played.scene.who, rule=found.decision.rule or "", model=None if allowed is None else allowed.models[0]
    )
    draws = claims.charges_of([limit], specs, who, _NOTHING)
    if isinstance(draws, str):
        return draws
    quantity = specs[limit].quantity
    units = max((played.drawn(limit, draw.key) for draw in draws), default=0)
    return round(units / SCALE[quantity], _USD_DECIMALS if quantity == "usd" else _OTHER_DECIMALS)


def _where(moment: Moment, turn: int) -> str:
    """A place such as ``steps.1, line 14, request 3 of 10``; empty for a case without steps."""
    if not moment.place:
        return ""
    return f"{moment.place}, line {moment.line}" + (
        f", request {turn} of {moment.step.repeat}" if moment.step.repeat > 1 else ""
    )


def _members(
    what: str, expected: Object, got: Mapping[str, Any], equal: Callable[[Any, Any], bool]
) -> Iterator[Mismatch]:
    for name, value in expected.items():
        if not equal(value, got.get(name)):
            yield Mismatch(f"{what}.{name}", _number(value), _number(got.get(name)))


def _equals_rounded(expected: float, got: object) -> bool:
    """Whether the values are equal to the written number of decimals; a whole number must be exact."""
    if not isinstance(got, float):
        return False
    decimals = len(f"{expected:.12f}".rstrip("0").partition(".")[2])
    rounding = 0.5 * 10**-decimals if decimals else 0.0
    return abs(expected - got) <= rounding + _ROUNDING * abs(expected)


def _number(value: Any) -> Any:
    """A number for printing, without trailing zeros."""
    if not isinstance(value, float):
        return value
    value = round(value, _USD_DECIMALS)
    return int(value) if value.is_integer() else value


def _words(content: Any) -> Any:
    """The text of content that is one text block, so that a case may expect plain text."""
    match content:
        case {"type": "text", "text": str(text)} | [{"type": "text", "text": str(text)}]:
            return text
        case _:
            return content


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal: 1 equals 1.0, and neither equals true (T15)."""
    match one, other:
        case dict(), dict():
            return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
        case list() | tuple(), list() | tuple():
            return len(one) == len(other) and all(map(same, one, other))
        case _:
            return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)
