"""The link on this process' own stdin and stdout, which from then on belong to it alone.

Not a place where anybody else may print: file descriptor 1 is pointed at stderr and 0 at the null device, so a stray ``print`` or a
library that reads cannot break the protocol. Untested on Windows, where both sides run in threads.
"""

from __future__ import annotations

import os
import socket
import stat
import sys
from contextlib import suppress

from samplegate.links.failures import CannotStart
from samplegate.links.lines import MAX_LINE, Receiver
from samplegate.links.link import LineLink, connect, pollable
from samplegate.links.polled import PIPE_SIZE

STDIN, STDOUT, STDERR = 0, 1, 2


def check_own() -> None:
    """Raise CannotStart if stdin or stdout is closed. To be called before an event loop is made.

    The loop's own descriptors would take the free numbers, and libuv aborts the process when it closes one of them; so a closed
    standard descriptor, stderr too, becomes the null device.
    """
    for fd in (STDIN, STDOUT, STDERR):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it takes the lowest free number, which is this one
    for name, stream in (("stdin", sys.__stdin__), ("stdout", sys.__stdout__)):
        if stream is None:
            raise CannotStart(name, "", "it is closed, and a client speaks over it", "start the command from an MCP client, or give it a pipe")


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
        """A private descriptor for a standard one: a new opening of the same pipe, whose mode nobody shares, or else a duplicate."""
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
        """Restore the blocking mode before ``fd`` is closed; one socket for both directions keeps its mode until both are done with it."""
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
    """Point the standard descriptors away from the protocol. What waits in ``sys.stdout``'s buffer goes to stderr too."""
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
