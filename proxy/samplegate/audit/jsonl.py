"""The decision log as files of JSON lines: appending, rotation by size, and file names.

``written``: a line counts as written once the kernel has it, so only a crash of the machine can lose it. ``synced``: it
is on the disk, with the name of its file.

An append is made under a lock, all or nothing. Other programs (logrotate, by renaming or by copying and truncating) do
not break lines: every append opens the file by name and writes at its end.

``audit.jsonl`` is the file being written. When it is full, it is renamed to ``audit.jsonl.000001``, the next one to
``audit.jsonl.000002``, and so on: the highest number is the newest rotated file. The six digits distinguish them from
logrotate's files (whose newest is ``.1``).
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
    shared_secret,
    sync_file,
    sync_folder,
    write_fault,
)

DIGITS: Final = 6  # at least; the millionth file has seven
_tail: Final = re.compile(rf"\.([0-9]{{{DIGITS},18}})\Z")


def split_rotated(path: Path) -> tuple[Path, int | None]:
    """The log of a rotated file, and the file's number. The number is None for the file being written and for any
    other name."""
    found = _tail.search(path.name)
    if found is None or not path.name[: found.start()]:
        return path, None
    return path.with_name(path.name[: found.start()]), int(found[1])


def rotated_files(path: Path) -> list[tuple[int, Path]]:
    """The rotated files of this log with their numbers, oldest first; none if the folder is missing. Raises OSError."""
    try:
        with os.scandir(path.parent) as entries:
            names = [entry.name for entry in entries if entry.name.startswith(path.name)]
    except FileNotFoundError:
        return []
    parts = [(split_rotated(path.with_name(name)), path.with_name(name)) for name in names]
    return sorted((number, part) for (main, number), part in parts if number is not None and main.name == path.name)


def rotate(path: Path, keep: int) -> None:
    """Rotate the file, and remove the oldest rotated files beyond ``keep`` (0: none). The caller must hold the file's
    lock.

    Raises OSError if the file could not be renamed. If an old file cannot be removed, the next rotation retries,
    because that is no reason to lose a record.
    """
    before = rotated_files(path)
    path.rename(path.with_name(f"{path.name}.{(before[-1][0] if before else 0) + 1:0{DIGITS}d}"))
    for _, old in before[: max(0, len(before) + 1 - keep)] if keep else ():
        try:
            old.unlink(missing_ok=True)
        except OSError:
            return


def open_files(path: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """The files of the log, open, oldest first. A rotation meanwhile neither skips nor repeats a file. Raises OSError.

    A file that is removed before its turn is left out.
    """
    last = 0
    while True:
        following = [part for part in rotated_files(path) if part[0] > last]
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
            if any(number > last for number, _ in rotated_files(path)):  # rotated after we listed the files
                continue
            if last:  # nothing was written since the rotation
                return
            raise
        with file:
            if any(number > last for number, _ in rotated_files(path)):  # rotated before we opened it
                continue
            yield path, file
            return


class Appender:
    """Appends to files as durably as configured, and keeps none of them open.

    ``synced``: a line counts as written once it is on the disk, with the name of its file. ``max_bytes``: the size at
    which a file is rotated (0: never); only a single longer line exceeds it. ``keep``: how many rotated files stay (0:
    all).
    """

    def __init__(self, *, synced: bool = False, max_bytes: int = 0, keep: int = 0) -> None:
        self._synced = synced
        self._max_bytes = max_bytes
        self._keep = keep
        self._named: tuple[int, int] | None = None
        """The file whose name is known to be on the disk."""

    def append(self, path: Path, lines: Sequence[bytes], *, patience: Patience = lambda: PATIENCE) -> int:
        """Append the first of the lines, each with a line end. Returns how many were written, at least one. Creates the
        file (mode 0600) and its folder (0700).

        An incomplete line of a crashed writer is ended first. If this call can write or sync only a part, that part is
        removed. Raises OSError (TimeoutError for the lock): then no line was written.
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
                rotate(path, self._keep)

    def probe(self, path: Path, size: int, *, patience: Patience = lambda: PATIENCE) -> None:
        """Test whether so many bytes could be appended, by appending and removing empty lines. Raises OSError."""
        self._make_folder(path.parent)
        with locked_file(path, patience) as fd:
            if stat.S_ISREG(os.fstat(fd).st_mode):
                before = os.lseek(fd, 0, os.SEEK_END)
                self._extend(path, fd, before, b"\n" * size)
                _cut(fd, before)

    def _room(self, size: int, lines: Sequence[bytes]) -> int:
        """How many of the lines fit into a file of this size."""
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
        """Sync the folder the first time that a file is used, because its name may be new, whichever process made
        it."""
        found = identity_of(fd)
        if self._named != found:
            sync_folder(path.parent)
            self._named = found

    def _make_folder(self, folder: Path) -> None:
        for made in make_folder(folder):
            if self._synced:
                sync_folder(made.parent)

    def _pass_on(self, fd: int, lines: Sequence[bytes]) -> int:
        """Write to a pipe or terminal, where there is nothing to lock or repair."""
        if self._synced:
            raise OSError(0, "it is not a regular file, so records cannot be synced to the disk")
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
    """Truncate to a size, unless another program has made the file shorter."""
    if os.fstat(fd).st_size > size:
        os.ftruncate(fd, size)


