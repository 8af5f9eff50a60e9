"""Clients' files on disk: finding, reading and replacing them.

A file has its old content or all of the new one at any time, even if the process is killed. Its mode and owner stay,
and so does a link to it. A change that another program makes meanwhile is not lost: the edit starts again from the
changed file.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

from samplegate import files
from samplegate.clients.faults import FileFault
from samplegate.clients.formats import MAX_BYTES
from samplegate.clients.known import Location

MAX_FILES: Final = 200
"""Files of one pattern."""
MAX_ATTEMPTS: Final = 10
DRAFT: Final = ".samplegate-"
DRAFT_AGE: Final = 60.0
"""Seconds after which a draft is one of a killed process."""
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
_draft: Final = re.compile(re.escape(DRAFT) + r"[0-9a-f]{16}\Z")

T = TypeVar("T")


def found(location: Location) -> Iterator[Path]:
    """The existing files of a location, sorted by name."""
    if "*" not in location.path:
        path = Path(location.path)
        if os.path.lexists(path):
            yield path
        return
    below = location.path[len(location.root) :].lstrip("/\\")
    yield from sorted(islice(Path(location.root).glob(below), MAX_FILES))


class Disk:
    """The operations that replace a file. Tests put faults between them."""

    def create(self, path: Path) -> int:
        """Create a file for the owner alone, open for writing."""
        return os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0), 0o600)

    def write(self, fd: int, data: bytes) -> None:
        """Write all bytes."""
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]

    def sync(self, fd: int) -> None:
        """Wait until the bytes are on the disk."""
        files.sync_file(fd)

    def adopt(self, draft: Path, like: Path, found: os.stat_result) -> None:
        """Give a file the mode, owner and extended attributes of another."""
        if sys.platform != "win32":
            mine = draft.stat()
            if (mine.st_uid, mine.st_gid) != (found.st_uid, found.st_gid):
                os.chown(draft, found.st_uid, found.st_gid)
        shutil.copystat(like, draft)
        os.utime(draft)  # watchers look for a new time

    def swap(self, draft: Path, path: Path) -> bool:
        """Swap the names of two files at once. Returns False where the system cannot."""
        if not sys.platform.startswith("linux"):
            return False
        import ctypes  # takes 10 ms

        libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(libc, "renameat2"):
            return False
        if libc.renameat2(_AT_FDCWD, os.fsencode(draft), _AT_FDCWD, os.fsencode(path), _RENAME_EXCHANGE) == 0:
            return True
        problem = ctypes.get_errno()
        if problem in (errno.ENOSYS, errno.EINVAL, errno.EPERM):  # an old kernel or file system, or a sandbox
            return False
        raise OSError(problem, os.strerror(problem), str(path))

    def replace(self, draft: Path, path: Path) -> None:
        """Give a file the name of another, which disappears."""
        draft.replace(path)

    def sync_folder(self, folder: Path) -> None:
        """Wait until the folder's names are on the disk."""
        files.sync_folder(folder)


@dataclass(frozen=True)
class Snapshot:
    """A file as it was read."""

    path: Path
    """Without links."""
    data: bytes
    stat: os.stat_result


