"""The link on this process's own stdin and stdout, and a link over any two descriptors. A link writes lines, passes
lines to its receiver, and reports a slow peer. From ``open`` on stdin and stdout belong to the link alone: file
descriptor 1 is pointed at stderr and 0 at the null device, so a stray ``print`` or a library that reads cannot break
the protocol. Untested on Windows, where both sides run in threads.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import sys
from collections.abc import Callable, Container
from contextlib import suppress
from typing import Protocol

from samplegate.transport.fd_streams import LOOK, PIPE_SIZE, PolledReader, PolledWriter, ThreadedReader, ThreadedWriter
from samplegate.transport.lines import MAX_LINE, Backlog, Backlogged, Lines, Receiver


class CannotStart(Exception):
    """A link cannot be opened, and the person at the command line can mend it. Its text is one finished message."""

    def __init__(self, place: str, value: str, fault: str, remedy: str) -> None:
        super().__init__(f"{place}: {value!r} {fault}; {remedy}" if value else f"{place}: {fault}; {remedy}")
        self.place = place
        self.value = value
        self.fault = fault
        self.remedy = remedy


class _Reader(Protocol):
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def abort(self) -> None: ...


class _Writer(Protocol):
    def send(self, line: bytes) -> None: ...
    def has_no_reader(self) -> bool: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


class LineLink(Backlogged):
    """A stream of lines each way. Everything but ``drained`` returns at once; all of it belongs to the event loop's
    thread."""

    def __init__(self, reader: _Reader, writer: _Writer, lines: Lines, backlog: Backlog) -> None:
        self._reader = reader
        self._writer = writer
        self._lines = lines
        self._backlog = backlog
        self.send: Callable[[bytes], None] = writer.send
        """Queue one line, to which the line end is added. A line for a peer that has gone, or after ``close_writing``,
        is dropped and counted."""

    @property
    def dropped(self) -> int:
        """Lines that were not delivered because the peer had gone."""
        return self._backlog.dropped

    def pause_reading(self) -> None:
        """Take nothing more from the peer. What one read has brought is still delivered, and a thread may be in one
        more."""
        self._reader.pause()

    def resume_reading(self) -> None:
        self._reader.resume()

    async def drained(self, timeout: float) -> bool:
        """Wait until the system took everything, ``timeout`` seconds at most; False if it has not or the peer went
        first."""
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
    reading: int,
    writing: int,
    receiver: Receiver,
    *,
    max_line: int,
    closed: Callable[[int], None] | None = None,
    blocking: Container[int] = (),
    together: bool = False,
) -> LineLink:
    """A link over two descriptors, which it owns from here on. Nothing is delivered before the caller next awaits.

    ``closed`` is called with each descriptor that was made non-blocking, just before it is closed; those in
    ``blocking`` are left blocking. ``together`` is for ``PolledWriter``.
    """
    backlog = Backlog()
    lines = Lines(receiver, max_line)
    call = closed or _nothing
    writer = (
        PolledWriter(writing, backlog, call, together=together)
        if writing not in blocking and pollable(writing)
        else ThreadedWriter(writing, backlog)
    )
    reader = (
        PolledReader(reading, lines, call, writer.heard if isinstance(writer, PolledWriter) else bool)
        if reading not in blocking and pollable(reading)
        else ThreadedReader(reading, lines)
    )
    return LineLink(reader, writer, lines, backlog)


def pollable(fd: int) -> bool:
    """True for pipes and sockets where the system can poll them. Files and ``/dev/null`` cannot be, and terminals are
    better left blocking."""
    if sys.platform == "win32":
        return False
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _nothing(fd: int) -> None:
    """Nobody wants to know of descriptors that are only ours."""


STDIN, STDOUT, STDERR = 0, 1, 2


def check_own() -> None:
    """Raise CannotStart if stdin or stdout is closed. To be called before an event loop is made.

    The loop's own descriptors would take the free numbers, and libuv aborts the process when it closes one of them; so
    a closed standard descriptor, stderr too, becomes the null device.
    """
    for fd in (STDIN, STDOUT, STDERR):
        try:
            os.fstat(fd)
        except OSError:
            # it takes the lowest free number, which is this one
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    for name, stream in (("stdin", sys.__stdin__), ("stdout", sys.__stdout__)):
        if stream is None:
            raise CannotStart(
                name,
                "",
                "it is closed, and a client speaks over it",
                "start the command from an MCP client, or give it a pipe",
            )


async def open_own(receiver: Receiver, *, max_line: int = MAX_LINE) -> LineLink:
    """Open the link to the client, once in a process, after ``check_own``.

    Nothing is delivered before the caller next awaits, so it may set ``pressure`` first.
    """
    borrowed = _Borrowed(one_socket=_is_socket(STDIN) and _same(STDIN, STDOUT))
    reading = borrowed.take(STDIN, os.O_RDONLY)
    writing = borrowed.writing = borrowed.take(STDOUT, os.O_WRONLY)
    # stderr of ours and of the child must stay blocking, also where it is the same open file as stdout
    blocking = {writing} if borrowed.has(writing) and _same(STDOUT, STDERR) else set[int]()
    link = connect(reading, writing, receiver, max_line=max_line, closed=borrowed.give_back, blocking=blocking)
    _guard()
    return link


class _Borrowed:
    """Our descriptors for stdin and stdout, and how to leave those that other processes share as they were."""

    def __init__(self, *, one_socket: bool) -> None:
        self._one_socket = one_socket
        self.writing = -1
        self._was_blocking: dict[int, bool] = {}

    def take(self, standard: int, access: int) -> int:
        """A private descriptor for a standard one: a new opening of the same pipe, whose mode nobody shares, or else a
        duplicate."""
        if sys.platform == "linux" and stat.S_ISFIFO(os.fstat(standard).st_mode):
            with suppress(OSError):  # no /proc, or another user's pipe
                fd = os.open(f"/proc/self/fd/{standard}", access | os.O_NONBLOCK | os.O_CLOEXEC)
                _widen(fd)
                return fd
        fd = os.dup(standard)
        if pollable(fd):
            self._was_blocking[fd] = os.get_blocking(fd)
        return fd

    def has(self, fd: int) -> bool:
        """True if its blocking mode is shared with others."""
        return fd in self._was_blocking

    def give_back(self, fd: int) -> None:
        """Restore the blocking mode before ``fd`` is closed; one socket for both directions keeps its mode until both
        are done with it."""
        was = self._was_blocking.pop(fd, None)
        if was is None:
            return
        if not self._one_socket or not self._was_blocking:
            os.set_blocking(fd, was)
        elif fd == self.writing:
            _shut_writing(fd)


def _widen(pipe: int) -> None:
    """Let a pipe hold more than one read, so that neither side waits for the other at every 64 KiB of a long line."""
    import fcntl

    with suppress(OSError):  # the user's pipes are at their limit
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_SIZE)


def _shut_writing(fd: int) -> None:
    """Closing one of two descriptors of a socket tells its peer nothing, and ssh and inetd hand over such a socket."""
    with suppress(OSError), socket.socket(fileno=os.dup(fd)) as both:
        both.shutdown(socket.SHUT_WR)


def _guard() -> None:
    """Point the standard descriptors away from the protocol. What waits in ``sys.stdout``'s buffer goes to stderr
    too."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, STDIN)
    os.close(null)
    os.dup2(STDERR, STDOUT)
    if sys.stderr is not None:
        sys.stdout = sys.stderr


def _is_socket(fd: int) -> bool:
    return stat.S_ISSOCK(os.fstat(fd).st_mode)


def _same(one: int, other: int) -> bool:
    """True if two descriptors stand for the same pipe, socket or terminal. False where one is closed."""
    try:
        return os.path.sameopenfile(one, other)
    except OSError:
        return False