KEY_BYTES: Final = 32
MAX_APPEND: Final = 4 * 1024 * 1024  # bytes appended at once, except for a longer line


class HashKey:
    """The key of a log's content hashes, in a file of its own. It is read again when the log is a different file, which
    may have another key."""

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
        if found[1] is not None and not log.is_file():  # a pipe or device has no folder for a key
            self._key = self._key or os.urandom(KEY_BYTES)
        else:
            self._key = shared_secret(self._file, KEY_BYTES, patience=patience, proposed=self._key)
        self._for = found
        return self._key


class LogFile:
    """The decision log in files. Several processes may share a file; each append is made under its lock."""

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
        """``at`` returns the file for a time (Unix seconds). ``key`` is the file of the hash key. The other arguments
        are those of ``decision_log``."""
        self._at = at
        self._content: ContentMode = content
        self._key = HashKey(key, content)
        self._whole = synced or max_bytes > 0
        self._appender = Appender(synced=synced, max_bytes=max_bytes, keep=keep)
        self._tried = (Path(), 1)

    def location(self, now: float) -> Path:
        """The file's path."""
        return self._at(now)

    def fault(self, now: float) -> str | None:
        """Why the file could not be written. Creates nothing."""
        return write_fault(self._at(now), whole=self._whole)

    def write_first(self, records: Sequence[Record], patience: Patience) -> int:
        """Append the first records that belong to one file. Returns how many. Raises OSError."""
        path, lines, size = self._at(records[0].time), list[bytes](), 0
        key = self._key.read(path, patience)
        for record in records:
            if size > MAX_APPEND or self._at(record.time) != path:
                break
            lines.append(to_json(record, content=self._content, key=key))
            size += len(lines[-1]) + 1
        self._tried = path, min(size, MAX_APPEND)
        return self._appender.append(path, lines, patience=patience)

    def probe(self, patience: Patience) -> None:
        """Test whether the last tried append would fit now. Raises OSError."""
        path, size = self._tried
        self._appender.probe(path, size, patience=patience)

    def close(self) -> None:
        """Do nothing: no file is kept open."""


def one_file(path: Path) -> tuple[Callable[[float], Path], Path]:
    """One file for all records, and the path of its key."""
    return lambda _: path, path.with_name(path.name + ".key")


def daily_files(state: Path, server: str) -> tuple[Callable[[float], Path], Path]:
    """``<state>/decisions/<server>-<date>.jsonl``, and the path of the key. The date is the record's, in UTC."""
    folder, name = state / "decisions", file_name(server)
    return lambda at: folder / f"{name}-{timestamp(at)[:10]}.jsonl", folder / ".key"


def file_name(server: str) -> str:
    """A server's name as part of a file name that can neither leave the folder nor be hidden."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", server)[:100].lstrip(".") or "_"
