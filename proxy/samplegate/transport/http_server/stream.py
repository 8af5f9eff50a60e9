"""Streams of frames to a client over HTTP, their readers, and the HTTP exchange that carries them.

Events wait in a stream until a connection reads them, and stay for a while so that the client can resume. Streams are
bounded in bytes: a reader that falls too far behind is stopped.

A request is answered with JSON if its answer is the first and only frame, otherwise with server-sent events. Both eras
use the same code.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Final, Protocol, TypeAlias

from samplegate.protocol.frames import Frame, FrameId
from samplegate.protocol.identity import LOCAL, Identity
from samplegate.transport import sse
from samplegate.transport.http_server.http import (
    AccessRecord,
    Found,
    Headers,
    HttpBounds,
    HttpReply,
    Message,
    Reason,
    Receive,
    Scope,
    Send,
    Ticks,
    deliver,
)
from samplegate.transport.lines import one_line

OVERHEAD: Final = 128  # overhead in bytes counted for each event: even empty events can be a flood
CHUNK: Final = 256 * 1024  # bytes of one write; a larger event is written alone
GONE: Final = "gone"
SLOW: Final = "slow"
DISPLACED: Final = "displaced"
CLOSING: Final = "closing"


class StreamMemory:
    """Memory limit for the events of all streams of a process. Above it, the largest stream loses events, whichever
    stream grew."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.total = 0
        self.streams: set[HttpStream] = set()

    def relieve(self) -> None:
        """Shrink the largest streams until the total is within the limit."""
        while self.total > self.most:
            largest = max(
                (stream for stream in self.streams if len(stream.events) > 1),
                key=lambda stream: stream.size,
                default=None,
            )
            if largest is None:
                return  # every stream is down to its newest event
            largest.shrink(0, even_reading=True)


class StreamRoutes(Protocol):
    """Where a stream's frames go if the client does not read it: to other streams of the same session."""

    def ask(self, stream: HttpStream, id: FrameId, line: bytes) -> None:
        """Route a request to the client."""

    def cancel(self, stream: HttpStream, id: FrameId, line: bytes) -> None:
        """Route the cancellation of a request."""

    def late(self, line: bytes) -> None:
        """Route a notification whose stream has ended."""

    def dropped(self, id: FrameId) -> None:
        """A stream had no room for an unwritten request."""


