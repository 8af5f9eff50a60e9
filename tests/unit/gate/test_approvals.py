"""A gate whose reviewer needs the approval of two people: the request waits for both, and nothing less releases it."""

from __future__ import annotations

from typing import Any, Final, Literal

import anyio
import pytest

from samplegate.protocol.outcomes import Answered, Denied, Reason, Unanswered
from samplegate.reviews.review import Door, Edits, Filter, Verdict
from samplegate.reviews.votes import version
from tests.fakes.gate_ports import pushed
from tests.fakes.reviewed_gate import ASK, POLICY, ReviewedGate, Reviewer
from tests.fakes.virtual_time import VIRTUAL

pytestmark = pytest.mark.anyio

SOON: Final = {"servers": {"default": {"peer_timeout": "1s"}}}
"""The server of a request that ends long before its review."""


@pytest.fixture
def anyio_backend() -> Any:
    return VIRTUAL


def policy(**reviewer: Any) -> dict[str, Any]:
    return {**POLICY, "reviewers": {"ops": {"timeout": "15m", **reviewer}, "lead": {}}}


def vote(
    gate: ReviewedGate, who: str, door: Door = "page", word: Literal["approve", "reject"] = "approve", **more: Any
) -> Reviewer:
    async def decide() -> None:
        review = await gate.pending()
        await anyio.sleep("abc".index(who[0]) / 10)  # one after the other
        review = gate.store.reviews[review.id]
        gate.store.decide(review.id, Verdict(word=word, **more), who=who, door=door, seen=version(review))

    return decide


async def test_two_people_release_what_one_does_not() -> None:
    gate = ReviewedGate()
    release = await gate.settled(
        *pushed(ASK, policy=policy(approvals=2)), vote(gate, "anna"), vote(gate, "ben", "webhook")
    )
    assert isinstance(release.outcome, Answered)
    (record,) = gate.ports.records
    assert ("human", "anna, ben", 1) == (record.decided_by, record.reviewed_by, len(gate.ports.asked))
    assert [("anna", "page", True), ("ben", "webhook", False)] == [
        (one.by, one.how, one.proven) for one in record.votes
    ]


async def test_one_approval_is_recorded_though_the_other_never_comes() -> None:
    gate = ReviewedGate()
    release = await gate.settled(
        *pushed(ASK, policy={**policy(approvals=2), **SOON}), vote(gate, "anna"), vote(gate, "anna", "api")
    )
    assert isinstance(release.outcome, Unanswered)
    assert Reason.TIMEOUT == release.outcome.reason
    assert [["anna"]] == [[one.by for one in record.votes] for record in gate.ports.records]
    assert [] == gate.ports.asked


async def test_the_last_approval_after_the_request_answers_the_next_one() -> None:
    gate = ReviewedGate()
    both = {**policy(approvals=2), **SOON}
    first = await gate.settled(*pushed(ASK, policy=both), vote(gate, "anna"))
    assert isinstance(first.outcome, Unanswered)
    await vote(gate, "ben")()
    release = await gate.settled(*pushed(ASK, policy=both))
    assert isinstance(release.outcome, Answered)
    assert 1 == len(gate.store.list(Filter()))


async def test_one_rejection_denies_the_request() -> None:
    gate = ReviewedGate()
    release = await gate.settled(
        *pushed(ASK, policy=policy(approvals=3)), vote(gate, "anna"), vote(gate, "ben", word="reject")
    )
    assert isinstance(release.outcome, Denied)
    assert ["approve", "reject"] == [one.verdict for one in gate.ports.records[0].votes]


async def test_the_model_gets_what_both_approved() -> None:
    gate = ReviewedGate()
    edits = Edits(max_tokens=7)
    release = await gate.settled(
        *pushed(ASK, policy=policy(approvals=2)),
        vote(gate, "anna"),
        vote(gate, "ben", edits=edits),
        vote(gate, "cleo", edits=edits),
    )
    assert isinstance(release.outcome, Answered)
    assert [7] == [asked.params["maxTokens"] for asked in gate.ports.asked]
    assert [("anna", True), ("ben", False), ("cleo", False)] == [
        (one.by, one.void) for one in gate.ports.records[0].votes
    ]


@pytest.mark.parametrize(
    "asks", [{"approvals": 2}, {"not": "caller"}, {"groups": ["leads"]}, {"after": "1m", "also": ["lead"]}]
)
async def test_a_policy_that_asks_for_more_or_for_others_does_not_use_an_earlier_verdict(asks: dict[str, Any]) -> None:
    """Neither in the next request nor in one that waits: the review has another digest."""
    gate = ReviewedGate()
    await gate.settled(*pushed(ASK, policy={**policy(), **SOON}))
    await vote(gate, "anna")()
    release = await gate.settled(*pushed(ASK, policy={**policy(**asks), **SOON}))
    assert isinstance(release.outcome, Unanswered)
    first, second = gate.store.list(Filter(oldest_first=True))
    assert first.digest != second.digest
    release = await gate.settled(*pushed(ASK, policy={**policy(), **SOON}))
    assert isinstance(release.outcome, Answered)
