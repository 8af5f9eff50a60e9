"""Legacy sessions over HTTP, 2025-03-26 to 2025-11-25: initialize, POSTs, GET streams and DELETE (R93 to R95).

A disconnect is not a cancellation (T35): later events are kept for a GET with Last-Event-ID. ``sessions`` bounds the
sessions.
"""

from __future__ import annotations

import asyncio
from typing import Final

from samplegate.durations import duration_text
from samplegate.protocol import frames, rawjson
from samplegate.protocol.frames import LEGACY, MODERN, Frame, FrameId, has_batches, has_modes
from samplegate.protocol.rawjson import Malformed
from samplegate.transport import sse
from samplegate.transport.http_server import http
from samplegate.transport.http_server import stream as answering
from samplegate.transport.http_server.http import (
    INTERNAL,
    JSON,
    ConversationRefused,
    Headers,
    HttpReply,
    ServerEndpoint,
    busy,
    not_allowed,
    refusal,
    refused,
)
from samplegate.transport.http_server.sessions import RETRY_AFTER, STANDALONE, HttpSession, Sessions, ending
from samplegate.transport.http_server.stream import CLOSING, DISPLACED, GONE, HttpExchange, HttpStream, StreamReader


async def begin(
    visit: HttpExchange, served: ServerEndpoint, sessions: Sessions, id: FrameId | None
) -> HttpReply | None:
    """Handle an ``initialize`` without a session. None if a stream answered it, or if the client has disconnected."""
    if sessions.draining():
        return ending(id)
    full = sessions.reserve(visit.caller, id)
    if full is not None:
        return full
    try:
        conversation = await served.begin(visit.identity)
    except BaseException as problem:
        sessions.release(visit.caller)
        if isinstance(problem, ConversationRefused):
            return refused(problem, id)
        raise
    session = sessions.create(visit.caller, served.name, conversation)
    visit.session, visit.waits = session.tag, True
    stream = session.asked(1, visit.identity, visit.ambient)
    reader = visit.reader = StreamReader(stream)
    try:
        return await _initialize(visit, sessions, session, id, reader)
    finally:
        reader.leave()
        if stream.ended:
            session.left(stream, sessions.clock())
        stream.free()
        if sessions.find(session.id, session.server, session.caller) is None:
            sessions.end(session)


async def _initialize(
    visit: HttpExchange, sessions: Sessions, session: HttpSession, id: FrameId | None, reader: StreamReader
) -> HttpReply | None:
    """Wait for the server's answer. Only a result creates the session and sends its id."""
    bounds, stream = sessions.bounds, reader.stream
    session.conversation.received(stream.stream_id, visit.take_body())
    visit.watch(reader)
    deadline = asyncio.get_running_loop().time() + bounds.opening
    while not (stream.ended or reader.stopped):
        left = deadline - asyncio.get_running_loop().time()
        reader.given = stream.seq  # events before the answer are kept
        if left <= 0 or not await reader.more(left):
            return refusal(
                504, "opening", f"the server did not answer within {duration_text(bounds.opening)}", id, code=INTERNAL
            )
    reader.given = 0
    if reader.stopped:
        visit.end = reader.stopped
        return ending(id) if reader.stopped == CLOSING else None
    revision = _revision(stream)
    extra: Headers = ()
    if revision is not None:
        session.revision = revision
        sessions.enter(session)
        extra = ((http.SESSION, session.id.encode()),)
    line = answering.whole_answer(reader)
    if line is not None:
        return HttpReply(200, (JSON, *extra), line)
    await answering.stream(visit, reader, bounds, answering.unnumbered_event, headers=extra)
    return None


def _revision(stream: HttpStream) -> str | None:
    """The negotiated version; None if the answer is an error."""
    if not stream.events:
        return None
    answer = frames.read(stream.events[-1][1])
    if answer.kind != "result":
        return None
    return rawjson.string(rawjson.lookup(answer.payload, "protocolVersion")) or LEGACY[1]