class HttpStream:
    """A stream to the client (``http.ClientStream``), read by one connection at a time."""

    __slots__ = (
        "_asks",
        "_bounds",
        "_held",
        "_routes",
        "awaited",
        "dropped",
        "elsewhere",
        "ended",
        "events",
        "given",
        "keep",
        "number",
        "on_end",
        "reader",
        "seq",
        "size",
        "stream_id",
        "unanswered",
        "until",
    )  # fmt: skip

    def __init__(
        self,
        held: StreamMemory,
        bounds: HttpBounds,
        *,
        awaited: int | None,
        keep: bool,
        routes: StreamRoutes | None = None,
    ) -> None:
        """``routes``: the other streams of its session. Without them, no requests are sent on this stream."""
        self._held, self._bounds, self._routes = held, bounds, routes
        self._asks: dict[int, FrameId] = {}
        """Ids of the requests among the unwritten events, by event number."""
        self.awaited = awaited
        """Number of answers still expected. None for a stream that gets no answers and ends with its session."""
        self.keep = keep
        """True if written events are kept for resumption."""
        self.ended = False
        self.events: deque[tuple[int, bytes]] = deque()
        self.size = self.seq = self.given = self.dropped = 0
        self.stream_id = -1
        self.number = 0
        """The stream's number in event ids, assigned when the first event is sent."""
        self.unanswered = b""
        """The error that replaces the answer to a cancelled request, for clients that need one."""
        self.until: float | None = None
        """Time when the stream is forgotten."""
        self.reader: StreamReader | None = None
        self.elsewhere: Callable[[bytes, bool], None] | None = None
        """Set when no client can resume the stream: answers are dropped, and all other frames go here."""
        self.on_end: Callable[[HttpStream], None] | None = None

    def send(self, line: bytes, last: bool) -> None:
        """Send a frame. After the last answer, frames go to another stream."""
        if self.ended:
            if self._routes is not None and not last:
                self._routes.late(line)
            return
        if self.elsewhere is None:
            self._add(line)
        elif not last:
            self.elsewhere(line, False)
        if last:
            self._count_answer()
        elif self.reader is not None:
            self.reader.wake()

    def ask(self, id: FrameId, line: bytes) -> None:
        """Send a request on any stream that the client reads."""
        if self._routes is not None:
            self._routes.ask(self, id, line)

    def cancel(self, id: FrameId, line: bytes) -> None:
        """Cancel such a request."""
        if self._routes is not None:
            self._routes.cancel(self, id, line)

    @property
    def is_read(self) -> bool:
        """True if a connection is reading the stream and will continue to."""
        return not self.ended and self.reader is not None and not self.reader.stopped and not self.reader.gone()

    @property
    def has_requests(self) -> bool:
        """True if the stream has unwritten requests."""
        return bool(self._asks)

    def add(self, line: bytes, asks: FrameId | None = None) -> None:
        """Add a frame to this very stream. ``asks`` is its id if it is a request."""
        self._add(line, asks)
        if self.reader is not None:
            self.reader.wake()

    def over(self) -> None:
        """Expect one answer less, because a request was cancelled."""
        if self.unanswered and not self.ended and self.elsewhere is None:
            self._add(self.unanswered)
        self._count_answer()

    def _count_answer(self) -> None:
        if self.awaited is not None and not self.ended:
            self.awaited -= 1
            if self.awaited <= 0:
                self.close()

    def close(self) -> None:
        """End the stream: no more frames come."""
        if self.ended:
            return
        self.ended = True
        if self.reader is not None:
            self.reader.wake()
        if self.on_end is not None:
            self.on_end(self)

    @property
    def newest(self) -> int:
        """The number of the newest event, 0 if there is none."""
        return self.events[-1][0] if self.events else 0

    def _add(self, line: bytes, asks: FrameId | None = None) -> None:
        if not self.events:
            self._held.streams.add(self)
        self.seq += 1
        self.events.append((self.seq, line))
        if asks is not None:
            self._asks[self.seq] = asks
        size = len(line) + OVERHEAD
        self.size += size
        self._held.total += size
        if self.size > self._bounds.event_bytes or len(self.events) > self._bounds.events:
            self.shrink(self._bounds.event_bytes)
        if self._held.total > self._held.most:
            self._held.relieve()

    def shrink(self, most: int, *, even_reading: bool = False) -> None:
        """Drop the oldest events, but never the newest: first written ones, then unwritten ones.

        For unwritten events, only the bytes behind the current event count. A reader that reads some bytes while
        ``most`` bytes arrive is not stalled, and loses no events unless ``even_reading``. Any other reader is stopped
        as too slow.
        """
        reader = self.reader
        # a client that resumes reads written events again
        given = self.given if reader is None else min(self.given, reader.given)
        while (
            len(self.events) > 1
            and self.events[0][0] <= given
            and (self.size > most or len(self.events) > self._bounds.events)
        ):
            self._pop()
        if len(self.events) < 2 or self.events[0][0] <= given or self._behind() <= most:
            return
        if reader is not None and not even_reading and reader.keeps_up(self._behind(), most):
            return
        while len(self.events) > 1 and self._behind() > most:
            seq, _ = self.events[0]
            asks = self._asks.get(seq)
            self.dropped += 1
            self._pop()
            if asks is not None and self._routes is not None:
                self._routes.dropped(asks)
        if reader is not None:
            reader.stop(SLOW)

    def _behind(self) -> int:
        """Bytes behind the oldest event."""
        return self.size - len(self.events[0][1]) - OVERHEAD

    def _pop(self) -> bytes:
        seq, line = self.events.popleft()
        self._asks.pop(seq, None)
        self.size -= len(line) + OVERHEAD
        self._held.total -= len(line) + OVERHEAD
        if not self.events:
            self._held.streams.discard(self)
        return line

    def after(self, seq: int) -> list[tuple[int, bytes]]:
        """The events after number ``seq``, about CHUNK bytes of them. A stream without ``keep`` drops them."""
        out: list[tuple[int, bytes]] = []
        size = 0
        first = self.events[0][0] if self.events else 0
        for event in islice(self.events, max(0, seq + 1 - first), None):
            out.append(event)
            size += len(event[1])
            if size >= CHUNK:
                break
        if out:
            self.given = max(self.given, out[-1][0])
            if self._asks:
                self._asks = {number: asks for number, asks in self._asks.items() if number > self.given}
        if not self.keep:
            for _ in out:
                self._pop()
        return out

    def remove_requests(self, id: FrameId | None = None) -> list[tuple[FrameId, bytes]]:
        """Remove and return the unwritten requests, or the one with this id. Later events get new numbers, which is
        safe because no client has seen the old ones."""
        chosen = {seq: asks for seq, asks in self._asks.items() if id is None or asks == id}
        if not chosen:
            return []
        waiting: list[tuple[int, bytes]] = []
        while self.events and self.events[-1][0] > self.given:
            waiting.append(self.events.pop())
        kept = [(line, self._asks.get(seq)) for seq, line in reversed(waiting) if seq not in chosen]
        out = [(chosen[seq], line) for seq, line in reversed(waiting) if seq in chosen]
        freed = sum(len(line) + OVERHEAD for _, line in waiting)
        self.size, self.seq, self._asks = self.size - freed, self.seq - len(waiting), {}
        self._held.total -= freed
        if not self.events:
            self._held.streams.discard(self)
        for line, asks in kept:
            self._add(line, asks)
        return out

    def clear_events(self) -> list[bytes]:
        """Drop all events, and return the unwritten ones."""
        out: list[bytes] = []
        while self.events:
            seq = self.events[0][0]
            line = self._pop()
            if seq > self.given:
                out.append(line)
        return out

    def free(self) -> None:
        """End the stream and drop all its events."""
        self.ended = True
        self.clear_events()


