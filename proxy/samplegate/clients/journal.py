"""The journal of `wrap` in the state folder: what was replaced in each file, and backups of whole files.

A record is written before the file changes. If the file is not changed after all, no server has the text of the record,
and it is not used. Everything is for the owner alone, because entries contain secrets.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from samplegate import files
from samplegate.clients.faults import FileFault
from samplegate.clients.plan import Record
from samplegate.clients.store import write_new

FOLDER: Final = "wraps"
MAX_RECORDS: Final = 1_000
"""Of one file."""
MAX_BACKUPS: Final = 10
"""Of one file."""
PATIENCE: Final = 10.0
"""Seconds to wait for another `wrap`."""


class _Records(msgspec.Struct, frozen=True):
    """The journal of one file."""

    path: str
    records: tuple[Record, ...] = ()


class Journal:
    """The journal below a state folder."""

    def __init__(self, state: Path) -> None:
        self.folder = state / FOLDER

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keeps other `wrap` and `unwrap` commands out. Raises FileFault and OSError."""
        files.make_folder(self.folder)
        try:
            with files.locked_file(self.folder / "lock", lambda: PATIENCE):
                yield
        except TimeoutError:
            raise FileFault("another `samplegate wrap` or `unwrap` is at work; try again") from None

    def records(self, path: Path) -> tuple[Record, ...]:
        """The records of a file, oldest first. A damaged journal has none. Raises OSError."""
        try:
            found = msgspec.json.decode(self._file(path).read_bytes(), type=_Records)
        except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
            return ()
        return found.records if found.path == str(path) else ()

    def add(self, path: Path, records: Sequence[Record]) -> None:
        """Keep records of a file. Raises OSError."""
        new = {(one.pointer, one.written_sha256) for one in records}
        old = [one for one in self.records(path) if (one.pointer, one.written_sha256) not in new]
        self._write(path, (*old, *records))

    def remove(self, path: Path, records: Sequence[Record]) -> None:
        """Forget records of a file, which were used. Raises OSError."""
        if records:
            used = {(one.pointer, one.written_sha256) for one in records}
            self._write(path, [one for one in self.records(path) if (one.pointer, one.written_sha256) not in used])

    def back_up(self, path: Path, data: bytes) -> Path:
        """Keep a copy of a whole file, and remove the oldest ones beyond MAX_BACKUPS. Raises OSError."""
        folder = self.folder / "backups"
        files.make_folder(folder)
        name = _name(path)
        copy = folder / f"{name}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.urandom(3).hex()}{path.suffix}"
        write_new(copy, data)
        copies = sorted(folder.glob(f"{name}-*"), key=lambda one: (one.stat().st_mtime_ns, one.name))
        for old in copies[:-MAX_BACKUPS]:
            old.unlink(missing_ok=True)
        return copy

    def _file(self, path: Path) -> Path:
        return self.folder / f"{_name(path)}.json"

    def _write(self, path: Path, records: Sequence[Record]) -> None:
        file = self._file(path)
        if records:
            write_new(file, msgspec.json.encode(_Records(str(path), tuple(records)[-MAX_RECORDS:])))
        else:
            file.unlink(missing_ok=True)


def _name(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:32]
