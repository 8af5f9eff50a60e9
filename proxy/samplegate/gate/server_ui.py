"""The server's own UI for a form: it is read once in each try, while the review is already open with the gate's form.

A verdict of a reviewer who was shown the UI is bound to its bytes, so a retry has to find the same bytes again. If the
server's UI has changed, the review is over, and another one opens. A verdict on the form alone is bound to no UI.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
from msgspec.structs import replace

from samplegate.errors import Unavailable
from samplegate.gate.ports import ReviewPort
from samplegate.gate.request import PendingRequest, ReadUi
from samplegate.reviews.review import DECIDED, Review, ReviewUi, lookup_with_ui

CHANGED: Final = "the server's UI has changed"
Find = Callable[[str], Awaitable[Review | None]]
"""Finds a review by its lookup, and holds it. Raises Unavailable."""


async def read(pending: PendingRequest, wanted: ReviewUi, seconds: float | None = None) -> ReadUi:
    """Read the UI from the server, once in this try. It fails after ``seconds``."""
    assert pending.ports.read_ui is not None
    if pending.ui is None or not _is_same(pending.ui.ui, wanted):
        found, problem = None, "the server did not answer before the end of this try"
        with anyio.move_on_after(seconds):
            try:
                found = await pending.ports.read_ui(pending.round.id, wanted.uri, wanted.origins)
            except Unavailable as failed:
                problem = str(failed)
        if found is not None:
            digest, url = hashlib.sha256(found.body).hexdigest(), found.body.decode() if found.is_url else ""
            ready = replace(wanted, state="ready", sha256=digest, size=len(found.body), url=url)
            pending.ui = ReadUi(ready, found.body)
        else:
            pending.ui = ReadUi(replace(wanted, state="failed", problem=problem), b"")
    return pending.ui


def _is_same(read: ReviewUi, wanted: ReviewUi) -> bool:
    """Whether another rule of the try wants the UI that was read."""
    return (read.uri, read.dialect, read.origins) == (wanted.uri, wanted.dialect, wanted.origins)


def forget(pending: PendingRequest, review: str) -> None:
    """Free the bytes of the UI, because the review has them and the request may wait for days."""
    if pending.ui is not None and pending.ui.body:
        pending.ui = ReadUi(pending.ui.ui, b"", review)


def why_over(pending: PendingRequest) -> str:
    """Why a review whose UI the server does not have now ends."""
    problem = "" if pending.ui is None else pending.ui.ui.problem
    return f"the server's UI can no longer be read: {problem}" if problem else CHANGED


def lookup_now(pending: PendingRequest, wanted: Review) -> str:
    """The lookup of a review that shows the UI which was read."""
    read = pending.ui
    return wanted.digest if read is None or read.ui.state == "failed" else lookup_with_ui(wanted.digest, read.ui)


async def find_shown(pending: PendingRequest, wanted: Review, find: Find) -> Review | None:
    """An earlier review of the request that shows the UI which the server has now. Raises Unavailable."""
    if wanted.ui is None:
        return None
    ui = (await read(pending, wanted.ui)).ui
    return await find(lookup_now(pending, wanted)) if ui.state == "ready" else None


async def wait_showing(
    pending: PendingRequest, reviews: ReviewPort, review: Review, wait: Callable[[], Awaitable[Review]], find: Find
) -> tuple[Review, bool]:
    """Wait for the verdict, and meanwhile read the UI and show it.

    If there is an earlier review of the request with the same UI, this one is withdrawn and the earlier one returned,
    with True: it may still be pending. Raises Unavailable.
    """
    assert review.ui is not None
    ended: list[Review | Unavailable] = []
    earlier: list[Review] = []

    async def show() -> None:
        assert review.ui is not None
        found = await read(pending, review.ui)
        try:
            other = await find_shown(pending, review, find)
            if other is None:
                await reviews.show_ui(review, found.ui, found.body, found.kept_by)
                forget(pending, review.id)
            else:
                earlier.append(other)
                forget(pending, other.id)
                why = f"replaced by review {other.id}, which shows the same UI"
                try:
                    await reviews.supersede(review.id, why, waiter=review.waiter)
                finally:
                    group.cancel_scope.cancel()
        except Unavailable as problem:  # the form stays as it is
            pending.ports.log.error("review.ui_failed", review=review.id, problem=str(problem))

    async def verdict() -> None:
        try:
            ended.append(await wait())
        except Unavailable as problem:
            ended.append(problem)
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(show)
        group.start_soon(verdict)
    own = ended[0] if ended else None
    if earlier and not (isinstance(own, Review) and own.state in DECIDED):
        if isinstance(own, Review):  # it ended in the same turn of the loop, so it was not withdrawn
            await reviews.give_back(own)
        return earlier[0], True
    for unused in earlier:
        await _give_back(pending, reviews, unused)
    if isinstance(own, Unavailable):
        raise own
    assert own is not None
    return own, False


async def _give_back(pending: PendingRequest, reviews: ReviewPort, review: Review) -> None:
    pending.held[:] = [held for held in pending.held if held.id != review.id]
    await reviews.give_back(review)
