"""Tasks in the shared PostgreSQL database, for gates on several machines."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from samplegate.errors import Unavailable
from samplegate.postgres.connection import PostgresConnection
from samplegate.postgres.faults import PostgresFault

if TYPE_CHECKING:
    import psycopg


class PostgresTable:
    """``TaskTable`` in a database."""

    def __init__(self, url: str) -> None:
        self._connection = PostgresConnection(url)

    @contextlib.contextmanager
    def transaction(self, left: Callable[[], float]) -> Iterator[PostgresRows]:
        """See ``TaskTable``. A step locks its own task, whether it has a row or not."""
        try:
            with self._connection.transaction(left) as db:
                yield PostgresRows(db, self._connection)
        except PostgresFault as problem:
            raise Unavailable(f"tasks: {self._connection.place}: {problem}") from problem

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class PostgresRows:
    """``TaskRows`` of a transaction."""

    def __init__(self, db: psycopg.Connection, connection: PostgresConnection) -> None:
        self._db = db
        self.now = connection.now

    def get(self, scope: str, id: str) -> tuple[bytes, float] | None:
        self._db.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"task {scope} {id}",))
        found = self._db.execute(
            "SELECT record, expires FROM tasks WHERE scope = %s AND id = %s", (scope, id)
        ).fetchone()
        return None if found is None else (bytes(found[0]), float(found[1]))

    def put(self, scope: str, id: str, record: bytes, expires: float) -> None:
        self._db.execute(
            "INSERT INTO tasks(scope, id, record, expires) VALUES(%s, %s, %s, %s)"
            " ON CONFLICT (scope, id) DO UPDATE SET record = EXCLUDED.record, expires = EXCLUDED.expires",
            (scope, id, record, expires),
        )

    def count(self, scope: str) -> int:
        found = self._db.execute("SELECT count(*) FROM tasks WHERE scope = %s", (scope,)).fetchone()
        return 0 if found is None else int(found[0])

    def remove_expired(self, now: float) -> None:
        self._db.execute(
            "DELETE FROM tasks WHERE (scope, id) IN"
            " (SELECT scope, id FROM tasks WHERE expires <= %s FOR UPDATE SKIP LOCKED)",
            (now,),
        )
