"""Attacks on reviews: rounds with several requests, edits that go too far, policy changes, verdicts that cannot be
used."""

from __future__ import annotations

import json
from typing import Any

import anyio.lowlevel
import pytest
from msgspec.structs import replace

from samplegate.errors import Unavailable
from samplegate.policy.ledger import SCALE
from samplegate.policy.match import compile_policy
from samplegate.policy.prompt import Sampled, SampleRequest
from samplegate.protocol.outcomes import Answered, Denied, Reason, Unanswered
from samplegate.protocol.rounds import ForwardRound, Open, Settled
from samplegate.reviews.review import Edits, Filter, Review, Verdict
from tests.fakes.dialogue import form, modern, one, policy, sample
from tests.fakes.gate_ports import SAMPLED, asked, pushed
from tests.fakes.reviewed_gate import ASK, LOOK, POLICY, ReviewedGate, Reviewer, body
from tests.fakes.virtual_time import VIRTUAL

pytestmark = pytest.mark.anyio
IMPATIENT: dict[str, Any] = {**POLICY, "servers": {"default": {"peer_timeout": "200ms"}}}
LIMITS: dict[str, Any] = {
    "limits": {"once": {"requests": 1, "per": "1h"}, "words": {"output_tokens": 10_000, "per": "1h"}}
}


@pytest.fixture
def anyio_backend() -> Any:
    return VIRTUAL


def decides_on(gate: ReviewedGate, most_tokens: int, word: str, *, before: int = 1, **more: Any) -> Reviewer:
    """Decide the review of the request with these max tokens, once ``before`` reviews are pending."""

    async def decide() -> None:
        while len(gate.store.list(Filter(states=("pending",)))) < before:
            await anyio.lowlevel.checkpoint()
        found = next(one for one in gate.store.list(Filter()) if one.params.get("maxTokens") == most_tokens)
        gate.store.decide(found.id, Verdict(word=word, **more), who="ana", door="page")  # type: ignore[arg-type]

    return decide


async def test_a_refusal_of_one_of_two_is_what_the_server_hears_and_is_spent() -> None:
    gate = ReviewedGate()
    d, round = asked(ASK, policy=POLICY, a=sample(maxTokens=11), b=sample(maxTokens=12))
    conclusion = await gate.run(d, round, decides_on(gate, 12, "reject", before=2, reason="no", tell_server=True))
    assert isinstance(conclusion, Settled)
    assert isinstance(conclusion.releases["b"].outcome, Denied)
    assert {(11, "withdrawn", False), (12, "rejected", True)} == {
        (one.params["maxTokens"], one.state, one.used_by is not None) for one in gate.store.list(Filter())
    }
    assert {("a", "withdrawn"), ("b", "denied")} == {(record.key, record.outcome) for record in gate.ports.records}
    assert [] == [event for event, _ in gate.ports.log.events if event == "request.failed"]


@pytest.mark.parametrize("gone", [False, True], ids=["refused", "nobody to ask"])
async def test_no_model_is_asked_for_a_round_that_a_sibling_ends(gone: bool) -> None:
    gate = ReviewedGate()
    gate.store.fault = "gone" if gone else None
    rules = (
        {**ASK, "match": {"max_tokens": {"min": 12, "max": 12}}},
        {"name": "rest", "effect": "allow", "match": {"kind": "sampling"}},
    )
    d, round = asked(*rules, policy=POLICY, a=sample(maxTokens=400), b=sample(maxTokens=12))
    conclusion = await gate.run(d, round, *([] if gone else [decides_on(gate, 12, "reject")]))
    assert isinstance(conclusion, Settled)
    assert [] == gate.ports.asked


async def test_a_verdict_that_could_not_be_marked_as_used_is_there_again_once_its_lease_is_over() -> None:
    gate, real = ReviewedGate(), None

    def fails(*_: Any, **__: Any) -> bool:
        raise Unavailable("store: locked")

    real, gate.store.use = gate.store.use, fails  # type: ignore[method-assign]
    await gate.settled(*pushed(ASK, policy=POLICY), gate.decides("approve"))
    gate.store.use = real  # type: ignore[method-assign]
    (review,) = gate.store.list(Filter())
    found = gate.store.at(review.held_until).seek(review.lookup, stage="request", waiter="next", seconds=1)
    assert found is not None
    assert (review.id, "approved") == (found.id, found.state)


async def test_nothing_is_held_of_a_review_that_expired() -> None:
    gate = ReviewedGate()
    await gate.settled(*pushed({**ASK, "timeout": "20ms"}, policy=POLICY))
    assert set() == gate.service._waiters


