"""Local files: private folders, file locks, shared random secrets, checks that a path can be written, and fsync.

A lock follows a file that is renamed, so a process that waited for one checks again which file has the name.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias

from samplegate.durations import duration_text
from samplegate.errors import Unavailable
from samplegate.printable import printable
from samplegate.yamlfile.validate import did_you_mean

PATIENCE: Final = 5.0  # seconds to wait for a lock: others hold it for under 1 ms, or for several ms while they sync
SQLITE: Final = "sqlite:"
"""Prefix of a database path in a setting."""
_SQLITE_HEADER: Final = b"SQLite format 3\0"
# Windows locks byte ranges, and a locked range cannot be read: lock a byte that none of our files reaches
_LOCK_OFFSET: Final = 0x7FFF0000


def make_folder(folder: Path) -> list[Path]:
    """Create the folder and its missing parents, for the owner only. Returns the created ones, topmost first. Raises
    OSError."""
    made = [place for place in reversed((folder, *folder.parents)) if not place.exists()]
    for place in made:
        place.mkdir(mode=0o700, exist_ok=True)
    return made


def make_file(path: Path) -> bool:
    """Create an empty file for the owner only. Returns False if the file exists; it is not opened then. Raises OSError.

    SQLite gives its companion files the mode of this file. It would lose its locks if this process opened and closed an
    existing file.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        return False
    return True


def make_complete(path: Path, fill: Callable[[Path], None]) -> bool:
    """Create a file, for the owner only, that gets its name once ``fill`` has written it. Returns whether it did so.

    So no other process sees an incomplete database, and an empty one must be damaged. Raises OSError and the errors of
    ``fill``.
    """
    if path.exists():
        return False
    draft = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        make_file(draft)
        fill(draft)
        with _folder_lock(path.parent):
            if path.exists():
                return False
            # left over from a file that was moved away: SQLite would replay them into this one
            _remove(path, "-journal", "-wal", "-shm")
            os.link(draft, path)
        return True
    finally:
        _remove(draft, "", "-journal", "-wal", "-shm")


def _remove(path: Path, *suffixes: str) -> None:
    for suffix in suffixes:
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of the file that has this name now, None if there is none. An open file may be renamed or
    replaced. Raises OSError."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


if sys.platform == "win32":  # untested

    def try_lock(fd: int) -> bool:
        """Lock the open file exclusively, without waiting; False if another process holds the lock. Raises OSError."""
        import msvcrt

        os.lseek(fd, _LOCK_OFFSET, os.SEEK_SET)
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def unlock(fd: int) -> None:
        """Release the lock."""
        import msvcrt

        os.lseek(fd, _LOCK_OFFSET, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)

else:

    def try_lock(fd: int) -> bool:
        """Lock the open file exclusively, without waiting; False if another process holds the lock. Raises OSError."""
        import fcntl

        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(fd: int) -> None:
        """Release the lock."""
        import fcntl

        fcntl.flock(fd, fcntl.LOCK_UN)


@contextlib.contextmanager
def _folder_lock(folder: Path) -> Iterator[None]:
    """Mutual exclusion of processes for one folder. Raises OSError."""
    if sys.platform == "win32":  # Windows cannot lock a folder
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
    """Wait until the file's bytes and length are on the disk. Raises OSError: the written data may be lost then, even
    if a later call succeeds."""
    if sys.platform == "darwin":  # its fsync leaves the bytes in the disk's cache
        import fcntl

        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        getattr(os, "fdatasync", os.fsync)(fd)


def sync_folder(folder: Path) -> None:
    """Wait until the folder's names are on the disk: without it, a new file may lose its name. Raises OSError."""
    if sys.platform == "win32":  # Windows cannot open a folder, and journals its names
        return
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def is_sqlite(path: Path, *, empty: bool) -> bool:
    """Whether the file is an SQLite database. ``empty`` is the result for an empty file, which can become one. Raises
    OSError.

    Do not call this while this process has the file open: closing it would drop SQLite's locks.
    """
    with path.open("rb") as file:
        found = file.read(len(_SQLITE_HEADER))
    return found == _SQLITE_HEADER if found else empty


Patience: TypeAlias = Callable[[], float]
"""Seconds to wait for a lock in total. It is called repeatedly while waiting, because another thread may shorten it."""
LOCK_PAUSE: Final = 0.002


