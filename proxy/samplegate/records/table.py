"""The decision log as rows of a database: the record as JSON, and beside it what it is searched by. Not the connection: ``database.py``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from sqlalchemy import delete, insert, select
from sqlalchemy.exc import SQLAlchemyError

from samplegate.core.record import ContentMode, Record, to_json
from samplegate.files import identity
from samplegate.records.database import Database, read_only
from samplegate.records.locking import Patience, secret
from samplegate.records.logfile import KEY_BYTES, LARGEST
from samplegate.records.schema import DECISIONS, row
from samplegate.records.sqlitefile import PREFIX, is_sqlite
from samplegate.records.writable import fault

PAGE: Final = 500  # rows that are read at once: a reader keeps the file from being tidied up


class Table:
    """Where rows go. Several processes may share a file; what waits together is one transaction."""

    def __init__(self, path: Path, *, content: ContentMode = "hash", synced: bool = False) -> None:
        self._path = path
        self._content: ContentMode = content
        self._database = Database(path, synced=synced)
        self._key = b""
        self._keyed: tuple[int, int] | None = None
        self._tried = row_of_nothing(1)

    def show(self, now: float) -> str:
        """As it was set."""
        return f"{PREFIX}{self._path}"

    def fault(self, now: float) -> str | None:
        """Why the file could not be written. Makes nothing."""
        if (problem := fault(self._path, whole=True)) is not None:
            return problem
        return None if self._database.is_open else _foreign(self._path)

    def keep(self, records: Sequence[Record], patience: Patience) -> int:
        """Insert the first of the records; how many. Raises OSError."""
        self._read_key(patience)
        rows, size = list[dict[str, Any]](), 0
        for record in records:
            if size > LARGEST:
                break
            line = to_json(record, content=self._content, key=self._key)
            rows.append(row(record, line))
            size += len(line)
        self._tried = row_of_nothing(min(size, LARGEST))
        with self._database.transaction(patience) as connection:
            connection.execute(insert(DECISIONS), rows)
        return len(rows)

    def probe(self, patience: Patience) -> None:
        """Whether what was tried last would be taken by now. Raises OSError."""
        with self._database.transaction(patience) as connection:
            made = connection.execute(insert(DECISIONS), self._tried).inserted_primary_key
            connection.execute(delete(DECISIONS).where(DECISIONS.c.id == (made or (None,))[0]))

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _read_key(self, patience: Patience) -> None:
        """Beside a new file there may be another key, or none."""
        if self._content == "none":
            return
        found = identity(self._path)
        if found is None or found != self._keyed:
            self._key = secret(self._path.with_name(self._path.name + ".key"), KEY_BYTES, patience=patience, proposed=self._key)
            self._keyed = found


def lines(path: Path) -> Iterator[bytes]:
    """All records of a database as lines of JSON, in the order in which they were kept. Raises OSError, also later on."""
    last, before = 0, -1
    with read_only(path) as connection:
        while last != before:
            before = last
            following = select(DECISIONS.c.id, DECISIONS.c.record).where(DECISIONS.c.id > last).order_by(DECISIONS.c.id).limit(PAGE)
            try:
                for number, record in connection.execute(following):
                    last = number
                    yield record.encode()
                connection.rollback()
            except SQLAlchemyError as problem:
                raise OSError(0, "it is no database of decisions") from problem


def row_of_nothing(size: int) -> dict[str, Any]:
    """A row that takes as much room as some others."""
    return {**dict.fromkeys(("time", "decision_id", "server", "caller", "kind", "outcome"), ""), "rule": None, "record": " " * size}


def _foreign(path: Path) -> str | None:
    """Why the file that is there could not be a database; one that is not there, or empty, can become one."""
    try:
        return None if is_sqlite(path, empty=True) else "is no SQLite database"
    except FileNotFoundError:
        return None
