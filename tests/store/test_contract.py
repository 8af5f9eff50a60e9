"""What every store of reviews does, whatever it keeps them in: run over the real one and over the one that other tests are given."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from samplegate.core.review.review import Delivery, Filter, Review
from samplegate.core.review.states import Conflict
from samplegate.ports import ReviewStore
from samplegate.store.threads import KeptReviews
from tests.review_store import MemoryReviews
from tests.store.samples import NO, NOW, YES, filled, form, review

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["kept", "memory"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ReviewStore]:
    if request.param == "memory":
        yield MemoryReviews()
        return
    kept = KeptReviews(f"sqlite:{tmp_path / 'reviews.db'}")
    yield kept
    kept.close()


async def opened(store: ReviewStore, *reviews: Review, announce: bool = False) -> None:
    for one in reviews:
        assert await store.open(one, announce=announce, most=100)


async def sought(store: ReviewStore, waiter: str = "w", now: float = NOW, lookup: str = "sha256:l", own: str = "") -> str | None:
    found = await store.seek(lookup, stage="request", waiter=waiter, now=now, seconds=10, own=own)
    return None if found is None else found.id


async def used(store: ReviewStore, id: str = "rv_a", waiter: str = "w", now: float = NOW + 2) -> bool:
    return await store.use(id, waiter=waiter, decision_id="d1", now=now)


async def whats(store: ReviewStore, id: str = "rv_a") -> list[str]:
    return [event.what for event in await store.history(id)]


async def ids(store: ReviewStore, **filter: object) -> list[str]:
    return [one.id for one in await store.list(Filter(**filter))]  # type: ignore[arg-type]


async def taken(store: ReviewStore, now: float = NOW, limit: int = 10, taker: str = "t") -> Sequence[Delivery]:
    return await store.take_deliveries(["ops"], taker=taker, now=now, seconds=5, limit=limit)


async def kept(store: ReviewStore, id: str = "rv_a") -> Review:
    found = await store.get(id)
    assert found is not None
    return found


async def test_what_was_opened_comes_back_as_it_was(store: ReviewStore) -> None:
    one = form(waiter="w", held_until=NOW + 5, changed=("maxTokens",), worst_usd=2**70, answers_until=NOW + 1.5)
    await opened(store, one)
    assert (one, None) == (await store.get("rv_f"), await store.get("rv_g"))


async def test_a_verdict_is_found_by_the_next_same_request_and_used_once(store: ReviewStore) -> None:
    await opened(store, review())
    said = await store.decide("rv_a", YES, who="ann", door="page", now=NOW + 1)
    assert isinstance(said, Review)
    assert ("approved", YES, "ann", "page", NOW + 1) == (said.state, said.verdict, said.who, said.door, said.decided)
    assert "rv_a" == await sought(store)
    assert [True, False] == [await used(store), await used(store)]
    assert None is await sought(store)
    after = await kept(store)
    assert ("d1", NOW + 2, None) == (after.used_by, after.used, after.waiter)
    assert ["opened", "approved", "used"] == await whats(store)


async def test_verdicts_that_are_used_together_are_all_used_or_none(store: ReviewStore) -> None:
    await opened(store, review("rv_a", waiter="w", held_until=NOW + 10), review("rv_b", waiter="other", held_until=NOW + 10))
    for id in ("rv_a", "rv_b"):
        await store.decide(id, YES, who="ann", door="page", now=NOW + 1)
    together = [("rv_a", "w", "d1"), ("rv_b", "w", "d2")]
    for uses in (together, together[::-1], [("rv_a", "w", "d1"), ("rv_none", "w", "d2")]):
        assert not await store.use_all(uses, now=NOW + 2)
        assert [None, None] == [(await kept(store, id)).used_by for id in ("rv_a", "rv_b")]
    assert await store.use_all([("rv_a", "w", "d1"), ("rv_b", "other", "d2")], now=NOW + 2)
    assert ["d1", "d2"] == [(await kept(store, id)).used_by for id in ("rv_a", "rv_b")]


async def test_the_first_verdict_wins_and_the_second_is_told_of_it(store: ReviewStore) -> None:
    await opened(store, review())
    first = await store.decide("rv_a", YES, who="ann", door="page", now=NOW + 1)
    assert Conflict(first) == await store.decide("rv_a", NO, who="bob", door="api", now=NOW + 2)  # type: ignore[arg-type]
    assert None is await store.decide("rv_none", NO, who="bob", door="api", now=NOW + 2)
    assert ["opened", "approved"] == await whats(store)


async def test_a_verdict_after_its_time_leaves_the_review_expired(store: ReviewStore) -> None:
    await opened(store, review(), announce=True)
    said = await store.decide("rv_a", YES, who="ann", door="page", now=NOW + 100)
    assert isinstance(said, Conflict)
    assert ("expired", None, NOW + 100) == (said.review.state, said.review.verdict, said.review.decided)
    assert said.review == await store.get("rv_a")
    assert (["opened", "expired"], []) == (await whats(store), list(await store.expire(NOW + 200)))
    assert ["review.opened", "review.expired"] == [one.event for one in await taken(store, NOW + 100)]


async def test_only_pending_reviews_expire_and_only_once(store: ReviewStore) -> None:
    await opened(store, review("rv_a"), review("rv_b", expires=NOW + 10, waiter="w", held_until=NOW + 99), review("rv_c", expires=NOW + 10))
    await store.decide("rv_c", YES, who="ann", door="page", now=NOW + 1)
    over = await store.expire(NOW + 10)
    assert [("rv_b", "expired", None)] == [(one.id, one.state, one.waiter) for one in over]
    assert ([], ["opened", "expired"]) == (list(await store.expire(NOW + 10)), await whats(store, "rv_b"))


async def test_a_review_that_waits_is_joined_once_its_waiter_is_dead_and_not_before(store: ReviewStore) -> None:
    await opened(store, review(waiter="old", held_until=NOW + 10))
    assert [None, None] == [await sought(store), await sought(store, now=NOW + 9)]
    assert "rv_a" == await sought(store, now=NOW + 10)
    assert None is await sought(store, "old", now=NOW + 11)
    after = await kept(store)
    assert ("w", NOW + 20, ["opened", "joined"]) == (after.waiter, after.held_until, await whats(store))


async def test_a_waiter_that_says_it_is_there_is_no_news(store: ReviewStore) -> None:
    await opened(store, review(waiter="w", held_until=NOW + 10))
    before = await store.last_change()
    assert "rv_a" == await sought(store, now=NOW + 9)
    assert (before, NOW + 19) == (await store.last_change(), (await kept(store)).held_until)


async def test_leases_are_renewed_together_and_that_is_no_news(store: ReviewStore) -> None:
    await opened(store, *(review(f"rv_{waiter}", waiter=waiter, held_until=NOW + 10) for waiter in "abc"))
    await store.decide("rv_b", YES, who="ann", door="page", now=NOW + 1)
    before = await store.last_change()
    await store.renew([], now=NOW + 9, seconds=10)
    await store.renew(["a", "b", "x"], now=NOW + 9, seconds=10)
    assert [NOW + 19, NOW + 19, NOW + 10] == [(await kept(store, f"rv_{waiter}")).held_until for waiter in "abc"]
    assert (before, "rv_c") == (await store.last_change(), await sought(store, now=NOW + 11))


async def test_the_oldest_verdict_comes_before_the_oldest_that_waits(store: ReviewStore) -> None:
    await opened(store, review("rv_a"), review("rv_b", created=NOW + 1), review("rv_c", created=NOW + 2), review("rv_d", created=NOW - 1))
    await store.decide("rv_c", YES, who="ann", door="page", now=NOW + 3)
    await store.decide("rv_b", NO, who="ann", door="page", now=NOW + 4)
    assert ["rv_c", "rv_b", "rv_d", "rv_a", None] == [await sought(store, f"w{n}", now=NOW + 5) for n in range(5)]


async def test_another_stage_or_another_request_finds_nothing(store: ReviewStore) -> None:
    await opened(store, review("rv_a", stage="answer"), review("rv_b", lookup="sha256:other"))
    assert None is await sought(store)
    assert "rv_b" == await sought(store, lookup="sha256:other")


@pytest.mark.parametrize(("after", "found"), [(50.9, "rv_a"), (51.0, None)])
async def test_a_late_verdict_is_good_as_long_as_its_review_says(store: ReviewStore, after: float, found: str | None) -> None:
    await opened(store, review())
    await store.decide("rv_a", YES, who="ann", door="page", now=NOW + 1)
    assert found == await sought(store, now=NOW + after)


async def test_who_waited_while_it_was_decided_is_in_time_whatever_late_says(store: ReviewStore) -> None:
    await opened(store, review(late=0.0, waiter="w", held_until=NOW + 10))
    await store.decide("rv_a", YES, who="ann", door="page", now=NOW + 1)
    assert [None, "rv_a"] == [await sought(store, "other", now=NOW + 2), await sought(store, now=NOW + 3)]


async def test_a_verdict_is_never_late_for_the_request_that_waited_for_it_before(store: ReviewStore) -> None:
    await opened(store, review(late=0.0), review(id="rv_b", late=0.0))
    await store.decide("rv_a", YES, who="ann", door="page", now=NOW + 1)
    assert [None, None] == [await sought(store, now=NOW + 500, own="rv_c", lookup="sha256:other"), await sought(store, now=NOW + 901)]
    assert "rv_a" == await sought(store, now=NOW + 902, own="rv_a")
    assert [True, None] == [await used(store, now=NOW + 903), await sought(store, now=NOW + 904, own="rv_a")]


async def test_a_verdict_that_was_given_back_is_the_next_ones(store: ReviewStore) -> None:
    await opened(store, review(waiter="w", held_until=NOW + 10))
    await store.decide("rv_a", YES, who="ann", door="page", now=NOW + 1)
    await store.leave("rv_a", waiter="other", now=NOW + 2)
    assert None is await sought(store, "next", now=NOW + 2)
    await store.leave("rv_a", waiter="w", now=NOW + 2)
    assert "rv_a" == await sought(store, "next", now=NOW + 3)
    assert [False, True] == [await used(store), await used(store, waiter="next")]
    assert ["opened", "approved", "given back", "used"] == await whats(store)


async def test_only_its_waiter_takes_a_pending_review_back(store: ReviewStore) -> None:
    await opened(store, review(waiter="w", held_until=NOW + 10), announce=True)
    assert not await store.withdraw("rv_a", waiter="other", now=NOW + 1, why="gone")
    assert await store.withdraw("rv_a", waiter="w", now=NOW + 1, why="the client cancelled")
    assert not await store.withdraw("rv_a", waiter="w", now=NOW + 1, why="gone")
    assert ("withdrawn", NOW + 1) == ((await kept(store)).state, (await kept(store)).decided)
    last = (await store.history("rv_a"))[-1]
    assert ("withdrawn", "the client cancelled", "gate") == (last.what, last.detail, last.door)
    assert isinstance(await store.decide("rv_a", YES, who="ann", door="page", now=NOW + 2), Conflict)
    assert ["review.opened", "review.withdrawn"] == [one.event for one in await taken(store, NOW + 1)]


async def test_who_takes_back_what_is_decided_only_leaves_it(store: ReviewStore) -> None:
    await opened(store, review(waiter="w", held_until=NOW + 10))
    await store.decide("rv_a", YES, who="ann", door="page", now=NOW + 1)
    assert not await store.withdraw("rv_a", waiter="w", now=NOW + 1, why="gone")
    assert "rv_a" == await sought(store, "next", now=NOW + 2)


async def test_no_more_than_so_many_wait_and_those_whose_time_is_over_do_not_count(store: ReviewStore) -> None:
    await opened(store, review("rv_a", expires=NOW + 5))
    assert not await store.open(review("rv_b", created=NOW + 4), announce=True, most=1)
    assert (None, []) == (await store.get("rv_b"), await whats(store, "rv_b"))
    assert await store.open(review("rv_b", created=NOW + 5), announce=False, most=1)


async def test_the_secrets_of_a_form_are_kept_until_it_has_served_and_no_longer(store: ReviewStore) -> None:
    await opened(store, form(waiter="w", held_until=NOW + 10))
    await store.decide("rv_f", filled(user="ann", password="hunter2"), who="ann", door="page", now=NOW + 1)
    found = await store.seek("sha256:l", stage="request", waiter="w", now=NOW + 1, seconds=10)
    assert found is not None
    assert filled(user="ann", password="hunter2") == found.verdict
    assert await used(store, "rv_f")
    assert filled(user="ann", password="[secret]") == (await kept(store, "rv_f")).verdict


async def test_pages_go_from_new_to_old_and_each_review_is_on_one(store: ReviewStore) -> None:
    await opened(store, *(review(f"rv_{n}", created=NOW + n // 2) for n in range(7)))
    pages = [await ids(store, limit=3), await ids(store, limit=3, before="rv_4"), await ids(store, limit=3, before="rv_1")]
    assert [["rv_6", "rv_5", "rv_4"], ["rv_3", "rv_2", "rv_1"], ["rv_0"]] == pages
    assert [[], [], []] == [await ids(store, before="rv_0"), await ids(store, before="rv_none"), await ids(store, limit=0)]
    assert ["rv_0", "rv_1"] == await ids(store, limit=2, oldest_first=True)
    assert ["rv_2", "rv_3", "rv_4"] == await ids(store, limit=3, before="rv_1", oldest_first=True)


async def test_lists_are_of_what_was_asked_for(store: ReviewStore) -> None:
    await opened(store, review("rv_a"), review("rv_b", reviewer="dba", created=NOW + 1), form("rv_c", server="web", created=NOW + 2))
    await store.decide("rv_b", NO, who="ann", door="page", now=NOW + 3)
    assert (["rv_c", "rv_a"], ["rv_b"]) == (await ids(store, states=("pending",)), await ids(store, states=("rejected", "expired")))
    assert ["rv_c", "rv_b", "rv_a"] == await ids(store, states=("pending", "rejected", "pending"))
    assert (["rv_b"], []) == (await ids(store, reviewers=("dba", "none")), await ids(store, reviewers=()))
    assert (["rv_c"], ["rv_c"], []) == (await ids(store, server="web"), await ids(store, kind="elicitation"), await ids(store, server="w"))
    assert ["rv_a"] == await ids(store, states=("pending", "rejected"), before="rv_b", limit=1)


async def test_what_is_pending_is_counted_by_reviewer(store: ReviewStore) -> None:
    await opened(store, review("rv_a"), review("rv_b", created=NOW - 5), review("rv_c", reviewer="dba"), review("rv_d", reviewer="x"))
    await store.decide("rv_d", NO, who="ann", door="page", now=NOW + 3)
    assert {"ops": (2, NOW - 5), "dba": (1, NOW)} == dict(await store.pending())


async def test_changes_come_in_order_and_go_on_where_one_left_off(store: ReviewStore) -> None:
    assert (0, []) == (await store.last_change(), list(await store.changes(0, 10)))
    await opened(store, review("rv_a"), review("rv_b"))
    await store.decide("rv_a", NO, who="ann", door="page", now=NOW + 3)
    events = await store.changes(0, 2)
    assert [("rv_a", "opened"), ("rv_b", "opened")] == [(event.review, event.what) for event in events]
    assert [("rejected", "ann", "page", NOW + 3)] == [(e.what, e.who, e.door, e.at) for e in await store.changes(events[-1].number, 10)]
    assert events[-1].number + 1 == await store.last_change()


async def test_ended_reviews_are_forgotten_with_their_history_and_numbers_go_on(store: ReviewStore) -> None:
    await opened(store, review("rv_a"), review("rv_b"), review("rv_c"), announce=True)
    await store.decide("rv_a", NO, who="ann", door="page", now=NOW + 3)
    await store.decide("rv_b", NO, who="ann", door="page", now=NOW + 4)
    before = await store.last_change()
    assert [1, 0] == [await store.purge(NOW + 4), await store.purge(NOW + 4)]
    assert ["rv_c", "rv_b"] == await ids(store)
    assert ([], ["opened", "rejected"]) == (await whats(store, "rv_a"), await whats(store, "rv_b"))
    assert {"rv_b", "rv_c"} == {one.review for one in await taken(store, NOW + 10)}
    assert 2 == await store.purge(NOW + 500) + len(await store.expire(NOW + 500))
    await opened(store, review("rv_d"))
    assert before + 2 == await store.last_change()


async def test_the_key_is_32_bytes_and_stays(store: ReviewStore) -> None:
    assert 32 == len(await store.key())
    assert await store.key() == await store.key()


async def test_whoever_watches_is_told_of_changes_until_it_ends(store: ReviewStore) -> None:
    told: list[str] = []
    ends = [store.watch(lambda: told.append("a")), store.watch(lambda: told.append("b"))]
    await opened(store, review())
    assert ["a", "b"] == told
    ends[0]()
    ends[0]()
    await store.decide("rv_a", NO, who="ann", door="page", now=NOW + 3)
    await store.decide("rv_a", NO, who="ann", door="page", now=NOW + 3)
    assert ["a", "b", "b"] == told
    ends[1]()
    await opened(store, review("rv_b"))
    assert ["a", "b", "b"] == told


async def test_a_delivery_is_one_takers_until_its_lease_is_over(store: ReviewStore) -> None:
    await opened(store, review(), announce=True)
    first = (await taken(store))[0]
    assert ("rv_a", "ops", "review.opened", NOW, 0, "t", NOW + 5) == (
        first.review,
        first.reviewer,
        first.event,
        first.created,
        first.tries,
        first.taker,
        first.held_until,
    )
    assert [] == list(await taken(store, NOW + 4, taker="u"))
    assert [first.id] == [one.id for one in await taken(store, NOW + 5, taker="u")]
    assert first.id.startswith("msg_")
    assert 28 == len(first.id)


async def test_a_taker_that_is_still_at_it_keeps_a_delivery(store: ReviewStore) -> None:
    await opened(store, review(), announce=True)
    first = (await taken(store))[0]
    assert await store.hold_delivery(first, now=NOW + 4, seconds=5)
    assert [] == list(await taken(store, NOW + 8, taker="u"))
    other = (await taken(store, NOW + 9, taker="u"))[0]
    assert not await store.hold_delivery(first, now=NOW + 10, seconds=5)
    await store.delivered(other, said="200", now=NOW + 10)
    assert not await store.hold_delivery(other, now=NOW + 10, seconds=5)


async def test_deliveries_to_other_reviewers_stay(store: ReviewStore) -> None:
    await opened(store, review("rv_a", reviewer="dba"), review("rv_b"), announce=True)
    assert [] == list(await store.take_deliveries([], taker="t", now=NOW, seconds=5, limit=10))
    assert [["rv_b"], []] == [[one.review for one in await taken(store)], [one.review for one in await taken(store)]]


async def test_a_delivery_is_tried_again_when_it_is_due_and_counts(store: ReviewStore) -> None:
    await opened(store, review(), announce=True)
    await store.postpone((await taken(store))[0], due=NOW + 30, said="503", now=NOW + 1)
    assert [] == list(await taken(store, NOW + 29))
    again = (await taken(store, NOW + 30))[0]
    assert (1, "503", NOW + 30) == (again.tries, again.said, again.due)
    await store.delivered(again, said="200", now=NOW + 31)
    assert [] == list(await taken(store, NOW + 99))
    last = (await store.history("rv_a"))[-1]
    assert ("told", "review.opened: 200", NOW + 31) == (last.what, last.detail, last.at)


async def test_a_delivery_that_is_given_up_is_told_of_and_not_tried_again(store: ReviewStore) -> None:
    await opened(store, review(), announce=True)
    await store.give_up((await taken(store))[0], said="410", now=NOW + 1)
    assert ([], "untold") == (list(await taken(store, NOW + 99)), (await whats(store))[-1])


async def test_a_taker_whose_lease_is_over_can_say_that_it_arrived_but_not_put_it_off(store: ReviewStore) -> None:
    await opened(store, review(), announce=True)
    old = (await taken(store))[0]
    new = (await taken(store, NOW + 6, taker="u"))[0]
    await store.postpone(old, due=NOW + 90, said="timeout", now=NOW + 7)
    await store.give_up(old, said="timeout", now=NOW + 7)
    assert [new.id] == [one.id for one in await taken(store, NOW + 20, taker="v")]
    await store.delivered(old, said="200", now=NOW + 21)
    await store.delivered(new, said="200", now=NOW + 21)
    assert (["opened", "told"], []) == (await whats(store), list(await taken(store, NOW + 99)))


async def test_what_nobody_was_told_of_needs_no_end_told(store: ReviewStore) -> None:
    await opened(store, review("rv_a"), review("rv_b"), review("rv_c"))
    await store.decide("rv_a", YES, who="ann", door="page", now=NOW + 1)
    await store.withdraw("rv_b", waiter="w", now=NOW + 1, why="gone")
    await store.expire(NOW + 100)
    assert [] == list(await taken(store, NOW + 200))


@pytest.mark.parametrize("odd", ["\ud800", "\0", "", "é" * 5_000, "' or 1=1 --"])
async def test_odd_names_find_nothing_and_break_nothing(store: ReviewStore, odd: str) -> None:
    await opened(store, review())
    assert (None, [], None) == (await store.get(odd), list(await store.history(odd)), await sought(store, lookup=odd))
    assert None is await store.decide(odd, YES, who="ann", door="page", now=NOW)
    assert ([], []) == (await ids(store, server=odd), await ids(store, before=odd))
    assert not await store.use(odd, waiter=odd, decision_id=odd, now=NOW)
