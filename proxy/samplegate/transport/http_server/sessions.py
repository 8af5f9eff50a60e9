"""Legacy sessions over HTTP: the state of a session, all sessions of a process with their limits, and the drain."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from samplegate.protocol.frames import FrameId
from samplegate.protocol.identity import Identity
from samplegate.protocol.rounds import Note
from samplegate.transport.http_server.http import Conversation, HttpBounds, HttpReply, Ticks, busy
from samplegate.transport.http_server.stream import CLOSING, GRACE, HttpExchange, HttpStream, StreamMemory

STANDALONE: Final = 0
"""The number of the stream that belongs to no request."""
CLOSED: Final = -1
"""Replaces the ``stream_id`` of a stream that was closed in its conversation."""


class HttpSession:
    """One client's session with one server."""

    def __init__(
        self, id: str, *, caller: str, server: str, conversation: Conversation, bounds: HttpBounds, held: StreamMemory
    ) -> None:
        self.id, self.caller, self.server, self.conversation = id, caller, server, conversation
        self.tag = hashlib.sha256(id.encode()).hexdigest()[:8]
        """Identifies the session in logs, in place of the secret id."""
        self.revision = ""
        """The negotiated protocol version."""
        self.ended = False
        self.visits = 0
        """HTTP requests in progress."""
        self.asking: dict[HttpStream, None] = {}
        """Streams of unanswered requests, the oldest first."""
        self.since = 0.0
        """Time when the last HTTP request ended, by the clock of ``Sessions``."""
        self.streams: dict[int, HttpStream] = {}
        self._bounds, self._held = bounds, held
        self._numbers = STANDALONE
        self._side: int | None = None
        self._deadlines: dict[FrameId, asyncio.TimerHandle] = {}
        """Deadlines of requests that waited for a stream within the last ``HttpBounds.unread`` seconds."""
        self.standalone = HttpStream(held, bounds, awaited=None, keep=True, routes=self)
        self.streams[STANDALONE] = self.standalone
        conversation.open_stream(self.standalone, standalone=True)

    @property
    def full(self) -> bool:
        """True if the session has reached its limit of requests and streams."""
        return self.visits > self._bounds.streams or len(self.asking) >= self._bounds.streams

    def side_stream(self) -> int:
        """The stream of posted notifications and answers. No answers are expected there; other frames go to the
        standalone stream."""
        if self._side is None:
            stream = HttpStream(self._held, self._bounds, awaited=None, keep=False, routes=self)
            stream.elsewhere = self.standalone.send
            self._side = self.conversation.open_stream(stream)
        return self._side

    def asked(self, requests: int, identity: Identity, trace: str = "") -> HttpStream:
        """A stream for a POST with this number of requests. Its reader calls ``left`` at the end.

        ``identity`` and ``trace`` are described at ``http.Conversation``.
        """
        stream = HttpStream(self._held, self._bounds, awaited=requests, keep=True, routes=self)
        stream.on_end = self._answered
        self.asking[stream] = None
        stream.stream_id = self.conversation.open_stream(stream, identity=identity, trace=trace)
        return stream

    def name(self, stream: HttpStream) -> int:
        """Number a stream, so that a client can resume it (R95)."""
        self._numbers += 1
        stream.number = self._numbers
        self.streams[stream.number] = stream
        return stream.number

    def find(self, last_event: str) -> tuple[HttpStream, int] | None:
        """The stream and position of an event id; None if they are unknown or no longer kept."""
        number, dash, seq = last_event.partition("-")
        if not (dash and _is_count(number) and _is_count(seq)):
            return None
        stream = self.streams.get(int(number))
        return None if stream is None or int(seq) > stream.seq else (stream, int(seq))

    def left(self, stream: HttpStream, now: float) -> None:
        """A connection of a stream has ended. Its requests continue (T35), and answers are kept if the client can
        resume.

        Unwritten requests of the server move to another stream, whether the client resumes or not.
        """
        if self.ended:
            stream.free()
            return
        for id, line in stream.remove_requests() if stream.has_requests and stream.reader is None else ():
            self.ask(stream, id, line)
        if stream is self.standalone:
            return
        if stream.ended:
            self._close_stream(stream)
            self._keep_for_resumption(stream, now)
        elif not stream.number:
            stream.elsewhere = self.standalone.send
            for line in stream.clear_events():  # its answer is not among them: then it had ended
                self.standalone.send(line, False)

    # -- frames whose stream the client does not read
    # --------------------------------------------------------------------------------------

    def heard(self, stream: HttpStream) -> None:
        """The client starts to read a stream, so it gets the requests that wait for any stream."""
        if (
            self.standalone.has_requests
            and stream.is_read
            and not self.standalone.is_read
            and stream is not self.standalone
        ):
            for id, line in self.standalone.remove_requests():
                stream.add(line, id)

    def ask(self, stream: HttpStream, id: FrameId, line: bytes) -> None:
        """Send a request to the client on its own stream, on another that the client reads, or on the next that it
        reads."""
        chosen = self._read(stream)
        if chosen is not None:
            chosen.add(line, id)
        elif not self.ended:
            self.standalone.add(line, id)
            self._forget_deadline(id)
            self._deadlines[id] = asyncio.get_running_loop().call_later(self._bounds.unread, self._give_up, id)

    def cancel(self, stream: HttpStream, id: FrameId, line: bytes) -> None:
        """Cancel a request: drop it while it waits for a stream, otherwise send the cancellation on a stream that the
        client reads."""
        self._forget_deadline(id)
        if self.standalone.remove_requests(id) or self.ended:
            return
        (self._read(stream) or self.standalone).add(line)

    def late(self, line: bytes) -> None:
        """Send a notification whose own stream has ended."""
        if not self.ended:
            (self._read(self.standalone) or self.standalone).add(line)

    def dropped(self, id: FrameId) -> None:
        """Report a request that was dropped for lack of room: in the next turn of the loop, because the gate may be
        sending."""
        asyncio.get_running_loop().call_soon(self._tell_undelivered, id)

    def _read(self, stream: HttpStream) -> HttpStream | None:
        """The first stream that the client reads: the given one, the standalone one, or the oldest with unanswered
        requests."""
        return next((one for one in (stream, self.standalone, *self.asking) if one.is_read), None)

    def _forget_deadline(self, id: FrameId) -> None:
        deadline = self._deadlines.pop(id, None)
        if deadline is not None:
            deadline.cancel()

    def _give_up(self, id: FrameId) -> None:
        del self._deadlines[id]
        if self.standalone.remove_requests(id):
            self._tell_undelivered(id)

    def _tell_undelivered(self, id: FrameId) -> None:
        if not self.ended:
            self.conversation.undelivered(id)

    def _answered(self, stream: HttpStream) -> None:
        """All answers of a stream have arrived. Close the stream in the next turn of the loop, because the gate is
        sending.

        A stream with a reader is closed by ``left``.
        """
        self.asking.pop(stream, None)
        if stream.reader is None:
            asyncio.get_running_loop().call_soon(self._close_stream, stream)

    def _close_stream(self, stream: HttpStream) -> None:
        """Close a stream in its conversation, once, although each resumption ends with ``left``."""
        if stream.stream_id != CLOSED and not self.ended:
            stream_id, stream.stream_id = stream.stream_id, CLOSED
            self.conversation.close_stream(stream_id)

    def _keep_for_resumption(self, stream: HttpStream, now: float) -> None:
        if not stream.number:
            stream.free()
            return
        stream.until = now + self._bounds.resume
        finished = [other for other in self.streams.values() if other.until is not None and other.reader is None]
        for other in finished[: max(0, len(finished) - self._bounds.finished)]:
            self._forget(other)

    def _forget(self, stream: HttpStream) -> None:
        self.streams.pop(stream.number, None)
        stream.free()

    def tidy(self, now: float) -> bool:
        """Forget ended streams that no client resumed. True if the session itself has been idle too long."""
        for stream in list(self.streams.values()):
            if stream.until is None and stream.ended and stream.reader is None:
                self._keep_for_resumption(stream, now)
            elif stream.until is not None and stream.until <= now and stream.reader is None:
                self._forget(stream)
        patience = self._bounds.detached if self.asking else self._bounds.idle
        return self.visits == 0 and now - self.since >= patience

    def close(self) -> None:
        """End the session. Readers of its streams still send the remaining events."""
        self.ended = True
        for id in list(self._deadlines):
            self._forget_deadline(id)
        for stream in {*self.streams.values(), *self.asking}:
            stream.close()
            if stream.reader is None:
                stream.free()

    def stop(self) -> None:
        """Stop the reader of the standalone stream."""
        if self.standalone.reader is not None:
            self.standalone.reader.stop(CLOSING)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18


