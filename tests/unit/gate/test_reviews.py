"""Reviews through the whole gate: verdicts on requests and on answers, in time, late, twice, edited, and without any
reviewer."""

from __future__ import annotations

import json
from typing import Any, Literal

import anyio
import anyio.lowlevel
import pytest

from samplegate.errors import Unavailable
from samplegate.policy.ledger import SCALE
from samplegate.policy.prompt import Sampled, SampleFailed
from samplegate.policy.schema import MAX_REVIEW_BYTES
from samplegate.protocol.outcomes import Answered, Denied, Reason, Unanswered
from samplegate.protocol.rounds import ForwardRound, Open, Settled
from samplegate.reviews.review import Door, Edits, Filter, Review, Verdict
from tests.fakes.dialogue import form, modern, one, sample
from tests.fakes.gate_ports import SAMPLED, asked, pushed
from tests.fakes.metrics import value
from tests.fakes.reviewed_gate import ASK, LOOK, POLICY, RATE, ReviewedGate, body, wall
from tests.fakes.virtual_time import VIRTUAL

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> Any:
    return VIRTUAL


async def test_an_approved_request_is_sampled_and_a_person_is_said_to_have_decided() -> None:
    gate = ReviewedGate()
    release = await gate.settled(*pushed(ASK, policy=POLICY), gate.decides("approve"))
    assert isinstance(release.outcome, Answered), (release, gate.ports.log.events)
    assert "human" == release.outcome.decided_by
    (record,) = gate.ports.records
    assert ("escalate", "human", "ana", "page", "ops") == (
        record.effect,
        record.decided_by,
        record.reviewed_by,
        record.review_door,
        record.reviewer,
    )
    (review,) = gate.store.list(Filter())
    assert (record.decision_id, "approved", record.review) == (review.used_by, review.state, review.id)


async def test_a_rejected_request_is_denied_and_no_model_is_asked() -> None:
    gate = ReviewedGate()
    release = await gate.settled(*pushed(ASK, policy=POLICY), gate.decides("reject", reason="no", tell_server=True))
    assert isinstance(release.outcome, Denied)
    assert (Reason.REVIEW, "no", []) == (release.outcome.reason, release.explain, gate.ports.asked)


async def test_the_reason_stays_here_unless_the_person_wants_it_told() -> None:
    gate = ReviewedGate()
    release = await gate.settled(*pushed(ASK, policy=POLICY), gate.decides("reject", reason="no"))
    assert "" == release.explain


async def test_a_form_is_filled_in_by_a_person() -> None:
    gate = ReviewedGate()
    said = {"action": "accept", "content": {"confirm": True}}
    release = await gate.settled(
        *pushed(ASK, method="elicitation/create", policy=POLICY), gate.decides("answer", result=said)
    )
    assert (said, "human") == (body(release), release.outcome.decided_by)  # type: ignore[union-attr]


async def test_an_answer_that_does_not_fit_the_form_is_never_released() -> None:
    gate = ReviewedGate()
    said = {"action": "accept", "content": {"confirm": 7}}
    release = await gate.settled(
        *pushed(ASK, method="elicitation/create", policy=POLICY), gate.decides("answer", result=said)
    )
    assert isinstance(release.outcome, Unanswered)
    assert Reason.REVIEW is release.outcome.reason
    assert "7" not in release.outcome.detail


async def test_an_edited_request_is_asked_as_edited_of_the_model_that_was_chosen() -> None:
    gate = ReviewedGate()
    edits = Edits(model="n", max_tokens=40, messages=({"role": "user", "content": {"type": "text", "text": "other"}},))
    await gate.settled(*pushed(ASK, policy=POLICY), gate.decides("approve", edits=edits))
    (asking,) = gate.ports.asked
    assert ("n", 40, "other") == (
        asking.model,
        asking.params["maxTokens"],
        asking.params["messages"][0]["content"]["text"],
    )


@pytest.mark.parametrize(
    "edits",
    [Edits(max_tokens=501), Edits(model="n", max_tokens=51), Edits(model="other"), Edits(model="n", temperature=9.0)],
)
async def test_no_edit_exceeds_what_the_rule_allows(edits: Edits) -> None:
    gate = ReviewedGate()
    rule = {**ASK, "with": {"temperature": {"max": 1.0}}}
    release = await gate.settled(*pushed(rule, policy=POLICY), gate.decides("approve", edits=edits))
    assert isinstance(release.outcome, Unanswered)
    assert (Reason.REVIEW, []) == (release.outcome.reason, gate.ports.asked)


