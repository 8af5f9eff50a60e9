"""The states of a review and the transitions that each refuses."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from samplegate.reviews.review import (
    DECIDED,
    ENDED,
    Conflict,
    Review,
    State,
    Verdict,
    decided,
    expired,
    held,
    left,
    opened,
    used,
    verdict_for,
    withdrawn,
)
from tests.fakes.reviews import NOW, review

APPROVE, REJECT, ANSWER = (
    Verdict(word="approve"),
    Verdict(word="reject"),
    Verdict(word="answer", result={"action": "cancel"}),
)
DONE: tuple[State, ...] = ("approved", "rejected", "answered", "expired", "withdrawn")


def approved(**values: object) -> Review:
    return review(state="approved", verdict=APPROVE, decided=NOW, **values)


@pytest.mark.parametrize(("verdict", "state"), [(APPROVE, "approved"), (REJECT, "rejected"), (ANSWER, "answered")])
def test_a_verdict_decides_what_is_pending(verdict: Verdict, state: State) -> None:
    after = decided(review(), verdict, who="ada", door="page", now=NOW + 1)
    assert isinstance(after, Review)
    assert (state, verdict, NOW + 1, "ada", "page") == (
        after.state,
        after.verdict,
        after.decided,
        after.who,
        after.door,
    )


@pytest.mark.parametrize("state", DONE)
def test_a_later_verdict_is_refused_with_what_came_of_it(state: State) -> None:
    before = review(state=state)
    assert Conflict(before) == decided(before, REJECT, who="eve", door="api", now=NOW + 1)


def test_a_verdict_when_time_is_up_is_refused_as_expired() -> None:
    found = decided(review(), APPROVE, who="ada", door="page", now=NOW + 900)
    assert isinstance(found, Conflict)
    assert ("expired", NOW + 900, "gate") == (found.review.state, found.review.decided, found.review.door)


def test_time_ends_what_is_pending_and_nothing_else() -> None:
    assert expired(review(), NOW + 899.9) is None
    assert all(expired(review(state=state), NOW + 9999) is None for state in DONE)
    ended = expired(review(waiter="w", held_until=NOW + 990), NOW + 900)
    assert ended is not None
    assert ("expired", None, 0.0) == (ended.state, ended.waiter, ended.held_until)


def test_only_its_own_waiter_withdraws_it_and_only_while_it_is_pending() -> None:
    mine = review(waiter="w", held_until=NOW + 30)
    assert withdrawn(mine, waiter="other", now=NOW) is None
    assert withdrawn(approved(waiter="w"), waiter="w", now=NOW) is None
    gone = withdrawn(mine, waiter="w", now=NOW + 1)
    assert gone is not None
    assert ("withdrawn", None) == (gone.state, gone.waiter)


@pytest.mark.parametrize(
    ("of", "now", "expected"),
    [
        (review(), NOW, "pending"),
        (review(), NOW + 900, "none"),
        (review(waiter="other", held_until=NOW + 30), NOW + 29, "none"),
        (review(waiter="other", held_until=NOW + 30), NOW + 30, "pending"),
        (review(waiter="w", held_until=NOW + 30), NOW + 1, "pending"),
        (approved(), NOW + 3599, "decided"),
        (approved(), NOW + 3600, "none"),
        (approved(late=0.0), NOW, "none"),
        (approved(late=0.0, waiter="w", held_until=NOW + 30), NOW + 5, "decided"),
        (approved(waiter="other", held_until=NOW + 30), NOW + 5, "none"),
        (approved(waiter="other", held_until=NOW + 30), NOW + 31, "decided"),
        (approved(used_by="d2"), NOW + 1, "none"),
        (review(state="expired"), NOW, "none"),
        (review(state="withdrawn"), NOW, "none"),
    ],
)
def test_what_a_waiter_finds(of: Review, now: float, expected: str) -> None:
    assert expected == verdict_for(of, "w", now)


def test_a_verdict_is_used_by_the_waiter_that_holds_it_and_once() -> None:
    mine = approved(waiter="w", held_until=NOW + 30)
    assert used(mine, waiter="other", decision_id="d2", now=NOW) is None
    assert used(review(waiter="w"), waiter="w", decision_id="d2", now=NOW) is None
    after = used(mine, waiter="w", decision_id="d2", now=NOW + 1)
    assert after is not None
    assert ("d2", NOW + 1, "w", 0.0) == (after.used_by, after.used, after.waiter, after.held_until)
    assert used(after, waiter="w", decision_id="d3", now=NOW + 2) is None
    assert used(after, waiter="other", decision_id="d2", now=NOW + 2) is None
    assert after is used(after, waiter="w", decision_id="d2", now=NOW + 2)


def test_a_review_is_created_at_the_stores_time_and_its_other_times_move_with_it() -> None:
    asked = review(held_until=NOW + 10, answers_until=NOW + 60)
    moved = opened(asked, NOW + 3600)
    assert moved == replace(
        asked, created=NOW + 3600, expires=asked.expires + 3600, held_until=NOW + 3610, answers_until=NOW + 3660
    )
    assert opened(replace(asked, answers_until=None), NOW).answers_until is None
    assert asked == opened(moved, NOW)


def test_who_leaves_gives_it_free_but_only_its_own() -> None:
    mine = approved(waiter="w", held_until=NOW + 30)
    assert left(mine, "other") is None
    after = left(mine, "w")
    assert after is not None
    assert "decided" == verdict_for(after, "next", NOW + 1)


class Races(RuleBasedStateMachine):
    """Three waiters, users and the clock act on one review in any order: at most one verdict, used at most once, by the
    waiter that held the review."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.review = NOW, review(late=120.0)
        self.verdicts: list[Verdict] = []
        self.uses: list[str] = []

    @rule(seconds=st.sampled_from([1.0, 31.0, 200.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.review = expired(self.review, self.now) or self.review

    @rule(verdict=st.sampled_from([APPROVE, REJECT, ANSWER]))
    def somebody_decides(self, verdict: Verdict) -> None:
        found = decided(self.review, verdict, who="ada", door="page", now=self.now)
        if isinstance(found, Review):
            self.verdicts.append(verdict)
            self.review = found

    @rule(waiter=st.sampled_from("abc"))
    def one_comes(self, waiter: str) -> None:
        if verdict_for(self.review, waiter, self.now) != "none":
            self.review = held(self.review, waiter=waiter, now=self.now, seconds=30.0)

    @rule(waiter=st.sampled_from("abc"))
    def one_leaves(self, waiter: str) -> None:
        self.review = left(self.review, waiter) or self.review

    @rule(waiter=st.sampled_from("abc"))
    def one_withdraws(self, waiter: str) -> None:
        self.review = withdrawn(self.review, waiter=waiter, now=self.now) or self.review

    @rule(waiter=st.sampled_from("abc"), id=st.sampled_from("de"))
    def one_uses_it(self, waiter: str, id: str) -> None:
        holder = self.review.waiter
        after = used(self.review, waiter=waiter, decision_id=id, now=self.now)
        if after is not None and after is not self.review:  # the same use again changes nothing
            assert holder == waiter
            self.uses.append(waiter)
            self.review = after

    @invariant()
    def it_is_decided_once_and_used_once(self) -> None:
        assert len(self.verdicts) <= 1
        assert len(self.uses) <= 1
        assert (self.review.state in DECIDED) == bool(self.verdicts)
        assert (self.review.decided is not None) == (self.review.state in ENDED)
        assert not self.uses or self.review.verdict == self.verdicts[0]


TestRaces = Races.TestCase
TestRaces.settings = settings(stateful_step_count=25)
