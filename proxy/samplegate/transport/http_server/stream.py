"""One stream of frames to a client, and who reads it: events wait here until a connection takes them, and stay a while
for one that comes back.

Bounded in bytes: a reader that falls too far behind is stopped. Not HTTP, and no wire form of an event.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Final, Protocol, TypeAlias

from samplegate.protocol.frames import Frame, FrameId
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

OVERHEAD: Final = 128  # bytes that an event costs beside its own: a flood of empty ones is one too
CHUNK: Final = 256 * 1024  # bytes handed over at a time; a larger event comes alone
GONE: Final = "gone"
SLOW: Final = "slow"
DISPLACED: Final = "displaced"
CLOSING: Final = "closing"


class StreamMemory:
    """What all streams of a process hold together. Over the bound the largest gives way, whoever came last."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.total = 0
        self.streams: set[HttpStream] = set()

    def relieve(self) -> None:
        """Make room."""
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
    """Where frames of a stream go that its client does not read there: to other streams of its session."""

    def ask(self, stream: HttpStream, id: FrameId, line: bytes) -> None:
        """A request came for a stream."""

    def take_back(self, stream: HttpStream, id: FrameId, line: bytes) -> None:
        """The cancellation of one did."""

    def late(self, line: bytes) -> None:
        """A notification came for a stream that has ended."""

    def dropped(self, id: FrameId) -> None:
        """A stream had no room for a request that was not written yet."""


class HttpStream:
    """A stream to the client (``http.ClientStream``), which one connection at a time reads."""

    __slots__ = (
        "_asks",
        "_bounds",
        "_held",
        "_ways",
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
        ways: StreamRoutes | None = None,
    ) -> None:
        """``ways``: of its session; a stream without one is sent no requests."""
        self._held, self._bounds, self._ways = held, bounds, ways
        self._asks: dict[int, FrameId] = {}
        """Requests among the events that were not handed over, by number."""
        self.awaited = awaited
        """Answers that are still to come; None for a stream that has none and ends with its session."""
        self.keep = keep
        """Whether events stay for a connection that comes back."""
        self.ended = False
        self.events: deque[tuple[int, bytes]] = deque()
        self.size = self.seq = self.given = self.dropped = 0
        self.stream_id = -1
        self.number = 0
        """Its name in event ids, given to it when the first is sent."""
        self.unanswered = b""
        """Stands for an answer that is not to come, where the stream needs one."""
        self.until: float | None = None
        """When it is forgotten."""
        self.reader: StreamReader | None = None
        self.elsewhere: Callable[[bytes, bool], None] | None = None
        """Set when nobody can come back for it: its answers are nobody's any more, the rest goes there."""
        self.on_end: Callable[[HttpStream], None] | None = None

    def send(self, line: bytes, last: bool) -> None:
        """Take a frame; what comes after the last answer belongs to another stream."""
        if self.ended:
            if self._ways is not None and not last:
                self._ways.late(line)
            return
        if self.elsewhere is None:
            self._add(line)
        elif not last:
            self.elsewhere(line, False)
        if last:
            self._one_less()
        elif self.reader is not None:
            self.reader.wake()

    def ask(self, id: FrameId, line: bytes) -> None:
        """Take a request, for whichever stream the client reads."""
        if self._ways is not None:
            self._ways.ask(self, id, line)

    def take_back(self, id: FrameId, line: bytes) -> None:
        """Take the cancellation of one."""
        if self._ways is not None:
            self._ways.take_back(self, id, line)

    @property
    def is_read(self) -> bool:
        """Whether a connection reads it, and will read what is added."""
        return not self.ended and self.reader is not None and not self.reader.stopped and not self.reader.gone()

    @property
    def has_requests(self) -> bool:
        """Whether requests wait in it that were not handed over."""
        return bool(self._asks)

    def add(self, line: bytes, asks: FrameId | None = None) -> None:
        """Put a frame on this stream and no other. ``asks``: the id, if it is a request."""
        self._add(line, asks)
        if self.reader is not None:
            self.reader.wake()

    def over(self) -> None:
        """One answer less to wait for."""
        if self.unanswered and not self.ended and self.elsewhere is None:
            self._add(self.unanswered)
        self._one_less()

    def _one_less(self) -> None:
        if self.awaited is not None and not self.ended:
            self.awaited -= 1
            if self.awaited <= 0:
                self.close()

    def close(self) -> None:
        """Nothing more comes."""
        if self.ended:
            return
        self.ended = True
        if self.reader is not None:
            self.reader.wake()
        if self.on_end is not None:
            self.on_end(self)

    @property
    def newest(self) -> int:
        """The number of the newest event that is there, 0 without one."""
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
        """Let the oldest go, all but the newest: first what was handed over; of the rest only what waits behind the
        current event counts.

        A reader that takes something while so much comes is not stalled: it loses nothing, unless ``even_reading``. Any
        other is too slow.
        """
        reader = self.reader
        # one that came back reads again what was handed over
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
            if asks is not None and self._ways is not None:
                self._ways.dropped(asks)
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
        """The next events after one, about CHUNK bytes of them; where nothing is kept they are gone then."""
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

    def taken_out(self, id: FrameId | None = None) -> list[tuple[FrameId, bytes]]:
        """Remove the unwritten requests, or the one of this id. Later events get new numbers, because no client has
        seen the old ones."""
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

    def emptied(self) -> list[bytes]:
        """Forget all events; returns the unwritten ones."""
        out: list[bytes] = []
        while self.events:
            seq = self.events[0][0]
            line = self._pop()
            if seq > self.given:
                out.append(line)
        return out

    def free(self) -> None:
        """Forget everything; nothing more comes."""
        self.ended = True
        self.emptied()