async def test_a_verdict_after_the_round_answers_the_next_same_request_once() -> None:
    gate = ReviewedGate()
    impatient = {**POLICY, "servers": {"default": {"peer_timeout": "200ms"}}}
    first = await gate.settled(*pushed(ASK, policy=impatient))
    assert isinstance(first.outcome, Unanswered)
    assert Reason.TIMEOUT is first.outcome.reason
    await gate.decides("approve")()
    gate.service = gate.new_service()
    second = await gate.settled(*pushed(ASK, policy=impatient))
    assert isinstance(second.outcome, Answered)
    third = await gate.settled(*pushed(ASK, policy=impatient))
    assert isinstance(third.outcome, Unanswered)
    assert ["approved", "pending"] == sorted(review.state for review in gate.store.list(Filter()))


async def test_another_request_is_not_answered_by_it() -> None:
    gate = ReviewedGate()
    impatient = {**POLICY, "servers": {"default": {"peer_timeout": "100ms"}}}
    await gate.settled(*pushed(ASK, policy=impatient))
    await gate.decides("approve")()
    other = await gate.settled(*pushed(ASK, params=sample(maxTokens=7), policy=impatient))
    assert isinstance(other.outcome, Unanswered)


async def test_without_a_store_nobody_is_asked_and_nothing_is_allowed() -> None:
    gate = ReviewedGate()

    def gone() -> Any:
        raise Unavailable("store: gone")

    gate.service._open_store = gone
    release = await gate.settled(*pushed(ASK, policy=POLICY))
    assert isinstance(release.outcome, Unanswered)
    assert Reason.REVIEW is release.outcome.reason


async def test_a_models_answer_is_released_once_a_person_has_seen_it() -> None:
    gate = ReviewedGate()
    release = await gate.settled(*pushed(LOOK, policy=POLICY), gate.decides("approve"))
    assert isinstance(release.outcome, Answered)
    assert ("hi", "human") == (body(release)["content"]["text"], release.outcome.decided_by)


async def test_a_person_may_put_another_answer_in_place_of_the_models() -> None:
    gate = ReviewedGate()
    said = {
        "role": "assistant",
        "content": {"type": "text", "text": "better"},
        "model": "human/ops",
        "stopReason": "endTurn",
    }
    release = await gate.settled(*pushed(LOOK, policy=POLICY), gate.decides("answer", result=said))
    assert ("better", "human/ops") == (body(release)["content"]["text"], body(release)["model"])


async def test_an_answer_that_a_person_refuses_is_not_released() -> None:
    gate = ReviewedGate()
    release = await gate.settled(*pushed(LOOK, policy=POLICY), gate.decides("reject"))
    assert isinstance(release.outcome, Denied)
    assert 1 == len(gate.ports.asked)


async def test_an_answer_that_was_approved_too_late_is_released_without_asking_the_model_again() -> None:
    gate = ReviewedGate()
    impatient = {**POLICY, "servers": {"default": {"peer_timeout": "200ms"}}}
    first = await gate.settled(*pushed(LOOK, policy=impatient))
    assert isinstance(first.outcome, Unanswered)
    await gate.decides("approve")()
    second = await gate.settled(*pushed(LOOK, policy=impatient))
    assert isinstance(second.outcome, Answered)
    assert ("hi", 1) == (body(second)["content"]["text"], len(gate.ports.asked))


async def test_a_request_that_is_approved_and_whose_answer_is_approved_uses_both_verdicts() -> None:
    gate = ReviewedGate()

    async def twice() -> None:
        await gate.decides("approve")()
        await gate.decides("approve")()

    release = await gate.settled(*pushed({**ASK, "review_answer": "ops"}, policy=POLICY), twice)
    assert isinstance(release.outcome, Answered)
    assert [("answer", True), ("request", True)] == sorted(
        (one.stage, one.used_by is not None) for one in gate.store.list(Filter())
    )


async def test_a_request_that_is_withdrawn_takes_its_review_with_it() -> None:
    gate = ReviewedGate()
    d, round = pushed(ASK, policy=POLICY)
    with anyio.CancelScope() as scope:

        async def withdraw() -> None:
            await gate.pending()
            scope.cancel()

        await gate.run(d, round, withdraw)
    (review,) = gate.store.list(Filter())
    (record,) = gate.ports.records
    assert ("withdrawn", "withdrawn", review.id) == (review.state, record.outcome, record.review)


async def test_a_process_that_ends_leaves_its_reviews_to_the_next() -> None:
    gate = ReviewedGate()
    d, round = pushed(ASK, policy=POLICY)
    with anyio.CancelScope() as scope:

        async def end() -> None:
            await gate.pending()
            gate.service.end()
            scope.cancel()

        await gate.run(d, round, end)
    (review,) = gate.store.list(Filter())
    assert ("pending", None) == (review.state, review.waiter)


