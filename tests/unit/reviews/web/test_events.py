"""The event stream of reviews: who gets which events, and when it ends."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from samplegate.reviews.review import Verdict
from samplegate.reviews.web.events import MAX_LISTENERS, PAGE
from tests.fakes.reviewers_listener import ADMIN, ID, OPS, OTHER, ReviewersListener, Streamed
from tests.fakes.reviews import review

pytestmark = pytest.mark.anyio
OTHER_ID = "rv_" + "b" * 24
PATH = "/v1/reviews/events"
REJECT = Verdict(word="reject")


def as_(token: str, **headers: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}", **{name.replace("_", "-"): value for name, value in headers.items()}}


def data(text: str) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]


async def test_a_change_is_told_at_once_to_who_may_see_it() -> None:
    listener = ReviewersListener()
    await listener.open_review()
    await listener.open_review(id=OTHER_ID, reviewer="legal")
    app = listener.app(poll=3600.0)
    mine, theirs = Streamed(app, PATH, as_(OPS)), Streamed(app, PATH, as_(OTHER))
    assert (200, 200) == (await mine.begun(), await theirs.begun())
    for stream in (mine, theirs):
        await stream.parts_until("retry")
    listener.store.decide(ID, REJECT, who="ann", door="page")
    listener.store.decide(OTHER_ID, REJECT, who="ben", door="page")
    (event,) = data(await mine.parts_until("data:"))
    assert (ID, "rejected", "rejected", "ops", "ann", "page") == tuple(
        event[name] for name in ("review", "what", "state", "reviewer", "who", "door")
    )
    (event,) = data(await theirs.parts_until("data:"))
    assert OTHER_ID == event["review"]
    await mine.leave()
    await theirs.leave()


async def test_what_another_process_changes_is_seen_by_looking() -> None:
    listener = ReviewersListener()
    await listener.open_review()
    listener.store.watch = lambda nudge: lambda: None  # type: ignore[method-assign]
    stream = Streamed(listener.app(poll=0.005), PATH, as_(OPS))
    await stream.begun()
    listener.store.decide(ID, REJECT, who="ann", door="cli")
    assert "rejected" == data(await stream.parts_until("data:"))[0]["what"]
    await stream.leave()


async def test_who_comes_back_is_told_what_they_missed_in_order() -> None:
    listener = ReviewersListener()
    for number in range(PAGE + 50):
        await listener.open_review(id=f"rv_{number:024d}")
    stream = Streamed(listener.app(poll=3600.0), PATH, as_(ADMIN, last_event_id="10"))
    await stream.begun()
    found = data(await stream.parts_until(f"id: {PAGE + 50}\n"))
    assert list(range(11, PAGE + 51)) == [each["number"] for each in found]
    await stream.leave()


@pytest.mark.parametrize("seen", ["", "x", "-1", "9" * 19, "\u0662"])
async def test_what_is_no_number_of_an_event_is_as_if_nothing_was_said(seen: str) -> None:
    listener = ReviewersListener()
    await listener.open_review()
    stream = Streamed(listener.app(poll=3600.0), PATH, as_(OPS, last_event_id=seen))
    assert 200 == await stream.begun()
    await stream.parts_until("retry")
    listener.store.decide(ID, REJECT, who="ann", door="page")
    assert ["rejected"] == [each["what"] for each in data(await stream.parts_until("data:"))]
    await stream.leave()


async def test_a_token_that_is_taken_away_ends_its_stream() -> None:
    listener = ReviewersListener()
    await listener.open_review()
    stream = Streamed(listener.app(poll=3600.0), PATH, as_(OPS))
    await stream.begun()
    await stream.parts_until("retry")
    del listener.people[OPS]
    listener.store.decide(ID, REJECT, who="ann", door="page")
    assert "" == await stream.part()
    await stream.ended()


async def test_silence_is_filled_so_that_no_proxy_takes_it_for_dead() -> None:
    stream = Streamed(ReviewersListener().app(poll=0.001, keep_alive=0.002), PATH, as_(OPS))
    await stream.begun()
    assert ": still here" in await stream.parts_until("still here")
    await stream.leave()


async def test_only_so_many_listen_and_who_leaves_makes_room() -> None:
    listener = ReviewersListener()
    app = listener.app(poll=3600.0)
    streams = [Streamed(app, PATH, as_(OPS)) for _ in range(MAX_LISTENERS)]
    assert {200} == {await stream.begun() for stream in streams}
    refused = Streamed(app, PATH, as_(OPS))
    assert 503 == await refused.begun()
    await refused.ended()
    await streams.pop().leave()
    again = Streamed(app, PATH, as_(OPS))
    assert 200 == await again.begun()
    for stream in [*streams, again]:
        await stream.leave()
    assert [] == listener.store._nudges


async def test_all_end_when_the_listener_does_and_none_begins() -> None:
    app = ReviewersListener().app(poll=3600.0)
    stream = Streamed(app, PATH, as_(OPS))
    await stream.begun()
    app.end()
    await stream.ended()
    assert 503 == await Streamed(app, PATH, as_(OPS)).begun()


async def test_a_store_that_goes_away_ends_the_stream_and_is_logged() -> None:
    listener = ReviewersListener()
    stream = Streamed(listener.app(poll=0.001), PATH, as_(OPS))
    await stream.begun()
    listener.store.fault = "gone"
    await stream.ended()
    assert ["web.unavailable"] == [event for event, _ in listener.log.events]


async def test_head_is_answered_without_a_stream() -> None:
    stream = Streamed(ReviewersListener().app(), PATH, as_(OPS), "HEAD")
    assert 200 == await stream.begun()
    await stream.ended()


async def test_a_number_of_a_store_that_was_there_before_is_as_now() -> None:
    listener = ReviewersListener()
    await listener.open_review()
    stream = Streamed(listener.app(poll=3600.0), PATH, as_(OPS, last_event_id="999"))
    await stream.begun()
    await stream.parts_until("retry")
    listener.store.decide(ID, REJECT, who="ann", door="page")
    assert ["rejected"] == [each["what"] for each in data(await stream.parts_until("data:"))]
    await stream.leave()


async def test_listeners_hear_of_another_store_that_takes_the_place_of_the_one_they_knew() -> None:
    listener = ReviewersListener()
    await listener.open_review()
    await listener.open_review(id="rv_" + "c" * 24)
    app = listener.app(poll=0.005)
    mine, theirs = Streamed(app, PATH, as_(OPS)), Streamed(app, PATH, as_(OTHER))
    for stream in (mine, theirs):
        await stream.begun()
        await stream.parts_until("retry")
    listener.store.decide(ID, REJECT, who="ann", door="page")
    listener.store.decide("rv_" + "c" * 24, REJECT, who="ann", door="page")
    await mine.parts_until("id: 4\n")
    listener.store.reviews.clear()
    listener.store.events.clear()
    listener.store._numbers, listener.store._last = itertools.count(3), 0
    await listener.open_review(id=OTHER_ID, reviewer="legal")  # its event has the number of one that was already sent
    (event,) = data(await theirs.parts_until("data:"))
    assert (3, OTHER_ID) == (event["number"], event["review"])
    await mine.leave()
    await theirs.leave()


async def test_a_full_page_that_ends_after_the_newest_number_known_is_no_sign_of_another_store() -> None:
    listener = ReviewersListener()
    listener.store.watch = lambda nudge: lambda: None  # type: ignore[method-assign]
    for number in range(PAGE + 9):
        await listener.open_review(id=f"rv_{number:024d}")
    app = listener.app(poll=3600.0)
    stream = Streamed(app, PATH, as_(ADMIN, last_event_id="10"))
    changes = listener.store.changes
    late = (listener.store.open(review(id=f"rv_{number:024d}"), announce=False, most=10_000) for number in (900, 901))

    def beside(after: int, limit: int) -> Any:
        next(late, None)  # another process opens a review after the newest number was read
        return changes(after, limit)

    listener.store.changes = beside  # type: ignore[method-assign]
    await stream.begun()
    await stream.parts_until("retry")
    found = data(await stream.parts_until(f"id: {PAGE + 9}\n"))
    assert list(range(11, PAGE + 10)) == [each["number"] for each in found]
    app.end()
    assert "" == await stream.part()


async def test_events_of_forgotten_reviews_are_passed_over_once() -> None:
    listener = ReviewersListener()
    await listener.open_review()
    await listener.open_review(id=OTHER_ID)
    looks = 0
    changes = listener.store.changes

    def counted(after: int, limit: int) -> Any:
        nonlocal looks
        looks += 1
        return [event for event in changes(after, limit) if event.review == ID]

    listener.store.changes = counted  # type: ignore[method-assign]
    stream = Streamed(listener.app(poll=0.001, keep_alive=0.002), PATH, as_(OPS, last_event_id="0"))
    await stream.begun()
    assert [ID] == [each["review"] for each in data(await stream.parts_until("data:"))]
    for _ in range(3):
        await stream.parts_until("still here")
    assert 1 == looks
    await stream.leave()


async def test_a_review_that_is_gone_is_nobodys_event() -> None:
    listener = ReviewersListener()
    await listener.open_review()
    await listener.open_review(id=OTHER_ID)
    del listener.store.reviews[ID]
    stream = Streamed(listener.app(poll=3600.0), PATH, as_(ADMIN, last_event_id="0"))
    await stream.begun()
    assert [OTHER_ID] == [each["review"] for each in data(await stream.parts_until("data:"))]
    await stream.leave()


async def test_what_is_told_of_a_change_has_no_content() -> None:
    listener = ReviewersListener()
    asked = await listener.open_review()
    stream = Streamed(listener.app(poll=3600.0), PATH, as_(OPS, last_event_id="0"))
    await stream.begun()
    (event,) = data(await stream.parts_until("data:"))
    assert {"number", "review", "at", "what", "who", "door", "detail", "reviewer", "state", "server", "kind"} == set(
        event
    )
    assert "Classify this" in str(asked.params)
    assert "Classify this" not in str(event)
    await stream.leave()
