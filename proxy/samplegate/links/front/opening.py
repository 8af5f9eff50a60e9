"""How a legacy session begins: a place for it, a conversation, and an id that goes out with the server's consent only (R94)."""

from __future__ import annotations

import asyncio

from samplegate.core import frames, jsontext
from samplegate.core.eras import LEGACY
from samplegate.core.frames import FrameId
from samplegate.links.front import answering, heading
from samplegate.links.front.replies import INTERNAL, JSON, Headers, Reply, busy, refusal, refused
from samplegate.links.front.served import Refused, Served
from samplegate.links.front.session import Session
from samplegate.links.front.sessions import AGAIN, Sessions
from samplegate.links.front.stream import CLOSING, Reader, Stream
from samplegate.links.front.visit import Visit


async def begin(visit: Visit, served: Served, sessions: Sessions, id: FrameId | None) -> Reply | None:
    """Serve an ``initialize`` without a session. None: it was answered by a stream, or the client has gone."""
    if sessions.draining(served.name):
        return busy(503, "draining", "this server is about to end", id, AGAIN)
    full = sessions.reserve(visit.caller, id)
    if full is not None:
        return full
    try:
        conversation = await served.begin(visit.caller)
    except BaseException as problem:
        sessions.release(visit.caller)
        if isinstance(problem, Refused):
            return refused(problem, id)
        raise
    session = sessions.made(visit.caller, served.name, conversation)
    visit.session, visit.waits = session.tag, True
    stream = session.asked(1, visit.trace)
    reader = visit.reader = Reader(stream)
    try:
        return await _opened(visit, sessions, session, id, reader)
    finally:
        reader.leave()
        if stream.ended:
            session.left(stream, sessions.clock())
        stream.free()
        if sessions.find(session.id, session.server, session.caller) is None:
            sessions.end(session)


async def _opened(visit: Visit, sessions: Sessions, session: Session, id: FrameId | None, reader: Reader) -> Reply | None:
    """The server's answer decides whether there is a session: its id goes out with a result only."""
    bounds, stream = sessions.bounds, reader.stream
    session.conversation.received(stream.lane, visit.handed_over())
    visit.watch(reader)
    deadline = asyncio.get_running_loop().time() + bounds.opening
    while not (stream.ended or reader.stopped):
        left = deadline - asyncio.get_running_loop().time()
        reader.given = stream.seq  # what comes before the answer is kept for it
        if left <= 0 or not await reader.more(left):
            return refusal(504, "opening", f"the server has not answered after {bounds.opening:g} seconds", id, code=INTERNAL)
    reader.given = 0
    if reader.stopped:
        visit.end = reader.stopped
        return busy(503, "draining", "this server is about to end", id, AGAIN) if reader.stopped == CLOSING else None
    revision = _revision(stream)
    extra: Headers = ()
    if revision is not None:
        session.revision = revision
        sessions.enter(session)
        extra = ((heading.SESSION, session.id.encode()),)
    line = answering.whole(reader)
    if line is not None:
        return Reply(200, (JSON, *extra), line)
    await answering.stream(visit, reader, bounds, answering.plain, headers=extra)
    return None


def _revision(stream: Stream) -> str | None:
    """What was negotiated, None where the answer is no result."""
    if not stream.events:
        return None
    answer = frames.read(stream.events[-1][1])
    if answer.kind != "result":
        return None
    return jsontext.string(jsontext.lookup(answer.payload, "protocolVersion")) or LEGACY[1]
