"""The ASGI application for one MCP server over HTTP, in both eras.

It reads the body of a POST and selects the era; ``modern`` and ``legacy`` do the rest. An outer application
authenticates the caller and checks Host and Origin (R96).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import msgspec

from samplegate.durations import duration_text
from samplegate.protocol import frames, rawjson
from samplegate.protocol.frames import Frame
from samplegate.protocol.rawjson import Malformed
from samplegate.protocol.rounds import Note
from samplegate.transport.http_server import http, legacy, modern
from samplegate.transport.http_server.http import (
    INTERNAL,
    PARSE_ERROR,
    AccessRecord,
    Found,
    HttpReply,
    Receive,
    Scope,
    Send,
    ServerEndpoint,
    method_label,
    not_allowed,
    refusal,
)
from samplegate.transport.http_server.modern import Mirrored
from samplegate.transport.http_server.sessions import Sessions
from samplegate.transport.http_server.stream import HttpExchange
from samplegate.transport.lines import one_line

_CLOSE: Final = ((b"connection", b"close"),)
"""Headers of a refusal that leaves the rest of the request unread."""


async def read_body(
    receive: Receive, found: Found, most: int, seconds: float, *, arrived: bool = False
) -> bytes | HttpReply | None:
    """The body as a single line, a refusal, or None if the client disconnected before the end of the body.

    ``arrived``: the whole body is there already, so no timeout is needed.
    """
    announced = found.get(b"content-length", b"0")
    if not announced.isdigit() or len(announced) > 18 or int(announced) > most:
        return _too_large(most)
    if arrived:
        whole = await _whole(receive, most)
    else:
        try:
            async with asyncio.timeout(seconds):
                whole = await _whole(receive, most)
        except TimeoutError:
            return refusal(
                408,
                "body_time",
                f"the body did not arrive within {duration_text(seconds)}",
                code=INTERNAL,
                extra=_CLOSE,
            )
    return one_line(whole) if isinstance(whole, bytes) else whole


async def _whole(receive: Receive, most: int) -> bytes | HttpReply | None:
    message = await receive()
    if message["type"] != "http.request":
        return None
    first: bytes = message.get("body", b"")
    if message.get("more_body"):
        return await _rest(receive, first, most)
    return _too_large(most) if len(first) > most else first


async def _rest(receive: Receive, first: bytes, most: int) -> bytes | HttpReply | None:
    whole = bytearray(first)
    more = True
    while more and len(whole) <= most:
        message = await receive()
        if message["type"] != "http.request":
            return None
        whole += message.get("body", b"")
        more = message.get("more_body", False)
    return _too_large(most) if len(whole) > most else bytes(whole)


def _too_large(most: int) -> HttpReply:
    return refusal(413, "body_size", f"the body is larger than {most} bytes", extra=_CLOSE)


App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
_any: Final = msgspec.json.Decoder(msgspec.Raw)
_TRACE: Final = b"traceparent"


def endpoint(
    served: ServerEndpoint, sessions: Sessions, *, tell: Callable[[AccessRecord], None] = lambda _: None
) -> App:
    """The ASGI application for one server.

    ``sessions`` is shared by all servers of a process. ``tell`` is called once for each HTTP request, at its end. From
    the scope, the application reads ``samplegate.caller`` (an ``Identity``; the local caller if absent) and
    ``samplegate.connection`` (``uvicorn_protocol.Connection``).
    """

    mirrored = Mirrored()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"{scope['type']}: only HTTP is supported")
        visit = HttpExchange(scope, receive, send, served.name, sessions.clock())
        sessions.visits.add(visit)
        try:
            reply = await _respond(visit, served, sessions, mirrored)
            if reply is not None:
                await visit.answer(reply)
        finally:
            visit.unwatch()
            sessions.leave(visit)
            tell(visit.access_record(sessions.clock()))

    return app


async def _respond(
    visit: HttpExchange, served: ServerEndpoint, sessions: Sessions, mirrored: Mirrored
) -> HttpReply | None:
    """The response. An unexpected exception is logged and becomes a response, too."""
    try:
        return await _route(visit, served, sessions, mirrored)
    except Exception:
        sessions.note(
            Note("http.failed", {"server": visit.server, "era": visit.era, "method": visit.method, "exc_info": True})
        )
        if visit.status:  # a stream has begun, so its end is the only possible signal
            await visit.cut()
            return None
        return refusal(500, "failed", "internal error in the gate; see the log", code=INTERNAL)


async def _route(
    visit: HttpExchange, served: ServerEndpoint, sessions: Sessions, mirrored: Mirrored
) -> HttpReply | None:
    visit.found, visit.twice = http.gathered(visit.scope["headers"])
    if _TRACE in visit.found:
        visit.trace = visit.ambient = http.traceparent(http.text(visit.found[_TRACE]))
    if visit.http == "POST":
        return await _handle_post(visit, served, sessions, mirrored)
    if visit.http == "GET":
        return await legacy.get(visit, sessions)
    if visit.http == "DELETE":
        return await legacy.delete(visit, sessions)
    return not_allowed(f"the method {visit.http[:20]} is not supported")


async def _handle_post(
    visit: HttpExchange, served: ServerEndpoint, sessions: Sessions, mirrored: Mirrored
) -> HttpReply | None:
    fault = http.post_fault(visit.found, visit.twice)
    if fault is not None:
        return fault
    bounds = sessions.bounds
    line = await read_body(visit.receive, visit.found, bounds.body, bounds.body_time, arrived=visit.complete())
    if not isinstance(line, bytes):
        visit.end = "" if line is not None else "gone"
        return line
    frame = _read(line)
    if isinstance(frame, Malformed):
        visit.posted = line
        del line
        return await _handle_unreadable(visit, sessions, frame)
    visit.posted = frame
    visit.method = method_label(frame.method) if frame.kind in ("request", "notification") else "answer"
    try:
        is_modern = modern.is_modern(visit, frame)
    except Malformed as problem:  # the values that select the era have two readings
        return refusal(400, "parse", f"refused: {problem.fault}", frame.id)
    if not (is_modern or visit.trace) and b'"traceparent"' in line:
        visit.trace = _trace_of(frame)
    del line, frame  # a request that waits for its answer must not keep its body in memory
    if is_modern:
        return await modern.post(visit, served, sessions, mirrored)
    return await legacy.post(visit, served, sessions)


def _read(line: bytes) -> Frame | Malformed:
    try:
        return frames.read(line)
    except Malformed as problem:
        return Malformed(problem.fault, problem.id, answers=problem.answers)  # without the traceback and its line


async def _handle_unreadable(visit: HttpExchange, sessions: Sessions, problem: Malformed) -> HttpReply | None:
    line = visit.posted
    assert isinstance(line, bytes)
    if frames.is_batch(line) and http.SESSION in visit.found:
        del line
        return await legacy.batch(visit, sessions)
    try:
        _any.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return refusal(400, "parse", "the body is not JSON", code=PARSE_ERROR)
    return refusal(400, "parse", f"refused: {problem.fault}", None if problem.answers else problem.id)


def _trace_of(frame: Frame) -> str:
    try:
        return http.traceparent(rawjson.string(frame.meta.raw("traceparent")))
    except Malformed:
        return ""
