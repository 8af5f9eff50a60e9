"""One append to a file that several processes write: under a lock, whole or not at all. Not a log: it knows bytes only.

What others do to the file without its lock (logrotate, whether it renames or copies and truncates) tears no line either: every append opens the
name anew and goes to the end.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from samplegate.files import make_folder, sync_file, sync_folder
from samplegate.records.locking import PATIENCE, Patience, identity_of, opened
from samplegate.records.rotation import turn


class Appender:
    """Appends to files, as durably as told. It keeps none of them open.

    ``synced``: a line stands when it is on the disk, with the name of its file. ``max_bytes``: the length at which a file is put aside (0: never);
    only a single line that is longer makes a longer file. ``keep``: how many of those stay (0: all).
    """

    def __init__(self, *, synced: bool = False, max_bytes: int = 0, keep: int = 0) -> None:
        self._synced = synced
        self._max_bytes = max_bytes
        self._keep = keep
        self._named: tuple[int, int] | None = None
        """The file whose name is known to be on the disk."""

    def append(self, path: Path, lines: Sequence[bytes], *, patience: Patience = lambda: PATIENCE) -> int:
        """Append the first of the lines, each with a line end; how many now stand, at least one. Makes the file (mode 0600) and its folder (0700).

        A half line that a crashed writer left is ended first, and what this call could only write in part, or not bring to the disk, is taken back.
        Raises OSError, TimeoutError for the lock among them: then none of them stands.
        """
        while True:
            self._make_folder(path.parent)
            with opened(path, patience) as fd:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    return self._pass_on(fd, lines)
                size = os.lseek(fd, 0, os.SEEK_END)
                room = self._room(size, lines)
                if room:
                    self._extend(path, fd, size, b"".join(line + b"\n" for line in lines[:room]))
                    return room
                turn(path, self._keep)

    def probe(self, path: Path, size: int, *, patience: Patience = lambda: PATIENCE) -> None:
        """Whether so many bytes could be appended: they are, as empty lines, and taken back. Raises OSError."""
        self._make_folder(path.parent)
        with opened(path, patience) as fd:
            if stat.S_ISREG(os.fstat(fd).st_mode):
                before = os.lseek(fd, 0, os.SEEK_END)
                self._extend(path, fd, before, b"\n" * size)
                _cut(fd, before)

    def _room(self, size: int, lines: Sequence[bytes]) -> int:
        """How many of the lines the file of this size is for."""
        if not self._max_bytes:
            return len(lines)
        ends = accumulate((len(line) + 1 for line in lines), initial=size)
        fitting = sum(end <= self._max_bytes for end in ends) - 1
        return max(fitting, 0 if size else 1)

    def _extend(self, path: Path, fd: int, size: int, data: bytes) -> None:
        try:
            _write(fd, (b"" if _ended(fd, size) else b"\n") + data)
            if self._synced:
                sync_file(fd)
                self._sync_name(path, fd)
        except OSError:
            _cut(fd, size)
            raise

    def _sync_name(self, path: Path, fd: int) -> None:
        """A file that we meet for the first time may have been made a moment ago, by whomever."""
        found = identity_of(fd)
        if self._named != found:
            sync_folder(path.parent)
            self._named = found

    def _make_folder(self, folder: Path) -> None:
        for made in make_folder(folder):
            if self._synced:
                sync_folder(made.parent)

    def _pass_on(self, fd: int, lines: Sequence[bytes]) -> int:
        """To a pipe or terminal: there is nothing to lock and nothing to heal."""
        if self._synced:
            raise OSError(0, "it is no file, so nothing is ever on a disk there")
        _write(fd, lines[0] + b"\n")
        return 1


def _ended(fd: int, size: int) -> bool:
    if size == 0:
        return True
    os.lseek(fd, size - 1, os.SEEK_SET)
    return os.read(fd, 1) in (b"\n", b"")  # empty: truncated by somebody at this moment


def _write(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _cut(fd: int, size: int) -> None:
    """Back to a length, unless it is shorter by now: somebody truncated it."""
    if os.fstat(fd).st_size > size:
        os.ftruncate(fd, size)
