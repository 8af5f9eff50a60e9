"""One case played through: its requests one after the other, under the limits and brakes of the policy, in a time of its own. Compares nothing.

What the gate does with a decision, in pure: a brake is asked, the rules are, the limits are charged at their worst case, ``on_limit`` decides what
follows, and the model's answer corrects the charge. Nothing is sampled and nobody waits.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from samplegate.core import claims
from samplegate.core.admission import after_refusal, draws_of, unless_taken, worst_of
from samplegate.core.brakes import Brakes, asker, digest
from samplegate.core.capabilities import can_forward, offer_to
from samplegate.core.catalogue import Worst
from samplegate.core.claims import Claimant
from samplegate.core.decide import Rulebook, explain
from samplegate.core.decisions import Decision, Denied, Escalated, LeftOpen, Reason, Shadow, Situation, Step, Unanswered
from samplegate.core.ledger import Refused
from samplegate.core.policy import Kind, seconds
from samplegate.core.requests import BadRequest, Origin, Request
from samplegate.core.session import doors, shapes
from samplegate.core.trials import scenes
from samplegate.core.trials.accounts import Accounts
from samplegate.core.trials.charges import actual
from samplegate.core.trials.suite import Asked
from samplegate.core.trials.verdicts import Judged, judge
from samplegate.core.trials.wire import wire

End: TypeAlias = Literal["taken", "timeout", "otherwise", "limit", "none"]
"""``timeout``: taken, and no verdict came."""


class Walk(msgspec.Struct, frozen=True):
    """One way of a request along the rules: where it began, how many it came to, and where and how it ended (``none``: past the last)."""

    request: Request
    first: int
    looked: int
    end: End
    place: int
    """Of the rule where it ended, -1 if it came past all."""
    shadows: tuple[Shadow, ...]


class Came(msgspec.Struct, frozen=True):
    """What came of a request."""

    decision: Decision
    steps: tuple[Step, ...] = ()
    walks: tuple[Walk, ...] = ()
    limit: str | None = None
    """The limit that had no room last."""
    waits: float | None = None
    cost: int | None = None
    """At worst, in units of a dollar; None where no model is asked or its price is unknown."""
    judged: Judged | str | None = None
    """What the case's verdict made of it, or why it is none on this request."""
    wire: str | None = None
    """What the server gets, as ``shapes.wire_answer`` says it."""


class Scenery(msgspec.Struct, frozen=True):
    """One step's request, read once however often it is repeated."""

    asked: Asked
    book: Rulebook
    request: Request | BadRequest
    digest: str
    """What is asked, for the brakes."""
    situation: Situation
    who: Claimant
    kind: Kind


_NOTHING_YET: Final = Came(Decision(LeftOpen(), "none", None, Reason.NO_RULE))


