"""The connection to one remote server: sends frames by era and order, and returns responses by stream number.

Every failure becomes one JSON-RPC error for the request concerned. Notifications and answers are sent one after the
other, because HTTP keeps no order; legacy requests wait for them. All remote servers of a process share one connection
pool, which has no cookies, uses no proxies from the environment, and follows no redirects by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

import aiohttp

from samplegate.protocol import frames, http_headers, rawjson
from samplegate.protocol.capabilities import modern_meta
from samplegate.protocol.frames import META_VERSION, Frame, FrameId
from samplegate.protocol.rawjson import Malformed
from samplegate.protocol.rounds import Note
from samplegate.protocol.session_state import INITIALIZE
from samplegate.transport.http_client import wire
from samplegate.transport.http_client.calls import HttpCall, LegacyCall, ModernCall
from samplegate.transport.http_client.headers import Mirror
from samplegate.transport.http_client.health import Health
from samplegate.transport.http_client.streams import SharedStreams, Standalone
from samplegate.transport.http_client.wire import Credentials, HttpFault, Wire, error_fault, status_fault
from samplegate.transport.lines import MAX_LINE, Backlog, Backlogged

MAX_CONNECTIONS: Final = 2_000  # each open stream needs one; typical descriptor limits are 1,024 to 65,536
# seconds; common servers close after 5, and a call must not go into a connection that is being closed
IDLE: Final = 4.0
MAX_HEADER: Final = 16_384  # bytes of one header line of a response


def pool() -> aiohttp.ClientSession:
    """A connection pool, which the caller closes. Requires a running loop."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=MAX_CONNECTIONS, keepalive_timeout=IDLE),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,  # a few bytes could become many; compressed answers are refused
        trust_env=False,
        max_line_size=MAX_HEADER,
        max_field_size=MAX_HEADER,
    )


TIME: Final = 10.0  # timeout of one message in seconds: a server replies 202 at once, and later messages wait for it
GRACE: Final = 0.25
"""Seconds that a notification waits for earlier requests: a server that answers with a JSON body sends nothing until it
has the answer."""
MAX_WAITING: Final = 1_000


class NotificationQueue:
    """The queue of messages that need no answer, sent in order.

    ``on_accepted`` is called with each frame that the server accepts.
    """

    def __init__(self, shared: SharedStreams, on_accepted: Callable[[Frame], None]) -> None:
        self._shared = shared
        self._on_accepted = on_accepted
        self._waiting: set[asyncio.Task[None]] = set()
        self.last: asyncio.Task[None] | None = None
        """The task that the next frame must wait for; None if no message is being sent."""

    def enqueue(
        self,
        frame: Frame,
        own: Callable[[], Mapping[str, str]],
        *,
        before: Iterable[asyncio.Future[Any]],
        requests: Iterable[asyncio.Future[Any]],
    ) -> bool:
        """Send one frame after the earlier frames of this queue and after all of ``before``. False if the queue is
        full.

        It also waits for ``requests``, but at most GRACE seconds.
        """
        if len(self._waiting) >= MAX_WAITING:
            self._note_unsent(frame, HttpFault(f"{MAX_WAITING} other messages are already queued"))
            return False
        after = [*before, *([] if self.last is None else [self.last])]
        task = asyncio.get_running_loop().create_task(
            self._send(frame, own, after, [one for one in requests if not one.done()])
        )
        self.last = task
        self._waiting.add(task)
        task.add_done_callback(self._over)
        return True

    def close(self) -> list[asyncio.Task[None]]:
        """Cancel all messages, and return their tasks."""
        tasks = list(self._waiting)
        for task in tasks:
            task.cancel()
        return tasks

    def _over(self, task: asyncio.Task[None]) -> None:
        self._waiting.discard(task)
        if self.last is task:
            self.last = None

    async def _send(
        self,
        frame: Frame,
        own: Callable[[], Mapping[str, str]],
        after: list[asyncio.Future[Any]],
        requests: list[asyncio.Future[Any]],
    ) -> None:
        if after:
            await asyncio.wait(after)
        if requests:
            await asyncio.wait(requests, timeout=GRACE)
        try:
            async with asyncio.timeout(TIME):
                await self._post(frame, own())
        except (HttpFault, aiohttp.ClientError, OSError) as error:
            self._note_unsent(frame, error_fault(error))
        except Exception:
            self._shared.note(Note("remote.failed", {"origin": self._shared.wire.origin, "exc_info": True}))

    async def _post(self, frame: Frame, own: Mapping[str, str]) -> None:
        if self._shared.legacy.gone:
            raise HttpFault("its session has ended")
        response = await self._shared.wire.post(own, frame.raw)
        response.close()
        if response.status == 404 and self._shared.legacy.id is not None:
            self._shared.lost()
        if response.status >= 300:
            raise status_fault(response.status)
        self._on_accepted(frame)

    def _note_unsent(self, frame: Frame, fault: HttpFault) -> None:
        what = frame.method[:100] or frame.kind
        self._shared.note(
            Note("remote.untold", {"origin": self._shared.wire.origin, "method": what, "fault": fault.reason})
        )


