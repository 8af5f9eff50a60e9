"""Where an act takes place: the request, its round, the policy in force, the ports, and what was reserved and tried. It does nothing."""

from __future__ import annotations

import msgspec

from samplegate.admit import Hold
from samplegate.core.decide import Rulebook
from samplegate.core.decisions import Decision, Outcome
from samplegate.core.recording import Attempt
from samplegate.core.requests import BadRequest, Request
from samplegate.core.review.review import Review, Stage
from samplegate.core.session.rounds import Item, Round
from samplegate.ports import Ports


class Scene(msgspec.Struct, eq=False):
    """One request of a round while it is acted on."""

    round: Round
    key: str
    item: Item
    book: Rulebook
    ports: Ports
    policy_hash: str = ""
    decision_id: str = ""
    """Its name in the decision log."""
    started: float = 0.0
    """When it was decided, by the ports' clock."""
    waited: float = 0.0
    """Seconds of it that were spent waiting for room under a limit."""
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
    """The verdict cannot be carried out, now or ever: it is spent though nothing comes of it, so that the next same request is asked about anew."""
    missed: Outcome | None = None
    """Why there is none."""
    reviewed: float = 0.0
    """Seconds of it that were spent waiting for people."""
    held: list[Review] = msgspec.field(default_factory=list)
    """Verdicts that nobody else may use as long as we do not give them back."""
    comes_back: bool = False
    """Its call may be put off while a person looks at a model's answer."""
    put_off: bool = False
    """It is: the answer's review has no verdict yet."""
    reviews: dict[str, str] = msgspec.field(default_factory=dict)
    """The ids of the reviews that were opened or joined for it, by stage and rule; those of the tries before, too."""

    @property
    def request(self) -> Request:
        """The request. Only where there is one: a malformed request is not acted on."""
        assert not isinstance(self.item.request, BadRequest)
        return self.item.request

    def begin(self) -> None:
        """From here on what it has reserved counts, whatever comes of it."""
        self.begun = True
        if self.hold is not None:
            self.hold.begin()

    def __post_init__(self) -> None:
        if self.round.returned is not None:
            self.reviews.update(self.round.returned.reviews.get(self.key, {}))

    def was_put_off(self, stage: Stage, rule: str | None) -> bool:
        """Whether it comes back for the verdict of a person whom the rule asked before; at stage ``answer``, the rule's model has answered it."""
        return self.round.returned is not None and review_key(stage, rule) in self.round.returned.reviews.get(self.key, {})

    def was_answered(self, decision: Decision) -> bool:
        """Whether the decision asks nothing of a model any more, but only what a person says to the model's answer of a try before."""
        return decision.allowed is not None and decision.allowed.review_answer is not None and self.was_put_off("answer", decision.rule)

    def ask(self) -> None:
        """A person is asked: that counts as a request."""
        self.begun = True
        if self.hold is not None:
            self.hold.asked()

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
