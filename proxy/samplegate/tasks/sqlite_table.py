"""Tasks in a SQLite file of the state folder, for the processes of one machine."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from samplegate.errors import Unavailable
from samplegate.sqlite import File, Schema, SqliteFault

FILE: Final = "tasks.sqlite3"


def _make(db: sqlite3.Connection) -> None:
    db.execute(
        "CREATE TABLE tasks(scope TEXT NOT NULL, id TEXT NOT NULL, record BLOB NOT NULL, expires REAL NOT NULL,"
        " PRIMARY KEY(scope, id)) WITHOUT ROWID"
    )
    db.execute("CREATE INDEX tasks_expires ON tasks(expires)")
    db.execute("PRAGMA user_version = 1")


SCHEMA: Final = Schema(
    version=1,
    select="PRAGMA user_version",
    table=None,
    make=_make,
    contents="tasks",
    another="set --state to another folder",
)


class SqliteTable:
    """``TaskTable`` in a state folder. A commit is on the disk when it returns, because it precedes a payment."""

    def __init__(self, state: Path, wall: Callable[[], float] = time.time) -> None:
        pragmas = ("synchronous=FULL", "secure_delete=ON")
        self._file = File(state / FILE, SCHEMA, pragmas=pragmas)
        self._wall = wall

    @contextlib.contextmanager
    def transaction(self, left: Callable[[], float]) -> Iterator[SqliteRows]:
        """See ``TaskTable``."""
        try:
            with self._file.transaction(left) as db:
                yield SqliteRows(db, self._wall)
        except SqliteFault as problem:
            raise Unavailable(f"tasks: {FILE} in the state folder: {problem}") from problem

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class SqliteRows:
    """``TaskRows`` of a transaction."""

    def __init__(self, db: sqlite3.Connection, wall: Callable[[], float]) -> None:
        self._db = db
        self.now = wall

    def get(self, scope: str, id: str) -> tuple[bytes, float] | None:
        found: tuple[bytes, float] | None = self._db.execute(
            "SELECT record, expires FROM tasks WHERE scope = ? AND id = ?", (scope, id)
        ).fetchone()
        return found

    def put(self, scope: str, id: str, record: bytes, expires: float) -> None:
        self._db.execute("INSERT OR REPLACE INTO tasks VALUES(?, ?, ?, ?)", (scope, id, record, expires))

    def count(self, scope: str) -> int:
        (found,) = self._db.execute("SELECT count(*) FROM tasks WHERE scope = ?", (scope,)).fetchone()
        return int(found)

    def remove_expired(self, now: float) -> None:
        self._db.execute("DELETE FROM tasks WHERE expires <= ?", (now,))