async def test_a_model_that_fails_leaves_the_approval_to_the_next_same_request() -> None:
    gate = ReviewedGate(answer=SampleFailed("unreachable", "nobody there"))
    first = await gate.settled(*pushed(ASK, policy=POLICY), gate.decides("approve"))
    assert isinstance(first.outcome, Unanswered)
    gate.ports.answer = SAMPLED
    second = await gate.settled(*pushed(ASK, policy=POLICY))
    assert isinstance(second.outcome, Answered)


async def test_a_record_that_cannot_be_written_releases_nothing_and_keeps_the_verdict() -> None:
    gate = ReviewedGate(broken_log=True)
    release = await gate.settled(*pushed(ASK, policy=POLICY), gate.decides("approve"))
    assert isinstance(release.outcome, Unanswered)
    (review,) = gate.store.list(Filter())
    assert None is review.used_by


async def test_a_verdict_that_cannot_be_marked_as_used_is_not_released_and_the_log_says_so() -> None:
    gate = ReviewedGate()

    def breaks(*_: Any, **__: Any) -> bool:
        raise Unavailable("store: locked")

    gate.store.use = breaks  # type: ignore[method-assign]
    release = await gate.settled(*pushed(ASK, policy=POLICY), gate.decides("approve"))
    assert isinstance(release.outcome, Unanswered)
    assert ["answered", "unanswered"] == [record.outcome for record in gate.ports.records]
    assert 1 == len({record.decision_id for record in gate.ports.records})


async def test_too_many_pending_reviews_leave_the_next_request_unanswered() -> None:
    gate = ReviewedGate()
    impatient = {**POLICY, "servers": {"default": {"peer_timeout": "20ms"}}}
    releases = [
        await gate.settled(*pushed(ASK, params=sample(maxTokens=number + 1), policy=impatient)) for number in range(11)
    ]
    release = releases[-1]
    assert isinstance(release.outcome, Unanswered)
    assert Reason.REVIEW is release.outcome.reason


async def test_on_timeout_next_goes_on_behind_a_reviewer_who_says_nothing() -> None:
    gate = ReviewedGate()
    rules = ({**ASK, "timeout": "50ms", "on_timeout": "next"}, {"name": "fixed", "effect": "answer", "content": "so"})
    release = await gate.settled(*pushed(*rules, policy=POLICY))
    assert "so" == body(release)["content"]["text"]


@pytest.mark.parametrize("ahead", [-86_400.0, -3_600.0, 3_600.0, 86_400.0])
async def test_a_gate_whose_clock_is_wrong_waits_as_long_as_the_rule_says(ahead: float) -> None:
    gate = ReviewedGate(ahead=ahead)
    begun = wall()
    release = await gate.settled(*pushed({**ASK, "timeout": "125ms", "on_timeout": "deny"}, policy=POLICY))
    assert isinstance(release.outcome, Denied)
    (review,) = gate.store.list(Filter())
    assert "expired" == review.state
    assert pytest.approx(begun, abs=0.01) == review.created
    assert 0.125 == review.expires - review.created
    assert pytest.approx(0.125, abs=0.01) == wall() - begun


async def test_a_clock_that_is_wrong_takes_no_lease_that_another_gate_holds() -> None:
    gate, other = ReviewedGate(), ReviewedGate(ahead=86_400.0)
    other.store = gate.store
    other.service = other.new_service()
    found: list[Review | None] = []

    async def asks_elsewhere() -> None:
        review = await gate.pending()
        found.append(await other.service.find(review.lookup, stage="request", until=None))
        await gate.decides("approve")()

    assert isinstance((await gate.settled(*pushed(ASK, policy=POLICY), asks_elsewhere)).outcome, Answered)
    assert [None] == found


async def test_reviews_are_counted_by_who_asked_for_them() -> None:
    gate = ReviewedGate()
    await gate.settled(*pushed(ASK, policy=POLICY), gate.decides("approve"))
    assert 1 == value(gate.metrics, "samplegate_reviews_total", reviewer="ops", door="page", outcome="approved")
    assert 1 == value(gate.metrics, "samplegate_review_duration_seconds", reviewer="ops")


async def test_in_the_modern_era_people_are_asked_before_anything_is_spent() -> None:
    gate = ReviewedGate()
    rules = (
        {**ASK, "match": {"kind": "elicitation"}},
        {"name": "rest", "match": {"kind": "sampling"}, "effect": "allow"},
    )
    seen: list[int] = []

    async def look() -> None:
        await gate.pending()
        seen.append(len(gate.ports.asked))
        await gate.decides("answer", result={"action": "decline"})()

    d, round = asked(*rules, policy=POLICY, a=sample(), b=form())
    conclusion = await gate.run(d, round, look)
    assert isinstance(conclusion, Settled)
    assert ([0], 1) == (seen, len(gate.ports.asked))