class StreamReader:
    """A connection's position in a stream. A new reader displaces the old one: each message goes to one connection
    (R93)."""

    __slots__ = ("_handed", "_may_wait", "_taken", "_waiter", "given", "gone", "sending", "stopped", "stream", "unsent")

    def __init__(
        self, stream: HttpStream, given: int = 0, *, gone: Callable[[], bool] = bool, unsent: Callable[[], int] = int
    ) -> None:
        """``gone``: whether the client has closed the connection. ``unsent``: bytes written that the client has not
        read yet."""
        if stream.reader is not None:
            stream.reader.stop(DISPLACED)
        stream.reader = self
        self.stream = stream
        self.given, self.gone, self.unsent = given, gone, unsent
        self._handed = self._taken = self._may_wait = 0
        self.stopped = ""
        """Why the reader stops before its stream ends, or empty."""
        self.sending: asyncio.Timeout | None = None
        """Set during a send, which may wait for the client."""
        self._waiter: asyncio.Future[None] | None = None

    @property
    def ready(self) -> bool:
        """True if there are events, or the stream has ended, or the reader must stop."""
        return self.stream.newest > self.given or self.stream.ended or self.stopped != ""

    def wake(self) -> None:
        """Wake the reader, because its stream has changed."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def stop(self, why: str) -> None:
        """Stop the reader, even during a send that waits for the client."""
        if not self.stopped:
            self.stopped = why
            self.wake()
            if self.sending is not None and not self.sending.expired():
                self.sending.reschedule(asyncio.get_running_loop().time())

    async def more(self, seconds: float) -> bool:
        """Wait until the reader is ready, at most ``seconds``. Returns whether it is."""
        if self.ready:
            return True
        timer = asyncio.get_running_loop().call_later(seconds, self.wake)
        try:
            await self._woken()
        finally:
            timer.cancel()
            self._waiter = None
        return self.ready

    async def soon(self, ticks: Ticks) -> bool:
        """Wait until the reader is ready, for one to two ticks at most and without a timer of its own."""
        if self.ready:
            return True
        waiter = self._woken()
        ticks.end(waiter)
        try:
            await waiter
        finally:
            self._waiter = None
        return self.ready

    def _woken(self) -> asyncio.Future[None]:
        self._waiter = asyncio.get_running_loop().create_future()
        return self._waiter

    def take(self) -> list[tuple[int, bytes]]:
        """The next events as pairs of number and frame."""
        out = self.stream.after(self.given)
        if out:
            self.given = out[-1][0]
            self._taken = self._handed - self.unsent()
            self._handed += sum(len(line) for _, line in out)
        return out

    def keeps_up(self, behind: int, most: int) -> bool:
        """True if the client reads at least some bytes while ``most`` bytes arrive. ``behind`` is the number of waiting
        bytes."""
        self._may_wait = min(max(self._may_wait, most), behind + most)
        if behind > self._may_wait:
            before, self._taken = self._taken, self._handed - self.unsent()
            if self._taken <= before:
                return False
            self._may_wait = behind + most
        return True

    def leave(self) -> None:
        """The connection has ended."""
        if self.stream.reader is self:
            self.stream.reader = None


CALLER: Final = "samplegate.caller"
CONNECTION: Final = "samplegate.connection"
"""Key of the connection (``uvicorn_protocol.Connection``) in the scope, present with our own listeners only."""
ABORT_TIMEOUT: Final = 1.0  # seconds to wait until an aborted connection is closed


class HttpExchange:
    """One HTTP request, from its headers to the end of its response: its facts, and its connection."""

    __slots__ = (
        "_watch", "ambient", "caller", "end", "era", "form", "found", "http", "identity", "method",
        "posted", "reader", "reason", "receive", "scope", "send",
        "server", "session", "started", "status", "trace", "twice", "waits",
    )  # fmt: skip

    def __init__(self, scope: Scope, receive: Receive, send: Send, server: str, started: float) -> None:
        self.scope, self.receive, self.send = scope, receive, send
        self.server, self.started = server, started
        self.identity: Identity = scope.get(CALLER, LOCAL)
        self.caller = self.identity.name
        self.http: str = scope["method"]
        self.found: Found = {}
        self.twice: frozenset[bytes] = frozenset()
        self.era = self.method = self.form = self.end = self.session = self.trace = self.ambient = ""
        self.reason: Reason = ""
        self.status = 0
        self.reader: StreamReader | None = None
        self.posted: bytes | Frame | None = None
        """The posted body, until the conversation takes it: a large body must not stay in memory while its answer is
        awaited."""
        self.waits = False
        """True for a call whose answer a drain waits for."""
        self._watch: asyncio.Task[None] | None = None

    def access_record(self, now: float) -> AccessRecord:
        """The access record of the request."""
        http = self.http if self.http in ("POST", "GET", "DELETE") else "other"
        return AccessRecord(
            self.server, self.caller, http, self.era, self.method, self.status, self.form, self.reason,
            self.end, now - self.started, self.session, self.trace,
        )  # fmt: skip

    def take_body(self) -> bytes | Frame:
        """Return the posted body and drop the reference to it. May be called once."""
        posted, self.posted = self.posted, None
        assert posted is not None
        return posted

    def watch(self, reader: StreamReader) -> None:
        """From now on, stop the reader when the client disconnects. This costs a task, so requests answered at once do
        without."""
        if self._watch is None:
            self._watch = asyncio.ensure_future(self._until_gone(reader))

    async def _until_gone(self, reader: StreamReader) -> None:
        with contextlib.suppress(Exception):  # a connection that cannot be read is gone
            while (await self.receive())["type"] != "http.disconnect":
                pass
        reader.stop(self.lost)

    def unwatch(self) -> None:
        """End the request: stop watching for a disconnect."""
        if self.reader is not None:  # the reader refers back: such cycles keep the garbage collector busy
            self.reader.leave()
            self.reader = None
        if self._watch is not None:
            self._watch.cancel()

    async def answer(self, reply: HttpReply) -> None:
        """Send a complete response."""
        self.status, self.reason, self.form = reply.status, reply.reason, "json" if reply.body else ""
        await deliver(self.send, reply)

    async def put(self, body: bytes, reader: StreamReader, *, more: bool = True) -> None:
        """Send a piece of a stream's body. Stopping the reader ends the wait."""
        await self.piece({"type": "http.response.body", "body": body, "more_body": more}, reader)

    async def piece(self, message: Message, reader: StreamReader) -> None:
        """Send any message of a stream. The connection disconnects a client that reads nothing.

        Stopping the reader does not end the send of the headers: an event that ends the stream needs them.
        """
        try:
            async with asyncio.timeout(None) as limit:
                reader.sending = limit if message["type"] == "http.response.body" else None
                await self.send(message)
        except TimeoutError:
            reader.stop(SLOW)
        finally:
            reader.sending = None

    def complete(self) -> bool:
        """True if the whole body has arrived; False if the HTTP server does not report that."""
        connection = self.scope.get(CONNECTION)
        return connection is not None and bool(connection.complete())

    def gone(self) -> bool:
        """True if the client has closed the connection; False if the HTTP server does not report that."""
        connection = self.scope.get(CONNECTION)
        return connection is not None and bool(connection.gone())

    @property
    def lost(self) -> str:
        """Why the connection ended: the client closed it, or was disconnected because it read nothing."""
        connection = self.scope.get(CONNECTION)
        return SLOW if connection is not None and connection.stalled else GONE

    def unsent(self) -> int:
        """Bytes that the client has not read yet; 0 if the HTTP server does not report that."""
        connection = self.scope.get(CONNECTION)
        return 0 if connection is None else int(connection.unsent())

    async def cut(self) -> None:
        """Abort the connection with its unsent bytes, because a wait for them would be a wait for the client."""
        connection = self.scope.get(CONNECTION)
        if connection is None:
            return
        connection.cut()
        if self._watch is not None:
            # uvicorn logs an unfinished response, unless the client has disconnected
            await asyncio.wait([self._watch], timeout=ABORT_TIMEOUT)


