"""One request of a round, from its decision to its release, and its effect on the others. It decides and does
nothing."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from samplegate.audit.record import Attempt, Done
from samplegate.gate.admission import Hold
from samplegate.gate.ports import Ports
from samplegate.policy import deadlines
from samplegate.policy.capabilities import can_forward
from samplegate.policy.decide import CompiledPolicy
from samplegate.policy.decisions import Decision, DenyAs, Forwarded, LeftOpen, Situation, refusal
from samplegate.policy.schema import Stage
from samplegate.protocol.outcomes import Denied, Outcome, Reason, Unanswered, Withdrawn
from samplegate.protocol.requests import BadRequest, Request
from samplegate.protocol.results import is_error
from samplegate.protocol.rounds import Item, Round
from samplegate.reviews.review import Review


class PendingRequest(msgspec.Struct, eq=False):
    """One request of a round: the policy and the ports it runs under, its decision, and what it has reserved, tried and
    asked people so far."""

    round: Round
    key: str
    item: Item
    book: CompiledPolicy
    ports: Ports
    policy_hash: str
    decision_id: str
    """Its name in the decision log."""
    started: float
    """When its round arrived at the gate, by the ports' clock."""
    decision: Decision
    """What is to be done about it. The act may be a later rule's: ``Done.decision``."""
    refused_by: str | None = None
    """The limit without room for it, if any."""
    tried: tuple[str, ...] = ()
    """Earlier rules whose limits had no room, each with the reason."""
    waited: float = 0.0
    """Seconds of waiting for room in a limit."""
    begun: bool = False
    """It was acted on: what it drew counts."""
    hold: Hold | None = None
    """What it has reserved."""
    attempts: list[Attempt] = msgspec.field(default_factory=list)
    """The models that were asked so far; the last is ``cancelled`` until it has ended."""
    reserved_usd: int | None = 0
    """What they may have come to at worst, in units of ``ledger.SCALE["usd"]``; None once a price is unknown."""

    verdict: Review | None = None
    """What a person said of the request, held for us; or the review that still waits for it."""
    unfit: bool = False
    """The verdict cannot be carried out, now or ever: it is spent though nothing comes of it, so that the next same
    request is asked about anew."""
    missed: Outcome | None = None
    """Why there is none."""
    reviewed: float = 0.0
    """Seconds of waiting for reviewers."""
    held: list[Review] = msgspec.field(default_factory=list)
    """Verdicts that nobody else may use as long as we do not give them back."""
    comes_back: bool = False
    """Its call may be put off while a person looks at a model's answer."""
    put_off: bool = False
    """It is: the answer's review has no verdict yet."""
    reviews: dict[str, str] = msgspec.field(default_factory=dict)
    """The ids of the reviews that were opened or joined for it, by stage and rule; those of the tries before, too."""

    def __post_init__(self) -> None:
        if self.round.returned is not None:
            self.reviews.update(self.round.returned.reviews.get(self.key, {}))

    @property
    def request(self) -> Request:
        """The request. Only where there is one: a malformed request is not acted on."""
        assert not isinstance(self.item.request, BadRequest)
        return self.item.request

    @property
    def situation(self) -> Situation:
        """Where its rules are asked once more; whether it was declared was decided before."""
        return Situation(can_forward=can_forward(self.request, self.round.client))

    @property
    def word(self) -> str | None:
        """What a person said of it, ``approve``, ``reject`` or ``answer``; None before a decision."""
        return None if self.verdict is None or self.verdict.verdict is None else self.verdict.verdict.word

    def seconds_left(self, rule: float | None) -> float | None:
        """Seconds that an act begun now may take, None for no end; ``rule`` is the rule's own limit."""
        return deadlines.left(self.book.policy, self.round, rule, self.ports.clock())

    def was_put_off(self, stage: Stage, rule: str | None) -> bool:
        """Whether it comes back for the verdict of a person whom the rule asked before; at stage ``answer``, the rule's
        model has answered it."""
        return self.round.returned is not None and review_key(stage, rule) in self.round.returned.reviews.get(
            self.key, {}
        )

    def was_answered(self, decision: Decision) -> bool:
        """Whether the decision asks nothing of a model any more, but only what a person says to the model's answer of a
        try before."""
        return (
            decision.allowed is not None
            and decision.allowed.review_answer is not None
            and self.was_put_off("answer", decision.rule)
        )

    def begin(self) -> None:
        """From here on what it has reserved counts, whatever comes of it."""
        self.begun = True
        if self.hold is not None:
            self.hold.begin()

    def ask(self) -> None:
        """A person is asked: that counts as a request."""
        self.begun = True
        if self.hold is not None:
            self.hold.asked()

    def log_fault(self) -> None:
        """Log the exception that is being handled."""
        self.ports.log.error("request.failed", decision_id=self.decision_id, exc_info=True)  # noqa: LOG014

    async def close(self) -> None:
        """Give back what it still holds."""
        if self.hold is not None:
            await self.hold.close()
        while self.held:
            assert self.ports.reviews is not None
            await self.ports.reviews.give_back(self.held.pop())


def review_key(stage: Stage, rule: str | None) -> str:
    """The name of a review of a request among those of the same request."""
    return f"{stage}:{rule or ''}"


def left_open(reason: Reason, detail: str) -> Decision:
    """Nobody is to answer, before any rule was asked."""
    return Decision(LeftOpen(), "none", None, reason, detail)


def stopped(requests: Mapping[str, PendingRequest]) -> str | None:
    """A key that is known to end the call, None if there is none."""
    return next((key for key, pending in requests.items() if ends_the_call(pending)), None)


def ends_the_call(pending: PendingRequest) -> bool:
    """Known before acting: the key has no answer that could stand in ``inputResponses`` (R70), or a URL of a -32042
    error is not forwarded."""
    act, door = pending.decision.act, pending.round.door
    if door == "url_error":
        return not isinstance(act, Forwarded)
    return (
        door != "push" and isinstance(act, DenyAs | LeftOpen) and is_error(pending.item.kind, refusal(pending.decision))
    )


def blocks(item: Item, outcome: Outcome) -> bool:
    """Whether an outcome can only end the call (R70)."""
    return isinstance(outcome, Denied | Unanswered) and is_error(item.kind, outcome)


def taken_back(done: Mapping[str, Done]) -> dict[str, Done]:
    """The same, withdrawn: none of it is released."""
    return {key: msgspec.structs.replace(one, outcome=Withdrawn()) for key, one in done.items()}


def one_for_all(requests: Mapping[str, PendingRequest], done: Mapping[str, Done]) -> dict[str, Done]:
    """A round that one key ends releases none of the others, whatever came of them."""
    blocked = next((key for key, one in done.items() if blocks(requests[key].item, one.outcome)), None)
    return dict(done) if blocked is None else {**taken_back(done), blocked: done[blocked]}
