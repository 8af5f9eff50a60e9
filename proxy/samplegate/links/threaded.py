"""Lines over descriptors that no event loop can poll, one thread each: files, terminals, ``/dev/null``, and everything on Windows.

Not the fast path: see ``polled``. Blocking mode is left as it is, so a terminal shared with a shell stays as the shell wants it.
The threads are daemons: one that blocks in a read for ever does not keep the process. Untested on Windows.
"""

from __future__ import annotations

import asyncio
import os
import select
import threading
from collections import deque
from contextlib import suppress
from typing import Final

from samplegate.links.backlog import Backlog
from samplegate.links.hangup import HangUp, has_no_reader
from samplegate.links.lines import Lines, one_line

READ_SIZE: Final = 64 * 1024
"""As in ``polled``."""


class ThreadedReader:
    """Reads one descriptor, which it owns, into lines. At most one chunk is on its way: the thread waits until the loop took it.

    A peer that goes while reading is paused is noticed on a terminal. A file has none, and on Windows only a read would tell.
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
        """As in ``polled``."""
        self._last = True
        self.resume()

    def abort(self) -> None:
        """Deliver nothing more; the descriptor is closed when the thread returns from its read."""
        self._lines.drop()
        self._open = False
        self.resume()

    def _run(self) -> None:
        with suppress(RuntimeError):  # the loop has been closed: nobody is left to read for
            while chunk := self._next():
                self._loop.call_soon_threadsafe(self._took, chunk)
            self._loop.call_soon_threadsafe(self._took, b"")
        os.close(self._fd)

    def _next(self) -> bytes:
        self._wanted.wait()
        self._wanted.clear()
        return _read(self._fd) if self._open else b""

    def _took(self, chunk: bytes) -> None:
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
    """Writes lines to one descriptor, which it owns, from a thread."""

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
        with suppress(RuntimeError):  # the loop has been closed
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
    """One chunk; empty at the end and where the other end broke."""
    while True:
        try:
            return os.read(fd, READ_SIZE)
        except BlockingIOError:  # whoever shares it made it non-blocking
            select.select([fd], [], [])
        except OSError:
            return b""


def _write(fd: int, data: bytes) -> bool:
    """Write all of it; False if the other end has gone or the disk is full."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:
            select.select([], [fd], [])
        except OSError:
            return False
    return True
