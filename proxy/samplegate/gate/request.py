"""One request of a round, from its decision to its release, and its effect on the other requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import msgspec

from samplegate.audit.record import Attempt, Done, Record
from samplegate.gate.admission import Hold
from samplegate.gate.ports import Ports, RequestSpan
from samplegate.policy import deadlines
from samplegate.policy.capabilities import can_forward
from samplegate.policy.decide import CompiledPolicy
from samplegate.policy.decisions import Decision, DenyAs, Forwarded, LeftOpen, Situation, refusal
from samplegate.policy.redaction import clean_params
from samplegate.policy.schema import Stage
from samplegate.protocol.outcomes import CallDrawn, Denied, Outcome, Reason, Unanswered, Withdrawn
from samplegate.protocol.requests import BadRequest, Request, SamplingRequest
from samplegate.protocol.results import is_error
from samplegate.protocol.rounds import Item, Round
from samplegate.reviews.review import Review, ReviewUi


class Wait(msgspec.Struct, frozen=True):
    """What a request waits for, and its name in the policy (of several limits with commas). ``until``: the end of the
    wait, by the ports' clock."""

    what: Literal["limit", "model", "client", "reviewer"]
    name: str = ""
    until: float | None = None


class ReadUi(msgspec.Struct, frozen=True):
    """The server's own UI of a form, as the server gave it."""

    ui: ReviewUi
    """``ready`` or ``failed``."""
    body: bytes
    """b"" if the review ``kept_by`` has it."""
    kept_by: str = ""


class PendingRequest(msgspec.Struct, eq=False):
    """A request of a round in progress: its policy, ports and decision, its reservations, its tried models and its
    reviews."""

    round: Round
    key: str
    item: Item
    compiled: CompiledPolicy
    ports: Ports
    policy_hash: str
    decision_id: str
    """Its id in the decision log."""
    started: float
    """When its round reached the gate, by the ports' clock."""
    decision: Decision
    """Its decision. If a later rule acted, ``Done.decision`` has that rule's."""
    refused_by: str | None = None
    """The limit without room for it, if any."""
    tried: tuple[str, ...] = ()
    """Earlier rules whose limits had no room, each with the reason."""
    waited: float = 0.0
    """Seconds of waiting for room in a limit."""
    begun: bool = False
    """Whether it was acted on: its draws then count."""
    hold: Hold | None = None
    """Its reservation."""
    past_holds: list[Hold] = msgspec.field(default_factory=list)
    """Closed reservations, of rules whose timeouts are over."""
    wait: Wait | None = None
    """What it waits for now; None while the gate works on it."""
    acting: Decision | None = None
    """The decision that is being carried out: a later rule's, after a timeout."""
    attempts: list[Attempt] = msgspec.field(default_factory=list)
    """The models asked so far. The last is ``cancelled`` until it has ended."""
    reserved_usd: int | None = 0
    """Their max cost, in units of ``ledger.SCALE["usd"]``; None once a price is unknown."""

    verdict: Review | None = None
    """Its review: decided and held for us, or still pending."""
    unfit: bool = False
    """The verdict can never be carried out. It is used up without effect, so that the next identical request gets a new
    review."""
    missed: Outcome | None = None
    """The outcome if there is no verdict."""
    reviewed: float = 0.0
    """Seconds of waiting for reviewers."""
    held: list[Review] = msgspec.field(default_factory=list)
    """Reviews that no other request may use until we give them back."""
    comes_back: bool = False
    """Whether its call may be put off while a reviewer looks at a model's answer."""
    put_off: bool = False
    """Whether its call is put off: the review of the answer has no verdict yet."""
    reviews: dict[str, str] = msgspec.field(default_factory=dict)
    """The ids of the reviews that it opened or joined, by stage and rule, including earlier tries."""
    ui: ReadUi | None = None
    """The server's own UI that was read in this try."""
    span: RequestSpan | None = None
    """Its span; None if traces are off or it is not sampled."""
    recorded: Record | None = None
    """Its latest record, once it is written."""

    def __post_init__(self) -> None:
        if self.round.returned is not None:
            self.reviews.update(self.round.returned.reviews.get(self.key, {}))

    @property
    def request(self) -> Request:
        """The request, which must not be malformed: a malformed request is not acted on."""
        assert not isinstance(self.item.request, BadRequest)
        return self.item.request

    @property
    def situation(self) -> Situation:
        """The situation in which its rules are evaluated again. Whether it was declared is already decided."""
        return Situation(can_forward=can_forward(self.request, self.round.client))

    @property
    def word(self) -> str | None:
        """The verdict's word: ``approve``, ``reject`` or ``answer``; None without a verdict."""
        return None if self.verdict is None or self.verdict.verdict is None else self.verdict.verdict.word

    def seconds_left(self, rule: float | None) -> float | None:
        """Seconds for an act that begins now, or None if unlimited. ``rule`` is the rule's own timeout."""
        return deadlines.time_left(self.compiled.policy, self.round, rule, self.ports.clock())

    def seconds_left_to_review(self, rule: float) -> float | None:
        """Seconds for a review that begins now. A client whose call becomes a task sets no end."""
        round = msgspec.structs.replace(self.round, called=None) if self.round.detaches else self.round
        return deadlines.time_left(self.compiled.policy, round, rule, self.ports.clock())

    def was_put_off(self, stage: Stage, rule: str | None) -> bool:
        """Whether this is the retry of a request for which the rule asked a reviewer before. At stage ``answer``, the
        rule's model has already answered."""
        return self.round.returned is not None and review_key(stage, rule) in self.round.returned.reviews.get(
            self.key, {}
        )

    @contextmanager
    def waiting(self, wait: Wait | None) -> Iterator[None]:
        """Show what it waits for, until the wait ends in any way."""
        self.wait = wait
        try:
            yield
        finally:
            self.wait = None

    def was_answered(self, decision: Decision) -> bool:
        """Whether an earlier try already has the model's answer, so that only the reviewer's verdict on it is
        missing."""
        return (
            decision.allowed is not None
            and decision.allowed.review_answer is not None
            and self.was_put_off("answer", decision.rule)
        )

    def params_to_record(self) -> Mapping[str, Any]:
        """Its params with the secrets in a prompt redacted by the policy's patterns."""
        request, redactor = self.request, self.compiled.redactor
        if redactor is None or not isinstance(request, SamplingRequest):
            return request.params
        return clean_params(redactor, request.params)[0]

    def begin(self) -> None:
        """Count its reservation from here on, whatever its outcome."""
        self.begun = True
        if self.hold is not None:
            self.hold.begin()

    def ask(self) -> None:
        """Count the request, because a reviewer is asked."""
        self.begun = True
        if self.hold is not None:
            self.hold.count_request()

    @property
    def span_ids(self) -> dict[str, str]:
        """``trace_id`` and ``span_id`` of its span, if it has one."""
        return {} if self.span is None else {"trace_id": self.span.trace_id, "span_id": self.span.span_id}

    def log_fault(self) -> None:
        """Log the current exception."""
        self.ports.log.error("request.failed", decision_id=self.decision_id, **self.span_ids, exc_info=True)  # noqa: LOG014

    async def close(self) -> None:
        """Give back its reservation and its unused reviews."""
        if self.hold is not None:
            await self.hold.close()
        while self.held:
            assert self.ports.reviews is not None
            await self.ports.reviews.give_back(self.held.pop())


