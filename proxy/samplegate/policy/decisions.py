"""Pure. What may be decided about a request, and what may come of it. Not how: ``decide.py`` decides, ``gate/gate.py``
acts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from samplegate.protocol.frames import Era
from samplegate.protocol.outcomes import Denied, Reason, Unanswered
from samplegate.protocol.results import BAD_PARAMS, INTERNAL, REJECTED, refused_answer


class Allowed(msgspec.Struct, frozen=True):
    """A model is to answer. ``models`` are our names, best first; ``params`` is what the model is asked, already within
    the rule's bounds."""

    models: tuple[str, ...]
    """Those that fit the request: the first is asked, the others stand in for one that fails before its first token
    (none with `fallback: false`)."""
    params: Mapping[str, Any]
    """MCP's createMessage params for the first of them, after the rule's `with` (max_tokens, temperature, secrets,
    tools, ...)."""
    timeout: float | None
    """The rule's own limit in seconds, None for none."""
    changed: tuple[str, ...] = ()
    """What the rule's bounds changed, for the log: names of params."""
    redacted: Mapping[str, int] = msgspec.field(default_factory=dict)
    """How many secrets of which pattern were taken out of the params."""
    review_answer: str | None = None
    """The reviewer who is to see the answer before it is released."""


class FixedAnswer(msgspec.Struct, frozen=True):
    """The operator's own words answer. ``result`` is the whole result in the newest shape (a createMessage or an
    elicitation result)."""

    result: Mapping[str, Any]


class Forwarded(msgspec.Struct, frozen=True):
    """The client is to answer."""

    verify: bool
    timeout: float | None


class Escalated(msgspec.Struct, frozen=True):
    """A person is to decide."""

    reviewer: str
    allowed: Allowed | None
    """Sampling: what a model would be asked if the person approves; None where no model can be asked: then a person can
    only answer or refuse. Elicitation: None."""
    timeout: float
    """Seconds that the review may wait for a verdict."""
    late: float
    """Seconds that a verdict may be used after it was given."""
    why: str = ""
    """Why no model can be asked."""


class DenyAs(msgspec.Struct, frozen=True):
    """Refused by a rule."""

    as_: Literal["cancel", "decline"]


class LeftOpen(msgspec.Struct, frozen=True):
    """Nobody is to answer: Unanswered."""


Act: TypeAlias = Allowed | FixedAnswer | Forwarded | Escalated | DenyAs | LeftOpen


class Shadow(msgspec.Struct, frozen=True):
    """What a shadow rule would have done."""

    rule: str
    effect: str


class RuleStep(msgspec.Struct, frozen=True):
    """One rule that was looked at, for `explain`."""

    rule: str
    effect: str
    taken: bool
    why: str
    """Which condition did not hold, with the value met; or why the effect could not be carried out."""


class Decision(msgspec.Struct, frozen=True):
    """What is to be done with one request."""

    act: Act
    effect: Literal["allow", "answer", "forward", "escalate", "deny", "none"]
    rule: str | None
    reason: Reason
    detail: str = ""
    """For the log and stderr; the server sees it only with `explain_to_server`."""
    on_timeout: Literal["next", "unanswered", "deny"] = "unanswered"
    index: int = -1
    """The place of the rule, so that `on_timeout: next` can go on behind it."""
    shadows: tuple[Shadow, ...] = ()
    limits: tuple[str, ...] = ()
    """The limits that carrying it out draws on."""
    on_limit: Literal["next", "unanswered", "deny", "wait"] = "unanswered"
    declared: bool = True
    """Whether the server was offered what it asks for; if not, it gets error -32602 or its call ends, whatever the rule
    (R8, R31)."""
    ruled: Reason | None = None
    """Where the reason is that it was not offered: the reason that the rules alone came to."""

    @property
    def allowed(self) -> Allowed | None:
        """What a model is to be asked, now or once a person has approved."""
        return (
            self.act if isinstance(self.act, Allowed) else self.act.allowed if isinstance(self.act, Escalated) else None
        )


class Situation(msgspec.Struct, frozen=True):
    """What a decision depends on besides the request and the policy."""

    can_forward: bool = True
    """Whether the client can be asked this kind, mode and sub-capability at all."""
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
    """What the server gets for a decision, in a word; None where a model, a reviewer or the client has a say in it."""
    match decision.act:
        case DenyAs() | LeftOpen():
            return refused_answer(kind, era, refusal(decision))
        case FixedAnswer(result=result):
            return str(result.get("action", "result"))
        case _:
            return None
