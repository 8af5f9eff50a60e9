"""Line links over file descriptors, such as this process's own stdin and stdout.

A link writes lines, passes lines to its receiver, and reports a slow peer. After ``open_own``, only the link uses stdin
and stdout. File descriptor 1 points to stderr and 0 to the null device, so a stray ``print`` or a library that reads
stdin cannot break the protocol. On Windows, which is untested, both directions run in threads.
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

from samplegate.transport.fd_streams import (
    HANG_UP_POLL,
    PIPE_SIZE,
    PolledReader,
    PolledWriter,
    ThreadedReader,
    ThreadedWriter,
)
from samplegate.transport.lines import MAX_LINE, Backlog, Backlogged, Lines, Receiver


class CannotStart(Exception):
    """A link cannot be opened because of something the user can fix. The exception's text is the complete message."""

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
    """A bidirectional stream of lines.

    ``drained``, ``unread`` and ``read_out`` wait; all other methods return at once. Use it only on the event loop's
    thread.
    """

    def __init__(self, reader: _Reader, writer: _Writer, lines: Lines, backlog: Backlog) -> None:
        self._reader = reader
        self._writer = writer
        self._lines = lines
        self._backlog = backlog
        self.send: Callable[[bytes], None] = writer.send
        """Queue one line; the writer adds the line end. A line is dropped and counted if the peer has gone or after
        ``close_writing``."""

    @property
    def dropped(self) -> int:
        """Number of lines that were not delivered because the peer had gone."""
        return self._backlog.dropped

    def pause_reading(self) -> None:
        """Stop reading from the peer. The lines of a completed read are still delivered, and a reader thread may finish
        one more read."""
        self._reader.pause()

    def resume_reading(self) -> None:
        self._reader.resume()

    async def drained(self, timeout: float) -> bool:
        """Wait until everything is written, at most ``timeout`` seconds. False on timeout, or if the peer has gone."""
        return await self._backlog.drained(timeout)

    async def unread(self) -> None:
        """Wait until no process reads our output. Never returns if the system cannot report that (files, Windows)."""
        while not self._writer.has_no_reader():  # noqa: ASYNC110 - no event reports this
            await asyncio.sleep(HANG_UP_POLL)

    async def read_out(self, timeout: float) -> bool:
        """Wait until the receiver will get no more calls, at most ``timeout`` seconds. False on timeout."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._lines.over.wait()
        return self._lines.over.is_set()

    def close_writing(self) -> None:
        """Write what is queued, then close the peer's input. Reading continues."""
        self._writer.close()

    def abort(self) -> None:
        """Drop both directions at once. The receiver gets no more calls, not even ``ended``."""
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
    """A link over two descriptors, which it owns from now on. It delivers nothing before the caller next awaits.

    ``closed`` is called with each descriptor whose polled reader or writer is about to close it. Descriptors in
    ``blocking`` stay blocking. ``together`` batches writes, see ``PolledWriter``.
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
    """True for pipes and sockets on systems that can poll them.

    Files and ``/dev/null`` cannot be polled, and terminals are better left in blocking mode.
    """
    if sys.platform == "win32":
        return False
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _nothing(fd: int) -> None:
    """Default for ``closed``: private descriptors need no restoring."""


STDIN, STDOUT, STDERR = 0, 1, 2


def check_own() -> None:
    """Raise CannotStart if stdin or stdout is closed. Call this before an event loop exists.

    A closed standard descriptor, stderr included, becomes the null device. Otherwise the loop's own descriptors would
    get its number, and libuv aborts the process when it closes one of them.
    """
    for fd in (STDIN, STDOUT, STDERR):
        try:
            os.fstat(fd)
        except OSError:
            # open() returns the lowest free number, which is this one
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    for name, stream in (("stdin", sys.__stdin__), ("stdout", sys.__stdout__)):
        if stream is None:
            raise CannotStart(
                name,
                "",
                "closed, but the client connects over it",
                "start the command from an MCP client, or attach a pipe",
            )


async def open_own(receiver: Receiver, *, max_line: int = MAX_LINE) -> LineLink:
    """Open the link to the client, once per process, after ``check_own``.

    It delivers nothing before the caller next awaits, so the caller may set ``pressure`` first.
    """
    borrowed = _Borrowed(one_socket=_is_socket(STDIN) and _same(STDIN, STDOUT))
    reading = borrowed.take(STDIN, os.O_RDONLY)
    writing = borrowed.writing = borrowed.take(STDOUT, os.O_WRONLY)
    # stderr of this process and of the child must stay blocking, even if it is the same open file as stdout
    blocking = {writing} if borrowed.has(writing) and _same(STDOUT, STDERR) else set[int]()
    link = connect(reading, writing, receiver, max_line=max_line, closed=borrowed.give_back, blocking=blocking)
    _guard()
    return link


class _Borrowed:
    """The descriptors opened for stdin and stdout, and the blocking mode to restore on those shared with other
    processes."""

    def __init__(self, *, one_socket: bool) -> None:
        self._one_socket = one_socket
        self.writing = -1
        self._was_blocking: dict[int, bool] = {}

    def take(self, standard: int, access: int) -> int:
        """A private descriptor for a standard one: a new open file for the same pipe, so that its mode is not shared,
        otherwise a duplicate."""
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
        """True if other processes share the descriptor's blocking mode."""
        return fd in self._was_blocking

    def give_back(self, fd: int) -> None:
        """Restore the blocking mode before ``fd`` is closed. One socket for both directions keeps its mode until both
        are closed."""
        was = self._was_blocking.pop(fd, None)
        if was is None:
            return
        if not self._one_socket or not self._was_blocking:
            os.set_blocking(fd, was)
        elif fd == self.writing:
            _shut_writing(fd)


def _widen(pipe: int) -> None:
    """Enlarge a pipe beyond one read, so that long lines do not stop at every 64 KiB."""
    import fcntl

    with suppress(OSError):  # the user's pipes have reached their limit
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_SIZE)


def _shut_writing(fd: int) -> None:
    """Signal the end of output on a socket, because closing one of its two descriptors does not. ssh and inetd hand
    over such sockets."""
    with suppress(OSError), socket.socket(fileno=os.dup(fd)) as both:
        both.shutdown(socket.SHUT_WR)


def _guard() -> None:
    """Point the standard descriptors away from the protocol. Buffered text of ``sys.stdout`` goes to stderr too."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, STDIN)
    os.close(null)
    os.dup2(STDERR, STDOUT)
    if sys.stderr is not None:
        sys.stdout = sys.stderr


def _is_socket(fd: int) -> bool:
    return stat.S_ISSOCK(os.fstat(fd).st_mode)


def _same(one: int, other: int) -> bool:
    """True if two descriptors refer to the same pipe, socket or terminal. False if one is closed."""
    try:
        return os.path.sameopenfile(one, other)
    except OSError:
        return False
