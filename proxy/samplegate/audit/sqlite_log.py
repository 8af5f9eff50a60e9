"""The decision log in a SQLite database: each record as JSON, with columns to search by. Importing this module takes
about 0.3 s.

``synced``: a commit is on the disk when it returns (``synchronous=FULL``). Otherwise the kernel has it (``NORMAL``): a
killed process loses nothing, a power cut the last moments.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from sqlalchemy import BigInteger, Column, Connection, Index, Integer, MetaData, String, Table, Text, delete, insert

from samplegate.audit.jsonl import MAX_APPEND, HashKey
from samplegate.audit.record import MAX_NAME, ContentMode, Record, timestamp, to_json
from samplegate.files import SQLITE, Patience, is_sqlite, write_fault
from samplegate.sqlite import CoreFile, Schema, SqliteFault, fault_of, read_only

VERSION: Final = 1
PART: Final = "decisions"

METADATA: Final = MetaData()
VERSIONS: Final = Table(
    "samplegate_versions",
    METADATA,
    Column("part", String, primary_key=True),
    Column("version", Integer, nullable=False),
)
DECISIONS: Final = Table(
    PART,
    METADATA,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("time", String, nullable=False),
    Column("decision_id", String, nullable=False),
    Column("server", String, nullable=False),
    Column("caller", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("outcome", String, nullable=False),
    Column("rule", String),
    Column("record", Text, nullable=False),
    Index("decisions_time", "time"),
    Index("decisions_decision_id", "decision_id"),
    *(Index(f"decisions_{name}", name, "time") for name in ("server", "caller", "kind", "outcome", "rule")),
    sqlite_autoincrement=True,  # numbers are never reused, so that ``id`` is the order of the records
)
"""``time`` is RFC 3339 in UTC, and ``record`` is the line of JSON that a file would have. The other columns repeat
members of the record for searches."""


def _make(connection: Connection) -> None:
    METADATA.create_all(connection, checkfirst=False)
    connection.execute(insert(VERSIONS), [{"part": PART, "version": VERSION}])


SCHEMA: Final = Schema(
    version=VERSION,
    select=f"SELECT version FROM {VERSIONS.name} WHERE part = '{PART}'",
    table=VERSIONS.name,
    make=_make,
    contents="decisions",
    another="use another file",
)


def row(record: Record, line: bytes) -> dict[str, Any]:
    """The columns of a record's row. ``line`` is its JSON."""
    columns = {
        name: _text(getattr(record, name)) for name in ("decision_id", "server", "caller", "kind", "outcome", "rule")
    }
    return {**columns, "time": timestamp(record.time), "record": line.decode()}


def first_rows(
    records: Sequence[Record], content: ContentMode, key: bytes
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The rows of the first records, as many as are inserted at once; and a row of the same size for a probe."""
    rows, size = list[dict[str, Any]](), 0
    for record in records:
        if size > MAX_APPEND:
            break
        line = to_json(record, content=content, key=key)
        rows.append(row(record, line))
        size += len(line)
    return rows, empty_row(min(size, MAX_APPEND))


def _text(value: str | None) -> str | None:
    """The text without unpaired surrogates, which no database accepts, and of bounded length, because it is indexed."""
    return None if value is None else value[:MAX_NAME].encode("utf-8", "replace").decode()


PAGE: Final = 500  # rows read at once, because an open read prevents checkpoints


class SqliteLog:
    """The decision log in a database. Several processes may share a file; waiting records share a transaction."""

    def __init__(self, path: Path, *, content: ContentMode = "hash", synced: bool = False) -> None:
        self._path = path
        self._content: ContentMode = content
        self._file = CoreFile(path, SCHEMA, pragmas=(f"synchronous={'FULL' if synced else 'NORMAL'}",), synced=synced)
        self._key = HashKey(path.with_name(path.name + ".key"), content)
        self._tried = empty_row(1)

    def location(self, now: float) -> str:
        """The setting's value."""
        return f"{SQLITE}{self._path}"

    def fault(self, now: float) -> str | None:
        """Why the file could not be written. Creates nothing."""
        if (problem := write_fault(self._path, whole=True)) is not None:
            return problem
        return None if self._file.is_open else _foreign(self._path)

    def write_first(self, records: Sequence[Record], patience: Patience) -> int:
        """Insert the first of the records. Returns how many. Raises OSError."""
        rows, self._tried = first_rows(records, self._content, self._key.read(self._path, patience))
        with self._transaction(patience) as connection:
            connection.execute(insert(DECISIONS), rows)
        return len(rows)

    def probe(self, patience: Patience) -> None:
        """Test whether the last tried insert would succeed now. Raises OSError."""
        with self._transaction(patience) as connection:
            made = connection.execute(insert(DECISIONS), self._tried).inserted_primary_key
            connection.execute(delete(DECISIONS).where(DECISIONS.c.id == (made or (None,))[0]))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @contextlib.contextmanager
    def _transaction(self, patience: Patience) -> Iterator[Connection]:
        begun = time.monotonic()
        try:
            with self._file.core(lambda: patience() - (time.monotonic() - begun)) as connection:
                yield connection
        except SqliteFault as problem:
            if isinstance(problem.__cause__, OSError):
                raise problem.__cause__ from problem
            raise TimeoutError(problem.problem) if problem.kind == "busy" else OSError(0, str(problem)) from problem


def lines(path: Path) -> Iterator[bytes]:
    """All records of a database as lines of JSON, in the order of writing. Raises OSError, also while iterating."""
    last, before = 0, -1
    path.stat()  # SQLite does not tell a missing file from one that it may not open
    try:
        db = read_only(path)
    except sqlite3.Error as problem:
        raise OSError(0, str(fault_of(problem))) from problem
    with contextlib.closing(db):
        while last != before:
            before = last
            try:
                for number, record in db.execute(
                    f"SELECT id, record FROM {PART} WHERE id > ? ORDER BY id LIMIT {PAGE}", (before,)
                ):
                    last = number
                    yield record.encode()
            except sqlite3.Error as problem:
                raise OSError(0, "it is not a decision log database") from problem


def empty_row(size: int) -> dict[str, Any]:
    """An empty row of a given size, for probes."""
    return {
        **dict.fromkeys(("time", "decision_id", "server", "caller", "kind", "outcome"), ""),
        "rule": None,
        "record": " " * size,
    }


def _foreign(path: Path) -> str | None:
    """Why an existing file cannot be a database. A missing or empty file can become one."""
    try:
        return None if is_sqlite(path, empty=True) else "is not a SQLite database"
    except FileNotFoundError:
        return None
