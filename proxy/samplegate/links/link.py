"""One side's connection as the relay sees it: lines out, lines in through its receiver, and who is too slow.

Not aware of what carries the bytes: ``polled`` or ``threaded`` does.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import Callable, Container
from contextlib import suppress
from typing import Protocol

from samplegate.links.backlog import Backlog
from samplegate.links.hangup import LOOK
from samplegate.links.lines import Lines, Receiver
from samplegate.links.polled import PolledReader, PolledWriter
from samplegate.links.threaded import ThreadedReader, ThreadedWriter


class _Reader(Protocol):
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def abort(self) -> None: ...


class _Writer(Protocol):
    def send(self, line: bytes) -> None: ...
    def has_no_reader(self) -> bool: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


class LineLink:
    """A stream of lines each way. Everything but ``drained`` returns at once; all of it belongs to the event loop's thread."""

    def __init__(self, reader: _Reader, writer: _Writer, lines: Lines, backlog: Backlog) -> None:
        self._reader = reader
        self._writer = writer
        self._lines = lines
        self._backlog = backlog
        self.send: Callable[[bytes], None] = writer.send
        """Queue one line, to which the line end is added. A line for a peer that has gone, or after ``close_writing``, is dropped and counted."""

    @property
    def pressure(self) -> Callable[[bool], None]:
        """Called with True when the peer leaves over HIGH_WATER bytes untaken (from within ``send``), with False when it has caught up or gone."""
        return self._backlog.pressure

    @pressure.setter
    def pressure(self, call: Callable[[bool], None]) -> None:
        self._backlog.pressure = call

    @property
    def buffered(self) -> int:
        """Bytes that the system has not yet taken from us."""
        return self._backlog.size

    @property
    def dropped(self) -> int:
        """Lines that were not delivered because the peer had gone."""
        return self._backlog.dropped

    def pause_reading(self) -> None:
        """Take nothing more from the peer. What one read has brought is still delivered, and a thread may be in one more."""
        self._reader.pause()

    def resume_reading(self) -> None:
        self._reader.resume()

    async def drained(self, timeout: float) -> bool:
        """Wait until the system took everything, ``timeout`` seconds at most; False if it has not or the peer went first."""
        return await self._backlog.drained(timeout)

    async def unread(self) -> None:
        """Wait until no process reads what we write. Never returns where the system does not tell (files, Windows)."""
        while not self._writer.has_no_reader():  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(LOOK)

    async def read_out(self, timeout: float) -> bool:
        """Wait until the receiver will hear nothing more, ``timeout`` seconds at most; False if it may."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._lines.over.wait()
        return self._lines.over.is_set()

    def close_writing(self) -> None:
        """Send what waits, then let the peer see the end of its input. Reading goes on."""
        self._writer.close()

    def abort(self) -> None:
        """Drop both directions at once. The receiver hears nothing more, not even ``ended``."""
        self._reader.abort()
        self._writer.abort()


def connect(
    reading: int, writing: int, receiver: Receiver, *, max_line: int, closed: Callable[[int], None] | None = None, blocking: Container[int] = ()
) -> LineLink:
    """A link over two descriptors, which it owns from here on. Nothing is delivered before the caller next awaits.

    ``closed`` is called with each descriptor that was made non-blocking, just before it is closed; those in ``blocking`` are left blocking.
    """
    backlog = Backlog()
    lines = Lines(receiver, max_line)
    call = closed or _nothing
    reader = PolledReader(reading, lines, call) if reading not in blocking and pollable(reading) else ThreadedReader(reading, lines)
    writer = PolledWriter(writing, backlog, call) if writing not in blocking and pollable(writing) else ThreadedWriter(writing, backlog)
    return LineLink(reader, writer, lines, backlog)


def pollable(fd: int) -> bool:
    """True for pipes and sockets where the system can poll them. Files and ``/dev/null`` cannot be, and terminals are better left blocking."""
    if sys.platform == "win32":
        return False
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _nothing(fd: int) -> None:
    """Nobody wants to know of descriptors that are only ours."""
