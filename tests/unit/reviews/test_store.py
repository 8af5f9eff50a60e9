"""Behavior of every review store: tests that run with the real store and with the fake of other tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest
from msgspec.structs import replace

from samplegate.reviews.async_store import AsyncReviewStore
from samplegate.reviews.review import MAX_UI, Also, Conflict, Delivery, Filter, Review, ReviewUi, VoteRefused
from samplegate.reviews.store import ReviewStore
from samplegate.reviews.votes import version
from tests.fakes.review_store import MemoryReviews, TimedReviews
from tests.fakes.stored_reviews import APP, LOADING, NO, NOW, READY, YES, filled, form, review

Store: TypeAlias = TimedReviews | MemoryReviews


@pytest.fixture(params=["kept", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "memory":
        yield MemoryReviews()
        return
    kept = TimedReviews(f"sqlite:{tmp_path / 'reviews.db'}")
    yield kept
    kept.close()


def opened(store: Store, *reviews: Review, announce: bool = False) -> None:
    for one in reviews:
        assert one == store.at(one.created).open(one, announce=announce, most=100)


def sought(store: Store, waiter: str = "w", now: float = NOW, lookup: str = "sha256:l", own: str = "") -> str | None:
    found = store.at(now).seek(lookup, stage="request", waiter=waiter, seconds=10, own=own)
    return None if found is None else found.id


def used(store: Store, id: str = "rv_a", waiter: str = "w", now: float = NOW + 2, by: str = "d1") -> bool:
    return store.at(now).use([(id, waiter, by)])


def event_names(store: Store, id: str = "rv_a") -> list[str]:
    return [event.what for event in store.history(id)]


def ids(store: Store, **filter: object) -> list[str]:
    return [one.id for one in store.list(Filter(**filter))]  # type: ignore[arg-type]


def taken(store: Store, now: float = NOW, limit: int = 10, taker: str = "t") -> Sequence[Delivery]:
    return store.at(now).take_deliveries(["ops"], taker=taker, seconds=5, limit=limit)


def kept(store: Store, id: str = "rv_a") -> Review:
    found = store.get(id)
    assert found is not None
    return found


def test_what_was_opened_comes_back_as_it_was(store: Store) -> None:
    one = form(waiter="w", held_until=NOW + 5, changed=("maxTokens",), worst_usd=2**70, answers_until=NOW + 1.5)
    opened(store, one)
    assert (one, None) == (store.get("rv_f"), store.get("rv_g"))


def test_a_verdict_is_found_by_the_next_same_request_and_used_once(store: Store) -> None:
    opened(store, review())
    said = store.at(NOW + 1).decide("rv_a", YES, who="ann", door="page")
    assert isinstance(said, Review)
    assert ("approved", YES, "ann", "page", NOW + 1) == (said.state, said.verdict, said.who, said.door, said.decided)
    assert "rv_a" == sought(store)
    assert [True, False] == [used(store), used(store, by="d2")]
    assert None is sought(store)
    after = kept(store)
    assert ("d1", NOW + 2, "w") == (after.used_by, after.used, after.waiter)
    assert ["opened", "approved", "used"] == event_names(store)


def test_verdicts_that_are_used_together_are_all_used_or_none(store: Store) -> None:
    opened(store, review("rv_a", waiter="w", held_until=NOW + 10), review("rv_b", waiter="other", held_until=NOW + 10))
    for id in ("rv_a", "rv_b"):
        store.at(NOW + 1).decide(id, YES, who="ann", door="page")
    together = [("rv_a", "w", "d1"), ("rv_b", "w", "d2")]
    for uses in (together, together[::-1], [("rv_a", "w", "d1"), ("rv_none", "w", "d2")]):
        assert not store.at(NOW + 2).use(uses)
        assert [None, None] == [(kept(store, id)).used_by for id in ("rv_a", "rv_b")]
    assert store.at(NOW + 2).use([("rv_a", "w", "d1"), ("rv_b", "other", "d2")])
    assert ["d1", "d2"] == [(kept(store, id)).used_by for id in ("rv_a", "rv_b")]


def test_the_same_use_again_is_no_other_use(store: Store) -> None:
    """So that a gate that does not know whether its use was written may ask again."""
    opened(store, review("rv_a", waiter="w", held_until=NOW + 10), review("rv_b", waiter="w", held_until=NOW + 10))
    for id in ("rv_a", "rv_b"):
        store.at(NOW + 1).decide(id, YES, who="ann", door="page")
    uses = [("rv_b", "w", "d2"), ("rv_a", "w", "d1")]
    assert store.at(NOW + 2).use(uses)
    before, then = store.last_change(), [kept(store, id) for id in ("rv_a", "rv_b")]
    assert store.at(NOW + 3).use(uses[::-1])
    assert (before, then) == (store.last_change(), [kept(store, id) for id in ("rv_a", "rv_b")])
    assert not store.use([("rv_a", "w", "d1"), ("rv_b", "w", "d3")])
    assert not store.use([("rv_a", "other", "d1"), ("rv_b", "other", "d2")])


def test_retries_of_a_call_have_one_decision_id_and_do_not_use_a_verdict_twice(store: Store) -> None:
    """The first try stalls beyond its lease, and the second one gets the verdict."""
    opened(store, review(waiter="first", held_until=NOW + 10))
    store.at(NOW + 1).decide("rv_a", YES, who="ann", door="page")
    assert "rv_a" == sought(store, "second", now=NOW + 11)
    assert [True, False] == [used(store, waiter=waiter, now=NOW + 12) for waiter in ("second", "first")]
    assert ["opened", "approved", "used"] == event_names(store)


@pytest.mark.parametrize("first", [[("rv_a", "w", "d1")], []])
def test_uses_of_which_some_were_used_before_or_of_one_review_twice_are_none(
    store: Store, first: list[tuple[str, str, str]]
) -> None:
    opened(store, review("rv_a", waiter="w", held_until=NOW + 10), review("rv_b", waiter="w", held_until=NOW + 10))
    for id in ("rv_a", "rv_b"):
        store.at(NOW + 1).decide(id, YES, who="ann", door="page")
    assert store.use(first)
    more = ("rv_b", "w", "d2") if first else ("rv_a", "w", "d2")
    assert not store.use([("rv_a", "w", "d1"), more])
    assert None is kept(store, "rv_b").used_by


def test_the_first_verdict_wins_and_the_second_is_told_of_it(store: Store) -> None:
    opened(store, review())
    first = store.at(NOW + 1).decide("rv_a", YES, who="ann", door="page")
    assert Conflict(first) == store.at(NOW + 2).decide("rv_a", NO, who="bob", door="api")  # type: ignore[arg-type]
    assert None is store.at(NOW + 2).decide("rv_none", NO, who="bob", door="api")
    assert ["opened", "approved"] == event_names(store)


def test_a_verdict_after_its_time_leaves_the_review_expired(store: Store) -> None:
    opened(store, review(), announce=True)
    said = store.at(NOW + 100).decide("rv_a", YES, who="ann", door="page")
    assert isinstance(said, Conflict)
    assert ("expired", None, NOW + 100) == (said.review.state, said.review.verdict, said.review.decided)
    assert said.review == store.get("rv_a")
    assert (["opened", "expired"], []) == (event_names(store), list(store.at(NOW + 200).expire()))
    assert ["review.opened", "review.expired"] == [one.event for one in taken(store, NOW + 100)]


def test_only_pending_reviews_expire_and_only_once(store: Store) -> None:
    opened(
        store,
        review("rv_a"),
        review("rv_b", expires=NOW + 10, waiter="w", held_until=NOW + 99),
        review("rv_c", expires=NOW + 10),
    )
    store.at(NOW + 1).decide("rv_c", YES, who="ann", door="page")
    over = store.at(NOW + 10).expire()
    assert [("rv_b", "expired", None)] == [(one.id, one.state, one.waiter) for one in over]
    assert ([], ["opened", "expired"]) == (list(store.at(NOW + 10).expire()), event_names(store, "rv_b"))


def test_a_review_that_waits_is_joined_once_its_waiter_is_dead_and_not_before(store: Store) -> None:
    opened(store, review(waiter="old", held_until=NOW + 10))
    assert [None, None] == [sought(store), sought(store, now=NOW + 9)]
    assert "rv_a" == sought(store, now=NOW + 10)
    assert None is sought(store, "old", now=NOW + 11)
    after = kept(store)
    assert ("w", NOW + 20, ["opened", "joined"]) == (after.waiter, after.held_until, event_names(store))


def test_a_waiter_that_says_it_is_there_is_no_news(store: Store) -> None:
    opened(store, review(waiter="w", held_until=NOW + 10))
    before = store.last_change()
    assert "rv_a" == sought(store, now=NOW + 9)
    assert (before, NOW + 19) == (store.last_change(), (kept(store)).held_until)


def test_leases_are_renewed_together_and_that_is_no_news(store: Store) -> None:
    opened(store, *(review(f"rv_{waiter}", waiter=waiter, held_until=NOW + 10) for waiter in "abc"))
    store.at(NOW + 1).decide("rv_b", YES, who="ann", door="page")
    before = store.last_change()
    store.at(NOW + 9).renew([], seconds=10)
    store.at(NOW + 9).renew(["a", "b", "x"], seconds=10)
    assert [NOW + 19, NOW + 19, NOW + 10] == [(kept(store, f"rv_{waiter}")).held_until for waiter in "abc"]
    assert (before, "rv_c") == (store.last_change(), sought(store, now=NOW + 11))


def test_the_oldest_verdict_comes_before_the_oldest_that_waits(store: Store) -> None:
    opened(
        store,
        review("rv_a"),
        review("rv_b", created=NOW + 1),
        review("rv_c", created=NOW + 2),
        review("rv_d", created=NOW - 1),
    )
    store.at(NOW + 3).decide("rv_c", YES, who="ann", door="page")
    store.at(NOW + 4).decide("rv_b", NO, who="ann", door="page")
    assert ["rv_c", "rv_b", "rv_d", "rv_a", None] == [sought(store, f"w{n}", now=NOW + 5) for n in range(5)]


def test_another_stage_or_another_request_finds_nothing(store: Store) -> None:
    opened(store, review("rv_a", stage="answer"), review("rv_b", lookup="sha256:other"))
    assert None is sought(store)
    assert "rv_b" == sought(store, lookup="sha256:other")


@pytest.mark.parametrize(("after", "found"), [(50.9, "rv_a"), (51.0, None)])
def test_a_late_verdict_is_good_as_long_as_its_review_says(store: Store, after: float, found: str | None) -> None:
    opened(store, review())
    store.at(NOW + 1).decide("rv_a", YES, who="ann", door="page")
    assert found == sought(store, now=NOW + after)


def test_who_waited_while_it_was_decided_is_in_time_whatever_late_says(store: Store) -> None:
    opened(store, review(late=0.0, waiter="w", held_until=NOW + 10))
    store.at(NOW + 1).decide("rv_a", YES, who="ann", door="page")
    assert [None, "rv_a"] == [sought(store, "other", now=NOW + 2), sought(store, now=NOW + 3)]


def test_a_verdict_is_never_late_for_the_request_that_waited_for_it_before(store: Store) -> None:
    opened(store, review(late=0.0), review(id="rv_b", late=0.0))
    store.at(NOW + 1).decide("rv_a", YES, who="ann", door="page")
    assert [None, None] == [
        sought(store, now=NOW + 500, own="rv_c", lookup="sha256:other"),
        sought(store, now=NOW + 901),
    ]
    assert "rv_a" == sought(store, now=NOW + 902, own="rv_a")
    assert [True, None] == [used(store, now=NOW + 903), sought(store, now=NOW + 904, own="rv_a")]


def test_a_verdict_that_was_given_back_is_the_next_ones(store: Store) -> None:
    opened(store, review(waiter="w", held_until=NOW + 10))
    store.at(NOW + 1).decide("rv_a", YES, who="ann", door="page")
    store.at(NOW + 2).leave("rv_a", waiter="other")
    assert None is sought(store, "next", now=NOW + 2)
    store.at(NOW + 2).leave("rv_a", waiter="w")
    assert "rv_a" == sought(store, "next", now=NOW + 3)
    assert [False, True] == [used(store), used(store, waiter="next")]
    assert ["opened", "approved", "given back", "used"] == event_names(store)


def test_only_its_waiter_takes_a_pending_review_back(store: Store) -> None:
    opened(store, review(waiter="w", held_until=NOW + 10), announce=True)
    assert not store.at(NOW + 1).withdraw("rv_a", waiter="other", why="gone")
    assert store.at(NOW + 1).withdraw("rv_a", waiter="w", why="the client cancelled")
    assert not store.at(NOW + 1).withdraw("rv_a", waiter="w", why="gone")
    assert ("withdrawn", NOW + 1) == ((kept(store)).state, (kept(store)).decided)
    last = (store.history("rv_a"))[-1]
    assert ("withdrawn", "the client cancelled", "gate") == (last.what, last.detail, last.door)
    assert isinstance(store.at(NOW + 2).decide("rv_a", YES, who="ann", door="page"), Conflict)
    assert ["review.opened", "review.withdrawn"] == [one.event for one in taken(store, NOW + 1)]


def test_who_takes_back_what_is_decided_only_leaves_it(store: Store) -> None:
    opened(store, review(waiter="w", held_until=NOW + 10))
    store.at(NOW + 1).decide("rv_a", YES, who="ann", door="page")
    assert not store.at(NOW + 1).withdraw("rv_a", waiter="w", why="gone")
    assert "rv_a" == sought(store, "next", now=NOW + 2)


def test_no_more_than_so_many_wait_and_those_whose_time_is_over_do_not_count(store: Store) -> None:
    opened(store, review("rv_a", expires=NOW + 5))
    assert not store.at(NOW + 4).open(review("rv_b", created=NOW + 4), announce=True, most=1)
    assert (None, []) == (store.get("rv_b"), event_names(store, "rv_b"))
    assert store.at(NOW + 5).open(review("rv_b", created=NOW + 5), announce=False, most=1)


def test_the_secrets_of_a_form_are_kept_until_it_has_served_and_no_longer(store: Store) -> None:
    opened(store, form(waiter="w", held_until=NOW + 10))
    store.at(NOW + 1).decide("rv_f", filled(user="ann", password="hunter2"), who="ann", door="page")
    found = store.at(NOW + 1).seek("sha256:l", stage="request", waiter="w", seconds=10)
    assert found is not None
    assert filled(user="ann", password="hunter2") == found.verdict
    assert used(store, "rv_f")
    assert filled(user="ann", password="[secret]") == (kept(store, "rv_f")).verdict


def test_pages_go_from_new_to_old_and_each_review_is_on_one(store: Store) -> None:
    opened(store, *(review(f"rv_{n}", created=NOW + n // 2) for n in range(7)))
    pages = [ids(store, limit=3), ids(store, limit=3, before="rv_4"), ids(store, limit=3, before="rv_1")]
    assert [["rv_6", "rv_5", "rv_4"], ["rv_3", "rv_2", "rv_1"], ["rv_0"]] == pages
    assert [[], [], []] == [ids(store, before="rv_0"), ids(store, before="rv_none"), ids(store, limit=0)]
    assert ["rv_0", "rv_1"] == ids(store, limit=2, oldest_first=True)
    assert ["rv_2", "rv_3", "rv_4"] == ids(store, limit=3, before="rv_1", oldest_first=True)


def test_lists_are_of_what_was_asked_for(store: Store) -> None:
    opened(
        store,
        review("rv_a"),
        review("rv_b", reviewer="dba", created=NOW + 1),
        form("rv_c", server="web", created=NOW + 2),
    )
    store.at(NOW + 3).decide("rv_b", NO, who="ann", door="page")
    assert (["rv_c", "rv_a"], ["rv_b"]) == (ids(store, states=("pending",)), ids(store, states=("rejected", "expired")))
    assert ["rv_c", "rv_b", "rv_a"] == ids(store, states=("pending", "rejected", "pending"))
    assert (["rv_b"], []) == (ids(store, reviewers=("dba", "none")), ids(store, reviewers=()))
    assert (["rv_c"], ["rv_c"], []) == (
        ids(store, server="web"),
        ids(store, kind="elicitation"),
        ids(store, server="w"),
    )
    assert ["rv_a"] == ids(store, states=("pending", "rejected"), before="rv_b", limit=1)


def test_what_is_pending_is_counted_by_reviewer(store: Store) -> None:
    opened(
        store,
        review("rv_a"),
        review("rv_b", created=NOW - 5),
        review("rv_c", reviewer="dba"),
        review("rv_d", reviewer="x"),
    )
    store.at(NOW + 3).decide("rv_d", NO, who="ann", door="page")
    assert {"ops": (2, NOW - 5), "dba": (1, NOW)} == dict(store.pending())


def test_changes_come_in_order_and_go_on_where_one_left_off(store: Store) -> None:
    assert (0, []) == (store.last_change(), list(store.changes(0, 10)))
    opened(store, review("rv_a"), review("rv_b"))
    store.at(NOW + 3).decide("rv_a", NO, who="ann", door="page")
    events = store.changes(0, 2)
    assert [("rv_a", "opened"), ("rv_b", "opened")] == [(event.review, event.what) for event in events]
    assert [("rejected", "ann", "page", NOW + 3)] == [
        (e.what, e.who, e.door, e.at) for e in store.changes(events[-1].number, 10)
    ]
    assert events[-1].number + 1 == store.last_change()


def test_ended_reviews_are_forgotten_with_their_history_and_numbers_go_on(store: Store) -> None:
    opened(store, review("rv_a"), review("rv_b"), review("rv_c"), announce=True)
    store.at(NOW + 3).decide("rv_a", NO, who="ann", door="page")
    store.at(NOW + 4).decide("rv_b", NO, who="ann", door="page")
    before = store.last_change()
    assert [1, 0] == [store.at(NOW + 4).purge(0.0), store.at(NOW + 4).purge(0.0)]
    assert ["rv_c", "rv_b"] == ids(store)
    assert ([], ["opened", "rejected"]) == (event_names(store, "rv_a"), event_names(store, "rv_b"))
    assert {"rv_b", "rv_c"} == {one.review for one in taken(store, NOW + 10)}
    assert 2 == store.at(NOW + 500).purge(0.0) + len(store.at(NOW + 500).expire())
    opened(store, review("rv_d"))
    assert before + 2 == store.last_change()


def test_the_key_is_32_bytes_and_stays(store: Store) -> None:
    assert 32 == len(store.key())
    assert store.key() == store.key()


@pytest.mark.anyio
@pytest.mark.parametrize("kept", [True, False])
async def test_whoever_watches_is_told_of_changes_until_it_ends(kept: bool, tmp_path: Path) -> None:
    store: ReviewStore = AsyncReviewStore(f"sqlite:{tmp_path / 'reviews.db'}") if kept else MemoryReviews()
    told: list[str] = []
    ends = [store.watch(lambda: told.append("a")), store.watch(lambda: told.append("b"))]
    assert await store.write(lambda reviews: reviews.open(review(), announce=False, most=9))
    assert ["a", "b"] == told
    ends[0]()
    ends[0]()
    for _ in range(2):
        await store.write(lambda reviews: reviews.decide("rv_a", NO, who="ann", door="page"))
    assert ["a", "b", "b"] == told
    ends[1]()
    assert await store.write(lambda reviews: reviews.open(review("rv_b"), announce=False, most=9))
    assert ["a", "b", "b"] == told


def test_a_delivery_is_one_takers_until_its_lease_is_over(store: Store) -> None:
    opened(store, review(), announce=True)
    first = (taken(store))[0]
    assert ("rv_a", "ops", "review.opened", NOW, 0, "t", NOW + 5) == (
        first.review,
        first.reviewer,
        first.event,
        first.created,
        first.tries,
        first.taker,
        first.held_until,
    )
    assert [] == list(taken(store, NOW + 4, taker="u"))
    assert [first.id] == [one.id for one in taken(store, NOW + 5, taker="u")]
    assert first.id.startswith("msg_")
    assert 28 == len(first.id)


def test_a_taker_that_is_still_at_it_keeps_a_delivery(store: Store) -> None:
    opened(store, review(), announce=True)
    first = (taken(store))[0]
    assert store.at(NOW + 4).hold_delivery(first, seconds=5)
    assert [] == list(taken(store, NOW + 8, taker="u"))
    other = (taken(store, NOW + 9, taker="u"))[0]
    assert not store.at(NOW + 10).hold_delivery(first, seconds=5)
    store.at(NOW + 10).delivered(other, said="200")
    assert not store.at(NOW + 10).hold_delivery(other, seconds=5)


def test_deliveries_to_other_reviewers_stay(store: Store) -> None:
    opened(store, review("rv_a", reviewer="dba"), review("rv_b"), announce=True)
    assert [] == list(store.at(NOW).take_deliveries([], taker="t", seconds=5, limit=10))
    assert [["rv_b"], []] == [[one.review for one in taken(store)], [one.review for one in taken(store)]]


def test_a_delivery_is_tried_again_when_it_is_due_and_counts(store: Store) -> None:
    opened(store, review(), announce=True)
    first = taken(store)[0]
    store.at(NOW + 1).postpone(first, wait=29, said="503")
    assert [] == list(taken(store, NOW + 29))
    again = (taken(store, NOW + 30))[0]
    assert (1, "503", NOW + 30) == (again.tries, again.said, again.due)
    store.at(NOW + 31).delivered(again, said="200")
    assert [] == list(taken(store, NOW + 99))
    last = (store.history("rv_a"))[-1]
    assert ("told", "review.opened: 200", NOW + 31) == (last.what, last.detail, last.at)


def test_a_delivery_that_is_given_up_is_told_of_and_not_tried_again(store: Store) -> None:
    opened(store, review(), announce=True)
    first = taken(store)[0]
    store.at(NOW + 1).give_up(first, said="410")
    assert ([], "untold") == (list(taken(store, NOW + 99)), (event_names(store))[-1])


def test_a_taker_whose_lease_is_over_can_say_that_it_arrived_but_not_put_it_off(store: Store) -> None:
    opened(store, review(), announce=True)
    old = (taken(store))[0]
    new = (taken(store, NOW + 6, taker="u"))[0]
    store.at(NOW + 7).postpone(old, wait=83, said="timeout")
    store.at(NOW + 7).give_up(old, said="timeout")
    assert [new.id] == [one.id for one in taken(store, NOW + 20, taker="v")]
    store.at(NOW + 21).delivered(old, said="200")
    store.at(NOW + 21).delivered(new, said="200")
    assert (["opened", "told"], []) == (event_names(store), list(taken(store, NOW + 99)))


def test_what_nobody_was_told_of_needs_no_end_told(store: Store) -> None:
    opened(store, review("rv_a"), review("rv_b"), review("rv_c"))
    store.at(NOW + 1).decide("rv_a", YES, who="ann", door="page")
    store.at(NOW + 1).withdraw("rv_b", waiter="w", why="gone")
    store.at(NOW + 100).expire()
    assert [] == list(taken(store, NOW + 200))


@pytest.mark.parametrize("odd", ["\ud800", "\0", "", "é" * 5_000, "' or 1=1 --"])
def test_odd_names_find_nothing_and_break_nothing(store: Store, odd: str) -> None:
    opened(store, review())
    assert (None, [], None) == (store.get(odd), list(store.history(odd)), sought(store, lookup=odd))
    assert None is store.at(NOW).decide(odd, YES, who="ann", door="page")
    assert ([], []) == (ids(store, server=odd), ids(store, before=odd))
    assert not store.at(NOW).use([(odd, odd, odd)])


def test_a_session_that_was_signed_out_is_known_until_it_expires(store: Store) -> None:
    store.at(NOW).end_session("s1", token="t", until=NOW + 10)
    store.at(NOW).end_session("s1", token="t", until=NOW + 10)
    store.at(NOW).end_session("s2", token="u", until=NOW + 30)
    assert [("s1", "t", NOW + 10), ("s2", "u", NOW + 30)] == sorted(store.at(NOW + 9).ended_sessions())
    assert [("s2", "u", NOW + 30)] == list(store.at(NOW + 10).ended_sessions())


def test_wrong_tokens_are_counted_by_all_who_share_the_store(store: Store) -> None:
    mine, all = {"page 10.0.0.1": (2.0, 0.5)}, {"page, all": (3.0, 1.0)}
    assert 0 == store.at(NOW).failed_sign_in(mine | all)
    assert 0 == store.at(NOW).failed_sign_in(mine | all)
    assert 2 == store.at(NOW).failed_sign_in(mine | all)
    assert 0 == store.at(NOW).failed_sign_in({"page 10.0.0.2": (2.0, 0.5)} | all)
    assert 1 == store.at(NOW).failed_sign_in({"page 10.0.0.3": (2.0, 0.5)} | all)
    assert 0 == store.at(NOW + 2).failed_sign_in(mine | all)
    assert 2 == store.at(NOW + 2).failed_sign_in(mine | all)


def test_the_facts_of_the_page_are_not_those_of_events(store: Store) -> None:
    opened(store, review())
    store.at(NOW).end_session("s1", token="t", until=NOW + 10)
    store.at(NOW).failed_sign_in({"page, all": (3.0, 1.0)})
    assert 1 == store.last_change()


def test_votes_are_kept_until_enough_people_have_approved_the_same(store: Store) -> None:
    opened(store, form(approvals=2, waiter="w", held_until=NOW + 20), announce=True)
    said = filled(user="root", password="hunter2")
    first = store.at(NOW + 1).decide("rv_f", said, who="ann", door="page")
    assert isinstance(first, Review)
    assert (first, "pending", said) == (store.get("rv_f"), first.state, first.proposal)
    assert isinstance(store.at(NOW + 2).decide("rv_f", said, who="ann", door="api", seen=version(first)), VoteRefused)
    assert isinstance(store.at(NOW + 2).decide("rv_f", said, who="ben", door="api"), VoteRefused)  # the older version
    assert first == store.get("rv_f")
    done = store.at(NOW + 2).decide("rv_f", said, who="ben", door="api", seen=version(first))
    assert isinstance(done, Review)
    assert (done, "answered", said, "ann, ben", None) == (
        store.get("rv_f"),
        done.state,
        done.verdict,
        done.who,
        done.proposal,
    )
    assert [("opened", "", ""), ("voted", "ann", "1 of 2 approvals: ann"), ("answered", "ann, ben", "")] == [
        (event.what, event.who, event.detail) for event in store.history("rv_f")
    ]
    assert ["review.opened", "review.decided"] == [one.event for one in taken(store, NOW + 3)]
    assert used(store, "rv_f", now=NOW + 3)
    assert "hunter2" not in repr(store.get("rv_f"))


def test_what_was_proposed_is_gone_with_the_end_of_the_review(store: Store) -> None:
    opened(store, form("rv_a", approvals=2), form("rv_b", approvals=2), form("rv_c", approvals=2))
    for id in ("rv_a", "rv_b", "rv_c"):
        store.at(NOW + 1).decide(id, filled(password="hunter2"), who="ann", door="page")
    store.at(NOW + 2).decide("rv_a", NO, who="ben", door="page")
    store.at(NOW + 2).withdraw("rv_b", waiter="w", why="gone")
    store.at(NOW + 200).expire()
    assert [("rejected", None), ("withdrawn", None), ("expired", None)] == [
        (kept(store, id).state, kept(store, id).proposal) for id in ("rv_a", "rv_b", "rv_c")
    ]
    assert [["ann", "ben"], ["ann"], ["ann"]] == [
        [vote.by for vote in kept(store, id).votes] for id in ("rv_a", "rv_b", "rv_c")
    ]


ALSO = (Also("Lead"), Also("night\nshift", ("seniors",)))


def told(store: Store, now: float) -> list[tuple[str, str, str]]:
    names = ["ops", "Lead", "night\nshift"]
    found = store.at(now).take_deliveries(names, taker="t", seconds=5, limit=10)
    for one in found:
        store.delivered(one, said="200")
    return sorted((one.reviewer, one.review, one.event) for one in found)


def test_others_are_told_once_of_what_is_pending_for_long(store: Store) -> None:
    for id in ("rv_a", "rv_b"):
        one = review(id, also=ALSO, also_from=NOW + 50)
        assert one == store.at(NOW).open(one, announce=True, most=9, also=["Lead"])
    assert [("ops", "rv_a", "review.opened"), ("ops", "rv_b", "review.opened")] == told(store, NOW + 49)
    store.at(NOW + 49).decide("rv_b", YES, who="ann", door="page")
    assert [("ops", "rv_b", "review.decided")] == told(store, NOW + 49)
    assert [("Lead", "rv_a", "review.opened")] == told(store, NOW + 50)
    assert [] == told(store, NOW + 60)
    store.at(NOW + 61).decide("rv_a", YES, who="lea", door="page")
    assert [("Lead", "rv_a", "review.decided"), ("ops", "rv_a", "review.decided")] == told(store, NOW + 61)
    assert [one.detail for one in store.history("rv_a") if one.what == "told"][1] == "review.opened (Lead): 200"


def test_others_see_what_is_pending_for_long(store: Store) -> None:
    opened(store, review("rv_a", also=ALSO, also_from=NOW + 50), review("rv_b"), review("rv_c", reviewer="Lead"))
    before, after = store.at(NOW + 49), NOW + 50
    assert ["rv_c"] == ids(before, reviewers=("Lead",))
    assert [] == ids(before, reviewers=("night\nshift",))
    store.at(after)
    assert ["rv_c", "rv_a"] == ids(store, reviewers=("Lead",))
    assert [["rv_a"], [], [], [], []] == [
        ids(store, reviewers=(name,)) for name in ("night\nshift", "lead", "night", "shift", "%")
    ]
    assert ["rv_a"] == ids(store, reviewers=("night\nshift",), states=("pending",), server="db")


def test_a_ui_is_added_once_to_a_pending_review_and_a_page_that_is_open_hears_of_it(store: Store) -> None:
    opened(store, form(ui=LOADING), form("rv_g"))
    before = store.last_change()
    shown = store.at(NOW + 1).attach_ui("rv_f", READY, APP)
    assert shown is not None
    assert (READY, shown, APP) == (shown.ui, store.get("rv_f"), store.ui_body("rv_f"))
    assert (before + 1, ["rv_f"]) == (store.last_change(), [event.review for event in store.changes(before, 9)])
    assert ("ui ready", f"sha256:{READY.sha256} ({len(APP)} bytes)") == (
        store.history("rv_f")[-1].what,
        store.history("rv_f")[-1].detail,
    )
    for id in ("rv_f", "rv_g", "rv_none"):
        assert None is store.at(NOW + 2).attach_ui(id, READY, APP)
    assert (before + 1, None, None) == (store.last_change(), store.ui_body("rv_g"), store.ui_body("rv_none"))


def test_a_ui_that_could_not_be_read_has_a_reason_and_no_bytes(store: Store) -> None:
    opened(store, form(ui=LOADING))
    failed = replace(LOADING, state="failed", problem="timeout")
    store.at(NOW + 1).attach_ui("rv_f", failed, b"")
    assert (failed, None) == (kept(store, "rv_f").ui, store.ui_body("rv_f"))
    assert ("ui failed", "timeout") == (store.history("rv_f")[-1].what, store.history("rv_f")[-1].detail)
    assert None is store.at(NOW + 2).attach_ui("rv_f", READY, APP)


@pytest.mark.parametrize("end", ["decided", "withdrawn", "expired", "expired, but not yet recorded"])
def test_no_ui_is_added_after_the_end_of_a_review(store: Store, end: str) -> None:
    opened(store, form(ui=LOADING))
    if end == "decided":
        store.at(NOW + 1).decide("rv_f", filled(user="u"), who="ann", door="page")
    elif end == "withdrawn":
        store.at(NOW + 1).withdraw("rv_f", waiter="w", why="gone")
    elif end == "expired":
        store.at(NOW + 100).expire()
    before, ended = store.last_change(), store.get("rv_f")
    assert None is store.at(NOW + 100).attach_ui("rv_f", READY, APP)
    assert (before, ended, None) == (store.last_change(), store.get("rv_f"), store.ui_body("rv_f"))


@pytest.mark.parametrize(
    ("ui", "body"),
    [
        (READY, APP + b" "),
        (READY, b""),
        (replace(READY, size=1), APP),
        (LOADING, b""),
        (replace(READY, state="failed"), APP),
        (ReviewUi(uri="ui://x/y", dialect="rich", state="ready", size=MAX_UI + 1), bytes(MAX_UI + 1)),
    ],
    ids=["other bytes", "no bytes", "other size", "loading", "failed with bytes", "too large"],
)
def test_a_ui_is_described_by_its_own_bytes(store: Store, ui: ReviewUi, body: bytes) -> None:
    opened(store, form(ui=LOADING))
    with pytest.raises(ValueError, match="UI"):
        store.at(NOW + 1).attach_ui("rv_f", ui, body)
    assert (LOADING, None) == (kept(store, "rv_f").ui, store.ui_body("rv_f"))


def test_a_verdict_names_the_ui_that_was_shown_or_none(store: Store) -> None:
    opened(store, *(form(id, ui=LOADING) for id in ("rv_a", "rv_b", "rv_c")))
    seen = replace(filled(user="u"), ui=READY.sha256)
    early = store.at(NOW + 1).decide("rv_a", seen, who="ann", door="page")
    assert isinstance(early, VoteRefused)
    assert ("stale", "pending") == (early.reason, kept(store, "rv_a").state)
    for id in ("rv_a", "rv_b", "rv_c"):
        store.at(NOW + 2).attach_ui(id, READY, APP)
    for verdict in (replace(seen, ui="ab" * 32), replace(NO, ui=READY.sha256[:-1])):
        assert isinstance(store.at(NOW + 3).decide("rv_a", verdict, who="ann", door="page"), VoteRefused)
    assert isinstance(store.at(NOW + 3).decide("rv_a", seen, who="ann", door="page"), Review)
    assert isinstance(store.at(NOW + 3).decide("rv_b", filled(user="u"), who="ann", door="page"), Review)
    assert isinstance(store.at(NOW + 3).decide("rv_c", replace(NO, ui=READY.sha256), who="ann", door="page"), Review)
    uis = [found.ui for id in ("rv_a", "rv_b", "rv_c") if (found := kept(store, id).verdict) is not None]
    assert [READY.sha256, "", READY.sha256] == uis


def test_each_vote_names_the_ui_that_its_person_saw_and_one_binds_the_decision(store: Store) -> None:
    opened(store, form(ui=LOADING, approvals=3))
    answer = filled(user="u")
    store.at(NOW + 1).decide("rv_f", answer, who="ann", door="page")
    shown = store.at(NOW + 2).attach_ui("rv_f", READY, APP)
    assert shown is not None
    for who, ui in (("ben", READY.sha256), ("cleo", "")):
        seen = version(kept(store, "rv_f"))
        store.at(NOW + 3).decide("rv_f", replace(answer, ui=ui), who=who, door="page", seen=seen)
    after = kept(store, "rv_f")
    assert ("answered", ["", READY.sha256, ""]) == (after.state, [vote.ui for vote in after.votes])
    assert (READY.sha256, shown.lookup) == (after.verdict and after.verdict.ui, after.lookup)


def test_a_vote_that_an_edit_voided_binds_a_decision_to_no_ui(store: Store) -> None:
    opened(store, form(ui=LOADING, approvals=2))
    store.at(NOW + 2).attach_ui("rv_f", READY, APP)
    for who, user, ui in (("ann", "u", READY.sha256), ("ben", "v", ""), ("cleo", "v", "")):
        seen = version(kept(store, "rv_f"))
        store.at(NOW + 3).decide("rv_f", replace(filled(user=user), ui=ui), who=who, door="page", seen=seen)
    after = kept(store, "rv_f")
    assert ("answered", "", after.digest) == (after.state, after.verdict and after.verdict.ui, after.lookup)


def test_a_link_to_a_ui_works_once_in_time_while_the_review_is_pending(store: Store) -> None:
    opened(store, form(ui=LOADING))

    def open_ui(token: str, now: float = NOW + 2, id: str = "rv_f", sha256: str = READY.sha256) -> bytes | None:
        return store.at(now).open_ui(id, sha256, token=token, until=NOW + 60)

    assert None is open_ui("a")
    store.at(NOW + 1).attach_ui("rv_f", READY, APP)
    assert [APP, None, APP, None] == [open_ui("a"), open_ui("a"), open_ui("b"), open_ui("b")]
    assert [None, None, None] == [open_ui("c", NOW + 60), open_ui("c", id="rv_g"), open_ui("c", sha256="ab" * 32)]
    assert APP == open_ui("c", NOW + 59)
    assert None is open_ui("d", NOW + 100)
    store.at(NOW + 3).decide("rv_f", NO, who="ann", door="page")
    assert (None, APP) == (open_ui("e"), store.ui_body("rv_f"))


def test_a_ui_is_deleted_with_its_review(store: Store) -> None:
    opened(store, form(ui=LOADING))
    store.at(NOW + 1).attach_ui("rv_f", READY, APP)
    store.at(NOW + 2).decide("rv_f", NO, who="ann", door="page")
    assert 1 == store.at(NOW + 1000).purge(10)
    assert None is store.ui_body("rv_f")
