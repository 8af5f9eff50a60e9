"""A POST of 2026-07-28: checked by its own envelope and headers, answered on its own lane, cancelled by its disconnect (R49, R71 to R76, T35).

Not a reader of what is asked: a method that a server does not know is the server's to say.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from samplegate.core import frames, jsontext
from samplegate.core.eras import LEGACY, META, MODERN
from samplegate.core.frames import Frame, FrameId
from samplegate.core.session.capabilities import modern_meta
from samplegate.links import sse
from samplegate.links.front import answering, envelope, heading
from samplegate.links.front.mirrored import Mirrored
from samplegate.links.front.replies import (
    JSON,
    Reply,
    busy,
    refusal,
    refused,
    status_of,
)
from samplegate.links.front.served import Conversation, Refused, Served
from samplegate.links.front.sessions import AGAIN, Sessions
from samplegate.links.front.stream import CLOSING, GONE, Reader, Stream
from samplegate.links.front.visit import Visit

LISTEN: Final = "subscriptions/listen"
_LEGACY: Final = frozenset(revision.encode() for revision in LEGACY)
_MODERN: Final = frozenset(revision.encode() for revision in MODERN)
_SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"


class Asked(NamedTuple):
    """What is still needed of a request while its answer is awaited."""

    id: FrameId | None
    method: str


def is_modern(visit: Visit, frame: Frame) -> bool:
    """Which era a POST is of (R87): its header or its body says 2026-07-28. A revision nobody knows is modern too, unless it comes with a session."""
    version = visit.found.get(heading.VERSION)
    if version in _MODERN or (version is not None and version not in _LEGACY and heading.SESSION not in visit.found):
        return True
    return frame.kind in ("request", "notification") and modern_meta(frame) is not None


async def post(visit: Visit, served: Served, sessions: Sessions, mirrored: Mirrored) -> Reply | None:
    """Serve what was posted. None: it was answered by a stream."""
    visit.era = "modern"
    frame = visit.posted
    assert isinstance(frame, Frame)
    id, method = frame.id, frame.method
    if frame.kind not in ("request", "notification"):
        return refusal(400, "method", "a client sends no answers in this revision")
    fault = envelope.fault(visit, frame, mirrored)
    if fault is not None:
        return fault
    if frame.kind == "notification":
        return await _notified(visit, served, frame)
    if sessions.draining(served.name, method):
        return busy(503, "draining", "this server is about to end", id, AGAIN)
    full = sessions.ask(visit.caller, id)
    if full is not None:
        return full
    try:
        conversation = await served.modern(visit.caller, frame)
        del frame
        return await _called(visit, conversation, sessions, mirrored, Asked(id, method))
    except Refused as problem:
        return refused(problem, id)
    finally:
        sessions.answered(visit.caller)


async def _notified(visit: Visit, served: Served, frame: Frame) -> Reply:
    try:
        conversation = await served.modern(visit.caller, frame)
    except Refused as problem:
        return refused(problem, None)
    lane = conversation.open_lane(_Nowhere(), trace=visit.trace)
    conversation.received(lane, frame)
    conversation.close_lane(lane)
    return Reply(202)


async def _called(visit: Visit, conversation: Conversation, sessions: Sessions, mirrored: Mirrored, asked: Asked) -> Reply | None:
    bounds = sessions.bounds
    stream = Stream(sessions.held, bounds, awaited=1, keep=False)
    visit.waits = asked.method != LISTEN
    reader = visit.reader = Reader(stream, gone=visit.gone, unsent=visit.unsent)
    stream.lane = conversation.open_lane(stream, trace=visit.trace)
    try:
        conversation.received(stream.lane, visit.handed_over())
        await answering.first(visit, reader, bounds, sessions.ticks)
        if reader.stopped == CLOSING:
            return busy(503, "draining", "this server is about to end", asked.id, AGAIN)
        if reader.stopped == GONE:
            visit.end = GONE
            return None
        line = answering.whole(reader) if asked.method != LISTEN or _is_answer(stream) else None
        lists = asked.method == "tools/list"
        if line is not None:
            if lists:
                mirrored.learn(visit.caller, line)
            return Reply(status_of(line), (JSON,), line)
        form = _learning(visit, mirrored) if lists else answering.plain
        await answering.stream(visit, reader, bounds, form, farewell=_farewell(asked))
        return None
    finally:
        conversation.close_lane(stream.lane)  # a disconnect is a cancel; after the answer there is nothing to cancel
        stream.free()


def _learning(visit: Visit, mirrored: Mirrored) -> answering.Form:
    def form(seq: int, line: bytes) -> bytes:
        mirrored.learn(visit.caller, line)
        return answering.plain(seq, line)

    return form


def _is_answer(stream: Stream) -> bool:
    """Whether what ended a subscription is an answer: a server may also end it by a notification (R78)."""
    return stream.ended and bool(stream.events) and frames.read(stream.events[0][1]).kind in ("result", "error")


def _farewell(asked: Asked) -> bytes:
    """How we end a subscription ourselves: as its server would (R78)."""
    if asked.method != LISTEN:
        return b""
    assert asked.id is not None
    return sse.event(frames.result(asked.id, jsontext.dump({"resultType": "complete", META: {_SUBSCRIPTION: asked.id}})))


class _Nowhere:
    """The lane of a notification, on which nothing comes back."""

    def send(self, line: bytes, last: bool) -> None:
        pass

    def ask(self, id: FrameId, line: bytes) -> None:
        pass

    def take_back(self, id: FrameId, line: bytes) -> None:
        pass

    def over(self) -> None:
        pass

    def close(self) -> None:
        pass
