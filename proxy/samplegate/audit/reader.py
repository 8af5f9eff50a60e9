"""Reader of decision logs: finds the files of names, folders and globs, and the databases. It yields their records one
by one, so a log may have any size."""

from __future__ import annotations

import glob
import gzip
import io
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias, cast

from samplegate.audit.jsonl import open_files, rotated_files, split_rotated
from samplegate.audit.record import RecordLine, read_line
from samplegate.errors import InputError, Unavailable
from samplegate.files import SQLITE, is_sqlite, missing_hint
from samplegate.postgres.driver import check_driver
from samplegate.postgres.url import DATABASE, is_database, shown

# bytes; a record has at most two contents of 1 MiB, and JSON may escape every byte of them
MAX_LINE: Final = 16 * 1024 * 1024
MAX_LISTED: Final = 20
SUFFIX: Final = "*.jsonl"
VARIABLE: Final = "SAMPLEGATE_DATABASE"
_GZIP: Final = b"\x1f\x8b"
_BESIDE: Final = (".key", "-wal", "-shm")

Lines: TypeAlias = Iterator[tuple[str, bytes | None]]
"""Lines with their places; None for a line that is too long."""


@dataclass(frozen=True, slots=True)
class LogFiles:
    """A log by its name: its rotated files, then the file being written."""

    path: Path

    def names(self) -> list[str]:
        parts = [part for _, part in rotated_files(self.path)]
        return [str(path) for path in (*parts, *([self.path] if self.path.exists() or not parts else []))]

    def lines(self) -> Lines:
        for path, file in open_files(self.path):
            yield from _lines(path, _unpacked(file))


@dataclass(frozen=True, slots=True)
class RotatedFile:
    """A single rotated file."""

    path: Path

    def names(self) -> list[str]:
        return [str(self.path)]

    def lines(self) -> Lines:
        with self.path.open("rb") as file:
            yield from _lines(self.path, _unpacked(file))


@dataclass(frozen=True, slots=True)
class SqliteLogFile:
    """A database of records."""

    path: Path

    def names(self) -> list[str]:
        return [f"{SQLITE}{self.path}"]

    def lines(self) -> Lines:
        from samplegate.audit.sqlite_log import lines

        for number, line in enumerate(lines(self.path), 1):
            yield f"{self.path}: record {number}", line if len(line) <= MAX_LINE else None


@dataclass(frozen=True, slots=True)
class DatabaseLog:
    """The records in a shared database: from a time on, or of a decision."""

    path: str
    since: float = 0.0
    decision: str = ""

    def names(self) -> list[str]:
        return [shown(self.path)]

    def lines(self) -> Lines:
        check_driver()
        from samplegate.audit.postgres_log import lines

        for number, line in enumerate(lines(self.path, since=self.since, decision=self.decision), 1):
            yield f"{shown(self.path)}: record {number}", line if len(line) <= MAX_LINE else None


FileSource: TypeAlias = LogFiles | RotatedFile | SqliteLogFile
Source: TypeAlias = FileSource | DatabaseLog


class Logs:
    """The records of several logs, in the order of the names. ``bad`` counts invalid lines; ``listed`` has the first of
    them."""

    def __init__(
        self,
        given: Sequence[str],
        *,
        run: str = "",
        since: float = 0.0,
        decision: str = "",
        read: Callable[[bytes], RecordLine | str] = read_line,
        passed: Callable[[], None] = lambda: None,
    ) -> None:
        """Raises InputError for a name without a log.

        ``run`` and ``decision`` (the beginning of an ID): only lines that may be of this run or decision are read, and
        ``bad`` counts only those. ``since``: files that were last changed before it (Unix seconds) are skipped.
        ``read`` reads a line. ``passed`` is called for every line, also for those that are not read.
        """
        self._line = read
        self._passed = passed
        self._sources = [
            replace(source, since=since, decision=decision) if isinstance(source, DatabaseLog) else source
            for source in _sources(given)
            if not _is_older(source, since)
        ]
        self._wanted = f'"run":"{run}"'.encode() if run else f'"{decision}'.encode() if decision else b""
        self.files = list(dict.fromkeys(name for source in self._sources for name in _names(source)))
        """The files and databases at the start, each once."""
        self.lines = 0
        self.bad = 0
        self.listed: list[str] = []

    def __iter__(self) -> Iterator[RecordLine]:
        """Yield every record. Raises InputError if a log cannot be read to its end."""
        for source in self._sources:
            for place, text in _read(source):
                self._passed()
                if text is not None and (self._wanted not in text or not text.strip()):
                    continue
                self.lines += 1
                found = f"is longer than {MAX_LINE} bytes" if text is None else self._line(text)
                if isinstance(found, RecordLine):
                    yield found
                else:
                    self._tell(f"{place}: {found}")

    def _tell(self, what: str) -> None:
        self.bad += 1
        if len(self.listed) < MAX_LISTED:
            self.listed.append(what)

    def complaints(self) -> Iterator[str]:
        """A line for each of the first invalid lines, and the number of the others."""
        yield from self.listed
        if self.bad > len(self.listed):
            yield f"and {self.bad - len(self.listed)} more lines that are not records"


