"""Event streams of a legacy server: resumption (R95), and a session's standalone stream.

This module also keeps the server's session id and the negotiated protocol version, and their headers (R94).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Final

import aiohttp
import msgspec

from samplegate.protocol import http_headers, rawjson
from samplegate.protocol.frames import Frame
from samplegate.protocol.rawjson import Malformed
from samplegate.protocol.rounds import Note
from samplegate.transport.http_client import wire
from samplegate.transport.http_client.wire import HttpFault, ReadPause, SessionGone, Wire, status_fault
from samplegate.transport.sse import Oversized, ServerSentEvent

SESSION: Final = "Mcp-Session-Id"
FIRST_WITH_HEADER: Final = "2025-06-18"
_id: Final = re.compile(r"[!-~]{1,1024}")
_revision: Final = re.compile(r"[0-9A-Za-z._-]{1,64}")


class LegacySession:
    """A session with a legacy server."""

    def __init__(self) -> None:
        self.id: str | None = None
        self.revision = ""
        self.begun = False
        """True if an ``initialize`` was answered with a result."""
        self.gone = False
        """True if the server has replied that the session no longer exists."""

    def forget(self) -> None:
        """Reset the state for a new session."""
        self.id, self.revision, self.begun, self.gone = None, "", False, False

    def headers(self) -> dict[str, str]:
        """The headers of every request after ``initialize``."""
        out = {} if self.id is None else {SESSION: self.id}
        if self.revision >= FIRST_WITH_HEADER and _revision.fullmatch(self.revision):
            out[http_headers.VERSION] = self.revision
        return out

    def began(self, session: list[str], answer: Frame) -> None:
        """Store the session from a successful ``initialize``. Raises HttpFault for an invalid session id, or more than
        one."""
        if len(session) > 1 or (session and not _id.fullmatch(session[0])):
            raise HttpFault("its Mcp-Session-Id header must be one value of 1 to 1024 visible ASCII characters")
        try:
            revision = rawjson.string(rawjson.lookup(answer.payload, "protocolVersion"))
        except Malformed:
            revision = None
        self.id, self.revision, self.begun, self.gone = (session[0] if session else None), revision or "", True, False


LAST_EVENT_ID: Final = "Last-Event-ID"
RETRY: Final = 1.0  # seconds before a stream is resumed, if the server gives no time
MIN_DELAY: Final = 0.05  # seconds: a server that asks for 0 must not keep us busy
MAX_DELAY: Final = 30.0  # longest delay in seconds between failed tries, unless the server asks for more
MAX_TRIES: Final = 5  # consecutive tries without an event
MIN_LIFETIME: Final = 5.0  # seconds after which a stream that ends without an event does not count as a failed try
_sendable: Final = re.compile(rb"[!-~](?:[ -~]*[!-~])?")
_TRANSIENT: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""Transient HTTP errors. A server replies 409 as long as it considers the broken stream open."""


class SharedStreams(msgspec.Struct, eq=False):
    """State that all streams of one remote server share."""

    wire: Wire
    note: Callable[[Note], None]
    received: Callable[[int, bytes | Frame], None]
    oversized: Callable[[int, int, bytes], None]
    lost: Callable[[], None]
    """Called when the server no longer knows the session."""
    max_frame: int
    flow: ReadPause = msgspec.field(default_factory=ReadPause)
    legacy: LegacySession = msgspec.field(default_factory=LegacySession)


class Cursor(msgspec.Struct, eq=False):
    """The position in a stream, from which it can be resumed."""

    id: str | None = None
    retry: float | None = None
    """The delay in seconds that the server asked for."""
    moved: bool = False
    """True if an event has arrived since this was last set to False."""

    def saw(self, event: ServerSentEvent) -> None:
        """Record an event's id and retry delay."""
        self.moved = True
        if event.id is not None:
            self.id = event.id.decode() if _sendable.fullmatch(event.id) else None
        if event.retry is not None:
            self.retry = event.retry / 1000

    def pause(self, tries: int) -> float:
        """Seconds until the next try: the server's delay, doubled for each failed try."""
        wait = max(RETRY if self.retry is None else self.retry, MIN_DELAY)
        return max(wait, min(wait * 2.0**tries, MAX_DELAY))

    @property
    def headers(self) -> dict[str, str]:
        """The headers that request the rest of the stream."""
        return {} if self.id is None else {LAST_EVENT_ID: self.id}


def is_message(event: ServerSentEvent) -> bool:
    """True if an event carries a frame. Other events, such as pings, are ignored."""
    return event.name in (b"", b"message") and bool(event.data.strip())


async def get_event_stream(shared: SharedStreams, cursor: Cursor) -> aiohttp.ClientResponse | None:
    """GET a stream. None if a later try may succeed. Raises HttpFault if no later try can."""
    try:
        response = await shared.wire.get(shared.legacy.headers() | cursor.headers)
    except (aiohttp.ClientError, OSError):
        return None
    if response.status == 200 and wire.kind_of(response) == wire.EVENTS:
        return response
    response.close()
    if response.status in _TRANSIENT:
        return None
    if response.status == 404 and shared.legacy.id is not None:
        raise SessionGone
    raise status_fault(response.status)


class Standalone:
    """The standalone stream of a legacy session, number 0: messages that belong to no request."""

    def __init__(self, shared: SharedStreams) -> None:
        self._shared = shared
        self._cursor = Cursor()
        self._was_open = False

    async def run(self) -> None:
        """Keep the stream open until the server reports that it has none or that the session is gone, or all tries
        fail."""
        tries, loop = 0, asyncio.get_running_loop()
        while tries < MAX_TRIES:
            began, self._cursor.moved = loop.time(), False
            try:
                await self._once()
            except SessionGone:
                if self._was_open:  # some servers reply 404 instead of 405: ignore it before the first stream
                    self._shared.lost()
                return
            except HttpFault as fault:
                if fault.data.get("httpStatus") != 405:  # 405: the regular reply of a server without this stream (R93)
                    self._say("remote.stream_refused", fault.reason)
                return
            tries = 0 if self._cursor.moved or loop.time() - began > MIN_LIFETIME else tries + 1
            await asyncio.sleep(self._cursor.pause(tries))
        self._say("remote.stream_given_up", f"it failed {tries} times in a row")

    async def _once(self) -> None:
        response = await get_event_stream(self._shared, self._cursor)
        if response is None:
            return
        self._was_open = True
        try:
            await wire.events(response, self._shared.max_frame, self._shared.flow, self._take)
        except (aiohttp.ClientError, OSError):
            return
        finally:
            response.close()

    def _take(self, event: ServerSentEvent | Oversized) -> None:
        if isinstance(event, Oversized):
            self._shared.oversized(0, event.size, event.head)
            return
        self._cursor.saw(event)
        if not is_message(event):
            return
        try:
            self._shared.received(0, wire.one_line(event.data))
        except Malformed as problem:
            self._say("frame.refused", problem.fault)

    def _say(self, event: str, fault: str) -> None:
        self._shared.note(Note(event, {"side": "server", "origin": self._shared.wire.origin, "fault": fault}))