class StreamReader:
    """One connection's place in a stream. A new one takes the stream over: each message goes to one connection
    (R93)."""

    __slots__ = ("_handed", "_may_wait", "_taken", "_waiter", "given", "gone", "sending", "stopped", "stream", "unsent")

    def __init__(
        self, stream: HttpStream, given: int = 0, *, gone: Callable[[], bool] = bool, unsent: Callable[[], int] = int
    ) -> None:
        """``gone``: whether the client has closed the connection; ``unsent``: bytes that were written to it and wait
        for the client."""
        if stream.reader is not None:
            stream.reader.stop(DISPLACED)
        stream.reader = self
        self.stream = stream
        self.given, self.gone, self.unsent = given, gone, unsent
        self._handed = self._taken = self._may_wait = 0
        self.stopped = ""
        """Why it is to end before its stream does."""
        self.sending: asyncio.Timeout | None = None
        """Set while a send is under way, which may be waiting for the client."""
        self._waiter: asyncio.Future[None] | None = None

    @property
    def ready(self) -> bool:
        """Whether there is something to do."""
        return self.stream.newest > self.given or self.stream.ended or self.stopped != ""

    def wake(self) -> None:
        """Something has come."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def stop(self, why: str) -> None:
        """End it, also out of a send that the client does not take."""
        if not self.stopped:
            self.stopped = why
            self.wake()
            if self.sending is not None and not self.sending.expired():
                self.sending.reschedule(asyncio.get_running_loop().time())

    async def more(self, seconds: float) -> bool:
        """Wait until there is something to do; False if there is nothing after ``seconds``."""
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
        """The same for one to two ticks, without a timer of its own."""
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
        """The next events, as number and frame."""
        out = self.stream.after(self.given)
        if out:
            self.given = out[-1][0]
            self._taken = self._handed - self.unsent()
            self._handed += sum(len(line) for _, line in out)
        return out

    def keeps_up(self, behind: int, most: int) -> bool:
        """Whether the client takes what it is sent: some bytes of it at least while ``most`` come. ``behind``: bytes
        that wait."""
        self._may_wait = min(max(self._may_wait, most), behind + most)
        if behind > self._may_wait:
            before, self._taken = self._taken, self._handed - self.unsent()
            if self._taken <= before:
                return False
            self._may_wait = behind + most
        return True

    def leave(self) -> None:
        """The connection is over."""
        if self.stream.reader is self:
            self.stream.reader = None


# One HTTP request in hand: how it reached us, what is known of it so far, and the way back to its connection. Decides
# nothing.

CALLER: Final = "samplegate.caller"
CONNECTION: Final = "samplegate.connection"
"""Where the scope holds the connection (``connection.Connection``), if the server is ours."""
CUT: Final = 1.0  # seconds for a connection that was cut to be gone


class HttpExchange:
    """One HTTP request, from its headers to the end of its answer."""

    __slots__ = (
        "_watch", "caller", "end", "era", "form", "found", "http", "method", "posted", "reader", "reason", "receive",
        "scope", "send",
        "server", "session", "started", "status", "trace", "twice", "waits",
    )  # fmt: skip

    def __init__(self, scope: Scope, receive: Receive, send: Send, server: str, started: float) -> None:
        self.scope, self.receive, self.send = scope, receive, send
        self.server, self.started = server, started
        self.caller: str = scope.get(CALLER, "local")
        self.http: str = scope["method"]
        self.found: Found = {}
        self.twice: frozenset[bytes] = frozenset()
        self.era = self.method = self.form = self.end = self.session = self.trace = ""
        self.reason: Reason = ""
        self.status = 0
        self.reader: StreamReader | None = None
        self.posted: bytes | Frame | None = None
        """What was posted, until the conversation has it: a large one must not be kept for as long as its answer takes.
        """
        self.waits = False
        """Whether it is a call whose answer a drain waits for."""
        self._watch: asyncio.Task[None] | None = None

    def told(self, now: float) -> AccessRecord:
        """What is told of it."""
        http = self.http if self.http in ("POST", "GET", "DELETE") else "other"
        return AccessRecord(
            self.server, self.caller, http, self.era, self.method, self.status, self.form, self.reason,
            self.end, now - self.started, self.session, self.trace,
        )  # fmt: skip

    def handed_over(self) -> bytes | Frame:
        """What was posted; it is the conversation's from here on."""
        posted, self.posted = self.posted, None
        assert posted is not None
        return posted

    def watch(self, reader: StreamReader) -> None:
        """From here on the client's disconnect stops the reader. A task of its own, so not for what is answered at
        once."""
        if self._watch is None:
            self._watch = asyncio.ensure_future(self._until_gone(reader))

    async def _until_gone(self, reader: StreamReader) -> None:
        with contextlib.suppress(Exception):  # a connection that cannot be read is gone
            while (await self.receive())["type"] != "http.disconnect":
                pass
        reader.stop(self.lost)

    def unwatch(self) -> None:
        """The answer is out."""
        if self.reader is not None:  # it has this object's methods: a cycle for each request keeps the collector busy
            self.reader.leave()
            self.reader = None
        if self._watch is not None:
            self._watch.cancel()

    async def answer(self, reply: HttpReply) -> None:
        """Give a whole answer."""
        self.status, self.reason, self.form = reply.status, reply.reason, "json" if reply.body else ""
        await deliver(self.send, reply)

    async def put(self, body: bytes, reader: StreamReader, *, more: bool = True) -> None:
        """Send a piece of a stream. Stopping the reader ends it too, except before anything has gone out: what ends the
        stream needs a beginning."""
        await self.piece({"type": "http.response.body", "body": body, "more_body": more}, reader)

    async def piece(self, message: Message, reader: StreamReader) -> None:
        """The same for any piece. The connection cuts off a client that reads none of it."""
        try:
            async with asyncio.timeout(None) as limit:
                reader.sending = limit if message["type"] == "http.response.body" else None
                await self.send(message)
        except TimeoutError:
            reader.stop(SLOW)
        finally:
            reader.sending = None

    def complete(self) -> bool:
        """Whether the body is all there; False where the server does not tell."""
        connection = self.scope.get(CONNECTION)
        return connection is not None and bool(connection.complete())

    def gone(self) -> bool:
        """Whether the client has closed the connection; False where the server does not tell."""
        connection = self.scope.get(CONNECTION)
        return connection is not None and bool(connection.gone())

    @property
    def lost(self) -> str:
        """What the end of the connection means: the client closed it, or was cut off because it took nothing."""
        connection = self.scope.get(CONNECTION)
        return SLOW if connection is not None and connection.stalled else GONE

    def unsent(self) -> int:
        """Bytes that the client has not taken yet; 0 where the server does not tell."""
        connection = self.scope.get(CONNECTION)
        return 0 if connection is None else int(connection.unsent())

    async def cut(self) -> None:
        """End the connection though bytes are left in it: waiting for them would be waiting for the client."""
        connection = self.scope.get(CONNECTION)
        if connection is None:
            return
        connection.cut()
        if self._watch is not None:
            # the server logs an answer that is left open, unless the client is gone
            await asyncio.wait([self._watch], timeout=CUT)


