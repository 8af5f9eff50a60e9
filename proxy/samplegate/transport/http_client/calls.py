"""One request of the client's on its way to a remote server, and the stream that answers it: exactly one answer comes
of it, or it was taken back.

A legacy call waits for the messages before it, and its stream is resumed where it broke off. A modern call is
independent, its headers mirror it, and a broken stream ends it (R71, R95). ``connection`` keeps the order of requests
and their number.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

import aiohttp

from samplegate.protocol import frames, http_headers, rawjson
from samplegate.protocol.frames import Frame
from samplegate.protocol.rawjson import Malformed
from samplegate.protocol.rounds import Note
from samplegate.protocol.session_state import INITIALIZE
from samplegate.transport.http_client import wire
from samplegate.transport.http_client.headers import CALL, LIST, Mirror
from samplegate.transport.http_client.streams import MAX_TRIES, SESSION, Cursor, SharedStreams, is_message, taken_up
from samplegate.transport.http_client.wire import HttpFault, SessionGone, of_status
from samplegate.transport.sse import Oversized, ServerSentEvent

LINGER: Final = 1.0  # seconds that a stream may stay open after its answer; a server ends it at once or never
_OURS_TO_SAY: Final = frozenset({401, 403})
"""These are about the gate's own credentials: what the server says of them is not the client's."""


class HttpCall(ABC):
    """One request. ``modern`` and ``legacy`` say how it is posted and what becomes of a stream that breaks."""

    modern: ClassVar[bool]

    def __init__(self, shared: SharedStreams, stream: int, frame: Frame) -> None:
        assert frame.id is not None
        self.shared = shared
        self.stream = stream
        self.frame = frame
        self.id = frame.id
        self.cursor = Cursor()
        self.accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the server is known to have it, or never will."""
        self.written: Callable[[int], None] | None = None
        """Told once, when the system has taken so many bytes, or will not."""
        self.answered = False
        self.silent = False
        """Taken back: nothing of it is told to anybody."""
        self._close: Callable[[], None] | None = None
        self._lingers: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Post it and hand on what comes; whatever goes wrong becomes its answer."""
        try:
            await self._exchange()
            if not self.answered:
                raise HttpFault("its stream ended without an answer", transport="broken")
        except Malformed as problem:
            self._fail(HttpFault(f"its answer cannot be read: {problem.fault}", transport="malformed"))
        except (HttpFault, aiohttp.ClientError, OSError) as error:
            self._fail(wire.of_error(error))
        except Exception:
            self._note("remote.failed", exc_info=True)
            self._fail(HttpFault("the gate met a fault; its log has it"))
        finally:
            self.accept()

    def accept(self) -> None:
        """The server has it."""
        if not self.accepted.done():
            self.accepted.set_result(None)

    def was_written(self) -> None:
        """The system has taken it, or it will not be sent any more."""
        if self.written is not None:
            written, self.written = self.written, None
            written(len(self.frame.raw))

    @abstractmethod
    async def _exchange(self) -> None:
        """Post it, and take what comes until its end. Raises as ``run`` catches."""

    async def _post(self, headers: dict[str, str]) -> Frame | None:
        """Post it and take what comes; an HTTP error that is an error of JSON-RPC is returned, not handed on. Raises as
        ``run`` catches."""
        response = await self.shared.wire.post(headers, self.frame.raw, self.was_written)
        try:
            kind = wire.kind_of(response)
            if response.status >= 400:
                return await self._refused(response, kind)
            self._head_came(response)
            if response.status >= 300 or kind not in (wire.JSON, wire.EVENTS):
                raise self._no_answer(response.status, kind)
            if kind == wire.EVENTS:
                await self._stream(response)
            else:
                self._single(await wire.body(response, self.shared.max_frame, self.shared.flow))
        finally:
            response.close()
        return None

    def _head_came(self, response: aiohttp.ClientResponse) -> None:
        """The server has begun to answer, so it has the request."""
        self.accept()

    @staticmethod
    def _no_answer(status: int, kind: str) -> HttpFault:
        if status == 200 and kind:
            return HttpFault("HTTP 200: its answer is neither JSON nor an event stream", httpStatus=200)
        return of_status(status) if status >= 300 else HttpFault(f"HTTP {status}: it gave no answer", httpStatus=status)

    async def _refused(self, response: aiohttp.ClientResponse, kind: str) -> Frame:
        """The JSON-RPC error that an HTTP error carries, under the request's own id: some servers write another. Raises
        Fault."""
        fault = of_status(response.status)
        if kind != wire.JSON or response.status in _OURS_TO_SAY:
            raise fault
        try:
            found = wire.read(await wire.body(response, min(wire.MAX_ERROR, self.shared.max_frame), self.shared.flow))
        except (Malformed, HttpFault):
            raise fault from None
        if found.kind != "error":
            raise fault
        return found if found.id == self.id else found.changed(id=self.id)

    def _single(self, text: bytes) -> None:
        """A body that is the answer."""
        found = wire.read(text)
        if found.kind not in ("result", "error"):
            raise HttpFault("its answer is a request or notification", transport="malformed")
        if found.id != self.id:
            if found.kind == "result":
                raise HttpFault("its answer is to another request", transport="malformed")
            found = found.changed(id=self.id)
        self._answer(found)

    async def _stream(self, response: aiohttp.ClientResponse) -> None:
        """Hand on the events of a stream until it ends; after its answer it is not waited for long."""
        self._close = response.close
        try:
            await wire.events(response, self.shared.max_frame, self.shared.flow, self._take_event)
        except (aiohttp.ClientError, OSError):
            if not self.answered:
                raise
        finally:
            if self._lingers is not None:
                self._lingers.cancel()

    def _take_event(self, event: ServerSentEvent | Oversized) -> None:
        if isinstance(event, Oversized):
            self._oversized(event)
            return
        self.cursor.saw(event)
        if is_message(event):
            self._take(event.data)

    def _oversized(self, event: Oversized) -> None:
        """What is not the answer is the session's to judge; what may be it ends the call, since the answer will not
        come again."""
        if b'"method"' not in event.head[:256] and not self.answered:
            raise HttpFault(f"its answer has more than {self.shared.max_frame} bytes", transport="oversized")
        self.shared.oversized(self.stream, event.size, event.head)

    def _take(self, text: bytes) -> None:
        """One frame of a stream."""
        try:
            found = wire.read(text)
        except Malformed as problem:
            self._unread(text, problem)
            return
        if found.kind in ("result", "error") and found.id is None:
            found = found.changed(id=self.id)
        if found.kind in ("result", "error") and found.id == self.id:
            if not self.answered:
                self._answer(found)
        elif found.kind in ("result", "error"):
            self._other_answer(found)
        else:
            self._deliver(found)

    def _unread(self, text: bytes, problem: Malformed) -> None:
        """What cannot be read and may be the answer ends the call; else it is logged and the stream goes on."""
        if problem.answers and problem.id == self.id:
            raise problem
        self._note("frame.refused", fault=problem.fault)

    def _other_answer(self, found: Frame) -> None:
        """A stream brings the answer to its own request only: another's would be taken from a stream that still waits
        for it."""
        self._note("frame.refused", fault="an answer to another request")

    def _answer(self, found: Frame) -> None:
        """The answer has come."""
        line = self._final(found)
        self.answered = True
        self._deliver(line)
        if self._close is not None:
            self._lingers = asyncio.get_running_loop().call_later(LINGER, self._close)

    def _final(self, found: Frame) -> Frame:
        """The answer as it goes on. Raises Fault, Malformed."""
        return found

    def _fail(self, fault: HttpFault) -> None:
        if not self.answered:
            self.answered = True
            self._note("remote.failed", fault=fault.reason)
            self._deliver(wire.fault_answer(self.id, fault))
        if isinstance(fault, SessionGone):
            self.shared.lost()

    def _deliver(self, line: bytes | Frame) -> None:
        if not self.silent:
            self.shared.received(self.stream, line)

    def _note(self, event: str, **fields: object) -> None:
        self.shared.note(
            Note(
                event,
                {"side": "server", "origin": self.shared.wire.origin, "method": self.frame.method[:100], **fields},
            )
        )


class LegacyCall(HttpCall):
    """One legacy request. ``before``: what has to be done before it is posted."""

    modern: ClassVar[bool] = False

    def __init__(self, shared: SharedStreams, stream: int, frame: Frame, before: Sequence[asyncio.Future[Any]]) -> None:
        super().__init__(shared, stream, frame)
        self._before = before
        self._begins = frame.method == INITIALIZE
        self._sessions: list[str] = []

    async def _exchange(self) -> None:
        if self._before:
            await asyncio.wait(self._before)
        if self.shared.legacy.gone:
            raise HttpFault("its session is over", transport="session")
        refusal = await self._post({} if self._begins else self.shared.legacy.headers())
        if refusal is not None:
            self._answer(refusal)
        await self._take_up()

    async def _take_up(self) -> None:
        """Take the stream up where it broke off, as long as it can say where that is."""
        tries = 0
        while not self.answered and self.cursor.id is not None:
            if tries >= MAX_TRIES:
                raise HttpFault("its stream broke off and could not be taken up again", transport="broken")
            await asyncio.sleep(self.cursor.pause(tries))
            self.cursor.moved = False
            response = await taken_up(self.shared, self.cursor)
            if response is not None:
                try:
                    await self._stream(response)
                finally:
                    response.close()
            tries = 0 if self.cursor.moved else tries + 1

    async def _stream(self, response: aiohttp.ClientResponse) -> None:
        try:
            await super()._stream(response)
        except (aiohttp.ClientError, OSError):
            if self.cursor.id is None:
                raise

    def _head_came(self, response: aiohttp.ClientResponse) -> None:
        """``initialize`` counts only when it is answered: what follows it needs the session."""
        if self._begins:
            self._sessions = response.headers.getall(SESSION, [])
        else:
            self.accept()

    async def _refused(self, response: aiohttp.ClientResponse, kind: str) -> Frame:
        if response.status == 404 and self.shared.legacy.id is not None and not self._begins:
            raise SessionGone
        return await super()._refused(response, kind)

    def _final(self, found: Frame) -> Frame:
        if self._begins:
            if found.kind == "result":
                self.shared.legacy.began(self._sessions, found)
            self.accept()
        return found

    def _single(self, text: bytes) -> None:
        """In 2025-03-26 a body may be a batch (R92)."""
        if frames.is_batch(text):
            self._batch(text)
        else:
            super()._single(text)

    def _unread(self, text: bytes, problem: Malformed) -> None:
        if frames.is_batch(text):
            self._batch(text)
        else:
            super()._unread(text, problem)

    def _batch(self, text: bytes) -> None:
        """The session takes a batch apart; here it only counts whether the answer is in it."""
        line = wire.one_line(text)
        for element in frames.batch(line):
            who = frames.whose(element)
            if who.get("answers") and who.get("id") == self.id:
                self.answered = True
        self._deliver(line)


class ModernCall(HttpCall):
    """One modern request."""

    modern: ClassVar[bool] = True

    def __init__(self, shared: SharedStreams, stream: int, frame: Frame, meta: rawjson.Object, mirror: Mirror) -> None:
        super().__init__(shared, stream, frame)
        self._meta = meta
        self._mirror = mirror

    async def _exchange(self) -> None:
        """Post it; if the server misses headers, look at its tools again and post it once more (R74)."""
        own = await self._mirror.headers(self.frame, self._meta)
        refusal = await self._post(own)
        if refusal is not None and self.frame.method == CALL and refusal.code == http_headers.MISMATCH:
            fresh = await self._mirror.headers(self.frame, self._meta, afresh=True)
            if fresh != own:
                refusal = await self._post(fresh)
        if refusal is not None:
            self._answer(refusal)

    def _final(self, found: Frame) -> Frame:
        """A list of tools goes on without those that must not be used over HTTP."""
        return self._mirror.learn(found) if self.frame.method == LIST and found.kind == "result" else found
