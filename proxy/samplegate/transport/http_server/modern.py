"""Requests of 2026-07-28 over HTTP: checks of envelope and headers (R49, R54, R71 to R76), and their answers.

No decision depends on the value of a header (R75).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from samplegate.protocol import frames, http_headers, rawjson
from samplegate.protocol.capabilities import modern_meta
from samplegate.protocol.frames import LEGACY, META, META_CAPABILITIES, META_VERSION, MODERN, Frame, FrameId
from samplegate.protocol.http_headers import Annotations
from samplegate.protocol.rawjson import Malformed
from samplegate.protocol.server_requests import may_contain
from samplegate.transport import sse
from samplegate.transport.http_server import http
from samplegate.transport.http_server import stream as answering
from samplegate.transport.http_server.http import (
    BAD_PARAMS,
    JSON,
    METHOD_NOT_FOUND,
    UNSUPPORTED_VERSION,
    Conversation,
    ConversationRefused,
    HttpReply,
    ServerEndpoint,
    refusal,
    refused,
    status_of,
)
from samplegate.transport.http_server.sessions import Sessions, ending
from samplegate.transport.http_server.stream import CLOSING, GONE, HttpExchange, HttpStream, StreamReader

MAX_LIST: Final = 4 * 1024 * 1024  # bytes of a list that is parsed; a thousand tools need one MiB
MAX_TOOLS: Final = 1000  # of one caller; only tools with annotations count
MAX_CALLERS: Final = 1000
MAX_SIZE: Final = 1024 * 1024  # bytes of annotations remembered for one caller
MAX_ALL_SIZE: Final = 16 * 1024 * 1024  # and for all callers; the caller with the oldest list is forgotten first
_KEY: Final = http_headers.KEY.encode()


class Mirrored:
    """The tool annotations of one server, for each caller as last listed to that caller."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, Annotations]] = {}
        self._sizes: dict[str, int] = {}

    def learn(self, caller: str, line: bytes) -> None:
        """Learn annotations from an answer to a tools/list. An unreadable answer is ignored."""
        known = self._of.get(caller)
        if len(line) > MAX_LIST or (known is None and not may_contain(line, _KEY)):
            return
        try:
            answer = frames.read(line)
            if answer.kind != "result":
                return
            tools = http_headers.read_tool_list(answer.payload or b"").tools
        except Malformed:
            return
        known = {**self._of.pop(caller, {}), **tools}  # moves the caller to the end of the order
        self._sizes.pop(caller, None)
        kept = {name: wanted for name, wanted in list(known.items())[-MAX_TOOLS:] if wanted}
        sizes = {name: http_headers.size(name, wanted) for name, wanted in kept.items()}
        total = sum(sizes.values())
        while total > MAX_SIZE:
            name = next(iter(kept))
            del kept[name]
            total -= sizes[name]
        if kept:
            self._of[caller], self._sizes[caller] = kept, total
        while len(self._of) > MAX_CALLERS or sum(self._sizes.values()) > MAX_ALL_SIZE:
            oldest = next(iter(self._of))
            del self._of[oldest], self._sizes[oldest]

    def knows(self, caller: str) -> bool:
        """True if a caller has tools with annotations; most have none."""
        return caller in self._of

    def fault(
        self, caller: str, tool: str | None, headers: Iterable[tuple[bytes, bytes]], arguments: bytes | None
    ) -> str | None:
        """Why a call's headers do not mirror its arguments. None if they do or the tool is unknown."""
        wanted = self._of.get(caller, {}).get(tool or "")
        return None if wanted is None else http_headers.check_params(headers, wanted, arguments)


_plain: Final = re.compile(rb"[!#-\[\]-~]{1,256}")


def envelope_fault(visit: HttpExchange, frame: Frame, mirrored: Mirrored) -> HttpReply | None:
    """Why a request or notification is refused for its envelope or headers; None if it is not."""
    if frame.envelope.clean is not None:  # the session repairs invalid JSON, but headers are not compared with it
        return refusal(400, "parse", "refused: its params cannot be parsed", frame.id)
    try:
        params, meta = frame.object, frame.meta
        trace = rawjson.string(meta.raw("traceparent"))
    except Malformed as problem:
        return refusal(400, "parse", f"refused: {problem.fault}", frame.id)
    if trace:
        visit.trace = http.traceparent(trace) or visit.trace
    if frame.kind == "notification":
        return _unsupported(visit, frame, meta) or _checked(visit, frame)
    found = _envelope(frame, meta) or _mismatch(visit, frame, params, meta) or _unsupported(visit, frame, meta)
    return found or _refuse_initialize(frame) or _unmirrored(visit, frame, params, mirrored)


