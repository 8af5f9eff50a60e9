"""Detection of dead processes: each process that holds something in a shared file locks a file of its own.

It holds, for example, a slot of a limit or a review that it waits for. Make all calls within a write transaction of the
shared file. Otherwise one process could mistake another's new file for a dead one's. The operating system releases the
lock when the process ends, however it ends. A forked child that was not executed keeps the lock. A holder whose file
was removed counts as dead, because nothing could ever prove the opposite.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Final

from samplegate.files import make_folder, try_lock

MAX_FILES: Final = 1_000  # read by ``registered`` at most

_name: Final = re.compile(r"[0-9a-f]{32}\Z")


class Holder:
    """This process as a holder. It creates no file before ``register``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name = ""
        self._fd = -1

    @property
    def name(self) -> str:
        """The holder's name; empty before ``register``."""
        return self._name

    def register(self, name: str = "") -> str:
        """Create and lock this holder's file. The name has 32 hexadecimal digits; the default is random. Raises
        OSError."""
        if self._fd < 0:
            make_folder(self._folder)
            name = name or os.urandom(16).hex()
            fd = os.open(self._path(name), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
            try:
                if not try_lock(fd):
                    raise BlockingIOError(0, "a new file is locked already")
            except OSError:
                os.close(fd)
                raise
            self._fd, self._name = fd, name
        return self._name

    def dead(self, names: Iterable[str]) -> list[str]:
        """Holders among ``names`` whose process has ended; their files are removed. Raises OSError."""
        return [name for name in names if name != self._name and self._remove_if_dead(name)]

    def registered(self) -> list[str]:
        """Holders that have a file, alive or dead, up to MAX_FILES of them."""
        try:
            with os.scandir(self._folder) as entries:
                return [
                    entry.name.removesuffix(".lock")
                    for entry in islice(entries, MAX_FILES)
                    if entry.name.endswith(".lock")
                ]
        except FileNotFoundError:
            return []

    def close(self, *, remove: bool) -> None:
        """Release the lock. ``remove`` also removes the file; a file that stays shows others that its slots are
        free."""
        if self._fd >= 0:
            os.close(self._fd)
            if remove:
                with contextlib.suppress(OSError):
                    self._path(self._name).unlink(missing_ok=True)
            self._fd, self._name = -1, ""

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.lock"

    def _remove_if_dead(self, name: str) -> bool:
        if not _name.match(name):  # not a name of ours: do not touch such a file
            return True
        try:
            if not _is_free(self._path(name)):
                return False
        except FileNotFoundError:
            return True
        with contextlib.suppress(OSError):
            self._path(name).unlink(missing_ok=True)
        return True


def is_alive(folder: Path, name: str) -> bool:
    """Whether the process of a holder runs, for a reader that is no holder. Nothing is removed. If in doubt, it runs.

    The lock is taken for a moment. A holder is named by others only after it has its lock, so it loses nothing.
    """
    if not _name.match(name):
        return False
    try:
        return not _is_free(folder / f"{name}.lock")
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _is_free(path: Path) -> bool:
    """Whether no process holds the lock of a file; it is taken for a moment. Raises OSError."""
    fd = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    try:
        return try_lock(fd)
    finally:
        os.close(fd)