async def test_a_refusal_takes_the_reviews_of_its_siblings_back() -> None:
    gate = ReviewedGate()
    d, round = asked(ASK, policy=POLICY, a=sample(), b=form())

    async def reject() -> None:
        while True:
            review = next((one for one in gate.store.list(Filter(states=("pending",))) if one.kind == "sampling"), None)
            if review is not None:
                break
            await anyio.lowlevel.checkpoint()
        gate.store.decide(review.id, Verdict(word="reject"), who="ana", door="page")

    conclusion = await gate.run(d, round, reject)
    assert isinstance(conclusion, Settled)
    assert {"rejected", "withdrawn"} == {one.state for one in gate.store.list(Filter())}


async def test_a_modern_call_is_put_off_and_finished_when_it_comes_back() -> None:
    gate = ReviewedGate()
    quick = {**POLICY, "client": {"peer_timeout": "100ms"}}
    d, round = asked(ASK, policy=quick, b=form())
    parked = await gate.run(d, round)
    assert isinstance(parked, ForwardRound)
    assert (frozenset(), []) == (parked.keys, gate.ports.records)
    await gate.decides("answer", result={"action": "decline"})()
    effects = d.take(d.session.round_done(round.id, parked, d.now))
    assert b"inputRequests" not in effects[0].line


async def test_an_answer_of_before_is_recorded_with_the_model_that_wrote_it() -> None:
    gate = ReviewedGate()
    impatient = {**POLICY, "servers": {"default": {"peer_timeout": "200ms"}}}
    await gate.settled(*pushed(LOOK, policy=impatient))
    await gate.decides("approve")()
    await gate.settled(*pushed(LOOK, policy=impatient))
    assert ["gpt", "gpt"] == [record.model for record in gate.ports.records]


async def test_an_answer_that_is_too_large_for_a_person_is_not_released_unseen() -> None:
    gate = ReviewedGate(
        answer=Sampled(({"type": "text", "text": "x" * (MAX_REVIEW_BYTES + 1)},), "gpt", "endTurn", 3, 4)
    )
    release = await gate.settled(*pushed(LOOK, policy=POLICY))
    assert isinstance(release.outcome, Unanswered)
    assert (Reason.REVIEW, []) == (release.outcome.reason, list(gate.store.list(Filter())))


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # the answer is read in a thread
async def test_a_request_that_is_too_large_for_a_person_is_not_escalated() -> None:
    gate = ReviewedGate()
    large = sample(messages=[{"role": "user", "content": {"type": "text", "text": "x" * (MAX_REVIEW_BYTES + 1)}}])
    release = await gate.settled(*pushed(ASK, params=large, policy=POLICY))
    assert isinstance(release.outcome, Unanswered)
    assert Reason.CANNOT is release.outcome.reason


@pytest.mark.parametrize("word", ["reject", "answer", None])
async def test_asking_a_person_counts_as_a_request_and_costs_no_model_anything(word: str | None) -> None:
    gate = ReviewedGate()
    rule = {**ASK, "limits": ["rate", "money"], "timeout": "15m" if word else "50ms"}
    result = {"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "human/ops"}
    says = [] if word is None else [gate.decides(word, **({"result": result} if word == "answer" else {}))]
    await gate.settled(*pushed(rule, policy={**POLICY, **RATE}), *says)
    assert (SCALE["requests"], 0) == (gate.ports.limits.drawn("rate"), gate.ports.limits.drawn("money"))


async def test_a_request_that_is_put_off_counts_once() -> None:
    gate = ReviewedGate()
    quick = {**POLICY, **RATE, "client": {"peer_timeout": "100ms"}}
    d, round = asked({**ASK, "limits": ["rate"]}, policy=quick, b=form())
    for _ in range(3):
        parked = await gate.run(d, round)
        assert isinstance(parked, ForwardRound)
        assert SCALE["requests"] == gate.ports.limits.drawn("rate")
        state = json.loads(d.take(d.session.round_done(round.id, parked, d.now))[0].line)["result"]["requestState"]
        round = one(d.client(modern(9, "tools/call", name="x", requestState=state)), Open).round


@pytest.mark.parametrize(
    ("door", "by"), [("page", "human"), ("callback", "human"), ("command", "policy"), ("webhook", "policy")]
)
@pytest.mark.parametrize("word", ["approve", "reject"])
async def test_a_program_that_answers_for_a_reviewer_is_not_said_to_be_a_person(
    door: Door, by: str, word: Literal["approve", "reject"]
) -> None:
    gate = ReviewedGate()

    async def decide() -> None:
        review = await gate.pending()
        gate.store.decide(review.id, Verdict(word=word), who="x", door=door)

    await gate.settled(*pushed(ASK, policy=POLICY), decide)
    assert (by, door) == (gate.ports.records[0].decided_by, gate.ports.records[0].review_door)