GRACE: Final = 0.05
"""Seconds within which most answers arrive. A disconnect is watched only afterwards, at most twice as late, because
that needs a task."""
SSE: Final[Headers] = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),  # a buffering proxy would delay requests to the client
)
ENDED: Final = "ended"
Form: TypeAlias = Callable[[int, bytes], bytes]


def unnumbered_event(_: int, line: bytes) -> bytes:
    """A frame as an event without an id, which no client can resume from.

    Its data is one line, because some readers treat each data line as a frame.
    """
    return sse.event(one_line(line))


def numbered_event(stream: int) -> Form:
    """A formatter for a stream's frames as events whose ids give the stream and the position (R95)."""
    return lambda seq, line: sse.event(one_line(line), f"{stream}-{seq}")


async def first_frame(visit: HttpExchange, reader: StreamReader, bounds: HttpBounds, ticks: Ticks) -> None:
    """Wait for the first frame, for the time to begin a stream without one, or for a disconnect.

    ``ticks`` must have GRACE as their length.
    """
    clock = asyncio.get_running_loop().time
    until = clock() + bounds.commit
    if not await (reader.soon(ticks) if bounds.commit > 2 * GRACE else reader.more(min(GRACE, bounds.commit))):
        visit.watch(reader)
        await reader.more(max(0.0, until - clock()))


