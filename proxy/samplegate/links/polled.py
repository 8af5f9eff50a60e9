"""Lines over pipes and sockets that the event loop can poll: the fast path on Linux and macOS.

Not asyncio's pipe transports. Reading and writing the descriptors ourselves on ``add_reader`` and ``add_writer`` costs the same on
uvloop and half on asyncio (whose 256 KiB reads are mapped and unmapped each time), and it is safe where stdin and stdout are one
socket: both loops' write transports also read, and would take the peer's frames for its going. Not for Windows: see ``threaded``.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Final

from samplegate.links.backlog import Backlog
from samplegate.links.hangup import HangUp, has_no_reader
from samplegate.links.lines import Lines, one_line

READ_SIZE: Final = 64 * 1024
"""What a pipe holds, and below malloc's threshold for mapping memory: reads of 256 KiB take 50 us where these take 18."""
PIPE_SIZE: Final = 256 * 1024
"""Capacity that pipes are given on Linux, where it can be set: a long line takes a quarter of the turns."""
READS_MID_LINE: Final = 4
"""Reads in one turn of the loop while a long line is coming in, when there is nothing to decode between them."""
JOIN_BELOW: Final = 16 * 1024
"""Lines up to this size are copied to stand before their line end: cheaper than a gathering write. Longer ones are not copied."""
NEWLINE: Final = ord("\n")
GATHER: Final = 64
"""Pieces handed to one gathering write: far below every system's IOV_MAX, and enough for a full pipe of small lines."""


class PolledReader:
    """Reads one descriptor, which it owns, into lines. ``closed`` is called with it once, just before it is closed."""

    def __init__(self, fd: int, lines: Lines, closed: Callable[[int], None]) -> None:
        self._fd = fd
        self._lines = lines
        self._closed = closed
        self._loop = asyncio.get_running_loop()
        self._paused = False
        self._open = True
        self._last = False
        self._hang_up = HangUp(fd, self._hung_up)
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self._ready)

    def pause(self) -> None:
        if self._open and not self._paused and not self._last:
            self._paused = True
            self._loop.remove_reader(self._fd)
            self._hang_up.watch()

    def resume(self) -> None:
        if self._open and self._paused:
            self._paused = False
            self._hang_up.stop()
            self._loop.add_reader(self._fd, self._ready)

    def _hung_up(self) -> None:
        """Nothing more can come than what the system holds, which is little: read that, whoever wants us to wait, and find the end behind it."""
        self._last = True
        self.resume()

    def abort(self) -> None:
        self._lines.drop()
        self._close()

    def _ready(self) -> None:
        for _ in range(READS_MID_LINE):
            try:
                chunk = os.read(self._fd, READ_SIZE)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:  # the peer reset the connection: for a stream of lines the same as its end
                chunk = b""
            if not chunk:
                self._close()
                self._lines.end()
                return
            self._lines.feed(chunk)
            if len(chunk) < READ_SIZE or self._paused or not self._open or not self._lines.mid_line or b"\n" in chunk:
                return

    def _close(self) -> None:
        if not self._open:
            return
        self._open = False
        self._hang_up.stop()
        self._loop.remove_reader(self._fd)
        self._closed(self._fd)
        os.close(self._fd)


class PolledWriter:
    """Writes lines to one descriptor, which it owns: at once where the system takes them, else when it will."""

    def __init__(self, fd: int, backlog: Backlog, closed: Callable[[int], None]) -> None:
        self._fd = fd
        self._backlog = backlog
        self._closed = closed
        self._loop = asyncio.get_running_loop()
        self._queue: deque[bytes | memoryview] = deque()
        self._open = True
        self._closing = False
        os.set_blocking(fd, False)

    def send(self, line: bytes) -> None:
        if self._closing:
            self._backlog.dropped += 1
            return
        line = one_line(line)
        pieces = [line + b"\n"] if len(line) < JOIN_BELOW else [line, b"\n"]
        if self._queue:
            self._queue.extend(pieces)
            self._backlog.add(len(line) + 1)
            return
        written = self._write(pieces)
        if written is None:
            self._backlog.dropped += 1
        elif written <= len(line):
            self._queue.extend(pieces)
            self._taken(written)
            self._loop.add_writer(self._fd, self._ready)
            self._backlog.add(len(line) + 1 - written)

    def has_no_reader(self) -> bool:
        return not self._open or has_no_reader(self._fd)

    def close(self) -> None:
        """Let the peer see the end once it has taken what waits."""
        self._closing = True
        if not self._queue:
            self._close()

    def abort(self) -> None:
        self._backlog.dropped += sum(piece[-1] == NEWLINE for piece in self._queue)
        self._queue.clear()
        self._close()
        self._backlog.lose()

    def _write(self, pieces: list[bytes | memoryview] | list[bytes]) -> int | None:
        """How many bytes the system took; None if the peer has gone."""
        try:
            return os.write(self._fd, pieces[0]) if len(pieces) == 1 else os.writev(self._fd, pieces)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            self.abort()
            return None

    def _ready(self) -> None:
        written = self._write(list(islice(self._queue, GATHER)))
        if not written:
            return
        self._taken(written)
        if not self._queue:
            self._loop.remove_writer(self._fd)
            if self._closing:
                self._close()
        self._backlog.remove(written)

    def _taken(self, size: int) -> None:
        queue = self._queue
        while size >= len(queue[0]):
            size -= len(queue.popleft())
            if not queue:
                return
        if size:
            queue[0] = memoryview(queue[0])[size:]

    def _close(self) -> None:
        self._closing = True
        if not self._open:
            return
        self._open = False
        self._loop.remove_writer(self._fd)
        self._closed(self._fd)
        os.close(self._fd)
