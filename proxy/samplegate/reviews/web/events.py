"""Server-sent events for changes of reviews, from one store query for all listeners.

Each listener gets only the reviews that they may see. An event names the change and the review, and never contains
message content. Other processes may change the store, so it is polled about once a second, and at once after a change
by this process.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from samplegate.reviews.review import Review, ReviewEvent
from samplegate.reviews.views import moment
from samplegate.reviews.web.context import Person, Web
from samplegate.reviews.web.security import error_response

MAX_LISTENERS: Final = 64
POLL: Final = 1.0  # seconds until another process's change is seen, at most
KEEP_ALIVE: Final = 15.0  # seconds between two comments, because proxies close silent streams after 30 to 60 seconds
MAX_STREAM: Final = 3_600.0  # seconds; then the browser reconnects, and connections that died unnoticed are released
PAGE: Final = 200  # events per query
MAX_OUTLINES: Final = 512  # events whose reviews are cached for listeners that need them a moment later
_number: Final = 18  # digits


class Feed:
    """The changes of one store, for several listeners."""

    def __init__(
        self,
        web: Web,
        *,
        poll: float = POLL,
        keep_alive: float = KEEP_ALIVE,
        ended: Callable[[Sequence[tuple[str, str, float]]], None] = lambda _ended: None,
    ) -> None:
        """``ended`` gets the sessions that were signed out at any process, before listeners are looked up."""
        self.web = web
        self._take_ended = ended
        self.keep_alive = keep_alive
        self.listeners = 0
        self.ended = asyncio.Event()
        """Set when the daemon shuts down: all streams end."""
        self._poll = poll
        self._lock = asyncio.Lock()
        self._newest = -1
        self._looked = float("-inf")
        self._nudged: set[asyncio.Event] = set()
        self._unwatch: Callable[[], None] | None = None
        self._outlines: dict[int, Review | None] = {}

    def enter(self) -> asyncio.Event | None:
        """Add a listener and return the event that wakes it; None if there are too many listeners."""
        if self.listeners >= MAX_LISTENERS or self.ended.is_set():
            return None
        self.listeners += 1
        bell = asyncio.Event()
        self._nudged.add(bell)
        if self._unwatch is None:
            self._unwatch = self.web.store.watch(self._nudge)
        return bell

    def leave(self, bell: asyncio.Event) -> None:
        """Remove a listener."""
        self.listeners -= 1
        self._nudged.discard(bell)
        if not self._nudged and self._unwatch is not None:
            self._unwatch()
            self._unwatch = None

    def end(self) -> None:
        """End all streams and accept no new ones."""
        self.ended.set()
        self._nudge()

    async def newest(self, *, fresh: bool = False) -> int:
        """The number of the newest event, at most ``poll`` seconds old, or current if ``fresh``.

        The number decreases only if another store has replaced this one. Raises Unavailable.
        """
        async with self._lock:
            now = asyncio.get_running_loop().time()
            if fresh or now - self._looked >= self._poll:
                self._looked = now
                before = self._newest
                self._newest, ended = await self.web.store.read(
                    lambda store: (store.last_change(), store.ended_sessions())
                )
                self._take_ended(ended)
                if self._newest < before:
                    self._outlines.clear()
            return self._newest

    async def outline(self, event: ReviewEvent) -> Review | None:
        """The review of an event, without its content; None if it was purged. One query serves all listeners."""
        async with self._lock:
            if event.number not in self._outlines:
                found = await self.web.store.read(lambda store: store.get(event.review))
                self._outlines[event.number] = (
                    None
                    if found is None
                    else replace(found, params={}, arguments=None, answer=None, verdict=None, proposal=None, ui=None)
                )
                if len(self._outlines) > MAX_OUTLINES:
                    del self._outlines[next(iter(self._outlines))]
            return self._outlines[event.number]

    async def wait(self, bell: asyncio.Event) -> None:
        """Wait until something may have changed."""
        try:
            async with asyncio.timeout(self._poll):
                await bell.wait()
        except TimeoutError:
            pass
        bell.clear()

    def _nudge(self) -> None:
        self._looked = float("-inf")
        for bell in self._nudged:
            bell.set()


class EventStream(Response):
    """The response with an event stream.

    ``person``: the current listener, checked before every event; None ends the stream. ``after``: the last event that
    the client knows; None: start with the next event.
    """

    def __init__(self, feed: Feed, person: Callable[[], Person | None], after: int | None) -> None:
        super().__init__()
        self._feed = feed
        self._person = person
        self._after = after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take the listener's place here and release it at the end, because a response may never be sent."""
        bell = self._feed.enter()
        if bell is None:
            await error_response(
                scope, 503, f"all {MAX_LISTENERS} event streams are in use; try again later", {"retry-after": "30"}
            )(scope, receive, send)
            return
        try:
            # a greater number is from an earlier store
            newest = await self._feed.newest(fresh=True)
            after = newest if self._after is None else min(self._after, newest)
            await send(
                {
                    "type": "http.response.start",
                    "status": 200,
                    "headers": [(b"content-type", b"text/event-stream; charset=utf-8")],
                }
            )
            if scope["method"] != "HEAD":
                await self._until_gone(bell, after, receive, send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._feed.leave(bell)

    async def _until_gone(self, bell: asyncio.Event, after: int, receive: Receive, send: Send) -> None:
        """Send events until the client disconnects, the feed or the session ends, or MAX_STREAM passes."""
        telling = asyncio.ensure_future(self._tell(bell, after, send))
        gone = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait((telling, gone), timeout=MAX_STREAM, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (telling, gone):
                task.cancel()
            results = await asyncio.gather(telling, gone, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception) and not isinstance(result, OSError):
                raise result

    async def _tell(self, bell: asyncio.Event, after: int, send: Send) -> None:
        loop = asyncio.get_running_loop()
        spoke = loop.time()
        await send(_part(b"retry: 2000\n\n"))
        while not self._feed.ended.is_set():
            newest = await self._feed.newest()
            if newest < after:  # another store, whose numbers start again: send its last event
                after = newest - 1
            if newest > after:
                # later events wait for the next query: only another store's newest number is below ``after``
                events = [event for event in await self._changes(after) if event.number <= newest]
                for text in await self._texts(events):
                    await send(_part(text))
                    spoke = loop.time()
                if len(events) == PAGE:
                    after = events[-1].number
                    continue
                after = newest  # the events of purged reviews are missing
            if self._person() is None:
                return
            if loop.time() - spoke >= self._feed.keep_alive:
                await send(_part(b": still here\n\n"))
                spoke = loop.time()
            await self._feed.wait(bell)

    async def _changes(self, after: int) -> Sequence[ReviewEvent]:
        return await self._feed.web.store.read(lambda store: store.changes(after, PAGE))

    async def _texts(self, events: Sequence[ReviewEvent]) -> list[bytes]:
        """The events that this user may see, encoded. Events of purged reviews are left out."""
        found: list[bytes] = []
        for event in events:
            review = await self._feed.outline(event)
            person = self._person()
            if review is not None and person is not None and person.sees(review, self._feed.web.store.wall()):
                body = {
                    **event_json(event), "reviewer": review.reviewer, "state": review.state, "server": review.server,
                    "kind": review.kind,
                }  # fmt: skip
                found.append(f"id: {event.number}\nevent: change\ndata: {json.dumps(body)}\n\n".encode())
        return found


def event_json(event: ReviewEvent) -> dict[str, Any]:
    """An event as JSON for programs, with the API's time format."""
    return {name: getattr(event, name) for name in ReviewEvent.__struct_fields__} | {"at": moment(event.at)}


def last_seen(request: Request) -> int | None:
    """The event number in a reconnecting client's Last-Event-ID; None if it is missing or no number."""
    said = request.headers.get("last-event-id", "")
    return int(said) if said.isascii() and said.isdigit() and len(said) <= _number else None


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _part(text: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": text, "more_body": True}
