"""The decision log as files of JSON lines: append, rotation by size, and the names of the files.

``written``: a line is the kernel's when it counts as kept, so a crash of the gate loses nothing and a crash of the
machine may. ``synced``: it is on the disk, with its file's name.

An append is made under a lock, whole or not at all. Other programs (logrotate, whether it renames or copies and
truncates) tear no line either: every append opens the name anew and goes to the end.

``audit.jsonl`` is the file being written. When it is full it becomes ``audit.jsonl.000001``, the next one
``audit.jsonl.000002``: the number tells the order, the highest is the newest but for the file itself. The six digits
tell them from what logrotate makes (``.1`` is its newest).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO, Final

from samplegate.audit.record import ContentMode, Record, timestamp, to_json
from samplegate.files import (
    PATIENCE,
    Patience,
    identity,
    identity_of,
    locked_file,
    make_folder,
    secret,
    sync_file,
    sync_folder,
    write_fault,
)

DIGITS: Final = 6  # at least; the millionth file has seven
_tail: Final = re.compile(rf"\.([0-9]{{{DIGITS},18}})\Z")


def main_of(path: Path) -> tuple[Path, int | None]:
    """The log that a file is a part of, and its number there; None for the file being written, and for any other
    name."""
    found = _tail.search(path.name)
    if found is None or not path.name[: found.start()]:
        return path, None
    return path.with_name(path.name[: found.start()]), int(found[1])


def turned(path: Path) -> list[tuple[int, Path]]:
    """The files that this log had before, oldest first, with their numbers. Raises OSError; no folder is no files."""
    try:
        with os.scandir(path.parent) as entries:
            names = [entry.name for entry in entries if entry.name.startswith(path.name)]
    except FileNotFoundError:
        return []
    parts = [(main_of(path.with_name(name)), path.with_name(name)) for name in names]
    return sorted((number, part) for (main, number), part in parts if number is not None and main.name == path.name)


def turn(path: Path, keep: int) -> None:
    """Put the file aside, and remove the oldest of those beyond ``keep`` (0: none). For the holder of its lock, who
    alone may rename it.

    Raises OSError; then the file is still in place. That an old one cannot be removed is no reason to lose a record:
    the next turn tries again.
    """
    before = turned(path)
    path.rename(path.with_name(f"{path.name}.{(before[-1][0] if before else 0) + 1:0{DIGITS}d}"))
    for _, old in before[: max(0, len(before) + 1 - keep)] if keep else ():
        try:
            old.unlink(missing_ok=True)
        except OSError:
            return


def series(path: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """The open files of the log in order, oldest first, none missed and none twice though it is turned meanwhile.
    Raises OSError.

    What is removed before its turn comes is left out.
    """
    last = 0
    while True:
        following = [part for part in turned(path) if part[0] > last]
        if following:
            last, part = following[0]
            try:
                file = part.open("rb")
            except FileNotFoundError:
                continue
            with file:
                yield part, file
            continue
        try:
            file = path.open("rb")
        except FileNotFoundError:
            if any(number > last for number, _ in turned(path)):  # it was put aside after we had looked
                continue
            if last:  # and nothing has been written since
                return
            raise
        with file:
            if any(number > last for number, _ in turned(path)):  # it was turned over before we had it
                continue
            yield path, file
            return


class Appender:
    """Appends to files, as durably as told. It keeps none of them open.

    ``synced``: a line stands when it is on the disk, with the name of its file. ``max_bytes``: the length at which a
    file is put aside (0: never); only a single line that is longer makes a longer file. ``keep``: how many of those
    stay (0: all).
    """

    def __init__(self, *, synced: bool = False, max_bytes: int = 0, keep: int = 0) -> None:
        self._synced = synced
        self._max_bytes = max_bytes
        self._keep = keep
        self._named: tuple[int, int] | None = None
        """The file whose name is known to be on the disk."""

    def append(self, path: Path, lines: Sequence[bytes], *, patience: Patience = lambda: PATIENCE) -> int:
        """Append the first of the lines, each with a line end; how many now stand, at least one. Makes the file (mode
        0600) and its folder (0700).

        A half line that a crashed writer left is ended first, and what this call could only write in part, or not bring
        to the disk, is taken back. Raises OSError, TimeoutError for the lock among them: then none of them stands.
        """
        while True:
            self._make_folder(path.parent)
            with locked_file(path, patience) as fd:
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
        with locked_file(path, patience) as fd:
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
    return os.read(fd, 1) in (b"\n", b"")  # empty: another program is truncating it


def _write(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _cut(fd: int, size: int) -> None:
    """Back to a length, unless it is shorter by now: somebody truncated it."""
    if os.fstat(fd).st_size > size:
        os.ftruncate(fd, size)


KEY_BYTES: Final = 32
LARGEST: Final = 4 * 1024 * 1024  # bytes appended at once, but for a longer line


class HashKey:
    """The key of the hashes of a log's contents, in a file of its own. It is read again when the log is another file,
    which may have another key."""

    def __init__(self, file: Path, content: ContentMode) -> None:
        self._file = file
        self._unused = content == "none"
        self._key = b""
        self._for: tuple[Path, tuple[int, int] | None] | None = None

    def read(self, log: Path, patience: Patience) -> bytes:
        """The key for the records in ``log``. Raises OSError."""
        found = log, identity(log)
        if self._unused or (found[1] is not None and found == self._for):
            return self._key
        if found[1] is not None and not log.is_file():  # a pipe or device: there is no place beside it
            self._key = self._key or os.urandom(KEY_BYTES)
        else:
            self._key = secret(self._file, KEY_BYTES, patience=patience, proposed=self._key)
        self._for = found
        return self._key


class LogFile:
    """Where lines go. Several processes may share a place; each append is under the file's lock."""

    def __init__(
        self,
        at: Callable[[float], Path],
        key: Path,
        *,
        content: ContentMode = "hash",
        synced: bool = False,
        max_bytes: int = 0,
        keep: int = 0,
    ) -> None:
        """``at`` gives the file for a time in unix seconds, ``key`` is where the key of the hashes is kept; the rest is
        as for ``decision_log``."""
        self._at = at
        self._content: ContentMode = content
        self._key = HashKey(key, content)
        self._whole = synced or max_bytes > 0
        self._appender = Appender(synced=synced, max_bytes=max_bytes, keep=keep)
        self._tried = (Path(), 1)

    def show(self, now: float) -> Path:
        """The file itself."""
        return self._at(now)

    def fault(self, now: float) -> str | None:
        """Why the file could not be written. Makes nothing."""
        return write_fault(self._at(now), whole=self._whole)

    def keep(self, records: Sequence[Record], patience: Patience) -> int:
        """Append the lines of the first records, which go to one file; how many. Raises OSError."""
        path, lines, size = self._at(records[0].time), list[bytes](), 0
        key = self._key.read(path, patience)
        for record in records:
            if size > LARGEST or self._at(record.time) != path:
                break
            lines.append(to_json(record, content=self._content, key=key))
            size += len(lines[-1]) + 1
        self._tried = path, min(size, LARGEST)
        return self._appender.append(path, lines, patience=patience)

    def probe(self, patience: Patience) -> None:
        """Whether what was tried last would fit by now. Raises OSError."""
        path, size = self._tried
        self._appender.probe(path, size, patience=patience)

    def close(self) -> None:
        """No file is kept open."""


def one_file(path: Path) -> tuple[Callable[[float], Path], Path]:
    """One file for everything, and where its key is."""
    return lambda _: path, path.with_name(path.name + ".key")


def daily_files(state: Path, server: str) -> tuple[Callable[[float], Path], Path]:
    """``<state>/decisions/<server>-<date>.jsonl``; the date is the record's own, in UTC."""
    folder, name = state / "decisions", file_name(server)
    return lambda at: folder / f"{name}-{timestamp(at)[:10]}.jsonl", folder / ".key"


def file_name(server: str) -> str:
    """A server's name as part of a file's name: nothing in it leaves the folder or hides the file."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", server)[:100].lstrip(".") or "_"
