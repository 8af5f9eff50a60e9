"""The decision log as files of JSON lines, one a request. Not what a line says: ``core/record.py`` does; not the append: ``appending.py``.

``written``: a line is the kernel's when it counts as kept, so a crash of the gate loses nothing and a crash of the machine may. ``synced``: it is
on the disk, with its file's name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from samplegate.core.record import ContentMode, Record, timestamp, to_json
from samplegate.files import identity
from samplegate.records.appending import Appender
from samplegate.records.locking import Patience, secret
from samplegate.records.writable import fault

KEY_BYTES: Final = 32
LARGEST: Final = 4 * 1024 * 1024  # bytes appended at once, but for a longer line


class LogFile:
    """Where lines go. Several processes may share a place; each append is under the file's lock."""

    def __init__(
        self, at: Callable[[float], Path], key: Path, *, content: ContentMode = "hash", synced: bool = False, max_bytes: int = 0, keep: int = 0
    ) -> None:
        """``at`` gives the file for a time in unix seconds, ``key`` is where the key of the hashes is kept; the rest is as for ``decision_log``."""
        self._at = at
        self._key_file = key
        self._content: ContentMode = content
        self._whole = synced or max_bytes > 0
        self._appender = Appender(synced=synced, max_bytes=max_bytes, keep=keep)
        self._key = b""
        self._keyed: tuple[Path, tuple[int, int] | None] | None = None
        """The file that the key was read for: beside a new one there may be another key, or none."""
        self._tried = (Path(), 1)

    def show(self, now: float) -> Path:
        """The file itself."""
        return self._at(now)

    def fault(self, now: float) -> str | None:
        """Why the file could not be written. Makes nothing."""
        return fault(self._at(now), whole=self._whole)

    def keep(self, records: Sequence[Record], patience: Patience) -> int:
        """Append the lines of the first records, which go to one file; how many. Raises OSError."""
        path, lines, size = self._at(records[0].time), list[bytes](), 0
        self._read_key(path, patience)
        for record in records:
            if size > LARGEST or self._at(record.time) != path:
                break
            lines.append(to_json(record, content=self._content, key=self._key))
            size += len(lines[-1]) + 1
        self._tried = path, min(size, LARGEST)
        return self._appender.append(path, lines, patience=patience)

    def probe(self, patience: Patience) -> None:
        """Whether what was tried last would fit by now. Raises OSError."""
        path, size = self._tried
        self._appender.probe(path, size, patience=patience)

    def close(self) -> None:
        """No file is kept open."""

    def _read_key(self, path: Path, patience: Patience) -> None:
        if self._content == "none":
            return
        found = path, identity(path)
        if found[1] is not None and found == self._keyed:
            return
        if found[1] is not None and not path.is_file():  # a pipe or device: there is no place beside it
            self._key = self._key or os.urandom(KEY_BYTES)
        else:
            self._key = secret(self._key_file, KEY_BYTES, patience=patience, proposed=self._key)
        self._keyed = found


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
