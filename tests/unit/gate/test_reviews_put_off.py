"""A model's answer is under review for longer than the client waits, through the whole gate: the call is deferred, and
a later retry gets the answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import anyio
import pytest

from samplegate.durations import duration_text
from samplegate.policy.ledger import SCALE
from samplegate.policy.prompt import SampleFailed
from samplegate.protocol.outcomes import Answered, Denied, Reason, Unanswered, Withdrawn
from samplegate.protocol.rounds import ForwardRound, Open, Release, Settled
from samplegate.reviews.review import Edits, Filter, Review, Verdict
from samplegate.reviews.service import LEASE
from tests.fakes.dialogue import Dialogue, form, modern, one, sample
from tests.fakes.gate_ports import SAMPLED, asked
from tests.fakes.reviewed_gate import ASK, LOOK, POLICY, RATE, ReviewedGate, body, wall
from tests.fakes.virtual_time import VIRTUAL

pytestmark = pytest.mark.anyio
QUICK: Final[dict[str, Any]] = {
    **POLICY,
    **RATE,
    "reviewers": {"ops": {"late_verdict": "0s"}},
    "client": {"peer_timeout": "150ms"},
}
LENIENT: Final[dict[str, Any]] = {**QUICK, "reviewers": {"ops": {}}}
PATIENT: Final[dict[str, Any]] = {**QUICK, "client": {"peer_timeout": "20s"}}
LOOKS: Final[dict[str, Any]] = {**LOOK, "limits": ["rate", "money"]}
BOTH: Final[dict[str, Any]] = {
    **ASK,
    "review_answer": "ops",
    "with": {"models": ["m", "n"]},
    "limits": ["rate", "money"],
}
FORWARD: Final[dict[str, Any]] = {"name": "forms", "match": {"kind": "elicitation"}, "effect": "forward"}
OTHER: Final = sample("other")


@pytest.fixture
def anyio_backend() -> Any:
    return VIRTUAL


class Call:
    """A modern call whose client retries as often as the call is deferred."""

    def __init__(
        self,
        gate: ReviewedGate,
        *rules: Mapping[str, Any],
        policy: Mapping[str, Any] = QUICK,
        **keys: Mapping[str, Any],
    ) -> None:
        capabilities: dict[str, Any] = {"elicitation": {}}
        self.gate, self.keys = gate, keys
        self.d, self.round = asked(*rules, policy=policy, capabilities=capabilities, **(keys or {"k": sample()}))
        self.state = ""
        self._ids = 1

    async def defer(self, *people: Any) -> None:
        """One try, after which the client has a request state and no question."""
        conclusion = await self.gate.run(self.d, self.round, *people)
        assert isinstance(conclusion, ForwardRound), conclusion
        (shown,) = self.d.take(self.d.session.round_done(self.round.id, conclusion, self.d.now))
        self.state = json.loads(shown.line)["result"]["requestState"]
        self.retry()

    def retry(self, *rules: Mapping[str, Any], policy: Mapping[str, Any] = QUICK, **more: Any) -> None:
        """The client retries, under another policy if rules are given."""
        self._ids += 1
        if rules:
            self.d = Dialogue(*rules, **policy)
        back = modern(self._ids, "tools/call", {"elicitation": {}}, name="x", requestState=self.state, **more)
        self.round = one(self.d.client(back), Open).round

    async def releases(self, *people: Any) -> Mapping[str, Release]:
        """The result of the last try."""
        conclusion = await self.gate.run(self.d, self.round, *people)
        assert isinstance(conclusion, Settled), conclusion
        return conclusion.releases

    async def end(self, *people: Any) -> Release:
        """The result of the last try of a call with one request."""
        (release,) = (await self.releases(*people)).values()
        return release


async def decide(gate: ReviewedGate, word: Any = "approve", nth: int = 0, **more: Any) -> Review:
    """Submit a verdict while no call waits."""
    review = sorted(gate.store.list(Filter(states=("pending",))), key=lambda review: review.id)[nth]
    gate.store.decide(review.id, Verdict(word=word, **more), who="ana", door="page")
    return review


def drawn(gate: ReviewedGate) -> tuple[int, int]:
    return gate.ports.limits.drawn("rate") // SCALE["requests"], gate.ports.limits.drawn("money") // SCALE[
        "output_tokens"
    ]


async def test_the_answer_is_released_at_the_next_try_and_the_model_was_asked_and_paid_once() -> None:
    gate = ReviewedGate()
    call = Call(gate, LOOKS)
    for _ in range(3):
        await call.defer()
        assert (1, (1, 4)) == (len(gate.ports.asked), drawn(gate))
    await decide(gate)
    release = await call.end()
    assert ("hi", "human", 1, (1, 4)) == (
        body(release)["content"]["text"],
        release.outcome.decided_by,  # type: ignore[union-attr]
        len(gate.ports.asked),
        drawn(gate),
    )
    (review,) = gate.store.list(Filter())
    assert release.decision_id == review.used_by


async def test_what_was_spent_is_on_record_before_the_call_is_put_off_and_only_once() -> None:
    gate = ReviewedGate()
    call = Call(gate, LOOKS)
    await call.defer()
    await call.defer()
    await decide(gate)
    await call.end()
    first, last = gate.ports.records
    assert ("put_off", None, 1, 4, ("rate", "money")) == (
        first.outcome,
        first.decided_by,
        len(first.attempts),
        first.output_tokens,
        first.limits,
    )
    assert ("answered", "human", (), None, ()) == (
        last.outcome,
        last.decided_by,
        last.attempts,
        last.output_tokens,
        last.limits,
    )
    assert (first.decision_id, first.review, "gpt", "gpt") == (last.decision_id, last.review, first.model, last.model)
    assert ("ana", None) == (last.reviewed_by, first.reviewed_by)


async def test_a_record_that_cannot_be_written_ends_the_call_and_leaves_the_answer_to_the_next_same_request() -> None:
    gate = ReviewedGate()
    call = Call(gate, LOOKS, policy=LENIENT)
    gate.ports.broken_log = True
    release = await call.end()
    assert isinstance(release.outcome, Unanswered)
    assert Reason.RECORDS is release.outcome.reason
    gate.ports.broken_log = False
    await decide(gate)
    assert "hi" == body(await Call(gate, LOOKS, policy=LENIENT).end())["content"]["text"]
    assert 1 == len(gate.ports.asked)


@pytest.mark.parametrize("word", ["reject", "answer"])
async def test_any_verdict_counts_at_the_return(word: str) -> None:
    gate = ReviewedGate()
    call = Call(gate, LOOKS)
    await call.defer()
    said = {"role": "assistant", "content": {"type": "text", "text": "better"}, "model": "human/ops"}
    await decide(gate, word, result=said if word == "answer" else None)
    release = await call.end()
    if word == "reject":
        assert isinstance(release.outcome, Denied)
        assert Reason.REVIEW is release.outcome.reason
    else:
        assert "better" == body(release)["content"]["text"]
    assert 1 == len(gate.ports.asked)


async def test_a_review_that_ended_meanwhile_leaves_the_request_unanswered_and_no_model_is_asked_again() -> None:
    gate = ReviewedGate()
    call = Call(gate, LOOKS)
    await call.defer()
    (review,) = gate.store.list(Filter())
    gate.store.withdraw(review.id, waiter="", why="the policy was reloaded")
    release = await call.end()
    assert isinstance(release.outcome, Unanswered)
    assert (Reason.TIMEOUT, 1) == (release.outcome.reason, len(gate.ports.asked))
    assert 1 == len(gate.store.list(Filter()))


async def test_a_reviewer_whose_own_time_is_over_is_not_waited_for() -> None:
    gate = ReviewedGate()
    call = Call(gate, LOOKS, policy={**QUICK, "reviewers": {"ops": {"timeout": "250ms", "late_verdict": "0s"}}})
    await call.defer()
    while isinstance(conclusion := await gate.run(call.d, call.round), ForwardRound):
        call.d.take(call.d.session.round_done(call.round.id, conclusion, call.d.now))
        call.retry()
    (release,) = conclusion.releases.values()
    assert isinstance(release.outcome, Unanswered)
    (review,) = gate.store.list(Filter())
    for _ in range(2_000):  # the store's clock starts slightly later than the call
        if review.state != "pending":
            break
        await anyio.sleep(0.01)
        (review,) = gate.store.list(Filter())
    assert ("expired", 1) == (review.state, len(gate.ports.asked))


async def test_a_client_that_comes_back_too_often_gets_an_error_and_the_review_waits_on() -> None:
    gate = ReviewedGate()
    call = Call(gate, LOOKS)
    for _ in range(9):
        await call.defer()
    release = await call.end()
    assert isinstance(release.outcome, Unanswered)
    (review,) = gate.store.list(Filter())
    assert (Reason.TIMEOUT, "pending", 1) == (release.outcome.reason, review.state, len(gate.ports.asked))


async def test_the_end_of_the_process_is_not_waited_for_and_the_answer_is_there_for_the_next() -> None:
    gate = ReviewedGate()

    async def ends() -> None:
        await gate.pending()
        gate.service.end()

    call = Call(gate, LOOKS, policy=PATIENT)
    await call.defer(ends)
    gate.service = gate.new_service()
    await decide(gate)
    assert ("hi", 1) == (body(await call.end())["content"]["text"], len(gate.ports.asked))


async def test_a_client_that_takes_its_call_back_takes_the_review_with_it() -> None:
    gate = ReviewedGate()
    call = Call(gate, LOOKS, policy=PATIENT)
    with anyio.CancelScope() as scope:

        async def withdraw() -> None:
            await gate.pending()
            scope.cancel()

        await gate.run(call.d, call.round, withdraw)
    (review,) = gate.store.list(Filter())
    (record,) = gate.ports.records
    assert ("withdrawn", "withdrawn", 1) == (review.state, record.outcome, len(record.attempts))


async def test_a_client_that_never_returns_leaves_the_answer_to_the_next_same_request() -> None:
    gate = ReviewedGate()
    await Call(gate, LOOKS, policy=LENIENT).defer()
    await decide(gate)
    release = await Call(gate, LOOKS, policy=LENIENT).end()
    assert ("hi", 1) == (body(release)["content"]["text"], len(gate.ports.asked))


async def test_a_state_that_comes_back_twice_asks_nobody_anew() -> None:
    gate = ReviewedGate()
    call = Call(gate, LOOKS)
    await call.defer()
    state = call.state
    await decide(gate)
    assert isinstance((await call.end()).outcome, Answered)
    call.state = state
    call.retry()
    release = await call.end()
    assert isinstance(release.outcome, Unanswered)
    assert (1, 1) == (len(gate.ports.asked), len(gate.store.list(Filter())))


async def test_a_limit_that_is_used_up_meanwhile_takes_no_paid_answer_away() -> None:
    gate = ReviewedGate()
    policy = {**QUICK, "limits": {"rate": {"requests": 1, "per": "1h"}, "money": {"output_tokens": 600, "per": "1h"}}}
    call = Call(gate, LOOKS, policy=policy)
    await call.defer()
    await decide(gate)
    assert "hi" == body(await call.end())["content"]["text"]


async def test_a_waiting_answer_holds_no_slot_of_a_limit() -> None:
    gate = ReviewedGate()
    policy = {**QUICK, "limits": {"slots": {"concurrent": 1}}}
    call = Call(gate, {**LOOK, "limits": ["slots"]}, policy=policy)
    await call.defer()
    assert 0 == gate.ports.limits.drawn("slots")
    await decide(gate)
    assert "hi" == body(await call.end())["content"]["text"]


class TestSeveralRequestsInOneRound:
    async def test_the_others_are_not_begun_before_the_answer_is_approved(self) -> None:
        gate = ReviewedGate()
        call = Call(gate, LOOKS_AT_HELLO, REST, a=sample(), b=OTHER)
        await call.defer()
        assert ["hello"] == asked_of(gate)
        await decide(gate)
        releases = await call.releases()
        assert ["hello", "other"] == asked_of(gate)
        assert {"human", "policy"} == {release.outcome.decided_by for release in releases.values()}  # type: ignore[union-attr]

    async def test_a_rejected_answer_spends_nothing_on_the_others(self) -> None:
        gate = ReviewedGate()
        call = Call(gate, LOOKS_AT_HELLO, REST, a=sample(), b=OTHER)
        await call.defer()
        await decide(gate, "reject")
        releases = await call.releases()
        assert (["hello"], Denied, Withdrawn) == (
            asked_of(gate),
            type(releases["a"].outcome),
            type(releases["b"].outcome),
        )

    async def test_one_approved_answer_waits_for_the_other(self) -> None:
        gate = ReviewedGate()
        call = Call(gate, LOOKS, a=sample(), b=OTHER)
        await call.defer()
        await decide(gate)
        await call.defer()
        await call.defer()
        await decide(gate)
        releases = await call.releases()
        assert 2 == len(gate.ports.asked)
        assert all(isinstance(release.outcome, Answered) for release in releases.values())
        assert ["put_off", "put_off", "answered", "answered"] == [record.outcome for record in gate.ports.records]

    async def test_two_requests_that_are_the_same_have_an_answer_each(self) -> None:
        gate = ReviewedGate()
        call = Call(gate, LOOKS, a=sample(), b=sample())
        await call.defer()
        await decide(gate)
        await decide(gate)
        releases = await call.releases()
        assert all(isinstance(release.outcome, Answered) for release in releases.values())
        assert 2 == len(gate.ports.asked)
        assert all(review.used_by is not None for review in gate.store.list(Filter()))

    async def test_a_model_that_fails_ends_the_call_and_takes_the_others_review_back(self) -> None:
        gate = ReviewedGate()

        async def answer(request: Any) -> Any:
            if request.params["messages"][0]["content"]["text"] == "other":
                await gate.pending()
                return SampleFailed("refused", "no")
            return SAMPLED

        gate.ports.answer = answer
        releases = await Call(gate, LOOKS, policy=PATIENT, a=sample(), b=OTHER).releases()
        assert (Withdrawn, Unanswered) == (type(releases["a"].outcome), type(releases["b"].outcome))
        (review,) = gate.store.list(Filter())
        assert "withdrawn" == review.state

    async def test_what_was_forwarded_and_what_a_person_is_asked_get_on_with_each_other(self) -> None:
        """The reviewer is asked once the client has retried with its own part, and is not counted as already asked."""
        gate = ReviewedGate()
        call = Call(gate, FORWARD, LOOKS, a=form(), b=sample())
        (shown,) = call.d.hand_on([Open(call.round)], "a")
        call.state = json.loads(shown.line)["result"]["requestState"]
        call.retry(inputResponses={"a": {"action": "accept", "content": {"confirm": True, "n": 1}}})
        await call.defer()
        await decide(gate)
        releases = await call.releases()
        assert {"client", "human"} == {release.outcome.decided_by for release in releases.values()}  # type: ignore[union-attr]
        assert 1 == len(gate.ports.asked)

    async def test_a_request_beside_a_forwarded_one_is_put_before_its_reviewer(self) -> None:
        gate = ReviewedGate()
        call = Call(gate, FORWARD, ASK, policy=PATIENT, a=form(), b=sample())
        conclusion = await gate.run(call.d, call.round)
        (shown,) = call.d.take(call.d.session.round_done(call.round.id, conclusion, call.d.now))
        call.state = json.loads(shown.line)["result"]["requestState"]
        call.retry(inputResponses={"a": {"action": "decline"}})
        releases = await call.releases(gate.decides("approve"))
        assert "human" == releases["b"].outcome.decided_by  # type: ignore[union-attr]


LOOKS_AT_HELLO: Final[dict[str, Any]] = {**LOOKS, "match": {"kind": "sampling", "text": "hello"}}
REST: Final[dict[str, Any]] = {
    "name": "rest",
    "match": {"kind": "sampling"},
    "effect": "allow",
    "with": {"models": ["m"]},
}


def asked_of(gate: ReviewedGate) -> list[str]:
    return [request.params["messages"][0]["content"]["text"] for request in gate.ports.asked]


class TestARequestThatIsEscalatedToo:
    async def test_its_approval_waits_with_the_answer_and_both_are_used_once(self) -> None:
        gate = ReviewedGate()
        call = Call(gate, BOTH)
        await call.defer()
        await decide(gate)
        await call.defer()
        assert (1, (1, 4)) == (len(gate.ports.asked), drawn(gate))
        await call.defer()
        await decide(gate)
        release = await call.end()
        assert ("hi", 1, (1, 4)) == (body(release)["content"]["text"], len(gate.ports.asked), drawn(gate))
        assert [("answer", True), ("request", True)] == sorted(
            (one.stage, one.used_by is not None) for one in gate.store.list(Filter())
        )

    async def test_an_edited_request_keeps_its_answer(self) -> None:
        gate = ReviewedGate()
        call = Call(gate, BOTH)
        await call.defer()
        await decide(gate, edits=Edits(model="n", max_tokens=40))
        await call.defer()
        assert ("n", (1, 4)) == (gate.ports.asked[0].model, drawn(gate))
        await decide(gate)
        release = await call.end()
        assert ("hi", 1, (1, 4)) == (body(release)["content"]["text"], len(gate.ports.asked), drawn(gate))

    async def test_a_verdict_on_a_request_is_not_late_while_its_call_comes_back(self) -> None:
        """``late_verdict`` applies only to requests that have ended."""
        gate = ReviewedGate()
        call = Call(gate, ASK)
        await call.defer()
        await decide(gate)
        assert "hi" == body(await call.end())["content"]["text"]

    async def test_the_look_of_a_rule_behind_a_silent_reviewer_is_put_off_too(self) -> None:
        gate = ReviewedGate()
        asks = {**ASK, "match": {"kind": "sampling"}, "timeout": "20ms", "on_timeout": "next"}
        call = Call(gate, asks, LOOKS)
        await call.defer()
        await call.defer()
        assert (1, (1, 4)) == (len(gate.ports.asked), drawn(gate))
        await decide(gate)
        release = await call.end()
        assert ("hi", 1, (1, 4)) == (body(release)["content"]["text"], len(gate.ports.asked), drawn(gate))
        assert ["put_off", "answered"] == [record.outcome for record in gate.ports.records]


class TestAPolicyThatChangedMeanwhile:
    async def parked(self) -> tuple[ReviewedGate, Call]:
        gate = ReviewedGate()
        call = Call(gate, LOOKS)
        await call.defer()
        return gate, call

    async def test_a_rule_that_now_denies_wins(self) -> None:
        gate, call = await self.parked()
        await decide(gate)
        call.retry({"name": "no", "effect": "deny"})
        release = await call.end()
        assert isinstance(release.outcome, Denied)
        assert Reason.RULE is release.outcome.reason

    @pytest.mark.parametrize("change", [{"with": {"models": ["n"]}}, {"with": {"models": ["m"], "max_tokens": 5}}])
    async def test_the_same_rule_with_another_question_asks_no_model_again(self, change: dict[str, Any]) -> None:
        gate, call = await self.parked()
        await decide(gate)
        call.retry({**LOOKS, **change})
        release = await call.end()
        assert isinstance(release.outcome, Unanswered)
        assert 1 == len(gate.ports.asked)

    async def test_another_rule_decides_anew(self) -> None:
        _, call = await self.parked()
        call.retry({"name": "fixed", "effect": "answer", "content": "so"})
        assert "so" == body(await call.end())["content"]["text"]

    async def test_rules_that_are_not_its_own_change_nothing(self) -> None:
        gate, call = await self.parked()
        await decide(gate)
        call.retry({**FORWARD, "name": "more"}, LOOKS)
        assert "hi" == body(await call.end())["content"]["text"]


async def test_the_review_says_how_long_its_call_can_wait() -> None:
    gate = ReviewedGate()
    seen: list[Review] = []

    async def look() -> None:
        seen.append(await gate.pending())
        await gate.decides("approve")()

    await Call(gate, LOOKS, policy={**QUICK, "client": {"peer_timeout": "8s"}}).end(look)
    assert "1m" == duration_text((seen[0].answers_until or 0) - seen[0].created)


async def test_of_two_tries_of_one_call_at_two_gates_one_is_answered_by_the_verdict() -> None:
    """The client sends its retry twice, so both have the decision ID of the first try. The first one stalls beyond its
    lease, between the record and the use."""
    gate, other = ReviewedGate(), ReviewedGate()
    other.store, other._ids = gate.store, 1_000
    other.service = other.new_service()
    call = Call(gate, LOOKS)
    await call.defer()
    await decide(gate)
    first = call.round
    call.retry()
    stalls, goes_on, found = anyio.Event(), anyio.Event(), dict[str, Any]()
    use = gate.service.use

    async def late(spent: Any) -> bool:
        stalls.set()
        await goes_on.wait()
        return await use(spent)

    async def tries() -> None:
        gate.ports.reviews = gate.service
        found["first"] = await gate.ports.gate(call.d).run(first)

    gate.service.use = late  # type: ignore[method-assign]
    other.ports.reviews = other.service
    async with anyio.create_task_group() as group:
        group.start_soon(tries)
        await stalls.wait()
        gate.store.clock = lambda: wall() + LEASE + 1
        found["second"] = await other.ports.gate(call.d).run(call.round)
        goes_on.set()
    outcomes = {name: type(one.releases["k"].outcome) for name, one in found.items()}
    assert {"first": Unanswered, "second": Answered} == outcomes
    (review,) = gate.store.list(Filter())
    assert 1 == sum(event.what == "used" for event in gate.store.history(review.id))