def _sources(given: Sequence[str]) -> list[Source]:
    """The logs of these names, each once, in the order of the names. Raises InputError for a name without a log."""
    found = list(dict.fromkeys(source for name in given for source in _matching_sources(name)))
    whole = {source.path for source in found if isinstance(source, LogFiles)}
    return [
        source for source in found if not isinstance(source, RotatedFile) or split_rotated(source.path)[0] not in whole
    ]


def _is_older(source: Source, since: float) -> bool:
    """Whether all files of a log were last changed before a time."""
    if not since or isinstance(source, SqliteLogFile | DatabaseLog):  # a database's newest records are in other files
        return False
    try:
        return all(Path(name).stat().st_mtime < since for name in source.names())
    except OSError:
        return False  # the error appears when the file is read


def _names(source: Source) -> list[str]:
    """The current files of a log, for display. Raises InputError."""
    try:
        return source.names()
    except OSError as problem:
        raise _unreadable(source, problem) from None


def _read(source: Source) -> Lines:
    """All lines of a log. Raises InputError if it cannot be read to its end."""
    try:
        yield from source.lines()
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise InputError(
            f"{source.path}: cannot be read: the compressed file is incomplete or damaged; restore it, or pass the"
            " other logs with --log"
        ) from None
    except OSError as problem:
        raise _unreadable(source, problem) from None
    except Unavailable as problem:
        raise InputError(str(problem)) from None


def _unreadable(source: Source, problem: OSError) -> InputError:
    why = problem.strerror or os.strerror(problem.errno or 0)
    if why[1:2].islower():
        why = f"{why[0].lower()}{why[1:]}"
    name = str(problem.filename or source.path)
    hint = f"; {missing_hint(name, Path())}" if isinstance(problem, FileNotFoundError) else ""
    return InputError(f"{name}: cannot be read: {why}{hint}")


def _matching_sources(name: str) -> Sequence[Source]:
    if name == DATABASE or is_database(name):
        return [DatabaseLog(_url_of(name))]
    if name.startswith(SQLITE):
        return [SqliteLogFile(Path(name.removeprefix(SQLITE)))]
    path = Path(name)
    if path.is_dir():
        found = [
            source
            for source in _grouped(filter(Path.is_file, path.glob(f"{SUFFIX}*")))
            if split_rotated(source.path)[0].match(SUFFIX)
        ]
        if not found:
            raise InputError(
                f"{path}: the folder has no {SUFFIX} files; specify the folder with the decision logs, `decisions` in"
                " the state folder"
            )
        return found
    if path.exists() or not glob.has_magic(name):
        return [_source(path)]
    # Path.glob does not accept absolute patterns
    matched = [Path(one) for one in glob.glob(name, recursive=True)]  # noqa: PTH207
    if not matched:
        raise InputError(f"{name}: no file matches")
    return _grouped(path for path in matched if path.is_file())


def _url_of(name: str) -> str:
    """The URL of a database log. A gate tells its database without password and options, so the variable's URL replaces
    it if both name the same database. Raises InputError."""
    known = os.environ.get(VARIABLE, "")
    if name == DATABASE:
        if not known:
            raise InputError(f"--log {DATABASE}: no database is known; set {VARIABLE}, or pass --log postgresql://...")
        return known
    return known if name == shown(name) == shown(known) else name


def _grouped(paths: Iterable[Path]) -> list[FileSource]:
    """The logs of these paths, sorted by name and so by day, with rotated files in order. Keys and SQLite's own files
    beside a log are left out."""
    found = set(paths)
    beside = {log.with_name(split_rotated(log)[0].name + suffix) for log in found for suffix in _BESIDE}
    by_log = sorted(found - beside, key=lambda path: (str(split_rotated(path)[0]), split_rotated(path)[1] or 0))
    return [_source(path) for path in by_log]


def _source(path: Path) -> FileSource:
    """The log of a path, which may not exist yet."""
    if split_rotated(path)[1] is not None:
        return RotatedFile(path)
    return SqliteLogFile(path) if _is_database(path) else LogFiles(path)


def _is_database(path: Path) -> bool:
    try:
        return path.is_file() and is_sqlite(path, empty=False)
    except OSError:
        return False  # the error appears when the file is read


def _unpacked(file: BinaryIO) -> BinaryIO:
    """The text of a file that logrotate has compressed with gzip, or the file itself."""
    if not isinstance(file, io.BufferedReader) or not file.peek(2).startswith(_GZIP):
        return file
    return cast(BinaryIO, gzip.GzipFile(fileobj=file))


def _lines(path: Path, file: BinaryIO) -> Lines:
    number = 0
    while line := file.readline(MAX_LINE + 1):
        number += 1
        whole = len(line) <= MAX_LINE
        yield f"{path}:{number}", line if whole else None
        while not whole and line and not line.endswith(b"\n"):
            line = file.readline(MAX_LINE)
