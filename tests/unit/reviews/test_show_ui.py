"""The gate's way to add a server's UI to a review that it waits for."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from samplegate.errors import Unavailable
from samplegate.reviews.review import Verdict
from samplegate.reviews.service import Counts, ReviewService
from samplegate.telemetry.metrics import Metrics
from tests.fakes.review_store import MemoryReviews
from tests.fakes.reviewers_listener import Log
from tests.fakes.stored_reviews import APP, LOADING, NOW, READY, form

pytestmark = pytest.mark.anyio


def service(store: MemoryReviews) -> ReviewService:
    return ReviewService(
        lambda: store,
        wall=lambda: NOW,
        clock=lambda: 0.0,
        random=bytes,
        log=Log(),
        counts=Counts(Metrics()),
        most=9,
    )


async def test_a_ui_is_added_while_the_review_is_pending() -> None:
    store = MemoryReviews()
    reviews = service(store)
    review = await reviews.open(form(ui=LOADING), announce=False)
    shown = await reviews.show_ui(review, READY, APP)
    assert shown is not None
    assert (READY, APP) == (shown.ui, store.ui_body(review.id))
    assert None is await reviews.show_ui(review, READY, APP)


async def test_a_review_that_has_ended_gets_none() -> None:
    store = MemoryReviews()
    reviews = service(store)
    review = await reviews.open(form(ui=LOADING), announce=False)
    store.decide(review.id, Verdict(word="reject"), who="ann", door="page")
    assert None is await reviews.show_ui(review, READY, APP)


async def test_a_store_that_fails_is_unavailable() -> None:
    store = MemoryReviews()
    reviews = service(store)
    review = await reviews.open(form(ui=LOADING), announce=False)
    store.fault = "locked"
    with pytest.raises(Unavailable, match="locked"):
        await reviews.show_ui(review, READY, APP)


async def test_a_second_review_gets_the_bytes_that_the_first_one_keeps() -> None:
    store = MemoryReviews()
    reviews = service(store)
    first = await reviews.open(form(ui=LOADING), announce=False)
    second = store.reviews["rv_second"] = replace(first, id="rv_second")
    with pytest.raises(Unavailable, match=f"review {first.id} no longer has the UI"):
        await reviews.show_ui(second, READY, b"", kept_by=first.id)
    await reviews.show_ui(first, READY, APP)
    assert await reviews.show_ui(second, READY, b"", kept_by=first.id)
    assert APP == store.ui_body(second.id)