def snapshot(path: Path) -> Snapshot:
    """Read a file. Raises FileFault with the reason and the remedy."""
    try:
        real = Path(os.path.realpath(path, strict=True))
        if real.is_dir():
            raise FileFault("it is a folder")
        with os.fdopen(os.open(real, os.O_RDONLY | _FLAGS), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise FileFault("it is not a regular file")
            data = file.read(MAX_BYTES + 1)
            if len(data) > MAX_BYTES:
                raise FileFault(f"it has more than {MAX_BYTES >> 20} MiB, the most that is read")
            return Snapshot(real, data, found)
    except FileNotFoundError:
        raise FileFault("it is a link to a file that does not exist" if path.is_symlink() else "no such file") from None
    except OSError as problem:
        raise FileFault(f"it cannot be read: {(problem.strerror or str(problem)).lower()}") from None
    except ValueError:
        raise FileFault("its name is not a path") from None


_FLAGS: Final = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def leads_out(path: Path, roots: tuple[Path, ...]) -> Path | None:
    """The target of a link that leads out of all these folders; None if it is within one, or no link."""
    real = Path(os.path.realpath(path))
    if any(real.is_relative_to(os.path.realpath(root)) for root in roots):
        return None
    return real


def write_fault(found: Snapshot) -> str | None:
    """Why a file cannot be replaced; None if it can."""
    if sys.platform != "win32":
        if found.stat.st_uid != os.geteuid() and os.geteuid() != 0:
            return "it belongs to another user; run samplegate as that user"
        if not found.stat.st_mode & 0o222:
            return "it is read-only; make it writable"
    if not os.access(found.path, os.W_OK):
        return "it is not writable; make it writable"
    if not os.access(found.path.parent, os.W_OK | os.X_OK):
        return f"its folder is not writable: {found.path.parent}"
    return None


def update(path: Path, change: Callable[[Snapshot], tuple[bytes | None, T]], disk: Disk | None = None) -> T:
    """Replace a file by what ``change`` makes of it, None to leave it. Returns the second value of ``change``. Raises
    FileFault and OSError.

    ``change`` is called again if another program changes the file meanwhile.
    """
    disk = disk or Disk()
    for _ in range(MAX_ATTEMPTS):
        before = snapshot(path)
        new, result = change(before)
        if new is None or new == before.data:
            return result
        if (fault := write_fault(before)) is not None:
            raise FileFault(fault)
        if _replaced(before, path, new, disk):
            return result
    raise FileFault(f"another program changed it {MAX_ATTEMPTS} times during the edit; quit that program and try again")


def _replaced(before: Snapshot, path: Path, new: bytes, disk: Disk) -> bool:
    """Whether the file was replaced, because it was still the same."""
    draft = _new_draft(before.path)
    try:
        fd = disk.create(draft)
        try:
            disk.write(fd, new)
            disk.sync(fd)
        finally:
            os.close(fd)
        disk.adopt(draft, before.path, before.stat)
        if not _is_same(before, path):
            return False
        if not disk.swap(draft, before.path):
            disk.replace(draft, before.path)
        elif not _is_former(draft, before):  # another program was faster: its file returns
            try:
                disk.swap(draft, before.path)
            except FileNotFoundError:
                disk.replace(draft, before.path)
            return False
        disk.sync_folder(before.path.parent)
        return True
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def _new_draft(path: Path) -> Path:
    """A path for the new content of a file. Removes what killed processes left there: copies of files, with secrets."""
    with suppress(OSError), os.scandir(path.parent) as entries:
        for one in entries:
            if _draft.match(one.name) and time.time() - one.stat(follow_symlinks=False).st_mtime > DRAFT_AGE:
                Path(one).unlink()
    return path.with_name(DRAFT + os.urandom(8).hex())


def _is_same(before: Snapshot, path: Path) -> bool:
    now = snapshot(path)
    return (now.path, now.data, _version(now.stat)) == (before.path, before.data, _version(before.stat)) and _version(
        now.path.stat()
    ) == _version(before.stat)


def _is_former(draft: Path, before: Snapshot) -> bool:
    """Whether a draft is the file that was read."""
    try:
        return _version(draft.lstat()) == _version(before.stat) and draft.read_bytes() == before.data
    except OSError:
        return False


def _version(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode, found.st_uid, found.st_gid


def write_new(path: Path, data: bytes) -> None:
    """Write a file for the owner alone: it has its old content or all of the new one. Raises OSError."""
    disk = Disk()
    draft = _new_draft(path)
    try:
        fd = disk.create(draft)
        try:
            disk.write(fd, data)
            disk.sync(fd)
        finally:
            os.close(fd)
        disk.replace(draft, path)
        disk.sync_folder(path.parent)
    finally:
        draft.unlink(missing_ok=True)
