"""Which processes still run that hold something in a shared file: each keeps a file of its own locked. Not what they
hold.

It is a slot of a limit, or a review that is waited for. All calls are made within a write transaction of the shared
file, which is what keeps one process from taking another's new file for a dead one's. The lock goes with the process,
however it ends. A process that is forked (not executed) from the holder keeps it alive. A file that somebody removed
counts as a dead holder's: nobody could ever show that it is not.
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

MOST_FILES: Final = 1_000  # looked through when this process takes its first slot

_name: Final = re.compile(r"[0-9a-f]{32}\Z")


class Holder:
    """This process as a holder. Nothing is made before it holds something."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name = ""
        self._fd = -1

    @property
    def name(self) -> str:
        """Empty before ``register``."""
        return self._name

    def register(self, name: str = "") -> str:
        """Make and lock the file, of this name (32 hexadecimal digits) or a random one. Raises OSError."""
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
        """Those of the holders that run no more; their files are removed. Raises OSError."""
        return [name for name in names if name != self._name and self._bury(name)]

    def left_behind(self) -> list[str]:
        """The holders that have a file, dead or not, as far as they are looked through."""
        try:
            with os.scandir(self._folder) as entries:
                return [
                    entry.name.removesuffix(".lock")
                    for entry in islice(entries, MOST_FILES)
                    if entry.name.endswith(".lock")
                ]
        except FileNotFoundError:
            return []

    def close(self, *, remove: bool) -> None:
        """Unlock. ``remove``: the file too; without, it tells the others that what it held is free."""
        if self._fd >= 0:
            os.close(self._fd)
            if remove:
                with contextlib.suppress(OSError):
                    self._path(self._name).unlink(missing_ok=True)
            self._fd, self._name = -1, ""

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.lock"

    def _bury(self, name: str) -> bool:
        if not _name.match(name):  # never one of ours: no such file is touched
            return True
        try:
            fd = os.open(self._path(name), os.O_RDWR)
        except FileNotFoundError:
            return True
        try:
            if not try_lock(fd):
                return False
        finally:
            os.close(fd)
        with contextlib.suppress(OSError):
            self._path(name).unlink(missing_ok=True)
        return True
