"""What several parts do with files of this machine: folders for the owner alone, locks between processes, which file a name means."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

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