def _starts_with(raw: bytes | None, sign: bytes) -> bool:
    return raw is not None and raw[:1] == sign


def _envelope(frame: Frame, meta: rawjson.Object) -> HttpReply | None:
    """Check for the metadata that every request must declare (R49)."""
    if not _starts_with(meta.raw(META_VERSION), b'"'):
        return refusal(400, "meta", f"params._meta has no {META_VERSION}", frame.id, code=BAD_PARAMS)
    if not _starts_with(meta.raw(META_CAPABILITIES), b"{"):
        return refusal(400, "meta", f"params._meta has no {META_CAPABILITIES}", frame.id, code=BAD_PARAMS)
    return None


def _mismatch(visit: HttpExchange, frame: Frame, params: rawjson.Object, meta: rawjson.Object) -> HttpReply | None:
    """Check that headers mirror the body (R73). Byte-for-byte equality is checked first, because it is cheaper than
    parsing every header."""
    found = visit.found
    member = http_headers.NAMED.get(frame.method)
    if (
        not visit.twice
        and found.get(http.METHOD) == frame.method.encode()
        and _equals(meta.raw(META_VERSION), found.get(http.VERSION))
        and (member is None or _equals(params.raw(member), found.get(http.NAME)))
    ):
        return None
    return _checked(visit, frame)


def _equals(raw: bytes | None, value: bytes | None) -> bool:
    """True if a raw JSON string equals a header's value, if both have only one possible spelling."""
    return (
        value is not None
        and _plain.fullmatch(value) is not None
        and raw == b'"' + value + b'"'
        and not value.startswith(b"=?")
    )


def _checked(visit: HttpExchange, frame: Frame) -> HttpReply | None:
    problem = http_headers.check(visit.scope["headers"], frame)
    return None if problem is None else refusal(400, "mismatch", problem, frame.id, code=http_headers.MISMATCH)


def _unmirrored(visit: HttpExchange, frame: Frame, params: rawjson.Object, mirrored: Mirrored) -> HttpReply | None:
    """Check that headers mirror a tool call's arguments (R74)."""
    if frame.method != "tools/call" or not mirrored.knows(visit.caller):
        return None
    problem = mirrored.fault(
        visit.caller, rawjson.string(params.raw("name")), visit.scope["headers"], params.raw("arguments")
    )
    return None if problem is None else refusal(400, "mismatch", problem, frame.id, code=http_headers.MISMATCH)


def _unsupported(visit: HttpExchange, frame: Frame, meta: rawjson.Object) -> HttpReply | None:
    """Check for an unsupported protocol version (R54)."""
    requested = rawjson.string(meta.raw(META_VERSION)) or http.text(visit.found.get(http.VERSION)) or ""
    if requested in MODERN:
        return None
    data = rawjson.dump({"supported": MODERN, "requested": requested[:100]})
    return refusal(
        400, "version", "the protocol version is not supported", frame.id, code=UNSUPPORTED_VERSION, data=data
    )


def _refuse_initialize(frame: Frame) -> HttpReply | None:
    """Refuse ``initialize``, which does not exist in this version (R58) and must not reach a shared conversation."""
    if frame.method != "initialize":
        return None
    return refusal(404, "method", "method not found: initialize", frame.id, code=METHOD_NOT_FOUND)


LISTEN: Final = "subscriptions/listen"
_LEGACY: Final = frozenset(revision.encode() for revision in LEGACY)
_MODERN: Final = frozenset(revision.encode() for revision in MODERN)
_SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"


class PendingAnswer(NamedTuple):
    """The id and method of a request whose answer is awaited."""

    id: FrameId | None
    method: str


def is_modern(visit: HttpExchange, frame: Frame) -> bool:
    """True if a POST belongs to the modern era (R87): its header or body declares 2026-07-28.

    An unknown version counts as modern, unless the request has a session.
    """
    version = visit.found.get(http.VERSION)
    if version in _MODERN or (version is not None and version not in _LEGACY and http.SESSION not in visit.found):
        return True
    return frame.kind in ("request", "notification") and modern_meta(frame) is not None