MAX_CALLS: Final = 1_000  # requests in flight; each needs a connection
MAX_UNSENT: Final = 64 * 1024 * 1024  # bytes of requests that the server has not accepted
# seconds that a legacy stream may stay open after its request was cancelled; then no answer is expected
CANCELLED: Final = 30.0
END: Final = 0.5  # seconds for the server to accept the end of its session
_INITIALIZED: Final = "notifications/initialized"
_CANCELLED: Final = "notifications/cancelled"


class RemoteReceiver(Protocol):
    """Callbacks of the relay.

    Called synchronously from the event loop, in the order of each stream, and never from within ``send``.
    """

    def received(self, stream: int, line: bytes | Frame) -> None:
        """Receive one frame from the stream of the request with this number, or from the standalone stream (0)."""

    def oversized(self, stream: int, size: int, head: bytes) -> None:
        """A frame over the bound, which is not an answer, was discarded: at least ``size`` bytes that begin with
        ``head``."""

    def ended(self) -> None:
        """The server has ended the session for good. Called once. Requests in flight have got an error or will get
        one."""


class RemoteConnection(Backlogged):
    """The connection to one remote server, for one client or for the modern requests of one caller.

    Use it only on the event loop's thread. ``headers`` are our own credentials for this server; headers that the
    protocol sets are ignored there. ``credentials`` add headers that change. ``health`` gets what becomes of requests.
    ``max_frame`` is in bytes.
    """

    def __init__(
        self,
        url: str,
        receiver: RemoteReceiver,
        *,
        http: aiohttp.ClientSession,
        note: Callable[[Note], None],
        headers: Mapping[str, str] | None = None,
        credentials: Credentials | None = None,
        health: Health | None = None,
        max_frame: int = MAX_LINE,
    ) -> None:
        self._receiver = receiver
        self._note = note
        self._credentials = credentials
        wire = Wire(url, http, headers or {}, credentials, health)
        self._shared = SharedStreams(wire, note, self._received, self._oversized, self._lost, max_frame)
        self._legacy = self._shared.legacy
        self._mirror = Mirror(wire, note, max_frame)
        self._messages = NotificationQueue(self._shared, self._message_accepted)
        self._backlog = Backlog()
        self._calls: dict[HttpCall, asyncio.Task[None]] = {}
        self._beginning: asyncio.Future[None] | None = None
        """The ``accepted`` future of the ``initialize``; all legacy messages wait for it."""
        self._standalone: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._version = ""
        """Version of the last modern request, for a notification without one."""
        self._closed = False
        self._end_reported = False

    def pause_reading(self) -> None:
        """Stop reading all streams. The frames of a completed read are still delivered."""
        self._shared.flow.pause()

    def resume_reading(self) -> None:
        self._shared.flow.resume()

    def send(self, stream: int, line: bytes | Frame) -> None:
        """Send one frame, parsed or raw; returns at once. Responses to a request arrive on ``stream``, the last one its
        answer or an error."""
        if self._closed:
            return
        try:
            frame = frames.of(line)
            meta = modern_meta(frame)
        except Malformed as problem:
            self._unread(stream, problem)
            return
        if frame.kind == "request":
            self._request(stream, frame, meta)
        elif frame.kind == "notification":
            self._notification(frame, meta)
        elif self._beginning is not None:
            self._messages.enqueue(frame, self._legacy.headers, before=(), requests=())
        else:  # R89: servers send no requests in the modern era
            self._note(
                Note("frame.refused", {"side": "client", "fault": "an answer, which clients do not send in 2026-07-28"})
            )

    def close_stream(self, stream: int) -> None:
        """Close the streams of modern requests with this number, which cancels them (R99). Nothing more of them is
        delivered."""
        for call in [call for call in self._calls if call.stream == stream and call.modern]:
            self._take_back(call)

    async def aclose(self) -> None:
        """Close every stream and the session, within about a second, and another one if a token is being renewed.

        Nothing more is delivered. May be called again."""
        self._closed = True
        self._mirror.close()
        tasks = [*self._calls.values(), *([] if self._standalone is None else [self._standalone])]
        self._end_session()
        for task in tasks:
            task.cancel()
        self._shared.flow.resume()
        waiting = [*tasks, *self._messages.close(), *self._ending]
        if waiting:
            await asyncio.wait(waiting, timeout=END * 1.5)
        for task in self._ending:
            task.cancel()
        if self._credentials is not None:
            await self._credentials.settle()

    # -- sending
    # ------------------------------------------------------------------------------------------------------------------

    def _request(self, stream: int, frame: Frame, meta: rawjson.Object | None) -> None:
        assert frame.id is not None
        fault = self._full(len(frame.raw))
        if fault is not None:
            self._answer_soon(stream, frame.id, fault)
            return
        if meta is not None:
            self._version = rawjson.string(meta.raw(META_VERSION)) or ""
            self._start(ModernCall(self._shared, stream, frame, meta, self._mirror))
            return
        if frame.method == INITIALIZE and self._legacy.begun:
            self._end_session()
        call = LegacyCall(self._shared, stream, frame, self._before())
        if frame.method == INITIALIZE:
            self._beginning = call.accepted
        self._start(call)

    def _full(self, size: int) -> HttpFault | None:
        if len(self._calls) >= MAX_CALLS:
            return HttpFault(f"{MAX_CALLS} requests to it are already in flight", transport="full")
        if self._backlog.size and self._backlog.size + size > MAX_UNSENT:
            return HttpFault("it is not reading its input", transport="full")
        return None

    def _before(self) -> list[asyncio.Future[Any]]:
        """The futures to await before a legacy message is sent."""
        return [one for one in (self._beginning, self._messages.last) if one is not None and not one.done()]

    def _start(self, call: HttpCall) -> None:
        self._backlog.add(len(call.frame.raw))
        call.written = self._backlog.remove
        task = self._calls[call] = asyncio.get_running_loop().create_task(call.run())
        task.add_done_callback(lambda _: self._over(call))

    def _over(self, call: HttpCall) -> None:
        self._calls.pop(call, None)
        call.accept()
        call.was_written()

    def _notification(self, frame: Frame, meta: rawjson.Object | None) -> None:
        if frame.method == _CANCELLED:
            call = self._named(frame)
            if call is not None and call.modern:  # over HTTP, closing the stream cancels a modern request (R99)
                self._take_back(call)
                return
            if call is not None:
                asyncio.get_running_loop().call_later(CANCELLED, self._take_back, call)
        if self._beginning is None:
            self._modern_notification(frame, meta)
            return
        accepted = [call.accepted for call in self._calls if not call.modern]
        self._messages.enqueue(frame, self._legacy.headers, before=self._before(), requests=accepted)

    def _modern_notification(self, frame: Frame, meta: rawjson.Object | None) -> None:
        """Send a client's notification. The modern era defines none; an unexpected one is forwarded under the header
        rules (T31)."""
        version = self._version if meta is None else rawjson.string(meta.raw(META_VERSION)) or ""
        own = http_headers.standard_headers(frame.method, frame.object, version)
        self._messages.enqueue(frame, lambda: own, before=(), requests=())

    def _named(self, frame: Frame) -> HttpCall | None:
        """The request that a cancellation refers to."""
        id = frames.plain_id(frame.lookup("requestId"))
        return next((call for call in self._calls if call.id == id), None)

    def _take_back(self, call: HttpCall) -> None:
        task = self._calls.get(call)
        if task is not None:
            call.silent = True
            task.cancel()

    def _unread(self, stream: int, problem: Malformed) -> None:
        self._note(Note("frame.refused", {"side": "client", "fault": problem.fault}))
        if problem.id is not None and not problem.answers:
            self._answer_soon(stream, problem.id, HttpFault(f"the request cannot be parsed: {problem.fault}"))

    def _answer_soon(self, stream: int, id: FrameId, fault: HttpFault) -> None:
        """Deliver an error in the next turn of the loop, because the relay is busy within ``send``."""
        self._note(Note("remote.failed", {"origin": self._shared.wire.origin, "fault": fault.reason}))
        asyncio.get_running_loop().call_soon(self._received, stream, wire.fault_answer(id, fault))

    # -- the legacy session
    # ----------------------------------------------------------------------------------------------------------------

    def _message_accepted(self, frame: Frame) -> None:
        """The server has accepted a notification or answer. After ``initialized`` it may send requests of its own."""
        if frame.method == _INITIALIZED and self._standalone is None and not self._closed:
            self._standalone = asyncio.get_running_loop().create_task(Standalone(self._shared).run())

    def _lost(self) -> None:
        self._legacy.gone = True
        if not self._end_reported and not self._closed:
            self._end_reported = True
            self._note(Note("remote.session_ended", {"origin": self._shared.wire.origin}))
            self._receiver.ended()

    def _end_session(self) -> None:
        """Ask the server to delete the session, if there is one, without waiting."""
        if self._standalone is not None:
            self._standalone.cancel()
            self._standalone = None
        if self._legacy.id is not None and not self._legacy.gone:
            task = asyncio.get_running_loop().create_task(self._delete(self._legacy.headers()))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
        self._legacy.forget()

    async def _delete(self, own: Mapping[str, str]) -> None:
        with suppress(HttpFault, aiohttp.ClientError, OSError):  # some servers do not let clients end sessions (R94)
            async with asyncio.timeout(END):
                await self._shared.wire.delete(own)

    # -- receiving
    # ------------------------------------------------------------------------------------------------------------------

    def _received(self, stream: int, line: bytes | Frame) -> None:
        if not self._closed:
            self._receiver.received(stream, line)

    def _oversized(self, stream: int, size: int, head: bytes) -> None:
        if not self._closed:
            self._receiver.oversized(stream, size, head)
