"""One request to a remote server and its response stream, which always yield exactly one answer unless cancelled.

A legacy call waits for the messages before it, and resumes its stream if the stream breaks. A modern call is
independent, its headers mirror it, and a broken stream ends it (R71, R95). ``connection`` keeps the order of requests
and limits their number.
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
from samplegate.transport.http_client.streams import (
    MAX_TRIES,
    SESSION,
    Cursor,
    SharedStreams,
    get_event_stream,
    is_message,
)
from samplegate.transport.http_client.wire import HttpFault, SessionGone, status_fault
from samplegate.transport.sse import Oversized, ServerSentEvent

LINGER: Final = 1.0  # seconds that a stream may stay open after its answer; a server ends it at once or never


class HttpCall(ABC):
    """One request to a remote server. Subclasses define how it is posted and what happens when its stream breaks."""

    modern: ClassVar[bool]

    def __init__(self, shared: SharedStreams, stream: int, frame: Frame) -> None:
        assert frame.id is not None
        self.shared = shared
        self.stream = stream
        self.frame = frame
        self.id = frame.id
        self.cursor = Cursor()
        self.accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the server is known to have the request, or will never get it."""
        self.written: Callable[[int], None] | None = None
        """Called once with the request's size in bytes, when the system has accepted it all or it will not be sent."""
        self.answered = False
        self.silent = False
        """True if the request was cancelled: the relay gets nothing more about it."""
        self._close: Callable[[], None] | None = None
        self._lingers: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Post the request and deliver the frames that come back. Any failure becomes its answer."""
        try:
            await self._exchange()
            if not self.answered:
                raise HttpFault("its stream ended without an answer", transport="broken")
        except Malformed as problem:
            self._fail(HttpFault(f"its answer cannot be parsed: {problem.fault}", transport="malformed"))
        except (HttpFault, aiohttp.ClientError, OSError) as error:
            self._fail(wire.error_fault(error))
        except Exception:
            self._note("remote.failed", exc_info=True)
            self._fail(HttpFault("internal error in the gate; see the log"))
        finally:
            self.accept()

    def accept(self) -> None:
        """Mark the request as accepted by the server."""
        if not self.accepted.done():
            self.accepted.set_result(None)

    def was_written(self) -> None:
        """Report that the system has accepted the request, or that it will not be sent."""
        if self.written is not None:
            written, self.written = self.written, None
            written(len(self.frame.raw))

    @abstractmethod
    async def _exchange(self) -> None:
        """Post the request, and handle its response to the end. Raises the exceptions that ``run`` catches."""

    async def _post(self, headers: dict[str, str]) -> Frame | None:
        """Post the request and handle its response. Raises the exceptions that ``run`` catches.

        A JSON-RPC error that comes with an HTTP error status is returned, not delivered.
        """
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
            return HttpFault("HTTP 200: its response is neither JSON nor an event stream", httpStatus=200)
        return (
            status_fault(status)
            if status >= 300
            else HttpFault(f"HTTP {status}: its response has no answer", httpStatus=status)
        )

    async def _refused(self, response: aiohttp.ClientResponse, kind: str) -> Frame:
        """The JSON-RPC error in an HTTP error response, under the request's own id: some servers write another. Raises
        HttpFault."""
        fault = status_fault(response.status)
        if kind != wire.JSON or response.status in wire.CREDENTIAL_STATUSES:
            raise fault
        try:
            found = wire.read(await wire.body(response, min(wire.MAX_ERROR, self.shared.max_frame), self.shared.flow))
        except (Malformed, HttpFault):
            raise fault from None
        if found.kind != "error":
            raise fault
        return found if found.id == self.id else found.changed(id=self.id)

    def _single(self, text: bytes) -> None:
        """Handle a JSON body, which must be the answer."""
        found = wire.read(text)
        if found.kind not in ("result", "error"):
            raise HttpFault("it answered with a request or notification", transport="malformed")
        if found.id != self.id:
            if found.kind == "result":
                raise HttpFault("it sent a response to a different request", transport="malformed")
            found = found.changed(id=self.id)
        self._answer(found)

    async def _stream(self, response: aiohttp.ClientResponse) -> None:
        """Deliver the events of a stream until it ends, at most LINGER seconds after the answer."""
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
        """Report an oversized event to the session if it is not the answer.

        If it may be the answer, the call fails, because the answer will not come again.
        """
        if b'"method"' not in event.head[:256] and not self.answered:
            raise HttpFault(f"its answer is larger than {self.shared.max_frame} bytes", transport="oversized")
        self.shared.oversized(self.stream, event.size, event.head)

    def _take(self, text: bytes) -> None:
        """Handle one frame of a stream."""
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
        """Raise if an unreadable frame is the answer to this call; otherwise log it and continue."""
        if problem.answers and problem.id == self.id:
            raise problem
        self._note("frame.refused", fault=problem.fault)

    def _other_answer(self, found: Frame) -> None:
        """Drop an answer to another request: it would end a request whose own stream is still open."""
        self._note("frame.refused", fault="an answer to another request")

    def _answer(self, found: Frame) -> None:
        """Deliver the answer."""
        line = self._final(found)
        self.answered = True
        self._deliver(line)
        if self._close is not None:
            self._lingers = asyncio.get_running_loop().call_later(LINGER, self._close)

    def _final(self, found: Frame) -> Frame:
        """The answer as it is delivered. Raises HttpFault, Malformed."""
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
    """A legacy request. It is posted after all futures in ``before`` are done."""

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
            raise HttpFault("its session has ended", transport="session")
        refusal = await self._post({} if self._begins else self.shared.legacy.headers())
        if refusal is not None:
            self._answer(refusal)
        await self._resume()

    async def _resume(self) -> None:
        """Resume the stream where it broke off, as long as it has an event id."""
        tries = 0
        while not self.answered and self.cursor.id is not None:
            if tries >= MAX_TRIES:
                raise HttpFault("its stream was cut off and could not be resumed", transport="broken")
            await asyncio.sleep(self.cursor.pause(tries))
            self.cursor.moved = False
            response = await get_event_stream(self.shared, self.cursor)
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
        """Accept any request but ``initialize``, which counts only when answered: the messages after it need the
        session."""
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
        """Handle a JSON body, which can be a batch in 2025-03-26 (R92)."""
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
        """Deliver a batch, which the session splits, and note whether it contains the answer."""
        line = wire.one_line(text)
        for element in frames.batch(line):
            who = frames.owner_of(element)
            if who.get("answers") and who.get("id") == self.id:
                self.answered = True
        self._deliver(line)


class ModernCall(HttpCall):
    """A modern request."""

    modern: ClassVar[bool] = True

    def __init__(self, shared: SharedStreams, stream: int, frame: Frame, meta: rawjson.Object, mirror: Mirror) -> None:
        super().__init__(shared, stream, frame)
        self._meta = meta
        self._mirror = mirror

    async def _exchange(self) -> None:
        """Post the request. If the server reports a header mismatch, list its tools again and post once more (R74)."""
        own = await self._mirror.headers(self.frame, self._meta)
        refusal = await self._post(own)
        if refusal is not None and self.frame.method == CALL and refusal.code == http_headers.MISMATCH:
            fresh = await self._mirror.headers(self.frame, self._meta, afresh=True)
            if fresh != own:
                refusal = await self._post(fresh)
        if refusal is not None:
            self._answer(refusal)

    def _final(self, found: Frame) -> Frame:
        """The answer; a tool list without the tools that must not be used over HTTP (R74)."""
        return self._mirror.learn(found) if self.frame.method == LIST and found.kind == "result" else found