def review_key(stage: Stage, rule: str | None) -> str:
    """The key of a review among the reviews of one request."""
    return f"{stage}:{rule or ''}"


def left_open(reason: Reason, detail: str) -> Decision:
    """A decision to leave a request unanswered, made before any rule was asked."""
    return Decision(LeftOpen(), "none", None, reason, detail)


def first_ending_key(requests: Mapping[str, PendingRequest]) -> str | None:
    """The first key that is known to end the call, or None."""
    return next((key for key, pending in requests.items() if ends_the_call(pending)), None)


def ends_the_call(pending: PendingRequest) -> bool:
    """Whether a key ends the call, known before acting: its refusal has no form in ``inputResponses`` (R70), or a URL
    of a -32042 error is not forwarded."""
    act, door = pending.decision.act, pending.round.door
    if door == "url_error":
        return not isinstance(act, Forwarded)
    if door in ("push", "tool_result"):
        return False
    return isinstance(act, DenyAs | LeftOpen) and is_error(pending.item.kind, refusal(pending.decision))


def blocks(item: Item, outcome: Outcome) -> bool:
    """Whether an outcome can only end the call (R70)."""
    return isinstance(outcome, Denied | Unanswered) and is_error(item.kind, outcome)


def withdrawn_outcomes(done: Mapping[str, Done]) -> dict[str, Done]:
    """The same requests with the outcome Withdrawn: nothing is released."""
    return {key: msgspec.structs.replace(one, outcome=Withdrawn()) for key, one in done.items()}


def withdraw_rest(requests: Mapping[str, PendingRequest], done: Mapping[str, Done]) -> dict[str, Done]:
    """The outcomes, with all others withdrawn if one key ends the call."""
    blocked = next((key for key, one in done.items() if blocks(requests[key].item, one.outcome)), None)
    return dict(done) if blocked is None else {**withdrawn_outcomes(done), blocked: done[blocked]}


def task_drawn(requests: Iterable[PendingRequest]) -> tuple[CallDrawn, ...]:
    """What these requests of a task have drawn on limits per call, with what is still reserved for them."""
    found = Counter[tuple[str, str]]()
    for pending in requests:
        for hold in (*pending.past_holds, *(() if pending.hold is None else (pending.hold,))):
            for draw in (*hold.drawn, *hold.open_draws):
                if pending.compiled.limit_specs[draw.limit].per == "call":
                    found[draw.limit, draw.key] += draw.amount
    return tuple(CallDrawn(limit, key, units) for (limit, key), units in sorted(found.items()) if units)


def call_drawn(ports: Ports, round: Round, requests: Iterable[PendingRequest]) -> tuple[CallDrawn, ...]:
    """What the call of a round has drawn on limits per call by now, with these of its requests."""
    accounts = {(one.limit, one.key) for one in round.drawn}
    for pending in requests:
        accounts.update(() if pending.hold is None else ((draw.limit, draw.key) for draw in pending.hold.draws))
    return ports.call_drawn(accounts) if accounts else ()
