"""A file that several processes write, opened under its lock; and the secret bytes that they share. Not what is written.

The lock is the file's own, so it goes with the file when that is put aside: whoever waited for it looks again which file has the name.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

from samplegate.files import identity, make_folder, sync_file, try_lock, unlock

Patience: TypeAlias = Callable[[], float]
"""How many seconds a lock is waited for in all. Asked again while waiting, since it may be cut short meanwhile, by another thread."""
PATIENCE: Final = 5.0  # seconds for the others' appends, each of which takes well under a millisecond, or some where they are synced
PAUSE: Final = 0.002


@contextlib.contextmanager
def opened(path: Path, patience: Patience) -> Iterator[int]:
    """The file that has the name, open for reading and appending, and locked where it is a regular one. Raises OSError, TimeoutError for the lock."""
    begun = time.monotonic()
    while True:
        fd = _open(path)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                yield fd
                return
            lock(fd, patience, begun)
            try:
                if identity(path) == identity_of(fd):
                    yield fd
                    return
            finally:
                unlock(fd)
        finally:
            os.close(fd)
        if time.monotonic() - begun >= patience():  # it was put aside or removed while we waited, again and again
            raise TimeoutError("the file was replaced by others all the time")


def lock(fd: int, patience: Patience, begun: float | None = None) -> None:
    """An exclusive lock on the open file. Raises TimeoutError ``patience`` seconds after ``begun`` (monotonic; now); blocks its thread meanwhile."""
    begun = time.monotonic() if begun is None else begun
    while not try_lock(fd):
        waited = time.monotonic() - begun
        if waited >= patience():
            raise TimeoutError(f"another process has held the lock for {waited:.2g} s")
        time.sleep(PAUSE)


def _open(path: Path) -> int:
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
    return os.open(path, flags, 0o600)


def identity_of(fd: int) -> tuple[int, int]:
    """Which file it is, as ``files.identity`` says of a name."""
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


def secret(path: Path, size: int, *, patience: Patience = lambda: PATIENCE, proposed: bytes = b"") -> bytes:
    """The random bytes kept in ``path``, made at the first call of whichever process comes first: ``proposed``, or new ones. Raises OSError."""
    make_folder(path.parent)
    with opened(path, patience) as fd:
        os.lseek(fd, 0, os.SEEK_SET)
        found = os.read(fd, size)
        if len(found) < size:
            os.ftruncate(fd, 0)
            found = proposed or os.urandom(size)
            os.write(fd, found)
            sync_file(fd)  # once: without it the hashes of a synced log could not be told any more
        return found