@pytest.mark.parametrize(
    ("rules", "edits"),
    [
        ([], Edits(max_tokens=401)),  # more than the server requested (R3)
        ([{"name": "never", "effect": "deny", "match": {"kind": "sampling", "text": "forbidden"}}], "forbidden"),
        (
            [
                {
                    "name": "lawyers",
                    "effect": "escalate",
                    "reviewer": "law",
                    "match": {"kind": "sampling", "text": "contract"},
                }
            ],
            "a contract",
        ),
        ([{**ASK, "name": "bare", "with": {"system_prompt": "drop"}}], Edits(system_prompt="do this")),
    ],
)
async def test_no_edit_gets_round_another_rule_or_a_bound(rules: list[dict[str, Any]], edits: Edits | str) -> None:
    gate = ReviewedGate()
    if isinstance(edits, str):
        edits = Edits(messages=({"role": "user", "content": {"type": "text", "text": edits}},))
    both = {**POLICY, "reviewers": {"ops": {}, "law": {}}}
    release = await gate.settled(
        *pushed(*rules, ASK, params=sample(maxTokens=400), policy=both), gate.decides("approve", edits=edits)
    )
    assert isinstance(release.outcome, Unanswered)
    assert (Reason.REVIEW, []) == (release.outcome.reason, gate.ports.asked)


async def test_a_verdict_that_can_never_be_carried_out_is_spent_so_that_a_person_is_asked_anew() -> None:
    gate = ReviewedGate()
    await gate.settled(
        *pushed(ASK, params=sample(maxTokens=40), policy=POLICY), gate.decides("approve", edits=Edits(max_tokens=41))
    )
    release = await gate.settled(*pushed(ASK, params=sample(maxTokens=40), policy=POLICY), gate.decides("approve"))
    assert isinstance(release.outcome, Answered)


@pytest.mark.parametrize(
    "now",
    [[{"name": "never", "effect": "deny"}], [{**ASK, "with": {"max_tokens": 3}}], []],
    ids=["denied", "other bounds", "no rule"],
)
async def test_a_verdict_counts_only_as_long_as_the_policy_in_force_asks_for_it(now: list[dict[str, Any]]) -> None:
    gate = ReviewedGate()
    d, round = pushed(ASK, policy=POLICY)
    policies = [d.compiled, compile_policy(policy(*now, **POLICY), {})]
    gate.ports.in_force = lambda: policies[0]

    async def reload_and_approve() -> None:
        await gate.pending()
        del policies[0]
        await gate.decides("approve")()

    release = await gate.settled(d, round, reload_and_approve)
    assert isinstance(release.outcome, Unanswered)
    assert (Reason.REVIEW, []) == (release.outcome.reason, gate.ports.asked)
    assert None is (gate.store.list(Filter()))[0].used_by


async def test_a_reload_that_changes_nothing_for_it_leaves_a_verdict_as_it_is() -> None:
    gate = ReviewedGate()
    compiled = compile_policy(policy(ASK, **POLICY), {})
    gate.ports.in_force = lambda: compiled
    release = await gate.settled(*pushed(ASK, policy=POLICY), gate.decides("approve"))
    assert isinstance(release.outcome, Answered)


async def test_an_edited_request_is_not_refused_for_its_own_count() -> None:
    gate = ReviewedGate()
    rule = {**ASK, "limits": ["once", "words"]}
    release = await gate.settled(
        *pushed(rule, params=sample(maxTokens=40), policy={**POLICY, **LIMITS}),
        gate.decides("approve", edits=Edits(max_tokens=4)),
    )
    assert isinstance(release.outcome, Answered)
    assert (SCALE["requests"], 4 * SCALE["output_tokens"]) == (
        gate.ports.limits.drawn("once"),
        gate.ports.limits.drawn("words"),
    )


async def test_a_request_that_was_put_off_is_not_refused_for_its_own_count() -> None:
    gate = ReviewedGate()
    d, round = asked(
        {**ASK, "limits": ["once"]}, policy={**POLICY, **LIMITS, "client": {"peer_timeout": "200ms"}}, b=form()
    )
    parked = await gate.run(d, round)
    await gate.decides("answer", result={"action": "decline"})()
    conclusion = await gate.run(d, returned(d, round, parked))
    assert isinstance(conclusion, Settled)
    assert isinstance(conclusion.releases["b"].outcome, Answered)


async def test_a_review_that_expires_while_its_call_is_put_off_is_not_opened_again() -> None:
    gate = ReviewedGate()
    rule = {**ASK, "timeout": "250ms", "on_timeout": "next"}
    rest = {"name": "rest", "effect": "answer", "content": {"confirm": True}}
    d, round = asked(rule, rest, policy={**POLICY, "client": {"peer_timeout": "150ms"}}, b=form())
    parked = await gate.run(d, round)
    (review,) = gate.store.list(Filter())
    gate.store.reviews[review.id] = replace(review, expires=review.created)  # it has expired meanwhile
    conclusion = await gate.run(d, returned(d, round, parked))
    assert isinstance(conclusion, Settled)
    assert {"action": "accept", "content": {"confirm": True}} == body(conclusion.releases["b"])
    assert 1 == len(gate.store.list(Filter()))


