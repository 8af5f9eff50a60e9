"""One legacy session over HTTP: its conversation, its streams, and which of them can be asked for again. Not HTTP, and not who may use it."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Final

from samplegate.core.frames import FrameId
from samplegate.links.front.bounds import Bounds
from samplegate.links.front.served import Conversation
from samplegate.links.front.stream import CLOSING, Held, Stream

STANDALONE: Final = 0
"""The number of the stream that belongs to no request."""
CLOSED: Final = -1
"""Stands for the lane of a stream whose conversation has been told of its end."""


class Session:
    """One client's session with one server."""

    def __init__(self, id: str, *, caller: str, server: str, conversation: Conversation, bounds: Bounds, held: Held) -> None:
        self.id, self.caller, self.server, self.conversation = id, caller, server, conversation
        self.tag = hashlib.sha256(id.encode()).hexdigest()[:8]
        """Stands for the id in logs."""
        self.revision = ""
        """What was negotiated."""
        self.ended = False
        self.visits = 0
        """HTTP requests that are being served."""
        self.asking: dict[Stream, None] = {}
        """Streams of requests that are not answered, the oldest first."""
        self.since = 0.0
        """When the last visit was over."""
        self.streams: dict[int, Stream] = {}
        self._bounds, self._held = bounds, held
        self._numbers = STANDALONE
        self._side: int | None = None
        self._deadlines: dict[FrameId, asyncio.TimerHandle] = {}
        """Of requests that waited for a stream within the last ``Bounds.unread``."""
        self.standalone = Stream(held, bounds, awaited=None, keep=True, ways=self)
        self.streams[STANDALONE] = self.standalone
        conversation.open_lane(self.standalone, standalone=True)

    @property
    def full(self) -> bool:
        """Whether it has more requests and streams than it may."""
        return self.visits > self._bounds.streams or len(self.asking) >= self._bounds.streams

    def side_lane(self) -> int:
        """The lane of notifications and answers, on which nothing is answered; should something come, it belongs to no request."""
        if self._side is None:
            lane = Stream(self._held, self._bounds, awaited=None, keep=False, ways=self)
            lane.elsewhere = self.standalone.send
            self._side = self.conversation.open_lane(lane)
        return self._side

    def asked(self, requests: int, trace: str = "") -> Stream:
        """The stream of a POST with so many requests. ``trace``: see ``served``. Whoever reads it calls ``left`` at the end."""
        stream = Stream(self._held, self._bounds, awaited=requests, keep=True, ways=self)
        stream.on_end = self._answered
        self.asking[stream] = None
        stream.lane = self.conversation.open_lane(stream, trace=trace)
        return stream

    def name(self, stream: Stream) -> int:
        """Give a stream its number: from here on a client can come back for it (R95)."""
        self._numbers += 1
        stream.number = self._numbers
        self.streams[stream.number] = stream
        return stream.number

    def find(self, last_event: str) -> tuple[Stream, int] | None:
        """The stream and place that an event id names, None for one that is not kept or was never given out."""
        number, dash, seq = last_event.partition("-")
        if not (dash and _is_count(number) and _is_count(seq)):
            return None
        stream = self.streams.get(int(number))
        return None if stream is None or int(seq) > stream.seq else (stream, int(seq))

    def left(self, stream: Stream, now: float) -> None:
        """A connection of a stream is over. Its requests go on (T35), and their answers are kept where the client can resume.

        Requests of the server that were not written yet go to another stream, whether the client resumes or not.
        """
        if self.ended:
            stream.free()
            return
        for id, line in stream.taken_out() if stream.has_requests and stream.reader is None else ():
            self.ask(stream, id, line)
        if stream is self.standalone:
            return
        if stream.ended:
            self._close_lane(stream)
            self._put_away(stream, now)
        elif not stream.number:
            stream.elsewhere = self.standalone.send
            for line in stream.emptied():  # its answer is not among them: then it had ended
                self.standalone.send(line, False)

    # -- frames whose stream the client does not read --------------------------------------------------------------------------------------

    def heard(self, stream: Stream) -> None:
        """A stream is read from here on: it takes the requests that wait for any."""
        if self.standalone.has_requests and stream.is_read and not self.standalone.is_read and stream is not self.standalone:
            for id, line in self.standalone.taken_out():
                stream.add(line, id)

    def ask(self, stream: Stream, id: FrameId, line: bytes) -> None:
        """A request to the client goes on its stream; where the client does not read that, on another; where it reads none, on the next it reads."""
        chosen = self._read(stream)
        if chosen is not None:
            chosen.add(line, id)
        elif not self.ended:
            self.standalone.add(line, id)
            self._forget_deadline(id)
            self._deadlines[id] = asyncio.get_running_loop().call_later(self._bounds.unread, self._give_up, id)

    def take_back(self, stream: Stream, id: FrameId, line: bytes) -> None:
        """A request is cancelled: drop it while it waits for a stream, else send the cancellation on a stream that the client reads."""
        self._forget_deadline(id)
        if self.standalone.taken_out(id) or self.ended:
            return
        (self._read(stream) or self.standalone).add(line)

    def late(self, line: bytes) -> None:
        """A notification for a stream that has ended."""
        if not self.ended:
            (self._read(self.standalone) or self.standalone).add(line)

    def dropped(self, id: FrameId) -> None:
        """There was no room for a request. The gate may be in the midst of sending."""
        asyncio.get_running_loop().call_soon(self._tell_undelivered, id)

    def _read(self, stream: Stream) -> Stream | None:
        """The stream itself if the client reads it, else the standalone one if it reads that, else the oldest it reads."""
        return next((one for one in (stream, self.standalone, *self.asking) if one.is_read), None)

    def _forget_deadline(self, id: FrameId) -> None:
        deadline = self._deadlines.pop(id, None)
        if deadline is not None:
            deadline.cancel()

    def _give_up(self, id: FrameId) -> None:
        del self._deadlines[id]
        if self.standalone.taken_out(id):
            self._tell_undelivered(id)

    def _tell_undelivered(self, id: FrameId) -> None:
        if not self.ended:
            self.conversation.undelivered(id)

    def _answered(self, stream: Stream) -> None:
        """All answers are there. Told to the gate later: it is in the midst of sending them. Whoever reads the stream does it when leaving."""
        self.asking.pop(stream, None)
        if stream.reader is None:
            asyncio.get_running_loop().call_soon(self._close_lane, stream)

    def _close_lane(self, stream: Stream) -> None:
        """Once: a stream is left as often as its client has come back for it."""
        if stream.lane != CLOSED and not self.ended:
            lane, stream.lane = stream.lane, CLOSED
            self.conversation.close_lane(lane)

    def _put_away(self, stream: Stream, now: float) -> None:
        if not stream.number:
            stream.free()
            return
        stream.until = now + self._bounds.resume
        finished = [other for other in self.streams.values() if other.until is not None and other.reader is None]
        for other in finished[: max(0, len(finished) - self._bounds.finished)]:
            self._forget(other)

    def _forget(self, stream: Stream) -> None:
        self.streams.pop(stream.number, None)
        stream.free()

    def tidy(self, now: float) -> bool:
        """Forget what nobody has come back for. True if the session itself has been idle too long."""
        for stream in list(self.streams.values()):
            if stream.until is None and stream.ended and stream.reader is None:
                self._put_away(stream, now)
            elif stream.until is not None and stream.until <= now and stream.reader is None:
                self._forget(stream)
        patience = self._bounds.detached if self.asking else self._bounds.idle
        return self.visits == 0 and now - self.since >= patience

    def close(self) -> None:
        """It is over: whoever reads a stream is let go when it has what is there."""
        self.ended = True
        for id in list(self._deadlines):
            self._forget_deadline(id)
        for stream in {*self.streams.values(), *self.asking}:
            stream.close()
            if stream.reader is None:
                stream.free()

    def stop(self) -> None:
        """Let go of whoever reads the standalone stream."""
        if self.standalone.reader is not None:
            self.standalone.reader.stop(CLOSING)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18
