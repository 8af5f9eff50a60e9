"""Finding and reading decision logs: files, folders and globs, one line at a time, however large a file is. Not what a line says."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from samplegate.commands.files import Unreadable
from samplegate.core.logline import Line
from samplegate.core.logline import read as read_line

MAX_LINE: Final = 16 * 1024 * 1024  # bytes; a record has two contents of 1 MiB at most, and JSON may escape every byte of them
MAX_LISTED: Final = 20
SUFFIX: Final = "*.jsonl"


class Logs:
    """The records of several logs, in the order of the files. ``bad`` counts the lines that are none; the first of them are in ``listed``."""

    def __init__(self, given: Sequence[str]) -> None:
        """Raises Unreadable for a name that there is no log of."""
        self.files = [path for name in given for path in _files(name)]
        self.lines = 0
        self.bad = 0
        self.listed: list[str] = []

    def __iter__(self) -> Iterator[Line]:
        """Every record. Raises Unreadable for a file that cannot be read on."""
        for path in dict.fromkeys(self.files):
            yield from self._records(path)

    def _records(self, path: Path) -> Iterator[Line]:
        for number, text in enumerate(_lines(path), 1):
            if text is not None and not text.strip():
                continue
            self.lines += 1
            found = f"is longer than {MAX_LINE} bytes" if text is None else read_line(text)
            if isinstance(found, Line):
                yield found
            else:
                self._tell(f"{path}:{number}: {found}")

    def _tell(self, what: str) -> None:
        self.bad += 1
        if len(self.listed) < MAX_LISTED:
            self.listed.append(what)

    def complaints(self) -> Iterator[str]:
        """One line for each of the first that are no records, and how many there are."""
        yield from self.listed
        if self.bad > len(self.listed):
            yield f"and {self.bad - len(self.listed)} more lines that are no records"


def _files(name: str) -> list[Path]:
    """The logs that a name means: those of a folder by name, which is by day; those that fit a glob; or itself."""
    path = Path(name)
    if path.is_dir():
        found = sorted(path.glob(SUFFIX))
        if not found:
            raise Unreadable(f"{path}: is a folder without a {SUFFIX}; name the folder of the decision logs, which is decisions in that of the state")
        return found
    if path.exists() or not glob.has_magic(name):
        return [path]
    matched = sorted(map(Path, glob.glob(name, recursive=True)))  # noqa: PTH207 # a Path's own takes no absolute pattern
    if not matched:
        raise Unreadable(f"{name}: no file fits it")
    return [path for path in matched if not path.is_dir()]


def _lines(path: Path) -> Iterator[bytes | None]:
    """The lines of a file, None for one that is too long."""
    try:
        with path.open("rb") as file:
            while line := file.readline(MAX_LINE + 1):
                if len(line) <= MAX_LINE:
                    yield line
                    continue
                while line and not line.endswith(b"\n"):
                    line = file.readline(MAX_LINE)
                yield None
    except OSError as problem:
        raise Unreadable(f"{path}: cannot be read: {(problem.strerror or os.strerror(problem.errno or 0)).lower()}") from None