async def post(visit: HttpExchange, served: ServerEndpoint, sessions: Sessions, mirrored: Mirrored) -> HttpReply | None:
    """Handle a POST. None if a stream answered it, or if the client has disconnected."""
    visit.era = "modern"
    frame = visit.posted
    assert isinstance(frame, Frame)
    id, method = frame.id, frame.method
    if frame.kind not in ("request", "notification"):
        return refusal(400, "method", "clients cannot send responses in 2026-07-28")
    fault = envelope_fault(visit, frame, mirrored)
    if fault is not None:
        return fault
    if frame.kind == "notification":
        return await _handle_notification(visit, served, frame)
    if sessions.draining(method):
        return ending(id)
    full = sessions.ask(visit.caller, id)
    if full is not None:
        return full
    try:
        conversation = await served.modern(visit.identity, frame)
        del frame
        return await _handle_request(visit, conversation, sessions, mirrored, PendingAnswer(id, method))
    except ConversationRefused as problem:
        return refused(problem, id)
    finally:
        sessions.answered(visit.caller)


async def _handle_notification(visit: HttpExchange, served: ServerEndpoint, frame: Frame) -> HttpReply:
    try:
        conversation = await served.modern(visit.identity, frame)
    except ConversationRefused as problem:
        return refused(problem, None)
    stream_id = conversation.open_stream(_NullStream(), identity=visit.identity, trace=visit.ambient)
    conversation.received(stream_id, frame)
    conversation.close_stream(stream_id)
    return HttpReply(202)


async def _handle_request(
    visit: HttpExchange, conversation: Conversation, sessions: Sessions, mirrored: Mirrored, asked: PendingAnswer
) -> HttpReply | None:
    bounds = sessions.bounds
    stream = HttpStream(sessions.held, bounds, awaited=1, keep=False)
    visit.waits = asked.method != LISTEN
    reader = visit.reader = StreamReader(stream, gone=visit.gone, unsent=visit.unsent)
    stream.stream_id = conversation.open_stream(stream, identity=visit.identity, trace=visit.ambient)
    try:
        conversation.received(stream.stream_id, visit.take_body())
        await answering.first_frame(visit, reader, bounds, sessions.ticks)
        if reader.stopped == CLOSING:
            return ending(asked.id)
        if reader.stopped == GONE:
            visit.end = GONE
            return None
        line = answering.whole_answer(reader) if asked.method != LISTEN or _is_answer(stream) else None
        lists = asked.method == "tools/list"
        if line is not None:
            if lists:
                mirrored.learn(visit.caller, line)
            return HttpReply(status_of(line), (JSON,), line)
        form = _learning(visit, mirrored) if lists else answering.unnumbered_event
        await answering.stream(visit, reader, bounds, form, farewell=_farewell(asked))
        return None
    finally:
        # a disconnect cancels the request; after the answer there is nothing to cancel
        conversation.close_stream(stream.stream_id)
        stream.free()


def _learning(visit: HttpExchange, mirrored: Mirrored) -> answering.Form:
    def form(seq: int, line: bytes) -> bytes:
        mirrored.learn(visit.caller, line)
        return answering.unnumbered_event(seq, line)

    return form


def _is_answer(stream: HttpStream) -> bool:
    """True if an answer ended the subscription: a server may also end it by a notification (R78)."""
    return stream.ended and bool(stream.events) and frames.read(stream.events[0][1]).kind in ("result", "error")


def _farewell(asked: PendingAnswer) -> bytes:
    """The event with which the gate ends a subscription, the same as its server would send (R78)."""
    if asked.method != LISTEN:
        return b""
    assert asked.id is not None
    return sse.event(frames.result(asked.id, rawjson.dump({"resultType": "complete", META: {_SUBSCRIPTION: asked.id}})))


class _NullStream:
    """The stream of a notification, which gets no frames."""

    def send(self, line: bytes, last: bool) -> None:
        pass

    def ask(self, id: FrameId, line: bytes) -> None:
        pass

    def cancel(self, id: FrameId, line: bytes) -> None:
        pass

    def over(self) -> None:
        pass

    def close(self) -> None:
        pass
