"""Lines of a stream: chunks of bytes in, whole lines out, in one pass over the bytes; and how much a peer has not read
yet.

What a line says is not read here: bytes that are no UTF-8 and no JSON come out as they came in (R89 is the session's to
judge). The writers hold the bytes that wait; ``Backlog`` holds their count, for the side that feeds a peer and for
tasks that wait until it is empty.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

HIGH_WATER: Final = 256 * 1024
"""Bytes waiting at which the other side is to be paused: four full pipes, so that a peer that only hiccups pauses
nobody."""
LOW_WATER: Final = 64 * 1024
"""Bytes waiting at which it may go on: one full pipe, so that the peer does not run dry while the other side wakes up.
"""


def _nobody(over: bool) -> None:
    """Stands where the relay has not yet said whom to pause."""


class Backlog:
    """Counts the bytes that wait for one peer, and the lines that it will never get."""

    def __init__(self) -> None:
        self.size = 0
        self.dropped = 0
        self.pressure: Callable[[bool], None] = _nobody
        self._over = False
        self._lost = False
        self._waiters: list[asyncio.Future[None]] = []

    def add(self, size: int) -> None:
        self.size += size
        if self.size > HIGH_WATER and not self._over:
            self._over = True
            self.pressure(True)

    def remove(self, size: int) -> None:
        self.size -= size
        if self._over and self.size <= LOW_WATER:
            self._over = False
            self.pressure(False)
        if not self.size:
            self._wake()

    def lose(self) -> None:
        """The peer has gone: nothing waits any more, and nobody stays paused for it."""
        self._lost = True
        self.remove(self.size)

    async def drained(self, timeout: float) -> bool:
        """Wait until nothing waits; True if the system has taken all of it, False if time ran out or the peer has
        gone."""
        if self.size:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await asyncio.wait([waiter], timeout=timeout)
            waiter.cancel()
        return not self.size and not self._lost

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class Backlogged:
    """A link's count of bytes that its peer has not read yet."""

    _backlog: Backlog

    @property
    def pressure(self) -> Callable[[bool], None]:
        """Called with True when the peer leaves over HIGH_WATER bytes untaken (from within ``send``), with False when
        it has caught up or gone."""
        return self._backlog.pressure

    @pressure.setter
    def pressure(self, call: Callable[[bool], None]) -> None:
        self._backlog.pressure = call

    @property
    def buffered(self) -> int:
        """Bytes that the system has not yet taken from us."""
        return self._backlog.size


MAX_LINE: Final = 256 << 20
"""Longest line taken, in bytes: well over the tens of MiB that real results reach, well under what would fill a small
machine."""

HEAD: Final = 1024
"""Bytes of a discarded line that its receiver is shown: the envelope stands there, if the peer wrote it first."""
TAIL: Final = 512
"""The same of its end: some writers put the id last."""
_CR, _LF = b"\r\n"  # numbers: bytes are searched for one five times faster than for a piece of one byte
_BLANKS: Final = bytes.maketrans(b"\r\n", b"  ")


def one_line(frame: bytes) -> bytes:
    """A frame as one line for every reader: a blank in place of each line end, so that all positions stay.

    In JSON a line end stands only between two tokens. Python's text mode and many ``readLine`` functions end a line at
    a carriage return too, and would read three frames where one was decided.
    """
    return frame.translate(_BLANKS) if _CR in frame or _LF in frame else frame


class Receiver(Protocol):
    """What the relay gives for one side. Called from the event loop, synchronously, in the order of the bytes."""

    def received(self, line: bytes) -> None:
        """Take one line without its end (``\\n`` or ``\\r\\n``), never an empty one."""

    def oversized(self, size: int, head: bytes) -> None:
        """Learn that a line over the bound was discarded whole; ``size`` is how much of it had been read, ``head`` its
        first HEAD bytes."""

    def oversized_end(self, head: bytes, tail: bytes) -> None:
        """Learn that such a line is over, with its first HEAD and its last TAIL bytes."""

    def ended(self) -> None:
        """Learn that nothing more will come: end of input or a broken pipe. Called once, and not after an abort."""


class Lines:
    """Cuts one stream of chunks into lines for a receiver. A line of ``max_line`` bytes is the longest that is
    delivered."""

    def __init__(self, receiver: Receiver, max_line: int = MAX_LINE) -> None:
        self._receiver = receiver
        self._received = receiver.received
        self._max = max_line
        self._held = bytearray()
        """The begin of a line whose end has not come. One growing buffer: a list of chunks is a tenth faster, but lets
        a peer that sends two bytes at a time make us hold twenty for each of them."""
        self._skipping = False
        self._head = self._tail = b""
        """Of the line that is being skipped."""
        self._over = False
        self.over = asyncio.Event()
        """Set when the receiver will hear nothing more."""

    @property
    def mid_line(self) -> bool:
        """True while the end of a begun line is missing."""
        return self._skipping or bool(self._held)

    def feed(self, chunk: bytes) -> None:
        """Deliver every line that ``chunk`` completes and keep the rest."""
        end = chunk.find(b"\n")
        if end < 0:
            self._hold(chunk)
        elif end == len(chunk) - 1 and not self._held and not self._skipping:
            self._deliver(chunk[:-1])
        else:
            self._cut(chunk)

    def end(self) -> None:
        """Deliver what stands after the last line end as a line, then tell the receiver that it is over."""
        if self._over:
            return
        self._complete(b"")
        if not self._over:
            self._finish()
            self._receiver.ended()

    def drop(self) -> None:
        """Deliver nothing any more, not even the end."""
        self._finish()

    def _finish(self) -> None:
        self._over = True
        self._held = bytearray()
        self.over.set()

    def _cut(self, chunk: bytes) -> None:
        first, *others = chunk.split(b"\n")
        rest = others.pop()
        self._complete(first)
        for line in others:
            self._deliver(line)
        if rest:
            self._hold(rest)

    def _complete(self, last: bytes) -> None:
        if self._skipping:
            self._skipping = False
            if not self._over:
                self._receiver.oversized_end(self._head, (self._tail + last)[-TAIL:])
            return
        if self._held:
            self._held += last
            last = bytes(self._held)
            self._held = bytearray()
        self._deliver(last)

    def _deliver(self, line: bytes) -> None:
        if line.endswith(b"\r"):
            line = line[:-1]
        if not line or self._over:
            return
        if len(line) > self._max:
            self._receiver.oversized(len(line), line[:HEAD])
            self._receiver.oversized_end(line[:HEAD], line[-TAIL:])
        else:
            self._received(line)

    def _hold(self, chunk: bytes) -> None:
        if self._skipping:
            self._tail = (self._tail + chunk)[-TAIL:]
        if self._skipping or self._over:
            return
        self._held += chunk
        size = len(self._held)
        if size > self._max + 1:  # one more than the bound, because the last byte may be the \r of a line end
            self._head, self._tail = bytes(self._held[:HEAD]), bytes(self._held[-TAIL:])
            self._held = bytearray()
            self._skipping = True
            self._receiver.oversized(size, self._head)
