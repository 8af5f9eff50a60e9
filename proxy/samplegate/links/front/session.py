"""One legacy session over HTTP: its conversation, its streams, and which of them can be asked for again. Not HTTP, and not who may use it."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Final

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
        self.asking: set[Stream] = set()
        """Streams of requests that are not answered."""
        self.since = 0.0
        """When the last visit was over."""
        self.streams: dict[int, Stream] = {}
        self._bounds, self._held = bounds, held
        self._numbers = STANDALONE
        self._side: int | None = None
        self.standalone = Stream(held, bounds, awaited=None, keep=True)
        self.streams[STANDALONE] = self.standalone
        conversation.open_lane(self.standalone, standalone=True)

    @property
    def full(self) -> bool:
        """Whether it has more requests and streams than it may."""
        return self.visits > self._bounds.streams or len(self.asking) >= self._bounds.streams

    def side_lane(self) -> int:
        """The lane of notifications and answers, on which nothing is answered; should something come, it belongs to no request."""
        if self._side is None:
            lane = Stream(self._held, self._bounds, awaited=None, keep=False)
            lane.elsewhere = self.standalone.send
            self._side = self.conversation.open_lane(lane)
        return self._side

    def asked(self, requests: int, trace: str = "") -> Stream:
        """The stream of a POST with so many requests. ``trace``: see ``served``. Whoever reads it calls ``left`` at the end."""
        stream = Stream(self._held, self._bounds, awaited=requests, keep=True)
        stream.on_end = self._answered
        self.asking.add(stream)
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
        """The connection of a stream's POST is over. Its requests go on (T35): where the client can come back, for it; else for nobody."""
        if self.ended:
            stream.free()
        elif stream.ended:
            self._close_lane(stream)
            self._put_away(stream, now)
        elif not stream.number:
            stream.elsewhere = self.standalone.send
            for line in stream.emptied():  # its answer is not among them: then it had ended
                self.standalone.send(line, False)

    def _answered(self, stream: Stream) -> None:
        """All answers are there. Told to the gate later: it is in the midst of sending them. Whoever reads the stream does it when leaving."""
        self.asking.discard(stream)
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
