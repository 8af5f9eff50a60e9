"""Event streams of a legacy server: where one broke off, when it may be taken up again (R95), and the standalone one of
a session.

The server's session id and the negotiated revision are here too, with the headers that repeat them (R94).
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
from samplegate.transport.http_client.wire import HttpFault, ReadPause, SessionGone, Wire, of_status
from samplegate.transport.sse import Oversized, ServerSentEvent

SESSION: Final = "Mcp-Session-Id"
FIRST_WITH_HEADER: Final = "2025-06-18"
_id: Final = re.compile(r"[!-~]{1,1024}")
_revision: Final = re.compile(r"[0-9A-Za-z._-]{1,64}")


class LegacySession:
    """One session with a legacy server."""

    def __init__(self) -> None:
        self.id: str | None = None
        self.revision = ""
        self.begun = False
        """Whether an ``initialize`` was answered with a result."""
        self.gone = False
        """Whether the server has said that it does not know the session any more."""

    def forget(self) -> None:
        """Another session is about to begin."""
        self.id, self.revision, self.begun, self.gone = None, "", False, False

    def headers(self) -> dict[str, str]:
        """What every request after ``initialize`` carries."""
        out = {} if self.id is None else {SESSION: self.id}
        if self.revision >= FIRST_WITH_HEADER and _revision.fullmatch(self.revision):
            out[http_headers.VERSION] = self.revision
        return out

    def began(self, session: list[str], answer: Frame) -> None:
        """``initialize`` was answered with a result, and this many session ids came with it. Raises Fault for one that
        no header may hold."""
        if len(session) > 1 or (session and not _id.fullmatch(session[0])):
            raise HttpFault("its session id is not one of at most 1024 visible ASCII characters")
        try:
            revision = rawjson.string(rawjson.lookup(answer.payload, "protocolVersion"))
        except Malformed:
            revision = None
        self.id, self.revision, self.begun, self.gone = (session[0] if session else None), revision or "", True, False


LAST: Final = "Last-Event-ID"
RETRY: Final = 1.0  # seconds before a stream is taken up again, where the server names no time
SHORTEST: Final = 0.05  # seconds: a server that says 0 must not keep us busy
LONGEST: Final = 30.0  # seconds between two tries that fail
MAX_TRIES: Final = 5  # in a row without an event
LIVED: Final = 5.0  # seconds after which a stream that ends has been one
_sendable: Final = re.compile(rb"[!-~](?:[ -~]*[!-~])?")
_NOW_AND_THEN: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""What a server may say now and not the next time; 409 while it still thinks that the broken stream is open."""


class SharedStreams(msgspec.Struct, eq=False):
    """What all streams of one remote server share."""

    wire: Wire
    note: Callable[[Note], None]
    received: Callable[[int, bytes | Frame], None]
    oversized: Callable[[int, int, bytes], None]
    lost: Callable[[], None]
    """The server does not know the session any more."""
    max_frame: int
    flow: ReadPause = msgspec.field(default_factory=ReadPause)
    legacy: LegacySession = msgspec.field(default_factory=LegacySession)


class Cursor(msgspec.Struct, eq=False):
    """How far a stream has come."""

    id: str | None = None
    retry: float | None = None
    """Seconds, as the server said."""
    moved: bool = False
    """Whether an event has come since this was last set to False."""

    def saw(self, event: ServerSentEvent) -> None:
        """Take an event's id and time in."""
        self.moved = True
        if event.id is not None:
            self.id = event.id.decode() if _sendable.fullmatch(event.id) else None
        if event.retry is not None:
            self.retry = event.retry / 1000

    def pause(self, tries: int) -> float:
        """Seconds until the next try: what the server asks for, and longer each time that failed."""
        wait = max(RETRY if self.retry is None else self.retry, SHORTEST)
        return max(wait, min(wait * 2.0**tries, LONGEST))

    @property
    def headers(self) -> dict[str, str]:
        """What says where to go on."""
        return {} if self.id is None else {LAST: self.id}


def is_message(event: ServerSentEvent) -> bool:
    """Whether an event carries a frame: others, as pings have, are nobody's."""
    return event.name in (b"", b"message") and bool(event.data.strip())


async def taken_up(shared: SharedStreams, cursor: Cursor) -> aiohttp.ClientResponse | None:
    """GET a stream; None where that may work later. Raises Fault where it never will."""
    try:
        response = await shared.wire.get(shared.legacy.headers() | cursor.headers)
    except (aiohttp.ClientError, OSError):
        return None
    if response.status == 200 and wire.kind_of(response) == wire.EVENTS:
        return response
    response.close()
    if response.status in _NOW_AND_THEN:
        return None
    if response.status == 404 and shared.legacy.id is not None:
        raise SessionGone
    raise of_status(response.status)


class Standalone:
    """The stream on which a legacy server sends what belongs to no request: stream 0."""

    def __init__(self, shared: SharedStreams) -> None:
        self._shared = shared
        self._cursor = Cursor()
        self._was_open = False

    async def run(self) -> None:
        """Keep it open until the server says that it has none, or that the session is gone."""
        tries, loop = 0, asyncio.get_running_loop()
        while tries < MAX_TRIES:
            began, self._cursor.moved = loop.time(), False
            try:
                await self._once()
            except SessionGone:
                if self._was_open:  # some say 404 where 405 is meant: what was never open says nothing of the session
                    self._shared.lost()
                return
            except HttpFault as fault:
                if fault.data.get("httpStatus") != 405:  # that is the regular way to have none (R93)
                    self._say("remote.stream_refused", fault.reason)
                return
            tries = 0 if self._cursor.moved or loop.time() - began > LIVED else tries + 1
            await asyncio.sleep(self._cursor.pause(tries))
        self._say("remote.stream_given_up", f"it failed {tries} times in a row")

    async def _once(self) -> None:
        response = await taken_up(self._shared, self._cursor)
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