class Play:
    """The state of one case."""

    def __init__(self, book: Rulebook) -> None:
        self.accounts = Accounts(book.terms)
        self._brakes = Brakes(book.policy.brakes)

    def ask(self, scenery: Scenery, now: float) -> Came:
        """Put one request; ``now`` is in Unix seconds and never goes back."""
        came = self._asked(scenery, now)
        unused = came.judged is None and all(walk.end != "timeout" for walk in came.walks)
        came = msgspec.structs.replace(came, wire=_wire(scenery, came))
        if scenery.asked.verdict is None or not unused:
            return came
        return msgspec.structs.replace(came, judged=f"nobody is asked for one: the effect is {came.decision.effect}")

    def _asked(self, scenery: Scenery, now: float) -> Came:
        self.accounts.advance(now)
        if isinstance(scenery.request, BadRequest):
            declared = scenery.situation.declared
            return Came(Decision(LeftOpen(), "none", None, Reason.MALFORMED, scenery.request.message, declared=declared))
        braked = None
        if scenery.situation.declared:
            braked = self._brakes.asked(asker(scenery.who.origin), scenery.who.call_ids, scenery.digest, now)
        if braked is not None:
            return Came(Decision(LeftOpen(), "none", None, Reason.BRAKE, braked.detail))
        came, first = _NOTHING_YET, 0
        while first >= 0:
            came, first = self._once(scenery, scenery.request, came, first, now)
        return came

    def _once(self, scenery: Scenery, request: Request, before: Came, first: int, now: float) -> tuple[Came, int]:
        """One walk from rule ``first`` on. Where a limit or a verdict that is missing sends the request on, the second value is the rule to go on
        with, else -1."""
        decision, steps = explain(scenery.book, request, scenery.situation, first)
        decision = msgspec.structs.replace(decision, shadows=(*before.decision.shadows, *decision.shadows))
        if before.walks and before.walks[-1].end == "limit":
            decision = unless_taken(decision, before.decision, before.steps[-1].why)
        judged = _judged(scenery, request, decision)
        refused = self._charge(scenery, decision, judged, now)
        walk = Walk(request, first, len(steps), _end(decision, refused, judged), decision.index, decision.shadows)
        cost = _cost(scenery.book, decision)
        came = Came(decision, (*before.steps, *steps), (*before.walks, walk), before.limit, before.waits, before.cost if cost is None else cost)
        if refused is not None:
            return _refused(scenery, request, came, refused)
        return self._told(scenery, came, judged, now)

    def _told(self, scenery: Scenery, came: Came, judged: Judged | str | None, now: float) -> tuple[Came, int]:
        """What a verdict makes of it."""
        if not isinstance(judged, Judged):
            return msgspec.structs.replace(came, judged=judged), -1
        steps = (*came.steps[:-1], msgspec.structs.replace(came.steps[-1], why=f"{came.steps[-1].why}; {judged.detail}"))
        if judged.decision is not came.decision:  # by the person's edits: it is admitted once more, as what it has become
            before, came = came.decision, msgspec.structs.replace(came, decision=judged.decision, cost=_cost(scenery.book, judged.decision))
            refused = self._charge(scenery, judged.decision, judged, now, before=before)
            if refused is not None:
                judged = msgspec.structs.replace(judged, outcome="unanswered", reason=Reason.LIMIT, act="nothing", detail=_sentence(refused))
            if isinstance(refused, Refused):
                came = msgspec.structs.replace(came, limit=refused.limit)
        came = msgspec.structs.replace(came, steps=steps)
        if judged.reason is Reason.TIMEOUT and came.decision.on_timeout == "next":
            return came, came.decision.index + 1
        return msgspec.structs.replace(came, judged=judged), -1

    def _charge(
        self, scenery: Scenery, decision: Decision, judged: Judged | str | None, now: float, *, before: Decision | None = None
    ) -> Refused | str | None:
        """Reserve what it draws; None if there was room, else which limit had none, or why that cannot be told.

        ``before``: what it was before a person's edits, as which it counts already.
        """
        draws = draws_of(scenery.book, decision, scenery.who)
        counted = () if before is None else draws_of(scenery.book, before, scenery.who)
        if isinstance(draws, str) or isinstance(counted, str):
            return draws if isinstance(draws, str) else None
        draws = claims.carried(draws, [draw for draw in counted if scenery.book.terms[draw.limit].quantity == "requests"])
        if not draws:
            return None
        reserved = self.accounts.reserve(draws, now)
        if isinstance(reserved, Refused):
            return reserved
        if isinstance(judged, Judged) and judged.decision is not decision:
            self.accounts.settle(reserved, actual(scenery.book, decision, scenery.asked, draws, "nothing"), now)  # edited: all but the request
            return None
        act = judged.act if isinstance(judged, Judged) else "ask"
        truth = actual(scenery.book, decision, scenery.asked, draws, act)
        hold = scenery.asked.hold if act == "ask" else None  # with a person's answer, or without one, the request is over
        if hold:
            self.accounts.hold(reserved, truth, None if hold is True else now + seconds(hold))
        else:
            self.accounts.settle(reserved, truth, now)
        return None

    def drawn(self, limit: str, scenery: Scenery, came: Came, now: float) -> float | str:
        """How much of a limit is drawn for whoever asked; of several candidate calls the most. Text where there is nothing to tell."""
        if limit not in scenery.book.terms:
            return "no limit of that name in the policy"
        model = None if came.decision.allowed is None else came.decision.allowed.models[0]
        who = msgspec.structs.replace(scenery.who, rule=came.decision.rule or "", model=model)
        draws = claims.claim([limit], scenery.book.terms, who, _NOTHING)
        if isinstance(draws, str):
            return draws
        return max((self.accounts.drawn(limit, draw.key, now) for draw in draws), default=0.0)


