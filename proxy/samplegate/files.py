"""Files of this machine: folders for the owner alone, locked files and shared secrets, whether a file can be written,
identity, syncing to the disk.

A lock stays with a file that is moved: a process that waited for it checks again which file has the name.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

from samplegate.errors import Unavailable

PATIENCE: Final = 5.0  # seconds for a lock: others hold it for less than a millisecond, or for some where they sync
SQLITE: Final = "sqlite:"
"""The prefix of a database's path in a setting."""
_MAGIC: Final = b"SQLite format 3\0"
# Windows locks ranges, and a locked range cannot be read: lock a byte that no file of ours reaches
_FAR: Final = 0x7FFF0000


def make_folder(folder: Path) -> list[Path]:
    """The folder, with what is missing above it; what is made is its owner's alone. Gives what was missing, topmost
    first. Raises OSError."""
    made = [place for place in reversed((folder, *folder.parents)) if not place.exists()]
    for place in made:
        place.mkdir(mode=0o700, exist_ok=True)
    return made


def make_file(path: Path) -> bool:
    """An empty file for its owner alone, where there is none. Whether it was made: one that is there is not even
    opened. Raises OSError.

    SQLite gives its companions the mode of the file, and loses its locks on one that this process opens and closes
    beside it.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        return False
    return True


def make_whole(path: Path, fill: Callable[[Path], None]) -> bool:
    """The file that ``fill`` writes, for its owner alone, where there is none: it gets its name once it is complete.
    Whether it was made.

    So a database that is there but empty was damaged, and no other process sees one that is half made. Raises OSError,
    and what ``fill`` raises.
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
            # of a file that was moved away: SQLite would play them into this one
            _remove(path, "-journal", "-wal", "-shm")
            os.link(draft, path)
        return True
    finally:
        _remove(draft, "", "-journal", "-wal", "-shm")


def _remove(path: Path, *suffixes: str) -> None:
    for suffix in suffixes:
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def identity(path: Path) -> tuple[int, int] | None:
    """Which file the name means at this moment, None where there is none: it may be moved away or replaced while it is
    open. Raises OSError."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


if sys.platform == "win32":  # not tested: no Windows machine here

    def try_lock(fd: int) -> bool:
        """Lock the open file for this process alone; False where another one holds it. Waits for nothing. Raises
        OSError."""
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
        """Lock the open file for this process alone; False where another one holds it. Waits for nothing. Raises
        OSError."""
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
    """Returns once the file's bytes and its length are on the disk. Raises OSError: what was written may be lost, then
    and later."""
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
    """Whether the file is a database of SQLite; ``empty`` is the answer for a file without any bytes, which can become
    one. Raises OSError.

    Not while this process has it open: closing the file would end SQLite's locks.
    """
    with path.open("rb") as file:
        found = file.read(len(_MAGIC))
    return found == _MAGIC if found else empty


Patience: TypeAlias = Callable[[], float]
"""How many seconds a lock is waited for in all. Asked again while waiting, since it may be cut short meanwhile, by
another thread."""
LOCK_PAUSE: Final = 0.002


@contextlib.contextmanager
def locked_file(path: Path, patience: Patience) -> Iterator[int]:
    """The file that has the name, open for reading and appending, and locked where it is a regular one. Raises OSError,
    TimeoutError for the lock."""
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
    """An exclusive lock on the open file. Raises TimeoutError ``patience`` seconds after ``begun`` (monotonic; now);
    blocks its thread meanwhile."""
    begun = time.monotonic() if begun is None else begun
    while not try_lock(fd):
        waited = time.monotonic() - begun
        if waited >= patience():
            raise TimeoutError(f"another process has held the lock for {waited:.2g} s")
        time.sleep(LOCK_PAUSE)


def _open(path: Path) -> int:
    flags = (
        os.O_RDWR
        | os.O_APPEND
        | os.O_CREAT
        | getattr(os, "O_CLOEXEC", 0)
        | getattr(os, "O_BINARY", 0)
        | getattr(os, "O_NONBLOCK", 0)
    )
    return os.open(path, flags, 0o600)


def identity_of(fd: int) -> tuple[int, int]:
    """Which file it is, as ``identity`` says of a name."""
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


def secret(path: Path, size: int, *, patience: Patience = lambda: PATIENCE, proposed: bytes = b"") -> bytes:
    """The random bytes kept in ``path``, made at the first call of whichever process comes first: ``proposed``, or new
    ones. Raises OSError."""
    make_folder(path.parent)
    with locked_file(path, patience) as fd:
        os.lseek(fd, 0, os.SEEK_SET)
        found = os.read(fd, size)
        if len(found) < size:
            os.ftruncate(fd, 0)
            found = proposed or os.urandom(size)
            os.write(fd, found)
            sync_file(fd)  # once: without it the hashes of a synced log could not be told any more
        return found


def write_fault(path: Path, *, whole: bool = False) -> str | None:
    """Why the file could not be written or made, as words to stand after its name. ``whole``: its folder must be ours
    too, and it a regular file."""
    try:
        return _write_fault(path, whole)
    except OSError as failed:
        return f"cannot be reached: {failed.strerror}"


def _write_fault(path: Path, whole: bool) -> str | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return _folder_fault(path.parent)
    if stat.S_ISDIR(found.st_mode):
        return "is a folder"
    if _is_stdout(found):
        return "is stdout, which belongs to the protocol"
    if not os.access(path, os.R_OK | os.W_OK):
        return "cannot be written"
    if whole and not stat.S_ISREG(found.st_mode):
        return "is no regular file: nothing there can be synced, or put aside when it is full"
    if whole and not os.access(path.parent, os.W_OK | os.X_OK):
        return f"has a folder that cannot be written: {path.parent}"
    return None


def _folder_fault(folder: Path) -> str | None:
    while not folder.exists():
        if folder == folder.parent:
            return "has no folder that exists"
        folder = folder.parent
    if not folder.is_dir():
        return f"cannot be made: {folder} is no folder"
    return None if os.access(folder, os.W_OK | os.X_OK) else f"cannot be made: folder {folder} cannot be written"


def _is_stdout(found: os.stat_result) -> bool:
    try:
        ours = os.fstat(sys.__stdout__.fileno() if sys.__stdout__ is not None else 1)
    except (OSError, ValueError):
        return False
    return not stat.S_ISCHR(found.st_mode) and os.path.samestat(found, ours)


# Whether the state folder can be written, before anything needs it. It makes nothing and opens nothing.


def check_writable(state: Path) -> None:
    """Raises Unavailable, for the operator, where limits that processes share could not be kept in this folder."""
    try:
        problem = _problem(state)
    except OSError as failed:
        problem = f"cannot be reached: {failed.strerror}"
    if problem is not None:
        raise Unavailable(f"limits: state folder {state} {problem}; give --state a folder that can be written")


def _problem(state: Path) -> str | None:
    folder = state
    while not folder.exists():
        if folder == folder.parent:
            return "has no folder above it that exists"
        folder = folder.parent
    said = "" if folder == state else f"cannot be made: {folder} "
    if not folder.is_dir():
        return f"{said}is no folder"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"{said}cannot be written"
    return next(
        (f"has a {name} that cannot be written" for name in ("limits.sqlite3", "holders") if not _ours(state / name)),
        None,
    )


def _ours(path: Path) -> bool:
    return not path.exists() or (os.access(path, os.R_OK | os.W_OK) and path.is_dir() == (path.name == "holders"))