@contextlib.contextmanager
def locked_file(path: Path, patience: Patience) -> Iterator[int]:
    """The named file, open for reading and appending, and locked if it is a regular file. Raises OSError, and
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
        if time.monotonic() - begun >= patience():  # it was rotated or removed during each wait
            raise TimeoutError("other processes kept replacing the file")


def lock(fd: int, patience: Patience, begun: float | None = None) -> None:
    """Lock the open file exclusively; blocks the thread. Raises TimeoutError ``patience`` seconds after ``begun``
    (monotonic; default: now)."""
    begun = time.monotonic() if begun is None else begun
    while not try_lock(fd):
        waited = time.monotonic() - begun
        if waited >= patience():
            raise TimeoutError(f"another process has held the lock for {duration_text(waited)}")
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
    """Device and inode of an open file, to compare with ``identity``."""
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


def shared_secret(path: Path, size: int, *, patience: Patience = lambda: PATIENCE, proposed: bytes = b"") -> bytes:
    """The random bytes in ``path``, shared by processes. The first caller creates them: ``proposed``, or new ones.
    Raises OSError."""
    make_folder(path.parent)
    with locked_file(path, patience) as fd:
        os.lseek(fd, 0, os.SEEK_SET)
        found = os.read(fd, size)
        if len(found) < size:
            os.ftruncate(fd, 0)
            found = proposed or os.urandom(size)
            os.write(fd, found)
            sync_file(fd)  # once: without it, the hashes of a synced log could not be reproduced
        return found


def write_fault(path: Path, *, whole: bool = False) -> str | None:
    """The reason why the file cannot be written or created, worded to follow its name; None if it can. ``whole``
    requires a regular file in a writable folder."""
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
        return "is stdout, which carries the protocol"
    if not os.access(path, os.R_OK | os.W_OK):
        return "is not writable"
    if whole and not stat.S_ISREG(found.st_mode):
        return "is not a regular file, so it cannot be synced or rotated"
    if whole and not os.access(path.parent, os.W_OK | os.X_OK):
        return f"has a folder that cannot be written: {path.parent}"
    return None


def _folder_fault(folder: Path) -> str | None:
    while not folder.exists():
        if folder == folder.parent:
            return "has no existing parent folder"
        folder = folder.parent
    if not folder.is_dir():
        return f"cannot be created: {folder} is not a folder"
    return None if os.access(folder, os.W_OK | os.X_OK) else f"cannot be created: folder {folder} is not writable"


def _is_stdout(found: os.stat_result) -> bool:
    try:
        ours = os.fstat(sys.__stdout__.fileno() if sys.__stdout__ is not None else 1)
    except (OSError, ValueError):
        return False
    return not stat.S_ISCHR(found.st_mode) and os.path.samestat(found, ours)


def check_writable(state: Path) -> None:
    """Check that shared limits can be kept in the state folder, without creating or opening anything. Raises
    Unavailable for the operator."""
    try:
        problem = _problem(state)
    except OSError as failed:
        problem = f"cannot be reached: {failed.strerror}"
    if problem is not None:
        raise Unavailable(f"limits: state folder {state} {problem}; set --state to a writable folder")


def _problem(state: Path) -> str | None:
    folder = state
    while not folder.exists():
        if folder == folder.parent:
            return "has no existing parent folder"
        folder = folder.parent
    prefix = "" if folder == state else f"cannot be created: {folder} "
    if not folder.is_dir():
        return f"{prefix}is not a folder"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"{prefix}is not writable"
    return next(
        (
            f"has a {name} that cannot be written"
            for name in ("limits.sqlite3", "holders")
            if not _is_usable(state / name)
        ),
        None,
    )


def _is_usable(path: Path) -> bool:
    return not path.exists() or (os.access(path, os.R_OK | os.W_OK) and path.is_dir() == (path.name == "holders"))


MOST_NAMES: Final = 1_000
"""Names in a folder that are compared with a missing file's."""


def missing_hint(name: str, folder: Path, relative: str = "the path is") -> str:
    """What to do about a missing file: `~` is not replaced, a relative path starts at ``folder``, or the name is a
    typo. ``relative`` begins the sentence about relative paths."""
    if name.startswith("~"):
        return "~ is not replaced by the home folder; write the full path"
    from difflib import SequenceMatcher

    path = folder / name
    try:
        with os.scandir(path.parent) as entries:
            names = [entry.name for entry in islice(entries, MOST_NAMES)]
    except (OSError, ValueError):
        names = []
    # p.yaml and s.yaml are similar only in their suffix
    similar = [other for other in names if SequenceMatcher(None, path.stem, Path(other).stem).ratio() > 0.6]
    near = did_you_mean(path.name, similar)
    if Path(name).is_absolute():
        return near.removeprefix("; ") or "correct the path"
    return f"{relative} relative to {printable(str(folder.absolute()))}{near or '; correct it, or write the full path'}"