def whole_answer(reader: StreamReader) -> bytes | None:
    """The answer, if it is the only frame of its stream."""
    stream = reader.stream
    return stream.events[0][1] if stream.ended and stream.seq == 1 and len(stream.events) == 1 else None


async def stream(
    visit: HttpExchange,
    reader: StreamReader,
    bounds: HttpBounds,
    form: Form,
    *,
    prime: bytes = b"",
    farewell: bytes = b"",
    headers: Headers = (),
) -> None:
    """Write events until the stream ends or the reader is stopped; ``visit.end`` gives the reason.

    ``prime`` is written first, and ``farewell`` last if the gate ends the stream.
    """
    visit.form, visit.status = "sse", 200
    visit.watch(reader)
    try:
        await _send_headers(visit, reader, bounds, (*SSE, *headers), prime)
        await _write_events(visit, reader, bounds, form)
        if visit.lost == SLOW:  # the client was disconnected during the last write
            reader.stop(SLOW)
    finally:
        reader.leave()
    visit.end = reader.stopped or ENDED
    if reader.stopped in (DISPLACED, CLOSING):
        await visit.put(farewell if reader.stopped == CLOSING else b"", reader, more=False)
    if reader.stopped == SLOW:
        await visit.cut()


async def _send_headers(
    visit: HttpExchange, reader: StreamReader, bounds: HttpBounds, headers: Headers, prime: bytes
) -> None:
    await visit.piece({"type": "http.response.start", "status": 200, "headers": headers}, reader)
    if prime and reader.stopped != SLOW:
        await visit.put(prime, reader)


async def _write_events(visit: HttpExchange, reader: StreamReader, bounds: HttpBounds, form: Form) -> None:
    unsent = 0
    while not reader.stopped:
        if visit.gone():  # write nothing to a closed connection: the events go to another one
            reader.stop(visit.lost)
            return
        events = reader.take()
        done = reader.stream.ended and reader.stream.newest <= reader.given
        if events or done:
            await visit.put(b"".join([form(seq, line) for seq, line in events]), reader, more=not done)
        if done:
            return
        if not await reader.more(bounds.keep_alive):
            before, unsent = unsent, visit.unsent()
            if before and unsent >= before:
                reader.stop(SLOW)
            else:
                await visit.put(sse.comment(), reader)