async def test_an_approval_late_in_a_try_gives_the_model_the_next_try() -> None:
    gate = ReviewedGate()
    d, round = asked(ASK, policy={**POLICY, "client": {"peer_timeout": "600ms"}}, a=sample())

    async def late() -> None:
        await gate.pending()
        gate._started -= 0.35
        await gate.decides("approve")()

    parked = await gate.run(d, round, late)
    assert isinstance(parked, ForwardRound)
    conclusion = await gate.run(d, returned(d, round, parked))
    assert isinstance(conclusion, Settled)
    assert isinstance(conclusion.releases["a"].outcome, Answered)


async def test_verdicts_of_one_round_are_spent_together_or_not_at_all() -> None:
    gate = ReviewedGate()
    d, round = asked(ASK, policy=POLICY, a=sample(maxTokens=11), b=sample(maxTokens=12))

    async def stolen() -> None:
        await decides_on(gate, 11, "approve", before=2)()
        await decides_on(gate, 12, "approve", before=1)()

    def nothing(uses: Any) -> bool:
        return False

    gate.store.use = nothing  # type: ignore[method-assign]
    conclusion = await gate.run(d, round, stolen)
    assert isinstance(conclusion, Settled)
    assert ["unanswered", "unanswered"] == [type(one.outcome).__name__.lower() for one in conclusion.releases.values()]
    assert [None, None] == [review.used_by for review in gate.store.list(Filter())]
    assert ["answered", "answered", "unanswered", "unanswered"] == [record.outcome for record in gate.ports.records]
    assert [False, False, True, True] == [record.revokes for record in gate.ports.records]


async def test_a_verdict_on_what_one_unnamed_server_asked_is_none_for_another() -> None:
    gate = ReviewedGate()
    gate.ports.realm = "one command"
    await gate.settled(*pushed(ASK, policy=IMPATIENT))
    await gate.decides("approve")()
    gate.ports.realm = "another"
    release = await gate.settled(*pushed(ASK, policy=IMPATIENT))
    assert isinstance(release.outcome, Unanswered)


async def test_the_end_of_the_process_is_no_answer_to_a_model_that_a_person_looks_at() -> None:
    gate = ReviewedGate()
    rules = ({**LOOK, "on_timeout": "next"}, {"name": "fixed", "effect": "answer", "content": "canned"})
    d, round = asked(*rules, policy=POLICY, a=sample())

    async def end() -> None:
        await gate.pending()
        gate.service.end()
        await gate.decides("approve")()

    conclusion = await gate.run(d, round, end)
    assert isinstance(conclusion, Settled)
    assert "hi" == body(conclusion.releases["a"])["content"]["text"]


async def test_a_process_that_slept_does_not_free_what_another_holds_by_now() -> None:
    gate = ReviewedGate()

    async def taken_over() -> Review:
        mine = await gate.pending()
        stored = gate.store.reviews[mine.id]
        gate.store.reviews[mine.id] = type(stored)(
            **{**{name: getattr(stored, name) for name in stored.__struct_fields__}, "waiter": "another"}
        )
        await gate.decides("approve")()
        return mine

    async def take() -> None:
        await taken_over()

    await gate.settled(*pushed(ASK, policy=POLICY), take)
    (review,) = gate.store.list(Filter())
    assert ("approved", "another") == (review.state, review.waiter)


def returned(d: Any, round: Any, parked: Any) -> Any:
    """The round that the client's next retry opens again."""
    assert isinstance(parked, ForwardRound), parked
    state = json.loads(d.take(d.session.round_done(round.id, parked, d.now))[0].line)["result"]["requestState"]
    return one(d.client(modern(9, "tools/call", name="x", requestState=state)), Open).round


async def test_a_review_says_how_long_whoever_joined_it_last_will_wait() -> None:
    gate = ReviewedGate()
    await gate.settled(*pushed(ASK, policy=IMPATIENT))
    (before,) = gate.store.list(Filter())
    await gate.settled(*pushed(ASK, policy=IMPATIENT))
    (after,) = gate.store.list(Filter())
    assert before.answers_until is not None
    assert after.answers_until is not None
    assert before.answers_until < after.answers_until


async def test_a_policy_that_changes_while_a_model_answers_what_was_approved_releases_nothing() -> None:
    policies: list[Any] = []

    async def reloaded(_: SampleRequest) -> Sampled:
        del policies[0]
        return SAMPLED

    gate = ReviewedGate(answer=reloaded)
    d, round = pushed(ASK, policy=POLICY)
    policies += [d.compiled, compile_policy(policy({"name": "never", "effect": "deny"}, **POLICY), {})]
    gate.ports.in_force = lambda: policies[0]
    release = await gate.settled(d, round, gate.decides("approve"))
    assert isinstance(release.outcome, Unanswered)
    assert ["unanswered"] == [record.outcome for record in gate.ports.records]
    assert None is (gate.store.list(Filter()))[0].used_by