INITIALIZE: Final = "initialize"
REQUEST_CANCELLED: Final = -32800
"""JSON-RPC code that ends a stream whose request was cancelled. Clients of 2025-11-25 would ask again and again for a
stream that ends without an answer."""
MAX_BATCH: Final = 100  # elements; real clients send a handful


async def post(visit: HttpExchange, served: ServerEndpoint, sessions: Sessions) -> HttpReply | None:
    """Handle a POST. None if a stream answered it, or if the client has disconnected."""
    visit.era = "legacy"
    frame = visit.posted
    assert isinstance(frame, Frame)
    id, method = frame.id, frame.method
    if http.SESSION not in visit.found and method == INITIALIZE and frame.kind == "request":
        del frame
        return await begin(visit, served, sessions, id)
    session = _session(visit, sessions, frame.id if frame.kind == "request" else None)
    if isinstance(session, HttpReply):
        return session
    if frame.kind != "request":
        session.conversation.received(session.side_stream(), frame)
        return HttpReply(202)
    del frame
    return await _handle_requests(visit, sessions, session, [id], method=method)


async def batch(visit: HttpExchange, sessions: Sessions) -> HttpReply | None:
    """Handle a posted batch. A stream answers it, with an event for each request."""
    visit.era, visit.method = "legacy", "batch"
    session = _session(visit, sessions, None)
    if isinstance(session, HttpReply):
        return session
    if not has_batches(session.revision):
        return refusal(400, "batch", f"protocol version {session.revision} does not support batches")
    try:
        line = visit.posted
        assert isinstance(line, bytes)
        elements = frames.batch(line)
        if not 0 < len(elements) <= MAX_BATCH:
            return refusal(400, "batch", f"a batch must have 1 to {MAX_BATCH} elements; this one has {len(elements)}")
        read = [frames.read(element) for element in elements]
    except Malformed as problem:
        return refusal(400, "parse", f"refused: {problem.fault}")
    requests = [frame.id for frame in read if frame.kind == "request"]
    if not requests:
        session.conversation.received(session.side_stream(), line)
        return HttpReply(202)
    del line, elements, read
    return await _handle_requests(visit, sessions, session, requests)


async def get(visit: HttpExchange, sessions: Sessions) -> HttpReply | None:
    """Handle a GET: the standalone stream, or the rest of a broken stream (R95)."""
    if http.SESSION not in visit.found or http.text(visit.found.get(http.VERSION)) in MODERN:
        return not_allowed("GET requires a session, and 2026-07-28 has no sessions")
    visit.era = "legacy"
    fault = http.get_fault(visit.found, visit.twice)
    session = fault or _session(visit, sessions, None)
    if isinstance(session, HttpReply):
        return session
    last_event = http.text(visit.found.get(http.LAST_EVENT))
    place = (session.standalone, session.standalone.given) if not last_event else session.find(last_event)
    if place is None:
        return refusal(400, "event", "the event in Last-Event-ID is unknown or no longer available")
    if place[0].ended and session.ended:
        return refusal(404, "session", "the session has ended")
    if sessions.draining() and place[0] is session.standalone:
        return ending(None)
    with _Visiting(session, sessions):
        if session.full:
            return _full(sessions, None)
        await _stream_events(visit, sessions, session, *place)
    return None


async def delete(visit: HttpExchange, sessions: Sessions) -> HttpReply:
    """Handle a DELETE: the session ends at once, and the server's side shortly after."""
    if http.SESSION not in visit.found:
        return not_allowed("DELETE requires a session, and 2026-07-28 has no sessions")
    visit.era = "legacy"
    session = _session(visit, sessions, None)
    if isinstance(session, HttpReply):
        return session
    sessions.end(session)
    return HttpReply(204)


class _Visiting:
    """Context manager that counts an HTTP request of a session while it lasts."""

    def __init__(self, session: HttpSession, sessions: Sessions) -> None:
        self._session, self._sessions = session, sessions

    def __enter__(self) -> None:
        self._session.visits += 1

    def __exit__(self, *_: object) -> None:
        self._session.visits -= 1
        self._session.since = self._sessions.clock()


