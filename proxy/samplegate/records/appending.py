"""One append to a file that several processes write: under a lock, whole or not at all. Not a log: it knows bytes only."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

Patience: TypeAlias = Callable[[], float]
"""How many seconds a lock is waited for in all. Asked again while waiting, since it may be cut short meanwhile, by another thread."""
PATIENCE: Final = 5.0  # seconds for the others' appends, each of which takes well under a millisecond
PAUSE: Final = 0.002
_FAR: Final = 0x7FFF0000  # Windows locks ranges, and a locked range cannot be read: lock a byte that no log reaches


def append(path: Path, line: bytes, *, patience: Patience = lambda: PATIENCE) -> None:
    """Append ``line`` and a line end. Makes the file (mode 0600) and its folder (0700). Raises OSError, TimeoutError for the lock among them.

    A half line that a crashed writer left is ended first, and what this call could only write in part is taken back.
    """
    make_folder(path.parent)
    fd = _open(path)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):  # a pipe or terminal: nothing to lock, nothing to heal
            _write(fd, line + b"\n")
            return
        lock(fd, patience)
        try:
            size = os.lseek(fd, 0, os.SEEK_END)
            try:
                _write(fd, (b"" if _ended(fd, size) else b"\n") + line + b"\n")
            except OSError:
                os.ftruncate(fd, size)
                raise
        finally:
            unlock(fd)
    finally:
        os.close(fd)


def secret(path: Path, size: int, *, patience: Patience = lambda: PATIENCE) -> bytes:
    """The random bytes kept in ``path``, made at the first call of whichever process comes first. Raises OSError."""
    make_folder(path.parent)
    fd = _open(path)
    try:
        lock(fd, patience)
        try:
            os.lseek(fd, 0, os.SEEK_SET)
            found = os.read(fd, size)
            if len(found) < size:
                os.ftruncate(fd, 0)
                found = os.urandom(size)
                _write(fd, found)
            return found
        finally:
            unlock(fd)
    finally:
        os.close(fd)


def make_folder(folder: Path) -> None:
    """The folder, with what is missing above it; what is made is its owner's alone."""
    missing = [folder, *folder.parents]
    for place in reversed([place for place in missing if not place.exists()]):
        place.mkdir(mode=0o700, exist_ok=True)


def _open(path: Path) -> int:
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
    return os.open(path, flags, 0o600)


def _ended(fd: int, size: int) -> bool:
    if size == 0:
        return True
    os.lseek(fd, size - 1, os.SEEK_SET)
    return os.read(fd, 1) == b"\n"


def _write(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def lock(fd: int, patience: Patience) -> None:
    """An exclusive lock on the open file. Raises TimeoutError after ``patience`` seconds; blocks its thread meanwhile."""
    begun = time.monotonic()
    while not _try_lock(fd):
        waited = time.monotonic() - begun
        if waited >= patience():
            raise TimeoutError(f"another process has held the lock for {waited:.2g} s")
        time.sleep(PAUSE)


if sys.platform == "win32":  # not tested: no Windows machine here

    def _try_lock(fd: int) -> bool:
        import msvcrt

        os.lseek(fd, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def unlock(fd: int) -> None:
        """Give the lock back."""
        import msvcrt

        os.lseek(fd, _FAR, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)

else:

    def _try_lock(fd: int) -> bool:
        import fcntl

        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(fd: int) -> None:
        """Give the lock back."""
        import fcntl

        fcntl.flock(fd, fcntl.LOCK_UN)