SWEEPS: Final = 4  # sweeps within the shortest idle time
RETRY_AFTER: Final = 5  # seconds after which a client may retry: by then a drain or a burst is over
LAST: Final = 5.0  # seconds for conversations to end and answers to be sent after the time of a drain
READS: Final = frozenset(
    "completion/complete logging/setLevel ping prompts/get prompts/list resources/list resources/read"
    " resources/templates/list server/discover tasks/cancel tasks/get tasks/list tasks/result tools/list".split()
)
"""Methods served during a drain. Clients call them right after an answer to a call, some before they accept that
answer."""


def ending(id: FrameId | None) -> HttpReply:
    """The refusal of a request during a drain."""
    return busy(503, "draining", "the server is shutting down; retry later", id, RETRY_AFTER)


class Sessions:
    """All legacy sessions of a process, and every HTTP request in progress."""

    def __init__(
        self,
        bounds: HttpBounds,
        *,
        note: Callable[[Note], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.bounds, self.note, self.clock = bounds, note, clock
        self.held = StreamMemory(bounds.held_bytes)
        self.ticks = Ticks(GRACE)
        """For the short wait of each call."""
        self.visits: set[HttpExchange] = set()
        self._by_id: dict[str, HttpSession] = {}
        self._of: Counter[str] = Counter()
        """Sessions by caller, including those that are starting."""
        self._count = 0
        self._asking: Counter[str] = Counter()
        """Modern requests in flight by caller."""
        self._closing: set[asyncio.Task[None]] = set()
        self._draining = False
        self._drains: set[asyncio.Event] = set()
        """Events that are set whenever an HTTP request ends."""
        self._answered = float("-inf")
        """Time by ``clock`` when the last call was answered; reads do not count."""
        self._sweeper: asyncio.TimerHandle | None = None

    # -- admission
    # ------------------------------------------------------------------------------------------------------------------

    def draining(self, method: str = "") -> bool:
        """True if requests of this method are refused, because a drain is in progress."""
        return self._draining and method not in READS

    def reserve(self, caller: str, id: FrameId | None) -> HttpReply | None:
        """Reserve a session for a caller, or return a refusal. ``release`` or the end of the session frees the
        reservation."""
        if self._count >= self.bounds.sessions:
            return busy(503, "busy", f"all {self.bounds.sessions} sessions are in use; retry later", id, RETRY_AFTER)
        if self._of[caller] >= self.bounds.sessions_per_caller:
            return busy(
                429, "busy", f"this caller already has {self.bounds.sessions_per_caller} open sessions", id, RETRY_AFTER
            )
        self._count += 1
        self._of[caller] += 1
        return None

    def release(self, caller: str) -> None:
        """Free a reservation."""
        self._count -= 1
        self._of[caller] -= 1
        if not self._of[caller]:
            del self._of[caller]

    def ask(self, caller: str, id: FrameId | None) -> HttpReply | None:
        """Count one modern request in flight until ``answered``, or return a refusal."""
        if self._asking[caller] >= self.bounds.requests_per_caller:
            return busy(
                429,
                "busy",
                f"this caller already has {self.bounds.requests_per_caller} requests in flight",
                id,
                RETRY_AFTER,
            )
        self._asking[caller] += 1
        return None

    def answered(self, caller: str) -> None:
        """A modern request has ended."""
        self._asking[caller] -= 1
        if not self._asking[caller]:
            del self._asking[caller]

    # -- sessions
    # ------------------------------------------------------------------------------------------------------------------

    @property
    def open(self) -> int:
        """Number of open legacy sessions."""
        return len(self._by_id)

    def create(self, caller: str, server: str, conversation: Conversation) -> HttpSession:
        """Create a session for a reservation. ``find`` does not return it before ``enter``."""
        id = secrets.token_urlsafe(24)
        session = HttpSession(
            id, caller=caller, server=server, conversation=conversation, bounds=self.bounds, held=self.held
        )
        session.since = self.clock()
        conversation.on_end(lambda: self._over(session))
        return session

    def enter(self, session: HttpSession) -> None:
        """Make a session available under its id."""
        if not session.ended:
            self._by_id[session.id] = session
            session.since = self.clock()
            self._sweep_later()

    def find(self, id: str, server: str, caller: str) -> HttpSession | None:
        """The session with this id, caller and server. Another caller's session is treated as unknown (R94)."""
        session = self._by_id.get(id)
        return session if session is not None and session.caller == caller and session.server == server else None

    def end(self, session: HttpSession) -> None:
        """End a session. A task closes its conversation, because the server may need a long time."""
        known = self._by_id.pop(session.id, None)
        if known is not None or not session.ended:
            task = asyncio.ensure_future(self._close(session))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _close(self, session: HttpSession) -> None:
        try:
            await session.conversation.aclose()
        except Exception:
            self.note(Note("session.failed", {"server": session.server, "session": session.tag, "exc_info": True}))
        finally:
            self._over(session)

    def _over(self, session: HttpSession) -> None:
        self._by_id.pop(session.id, None)
        if not session.ended:
            session.close()
            self.release(session.caller)

    def sweep(self) -> None:
        """End idle sessions, and forget streams that no client resumed."""
        now = self.clock()
        for session in list(self._by_id.values()):
            if session.tidy(now):
                self.note(
                    Note(
                        "session.idle",
                        {"server": session.server, "caller": session.caller, "session": session.tag},
                        warn=False,
                    )
                )
                self.end(session)

    def _sweep_later(self) -> None:
        if self._sweeper is None and self._by_id:
            period = min(self.bounds.idle, self.bounds.resume, self.bounds.detached) / SWEEPS
            self._sweeper = asyncio.get_running_loop().call_later(period, self._swept)

    def _swept(self) -> None:
        self._sweeper = None
        self.sweep()
        self._sweep_later()

    # -- requests in progress, and the drain
    # -------------------------------------------------------------------------------------------------

    def leave(self, visit: HttpExchange) -> None:
        """An HTTP request has ended."""
        self.visits.discard(visit)
        if visit.waits and visit.method not in READS:
            self._answered = self.clock()
        for left in self._drains:
            left.set()

    async def drain(self, seconds: float, *, linger: float = 0.0, since: float | None = None) -> bool:
        """Drain: accept reads only, wait for the calls in flight, then end everything. False if a call was cut off.

        Answers and cancellations from clients still pass. Calls have ``seconds`` in all. Sessions and connections stay
        open for ``linger`` seconds after the last answered call, but never past ``seconds``. Only calls answered after
        ``since`` count for this (by ``clock``; the default is now).
        """
        since = self.clock() if since is None else since
        self._draining = True
        self._stop_subscriptions()
        in_time = await self._quiet(seconds, linger, since)
        for session in list(self._by_id.values()):
            self.end(session)
        if self._closing:
            await asyncio.wait(set(self._closing), timeout=LAST)
        for visit in list(self.visits):
            if visit.reader is not None and not (visit.reader.stream.ended and visit.session):
                visit.reader.stop(CLOSING)
        await self._gone(LAST, lambda _: True)
        return in_time

    def _stop_subscriptions(self) -> None:
        for visit in list(self.visits):
            if visit.era == "modern" and not visit.waits and visit.reader is not None:
                visit.reader.stop(CLOSING)

    async def _quiet(self, seconds: float, linger: float, since: float) -> bool:
        """Wait for the calls in flight and for their clients' next requests. False if a call takes longer than
        ``seconds``."""
        until = self.clock() + seconds
        while await self._gone(until - self.clock(), lambda visit: visit.waits):
            rest = min(self._answered + linger, until) - self.clock() if self._answered >= since else 0.0
            if rest <= 0:
                return True
            await asyncio.sleep(rest)
        return False

    async def _gone(self, seconds: float, which: Callable[[HttpExchange], bool]) -> bool:
        """Wait until no HTTP request matches ``which``. False on timeout."""
        left = asyncio.Event()
        self._drains.add(left)
        try:
            async with asyncio.timeout(seconds):
                while any(which(visit) for visit in self.visits):
                    await left.wait()
                    left.clear()
        except TimeoutError:
            return False
        finally:
            self._drains.discard(left)
        return True
