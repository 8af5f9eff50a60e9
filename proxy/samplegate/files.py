"""Files of this machine: folders for the owner alone, locks between processes, the identity of a file, syncing to the disk."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

PATIENCE: Final = 5.0  # seconds for the folder's lock, which others hold for less than a millisecond
SQLITE: Final = "sqlite:"
"""What stands before the path of a database in a setting."""
_MAGIC: Final = b"SQLite format 3\0"
_FAR: Final = 0x7FFF0000  # Windows locks ranges, and a locked range cannot be read: lock a byte that no file of ours reaches


def make_folder(folder: Path) -> list[Path]:
    """The folder, with what is missing above it; what is made is its owner's alone. Gives what was missing, topmost first. Raises OSError."""
    made = [place for place in reversed((folder, *folder.parents)) if not place.exists()]
    for place in made:
        place.mkdir(mode=0o700, exist_ok=True)
    return made


def make_file(path: Path) -> bool:
    """An empty file for its owner alone, where there is none. Whether it was made: one that is there is not even opened. Raises OSError.

    SQLite gives its companions the mode of the file, and loses its locks on one that this process opens and closes beside it.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        return False
    return True


def make_whole(path: Path, fill: Callable[[Path], None]) -> bool:
    """The file that ``fill`` writes, for its owner alone, where there is none: it gets its name once it is complete. Whether it was made.

    So a database that is there but empty was damaged, and no other process sees one that is half made. Raises OSError, and what ``fill`` raises.
    """
    if path.exists():
        return False
    draft = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        make_file(draft)
        fill(draft)
        with _alone_in(path.parent):
            if path.exists():
                return False
            _remove(path, "-journal", "-wal", "-shm")  # of a file that was moved away: SQLite would play them into this one
            os.link(draft, path)
        return True
    finally:
        _remove(draft, "", "-journal", "-wal", "-shm")


def _remove(path: Path, *suffixes: str) -> None:
    for suffix in suffixes:
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def identity(path: Path) -> tuple[int, int] | None:
    """Which file the name means at this moment, None where there is none: it may be moved away or replaced while it is open. Raises OSError."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


if sys.platform == "win32":  # not tested: no Windows machine here

    def try_lock(fd: int) -> bool:
        """Lock the open file for this process alone; False where another one holds it. Waits for nothing. Raises OSError."""
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

    def try_lock(fd: int) -> bool:
        """Lock the open file for this process alone; False where another one holds it. Waits for nothing. Raises OSError."""
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


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Only one process at a time is within this block for a folder. Raises OSError."""
    if sys.platform == "win32":  # a folder cannot be locked there
        yield
        return
    fd = os.open(folder, os.O_RDONLY)
    try:
        until = time.monotonic() + PATIENCE
        while not try_lock(fd):
            if time.monotonic() >= until:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            time.sleep(0.001)
        yield
    finally:
        os.close(fd)


def sync_file(fd: int) -> None:
    """Returns once the file's bytes and its length are on the disk. Raises OSError: what was written may be lost, then and later."""
    if sys.platform == "darwin":  # its fsync leaves the bytes in the disk's own memory
        import fcntl

        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        getattr(os, "fdatasync", os.fsync)(fd)


def sync_folder(folder: Path) -> None:
    """Returns once the names in the folder are on the disk: a new file has none without it. Raises OSError."""
    if sys.platform == "win32":  # there a folder cannot be opened, and its names are journalled
        return
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def is_sqlite(path: Path, *, empty: bool) -> bool:
    """Whether the file is a database of SQLite; ``empty`` is the answer for a file without any bytes, which can become one. Raises OSError.

    Not while this process has it open: closing the file would end SQLite's locks.
    """
    with path.open("rb") as file:
        found = file.read(len(_MAGIC))
    return found == _MAGIC if found else empty