# How a request is answered: as JSON if the first thing that comes is its answer, else as a stream of events. The same
# in both eras.
#
# Not what is answered, and not who may come back for it.

GRACE: Final = 0.05
"""Seconds in which most answers come: the client's disconnect is watched for only after them, and before twice as many;
that takes a task."""
SSE: Final[Headers] = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),  # a proxy in between that collects events would hold up the peers
)
ENDED: Final = "ended"
Form: TypeAlias = Callable[[int, bytes], bytes]


def unnumbered_event(_: int, line: bytes) -> bytes:
    """A frame as an event without an ID, so that no client can resume from it.

    Its data is one line: a reader that takes each line of data for a frame finds no other.
    """
    return sse.event(one_line(line))


def numbered_event(stream: int) -> Form:
    """A frame as an event of a stream: its id says which stream and how far (R95)."""
    return lambda seq, line: sse.event(one_line(line), f"{stream}-{seq}")


async def first_frame(visit: HttpExchange, reader: StreamReader, bounds: HttpBounds, ticks: Ticks) -> None:
    """Wait for the first thing that comes, for the time to begin a stream without one, or for the client to go.
    ``ticks`` are of GRACE."""
    clock = asyncio.get_running_loop().time
    until = clock() + bounds.commit
    if not await (reader.soon(ticks) if bounds.commit > 2 * GRACE else reader.more(min(GRACE, bounds.commit))):
        visit.watch(reader)
        await reader.more(max(0.0, until - clock()))


