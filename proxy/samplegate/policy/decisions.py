"""Pure. Decisions about a request, and their outcomes on the wire. ``decide.py`` makes them, ``gate/gate.py`` carries
them out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from samplegate.policy.schema import Rule
from samplegate.protocol.frames import Era
from samplegate.protocol.outcomes import Denied, Reason, Unanswered
from samplegate.protocol.results import BAD_PARAMS, INTERNAL, REJECTED, refused_answer


class Allowed(msgspec.Struct, frozen=True):
    """A model answers. ``models`` are the policy's names, best first; ``params`` are already within the rule's
    bounds."""

    models: tuple[str, ...]
    """The models that fit the request. The first is called; the others are fallbacks if one fails before its first
    token (none with `fallback: false`)."""
    params: Mapping[str, Any]
    """MCP's createMessage params for the first model, after the rule's `with` (max_tokens, temperature, secrets, tools,
    ...)."""
    timeout: float | None
    """The rule's own timeout in seconds, or None."""
    changed: tuple[str, ...] = ()
    """Names of the params that the rule's bounds changed, for the log."""
    redacted: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Number of redacted secrets by pattern."""
    review_answer: str | None = None
    """The reviewer who sees the answer before it is released."""


class FixedAnswer(msgspec.Struct, frozen=True):
    """The policy's fixed content answers. ``result`` is the complete createMessage or elicitation result in the newest
    shape."""

    result: Mapping[str, Any]


class Forwarded(msgspec.Struct, frozen=True):
    """The client answers."""

    verify: bool
    timeout: float | None


class Escalated(msgspec.Struct, frozen=True):
    """A reviewer decides."""

    reviewer: str
    allowed: Allowed | None
    """Sampling: the model call after an approval; None if no model can be called, so that the reviewer can only answer
    or reject. Elicitation: None."""
    timeout: float
    """Seconds that the review waits for a verdict."""
    late: float
    """Seconds for which a verdict can be used after it was given."""
    why: str = ""
    """Why no model can be called."""
    ui: bool = False
    """Whether the page shows the server's own UI for the form."""
    ui_origins: tuple[str, ...] = ()
    """The origins from which the page may load a UI that the server gives as a URL."""


class DenyAs(msgspec.Struct, frozen=True):
    """A rule denies the request."""

    as_: Literal["cancel", "decline"]


class LeftOpen(msgspec.Struct, frozen=True):
    """The request stays unanswered."""


Act: TypeAlias = Allowed | FixedAnswer | Forwarded | Escalated | DenyAs | LeftOpen


class Shadow(msgspec.Struct, frozen=True):
    """The effect that a shadow rule would have had."""

    rule: str
    effect: str


class RuleStep(msgspec.Struct, frozen=True):
    """One rule that was considered, for `explain`."""

    rule: str
    effect: str
    taken: bool
    why: str
    """The condition that did not hold, with the actual value; or why the effect could not be carried out."""


TRIED: Final = "it matched, but a timeout or a limit ended it"
NO_MATCH: Final = "no rule matched"
NOT_CARRIED_OUT: Final = "it matched, but could not be carried out"


class Miss(msgspec.Struct, frozen=True, gc=False):
    """A rule that did not decide: the first condition that did not match, or why a rule that matched did not decide."""

    rule: str
    condition: str = ""
    """The condition's name, with ``?`` if the request's value is unknown or ambiguous."""
    why: str = ""


class Misses(msgspec.Struct, frozen=True):
    """The rules that were looked at and did not decide. A decision keeps only their indices: most are never named."""

    rules: Sequence[Rule]
    """All rules of the policy."""
    excluded: Sequence[str]
    """By index: the condition that the server, the caller or the call does not meet; empty if they meet all."""
    tested: Sequence[tuple[int, str, str]]
    """The other rules that were tested: index, condition, and why one that matched did not decide."""
    start: int
    end: int
    """The first rule that was looked at, and the one that decided."""
    before: Misses | None = None
    """What was looked at earlier, up to the rule before ``start``, which was tried."""

    def __iter__(self) -> Iterator[Miss]:
        """Every rule that did not decide, in the policy's order."""
        if self.before is not None:
            yield from self.before
            yield Miss(self.rules[self.start - 1].name, why=TRIED)
        tested = {index: (condition, why) for index, condition, why in self.tested}
        for index in range(self.start, self.end):
            if condition := self.excluded[index]:
                yield Miss(self.rules[index].name, condition)
            else:
                yield Miss(self.rules[index].name, *tested.get(index, ()))


class Decision(msgspec.Struct, frozen=True):
    """The decision on one request."""

    act: Act
    effect: Literal["allow", "answer", "forward", "escalate", "deny", "none"]
    rule: str | None
    reason: Reason
    detail: str = ""
    """For the log and stderr; the server gets it only with `explain_to_server`."""
    on_timeout: Literal["next", "unanswered", "deny"] = "unanswered"
    index: int = -1
    """The rule's index, so that `on_timeout: next` can continue after it."""
    shadows: tuple[Shadow, ...] = ()
    limits: tuple[str, ...] = ()
    """The limits that the decision draws on."""
    on_limit: Literal["next", "unanswered", "deny", "wait"] = "unanswered"
    declared: bool = True
    """Whether the needed capability was declared to the server. If not, the server gets error -32602 or its call ends,
    whatever the rule (R8, R31)."""
    ruled: Reason | None = None
    """For an undeclared request: the reason by the rules alone."""
    missed: Misses | None = None
    """The rules before, and why they did not decide; None if no rule was looked at."""

    @property
    def allowed(self) -> Allowed | None:
        """The model call, now or after an approval; None if there is none."""
        return (
            self.act if isinstance(self.act, Allowed) else self.act.allowed if isinstance(self.act, Escalated) else None
        )


class Situation(msgspec.Struct, frozen=True):
    """Inputs of a decision besides the request and the policy."""

    can_forward: bool = True
    """Whether the client declared this kind, mode and sub-capability."""
    declared: bool = True
    """Whether they were declared to the server."""


def code_of(decision: Decision) -> int:
    """The error code of a request that is denied or left open by a decision (R8, R12, R31)."""
    if not decision.declared or decision.reason is Reason.MALFORMED:
        return BAD_PARAMS
    return INTERNAL if decision.reason is Reason.ROUNDS else REJECTED


def refusal(decision: Decision) -> Denied | Unanswered:
    """The outcome of a decision that denies a request or leaves it open."""
    if isinstance(decision.act, DenyAs):
        return Denied(decision.reason, decision.act.as_, detail=decision.detail, code=code_of(decision))
    return Unanswered(decision.reason, detail=decision.detail, code=code_of(decision))


def wire_answer(kind: str, era: Era, decision: Decision) -> str | None:
    """The server's result of a decision in one word; None if it depends on a model, a reviewer or the client."""
    match decision.act:
        case DenyAs() | LeftOpen():
            return refused_answer(kind, era, refusal(decision))
        case FixedAnswer(result=result):
            return str(result.get("action", "result"))
        case _:
            return None


def detail_without_rule(detail: str, rule: str | None) -> str:
    """A detail for a line that names the rule already."""
    return detail if rule is None else detail.removeprefix(f"rule {rule}: ")
