"""Where whole lines leave the process: onto stderr, in their order, some of them together. It makes no line, and it never waits for a reader.

What cannot be written now is kept for a while, up to a bound, and what comes on top of that is dropped and counted: a client that does not read
our stderr must not stop the gate. The end of a process takes along what is collected, but for one that is killed.
"""

from __future__ import annotations

import asyncio
import atexit
import select
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, TextIO, TypeAlias

DELAY: Final = 0.05  # seconds that a line may be collected: nobody who reads along sees it, and a busy gate writes once for hundreds of calls
PIECE: Final = 4096  # characters, all ASCII: what a pipe that is ready takes without waiting (POSIX's PIPE_BUF on Linux)
FULL: Final = 4 * PIECE  # characters collected that are written before their time, so that a pipe of 64 KiB is emptied meanwhile
HELD: Final = 256 * 1024  # characters kept while nobody reads: about a thousand lines

Later: TypeAlias = Callable[[float, Callable[[], None]], object]
"""Calls something so many seconds later. Raises RuntimeError where no event loop runs."""


def _in_loop(seconds: float, call: Callable[[], None]) -> object:
    return asyncio.get_running_loop().call_later(seconds, call)


class Outlet:
    """Lines, all ASCII, onto one stream. ``later`` is the running event loop's, but in tests."""

    def __init__(self, stream: TextIO, later: Later = _in_loop) -> None:
        self._stream = stream
        self._later = later
        self._lock = threading.RLock()
        self._held: deque[str] = deque()
        self._size = 0
        self._armed = self._stuck = self._registered = False
        self.dropped = 0
        """Lines that nobody will see."""
        self._count: Callable[[int], object] | None = None

    def count_dropped(self, count: Callable[[int], object]) -> None:
        """Report the number of dropped lines there too, at once and from now on."""
        with self._lock:
            count(self.dropped)
            self._count = count

    def put(self, line: str) -> None:
        """Write a line now, after all that is collected. If the stream takes nothing it is kept like those."""
        with self._lock:
            self.flush()
            self._keep(line)
            self.flush()

    def collect(self, line: str) -> None:
        """Write a line within DELAY; at once where no event loop runs."""
        with self._lock:
            self._keep(line)
            if (self._size >= FULL and not self._stuck) or not (self._armed or self._arm()):
                self.flush()

    def flush(self) -> None:
        """Write what is collected, as far as the stream takes it without waiting."""
        with self._lock:
            waiting = 0
            try:
                while self._held and _ready(self._stream):
                    waiting = len(self._held)
                    self._stream.write(self._piece())
                    self._stream.flush()
            except (OSError, ValueError):  # closed, or nobody reads any more
                self._drop(waiting)
                self._held.clear()
                self._size = 0
            self._stuck = bool(self._held)
            if self._stuck and not self._armed:
                self._arm()

    def _keep(self, line: str) -> None:
        if self._held and self._size + len(line) >= HELD:
            self._drop(1)
            return
        self._held.append(line + "\n")
        self._size += len(line) + 1

    def _drop(self, lines: int) -> None:
        self.dropped += lines
        if self._count is not None:
            self._count(lines)

    def _piece(self) -> str:
        """Takes the next whole lines, or the begin of one that is too long to go at once."""
        first = self._held.popleft()
        if len(first) > PIECE:
            self._held.appendleft(first[PIECE:])
            first = first[:PIECE]
        parts, size = [first], len(first)
        while self._held and size + len(self._held[0]) <= PIECE:
            parts.append(self._held.popleft())
            size += len(parts[-1])
        self._size -= size
        return "".join(parts)

    def _arm(self) -> bool:
        """See to it that what is held is looked at again; False where there is no event loop to do it."""
        if not self._registered:
            self._registered = True
            atexit.register(self.flush)
        try:
            self._later(DELAY, self._due)
        except RuntimeError:
            return False
        self._armed = True
        return True

    def _due(self) -> None:
        self._armed = False
        self.flush()


def _ready(stream: TextIO) -> bool:
    """False if a write would wait: a pipe that nobody empties. Always True where that cannot be asked (a file, Windows)."""
    if sys.platform == "win32":
        return True
    try:
        fd = stream.fileno()
    except (OSError, ValueError):
        return True
    return bool(select.select((), (fd,), (), 0)[1]) if fd < 1024 else True  # select's own limit