_NOTHING: Final = Worst(0, 0, 0)


def scenery(asked: Asked, book: Rulebook) -> Scenery:
    """A step's request and who makes it."""
    origin = scenes.origin(asked)
    method, params = wire(asked)
    client = scenes.capabilities(asked.client or [])
    item = doors.item(method, msgspec.json.encode(params), origin, offer_to(book, origin, client))
    request = item.request
    if isinstance(request, BadRequest):
        return Scenery(asked, book, request, "", Situation(False, item.offered), _claimant(asked, origin), item.kind)
    able = Situation(can_forward(request, client), item.offered)
    return Scenery(asked, book, request, digest(request.params), able, _claimant(asked, origin), item.kind)


def _claimant(asked: Asked, origin: Origin) -> Claimant:
    """Without names of their own, all calls of a tool in one case are one call; a request during none belongs to the session."""
    session = f"{origin.server} {origin.caller}"
    if asked.call is None:
        names = [f"{session} {call.method} {call.tool or ''}" for call in origin.calls]
    else:
        names = [asked.call] if isinstance(asked.call, str) else asked.call
    return Claimant(origin, tuple(names) or (session,), session, "")


def _judged(scenery: Scenery, request: Request, decision: Decision) -> Judged | str | None:
    if scenery.asked.verdict is None or not isinstance(decision.act, Escalated):
        return None
    return judge(scenery.book, request, scenery.situation, decision, scenery.asked)


def _end(decision: Decision, refused: Refused | str | None, judged: Judged | str | None) -> End:
    if refused is not None:
        return "limit"
    if isinstance(judged, Judged) and judged.reason is Reason.TIMEOUT:
        return "timeout"
    if decision.reason is Reason.RULE:
        return "taken"
    return "otherwise" if decision.reason is Reason.CANNOT else "none"


def _wire(scenery: Scenery, came: Came) -> str | None:
    kind, era, judged = scenery.kind, scenery.who.origin.era, came.judged
    if not isinstance(judged, Judged):
        return shapes.wire_answer(kind, era, came.decision)
    if judged.outcome == "answered":
        return judged.action or "result"
    if judged.outcome is None:
        return None
    refused = Denied(judged.reason, "decline" if judged.as_ == "decline" else "cancel") if judged.outcome == "denied" else Unanswered(judged.reason)
    return shapes.refused_answer(kind, era, refused)


def _cost(book: Rulebook, decision: Decision) -> int | None:
    allowed = decision.allowed
    return None if allowed is None else worst_of(book, allowed.models[0], allowed.params).usd


def _sentence(refused: Refused | str) -> str:
    return refused if isinstance(refused, str) else refused.detail or f"limit {refused.limit} has no room"


def _refused(scenery: Scenery, request: Request, came: Came, refused: Refused | str) -> tuple[Came, int]:
    decision = came.decision
    what = _sentence(refused)
    goes_on = decision.on_limit == "next"
    steps = (*came.steps[:-1], msgspec.structs.replace(came.steps[-1], taken=not goes_on, why=f"{what}; on_limit: {decision.on_limit}"))
    limit = came.limit if isinstance(refused, str) else refused.limit
    waits = refused.retry_after if isinstance(refused, Refused) and decision.on_limit == "wait" else None
    if not goes_on:
        decision = after_refusal(scenery.book, request, scenery.situation, decision, what)
    return msgspec.structs.replace(came, decision=decision, steps=steps, limit=limit, waits=waits), decision.index + 1 if goes_on else -1