def whole_answer(reader: StreamReader) -> bytes | None:
    """The answer, if it is all there is."""
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
    """Write events until the stream ends or the reader is stopped; ``visit.end`` says which. ``prime`` goes out first,
    ``farewell`` if we end it."""
    visit.form, visit.status = "sse", 200
    visit.watch(reader)
    try:
        await _opened(visit, reader, bounds, (*SSE, *headers), prime)
        await _written(visit, reader, bounds, form)
        if visit.lost == SLOW:  # cut off while the last piece went out
            reader.stop(SLOW)
    finally:
        reader.leave()
    visit.end = reader.stopped or ENDED
    if reader.stopped in (DISPLACED, CLOSING):
        await visit.put(farewell if reader.stopped == CLOSING else b"", reader, more=False)
    if reader.stopped == SLOW:
        await visit.cut()


async def _opened(
    visit: HttpExchange, reader: StreamReader, bounds: HttpBounds, headers: Headers, prime: bytes
) -> None:
    await visit.piece({"type": "http.response.start", "status": 200, "headers": headers}, reader)
    if prime and reader.stopped != SLOW:
        await visit.put(prime, reader)


async def _written(visit: HttpExchange, reader: StreamReader, bounds: HttpBounds, form: Form) -> None:
    unsent = 0
    while not reader.stopped:
        if visit.gone():  # nothing is handed to a connection that is closed: it goes to another
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
