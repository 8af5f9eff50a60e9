"""Line readers and writers for file descriptors: polled by the event loop where possible, otherwise one thread each.

Pipes and sockets on Linux and macOS are polled: the fast path. asyncio's pipe transports are not used. ``add_reader``
and ``add_writer`` with our own reads and writes cost the same on uvloop and half on asyncio, whose 256 KiB reads are
mapped and unmapped each time. They are also safe if stdin and stdout are one socket. The write transports of both loops
read from the socket too, and would mistake the peer's frames for a hang-up.

Threads serve files, terminals, ``/dev/null``, and everything on Windows (untested). The blocking mode does not change,
so a terminal shared with a shell stays as the shell set it. The threads are daemons, so a blocked read does not keep
the process alive.

While a descriptor is not read, a periodic check finds a hang-up, because event loops report a hang-up only together
with readable data. On Windows such a hang-up is not found.
"""

from __future__ import annotations

import asyncio
import os
import select
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import Final

from samplegate.transport.lines import Backlog, Lines, one_line

HANG_UP_POLL: Final = 0.2
"""Seconds between two checks, and before the first one: a side that pauses only briefly is still read to its end in
order."""
_GONE: Final = getattr(select, "POLLHUP", 0) | getattr(select, "POLLERR", 0) | getattr(select, "POLLRDHUP", 0)
"""Poll flags of a peer that has gone.

The system reports the first two without a request. A socket whose peer has stopped writing but still reads has only the
last, on systems that have this flag.
"""


class HangUp:
    """Hang-up check: calls ``gone`` once when no process can write to ``fd`` any more. It runs only between ``watch``
    and ``stop``."""

    def __init__(self, fd: int, gone: Callable[[], None]) -> None:
        self._fd = fd
        self._gone = gone
        self._next: asyncio.TimerHandle | None = None

    def watch(self) -> None:
        """Start the check. The descriptor must be open."""
        if _GONE:
            self._next = asyncio.get_running_loop().call_later(HANG_UP_POLL, self._check)

    def stop(self) -> None:
        """Stop the check. May be called again."""
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _check(self) -> None:
        if self._has_gone():
            self._next = None
            self._gone()
        else:
            self.watch()

    def _has_gone(self) -> bool:
        return _polled(self._fd, getattr(select, "POLLRDHUP", 0))


def has_no_reader(fd: int) -> bool:
    """True if no process reads from ``fd`` any more. A socket's peer that has stopped writing may still read."""
    return bool(_GONE) and _polled(fd, 0)


def _polled(fd: int, also: int) -> bool:
    poll = select.poll()
    poll.register(fd, also)
    return any(events & _GONE for _, events in poll.poll(0))


READ_SIZE: Final = 64 * 1024
"""Bytes of one read: the content of a full pipe. Below malloc's threshold for mapping memory: reads of 256 KiB take 50
us and these take 18."""
PIPE_SIZE: Final = 256 * 1024
"""Capacity of pipes on Linux, where it can be set: a long line needs a quarter of the loop turns."""
READS_MID_LINE: Final = 4
"""Reads in one turn of the loop in the middle of a long line, when no complete line needs decoding between them."""
JOIN_BELOW: Final = 16 * 1024
"""Size limit in bytes for joining a line and its line end in one copy, which is cheaper than a gathering write. Longer
lines are not copied."""
NEWLINE: Final = ord("\n")
GATHER: Final = 64
"""Pieces in one gathering write: far below every system's IOV_MAX, and enough for a full pipe of small lines."""


class PolledReader:
    """Reader of one descriptor, which it owns, in the event loop.

    It calls ``heard`` for each read, and ``closed`` once with the descriptor, just before it closes it.
    """

    def __init__(
        self, fd: int, lines: Lines, closed: Callable[[int], None], heard: Callable[[], object] = bool
    ) -> None:
        self._fd = fd
        self._lines = lines
        self._closed = closed
        self._heard = heard
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
        """Ignore pauses, read the little that the system still buffers, and find the end after it."""
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
            except OSError:  # the peer reset the connection: for a stream of lines this is the same as its end
                chunk = b""
            if not chunk:
                self._close()
                self._lines.end()
                return
            self._heard()
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
    """Writer of lines to one descriptor, which it owns: at once if the system accepts them, otherwise when it is
    writable.

    ``together``: if the peer has not written anything since the last line, it writes all lines of one turn of the loop
    at the end of the turn. This wakes a peer with many concurrent requests once for all of them.
    """

    def __init__(self, fd: int, backlog: Backlog, closed: Callable[[int], None], *, together: bool = False) -> None:
        self._fd = fd
        self._backlog = backlog
        self._closed = closed
        self._together = together
        self._busy = False
        """True if a line was written since the peer's last output."""
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
        if self._queue or (self._together and self._busy):
            if not self._queue:
                self._loop.call_soon(self._begin)
            self._queue.extend(pieces)
            self._backlog.add(len(line) + 1)
            return
        self._busy = True
        written = self._write(pieces)
        if written is None:
            self._backlog.dropped += 1
        elif written <= len(line):
            self._queue.extend(pieces)
            self._discard_written(written)
            self._loop.add_writer(self._fd, self._ready)
            self._backlog.add(len(line) + 1 - written)

    def heard(self) -> None:
        """The peer has written something."""
        self._busy = False

    def has_no_reader(self) -> bool:
        return not self._open or has_no_reader(self._fd)

    def close(self) -> None:
        """Close the descriptor once the queue is written, so that the peer sees the end of its input."""
        self._closing = True
        if not self._queue:
            self._close()

    def abort(self) -> None:
        self._backlog.dropped += sum(piece[-1] == NEWLINE for piece in self._queue)
        self._queue.clear()
        self._close()
        self._backlog.lose()

    def _write(self, pieces: list[bytes | memoryview] | list[bytes]) -> int | None:
        """The number of bytes that the system accepted; None if the peer has gone."""
        try:
            return os.write(self._fd, pieces[0]) if len(pieces) == 1 else os.writev(self._fd, pieces)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            self.abort()
            return None

    def _begin(self) -> None:
        """Write the queue, and wait for the descriptor to become writable if some of it remains."""
        if self._queue:
            self._ready()
        if self._queue:
            self._loop.add_writer(self._fd, self._ready)

    def _ready(self) -> None:
        written = self._write(list(islice(self._queue, GATHER)))
        if not written:
            return
        self._discard_written(written)
        if not self._queue:
            self._loop.remove_writer(self._fd)
            if self._closing:
                self._close()
        self._backlog.remove(written)

    def _discard_written(self, size: int) -> None:
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