def _session(visit: HttpExchange, sessions: Sessions, id: FrameId | None) -> HttpSession | HttpReply:
    """The session of a request (R94), or a refusal. Also checks the protocol version that the request declares."""
    name = visit.found.get(http.SESSION)
    if name is None:
        return refusal(400, "session", "the Mcp-Session-Id header is missing; start a session with initialize", id)
    session = None if http.SESSION in visit.twice else sessions.find(name.decode("latin-1"), visit.server, visit.caller)
    if session is None and sessions.draining():
        return ending(id)
    if session is None:
        return refusal(404, "session", "unknown session; start a new one with initialize", id)
    visit.session = session.tag
    version = http.text(visit.found.get(http.VERSION))
    if version is not None and version != session.revision and version not in LEGACY:
        return refusal(
            400,
            "protocol",
            f"unsupported MCP-Protocol-Version {version[:40]!r}; this session uses {session.revision}",
            id,
        )
    return session


def _full(sessions: Sessions, id: FrameId | None) -> HttpReply:
    return busy(
        429,
        "session_full",
        f"the session already has {sessions.bounds.streams} open requests and streams",
        id,
        RETRY_AFTER,
    )


# -- requests
# ----------------------------------------------------------------------------------------------------------------------


async def _handle_requests(
    visit: HttpExchange, sessions: Sessions, session: HttpSession, ids: list[FrameId | None], *, method: str = ""
) -> HttpReply | None:
    if sessions.draining(method):
        return ending(ids[0])
    with _Visiting(session, sessions):
        if session.full:
            return _full(sessions, ids[0])
        stream = session.asked(len(ids), visit.identity, visit.ambient)
        visit.waits = True
        reader = visit.reader = StreamReader(stream, gone=visit.gone, unsent=visit.unsent)
        try:
            session.heard(stream)
            session.conversation.received(stream.stream_id, visit.take_body())
            await answering.first_frame(visit, reader, sessions.bounds, sessions.ticks)
            return await _reply(visit, sessions, session, reader, ids)
        finally:
            reader.leave()
            session.left(stream, sessions.clock())


async def _reply(
    visit: HttpExchange, sessions: Sessions, session: HttpSession, reader: StreamReader, ids: list[FrameId | None]
) -> HttpReply | None:
    if reader.stopped == CLOSING:
        return ending(ids[0])
    if reader.stopped == GONE or visit.gone():
        visit.end = GONE
        return None
    line = answering.whole_answer(reader) if len(ids) == 1 else None
    if line is not None:
        return HttpReply(200, (JSON,), line)
    stream = reader.stream
    if stream.ended and not stream.seq:  # cancelled before any event: nothing to resume
        await answering.stream(visit, reader, sessions.bounds, answering.unnumbered_event)
        return None
    form = answering.numbered_event(session.name(stream))
    if primes(session) and len(ids) == 1:
        stream.unanswered = frames.error(ids[0], REQUEST_CANCELLED, "the request was cancelled")
    await answering.stream(visit, reader, sessions.bounds, form, prime=_prime(session, sessions, stream, 0))
    return None


def primes(session: HttpSession) -> bool:
    """True if the session's client accepts an event without data: from 2025-11-25 on."""
    return has_modes(session.revision)


def _prime(session: HttpSession, sessions: Sessions, stream: HttpStream, seq: int) -> bytes:
    """The first event of a stream, whose id lets a client resume before it has received a message (R95)."""
    return sse.event(b"", f"{stream.number}-{seq}", sessions.bounds.retry) if primes(session) else b""


async def _stream_events(
    visit: HttpExchange, sessions: Sessions, session: HttpSession, stream: HttpStream, seq: int
) -> None:
    visit.method = "resume" if stream.number != STANDALONE else "listen"
    reader = visit.reader = StreamReader(stream, seq, gone=visit.gone, unsent=visit.unsent)
    session.heard(stream)
    try:
        form = answering.numbered_event(stream.number)
        await answering.stream(visit, reader, sessions.bounds, form, prime=_prime(session, sessions, stream, seq))
    finally:
        reader.leave()
        if reader.stopped != DISPLACED:
            session.left(stream, sessions.clock())
        elif session.ended:
            stream.free()
