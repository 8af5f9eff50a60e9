"""What is planned for each key of a round, and what one key means for its siblings. Values and questions about them; nothing is done here."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from samplegate.core.decisions import (
    Decision,
    Denied,
    DenyAs,
    Forwarded,
    LeftOpen,
    Outcome,
    Reason,
    Unanswered,
    Withdrawn,
)
from samplegate.core.recording import Done
from samplegate.core.session.rounds import Item, Round
from samplegate.core.session.shapes import is_error, refusal
from samplegate.scene import Scene


class Plan(msgspec.Struct, frozen=True):
    """One key of a round: what is to be done about it, its name in the decision log, and what it has reserved."""

    item: Item
    decision: Decision
    decision_id: str
    scene: Scene
    refused_by: str | None = None
    tried: tuple[str, ...] = ()


def left_open(reason: Reason, detail: str) -> Decision:
    """Nobody is to answer, before any rule was asked."""
    return Decision(LeftOpen(), "none", None, reason, detail)


def timeout_of(decision: Decision) -> float | None:
    """Seconds that a forward gives the client."""
    return decision.act.timeout if isinstance(decision.act, Forwarded) else None


def verifies(decision: Decision) -> bool:
    """Whether the client's answer must fit."""
    return isinstance(decision.act, Forwarded) and decision.act.verify


def stopped(round: Round, plans: Mapping[str, Plan]) -> str | None:
    """A key that is known to end the call, None if there is none."""
    return next((key for key, plan in plans.items() if ends_the_call(round, plan)), None)


def ends_the_call(round: Round, plan: Plan) -> bool:
    """Known before acting: the key has no answer that could stand in ``inputResponses`` (R70), or a URL of a -32042 error is not forwarded."""
    decision = plan.decision
    if round.door == "push":
        return False
    if round.door == "url_error":
        return not isinstance(decision.act, Forwarded)
    if not isinstance(decision.act, DenyAs | LeftOpen):
        return False
    return is_error(plan.item.kind, refusal(decision))


def one_for_all(plans: Mapping[str, Plan], done: Mapping[str, Done]) -> dict[str, Done]:
    """A round that one key ends releases none of the others, whatever came of them."""
    blocked = [key for key, one in done.items() if blocks(plans[key].item, one.outcome)]
    taken_back = {key: msgspec.structs.replace(one, outcome=Withdrawn()) for key, one in done.items()}
    return {**taken_back, blocked[0]: done[blocked[0]]} if blocked else dict(done)


def blocks(item: Item, outcome: Outcome) -> bool:
    """Whether an outcome can only end the call (R70)."""
    return isinstance(outcome, Denied | Unanswered) and is_error(item.kind, outcome)
