"""Line framing and write backlog: cuts chunks of bytes into whole lines, and counts the bytes that a peer has not read.

The cutter makes one pass over the bytes and does not interpret them. Lines that are not UTF-8 or JSON are delivered as
they arrived, because the session judges them (R89). The writers keep the waiting bytes themselves; ``Backlog`` keeps
their count, for backpressure and for tasks that wait until everything is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

HIGH_WATER: Final = 256 * 1024
"""Backlog in bytes at which the other side is paused: four full pipes, so that a short stall of the peer pauses
nothing."""
LOW_WATER: Final = 64 * 1024
"""Backlog in bytes at which the other side resumes: one full pipe, so that the peer has data while the other side
wakes."""


def _ignore_pressure(over: bool) -> None:
    """Default for ``pressure`` until the relay sets it."""


class Backlog:
    """Count of the bytes queued for one peer, and of the lines that were dropped."""

    def __init__(self) -> None:
        self.size = 0
        self.dropped = 0
        self.pressure: Callable[[bool], None] = _ignore_pressure
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
        """The peer has gone: clear the count and resume the paused side."""
        self._lost = True
        self.remove(self.size)

    async def drained(self, timeout: float) -> bool:
        """Wait until the backlog is empty, at most ``timeout`` seconds.

        True if the system has accepted every byte; False on timeout, or if the peer has gone.
        """
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
    """A link with a backlog: its size, and the callback for backpressure."""

    _backlog: Backlog

    @property
    def pressure(self) -> Callable[[bool], None]:
        """Callback for backpressure: True (from within ``send``) when the backlog exceeds HIGH_WATER bytes, False when
        it is down to LOW_WATER or the peer has gone."""
        return self._backlog.pressure

    @pressure.setter
    def pressure(self, call: Callable[[bool], None]) -> None:
        self._backlog.pressure = call

    @property
    def buffered(self) -> int:
        """Bytes that the system has not accepted yet."""
        return self._backlog.size


MAX_LINE: Final = 256 << 20
"""Longest accepted line in bytes: well above the tens of MiB of real results, well below the memory of a small
machine."""

HEAD: Final = 1024
"""Bytes from the start of a discarded line that the receiver gets: they contain the envelope if the peer wrote it
first."""
TAIL: Final = 512
"""Bytes from the end of a discarded line: some writers put the id last."""
_CR, _LF = b"\r\n"  # integers: bytes.find is five times faster for one byte value than for a one-byte string
_BLANKS: Final = bytes.maketrans(b"\r\n", b"  ")


def one_line(frame: bytes) -> bytes:
    """A frame as a single line: each line end becomes a space, so that all positions stay.

    In JSON, a raw line end can appear only between two tokens. Python's text mode and many ``readLine`` functions also
    end a line at a carriage return. They would read several frames where the gate decided on one.
    """
    return frame.translate(_BLANKS) if _CR in frame or _LF in frame else frame


class Receiver(Protocol):
    """Callbacks of the relay for one side, called synchronously from the event loop in the order of the bytes."""

    def received(self, line: bytes) -> None:
        """Receive one line, never empty, without its line end (``\\n`` or ``\\r\\n``)."""

    def oversized(self, size: int, head: bytes) -> None:
        """A line over the bound is being discarded: ``size`` bytes of it were read so far, and ``head`` is its first
        HEAD bytes."""

    def oversized_end(self, head: bytes, tail: bytes) -> None:
        """The discarded line is complete: its first HEAD and its last TAIL bytes."""

    def ended(self) -> None:
        """No more lines will come: end of input or a broken pipe. Called once, and not after an abort."""


class Lines:
    """Line cutter: feeds one stream of chunks to a receiver as lines of at most ``max_line`` bytes."""

    def __init__(self, receiver: Receiver, max_line: int = MAX_LINE) -> None:
        self._receiver = receiver
        self._received = receiver.received
        self._max = max_line
        self._held = bytearray()
        """The start of an incomplete line.

        One growing buffer, because a list of chunks costs too much memory: a peer that sends two bytes at a time would
        make us keep twenty for each chunk. The list is only a tenth faster.
        """
        self._skipping = False
        self._head = self._tail = b""
        """Start and end of the line that is being discarded."""
        self._over = False
        self.over = asyncio.Event()
        """Set when the receiver will get no more calls."""

    @property
    def mid_line(self) -> bool:
        """True while a line has begun and its end is missing."""
        return self._skipping or bool(self._held)

    def feed(self, chunk: bytes) -> None:
        """Deliver every line that ``chunk`` completes, and keep the rest."""
        end = chunk.find(b"\n")
        if end < 0:
            self._hold(chunk)
        elif end == len(chunk) - 1 and not self._held and not self._skipping:
            self._deliver(chunk[:-1])
        else:
            self._cut(chunk)

    def end(self) -> None:
        """Deliver the text after the last line end as a line, then call the receiver's ``ended``."""
        if self._over:
            return
        self._complete(b"")
        if not self._over:
            self._finish()
            self._receiver.ended()

    def drop(self) -> None:
        """Deliver nothing more, not even ``ended``."""
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
        if size > self._max + 1:  # one byte more than the bound, because the last byte may be the \r of a line end
            self._head, self._tail = bytes(self._held[:HEAD]), bytes(self._held[-TAIL:])
            self._held = bytearray()
            self._skipping = True
            self._receiver.oversized(size, self._head)