class ThreadedReader:
    """Reader of one descriptor, which it owns, in a thread. The thread waits until the loop has processed each chunk.

    While reading is paused, a hang-up is noticed on a terminal. A file has no hang-up, and on Windows only a read would
    report one.
    """

    def __init__(self, fd: int, lines: Lines) -> None:
        self._fd = fd
        self._lines = lines
        self._loop = asyncio.get_running_loop()
        self._wanted = threading.Event()
        self._wanted.set()
        self._waiting = False
        self._paused = False
        self._open = True
        self._last = False
        self._hang_up = HangUp(fd, self._hung_up)
        threading.Thread(target=self._run, name="samplegate-read", daemon=True).start()

    def pause(self) -> None:
        if self._open and not self._paused and not self._last:
            self._paused = True
            self._hang_up.watch()

    def resume(self) -> None:
        self._paused = False
        self._hang_up.stop()
        if self._waiting:
            self._waiting = False
            self._wanted.set()

    def _hung_up(self) -> None:
        """The same as in ``PolledReader``."""
        self._last = True
        self.resume()

    def abort(self) -> None:
        """Deliver nothing more. The thread closes the descriptor when its read returns."""
        self._lines.drop()
        self._open = False
        self.resume()

    def _run(self) -> None:
        with suppress(RuntimeError):  # the loop is closed
            while chunk := self._next():
                self._loop.call_soon_threadsafe(self._receive_chunk, chunk)
            self._loop.call_soon_threadsafe(self._receive_chunk, b"")
        os.close(self._fd)

    def _next(self) -> bytes:
        self._wanted.wait()
        self._wanted.clear()
        return _read(self._fd) if self._open else b""

    def _receive_chunk(self, chunk: bytes) -> None:
        if not chunk:
            self._open = False
            self._hang_up.stop()
            self._lines.end()
            return
        self._lines.feed(chunk)
        self._waiting = True
        if not self._paused:
            self.resume()


class ThreadedWriter:
    """Writer of lines to one descriptor, which it owns, in a thread."""

    def __init__(self, fd: int, backlog: Backlog) -> None:
        self._fd = fd
        self._backlog = backlog
        self._loop = asyncio.get_running_loop()
        self._queue: deque[bytes] = deque()
        self._some = threading.Condition()
        self._closing = False
        self._gone = False
        threading.Thread(target=self._run, name="samplegate-write", daemon=True).start()

    def send(self, line: bytes) -> None:
        if self._closing or self._gone:
            self._backlog.dropped += 1
            return
        data = one_line(line) + b"\n"
        with self._some:
            self._queue.append(data)
            self._some.notify()
        self._backlog.add(len(data))

    def has_no_reader(self) -> bool:
        return self._gone or has_no_reader(self._fd)

    def close(self) -> None:
        with self._some:
            self._closing = True
            self._some.notify()

    def abort(self) -> None:
        with self._some:
            self._gone = True
            self._backlog.dropped += len(self._queue)
            self._queue.clear()
            self._some.notify()
        self._backlog.lose()

    def _run(self) -> None:
        with suppress(RuntimeError):  # the loop is closed
            while (data := self._next()) is not None:
                if _write(self._fd, data):
                    self._loop.call_soon_threadsafe(self._wrote, len(data))
                else:
                    self._loop.call_soon_threadsafe(self._failed)
                    break
        os.close(self._fd)

    def _next(self) -> bytes | None:
        with self._some:
            self._some.wait_for(lambda: self._queue or self._closing or self._gone)
            return self._queue.popleft() if self._queue and not self._gone else None

    def _wrote(self, size: int) -> None:
        if not self._gone:
            self._backlog.remove(size)

    def _failed(self) -> None:
        self._backlog.dropped += 1
        self.abort()


def _read(fd: int) -> bytes:
    """Read one chunk; empty at the end of input and on an error."""
    while True:
        try:
            return os.read(fd, READ_SIZE)
        except BlockingIOError:  # a process that shares the descriptor made it non-blocking
            select.select([fd], [], [])
        except OSError:
            return b""


def _write(fd: int, data: bytes) -> bool:
    """Write all of ``data``. False if the other end has gone or the disk is full."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:
            select.select([], [fd], [])
        except OSError:
            return False
    return True
