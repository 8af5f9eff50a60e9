"""Queues of pending reviews by reviewer, for operators. Reading the store changes nothing and delays no process."""

from __future__ import annotations

import sqlite3
from typing import Final

import msgspec

from samplegate.errors import Unavailable
from samplegate.postgres.driver import check_driver
from samplegate.postgres.url import is_database

MAX_REVIEWERS: Final = 1_000
PATIENCE: Final = 3.0
"""Seconds for a database that is asked over the network."""
_QUEUES: Final = (
    "SELECT reviewer, count(*), min(created), min(expires) FROM reviews WHERE state = 'pending' AND expires > {0}"
    " GROUP BY reviewer ORDER BY reviewer LIMIT {0}"
)


class Queue(msgspec.Struct, frozen=True):
    """The pending reviews of one reviewer; times in Unix seconds."""

    reviewer: str
    pending: int
    oldest: float
    """When the oldest was created."""
    next_expiry: float


def read_queues(store: str, now: float) -> tuple[tuple[Queue, ...], float]:
    """The queues of a store by its URL, and its time: that of a file is ``now``. There are none without a store. Raises
    Unavailable."""
    if is_database(store):
        return _in_postgres(store)
    from samplegate.reviews.sql_database import path_of
    from samplegate.reviews.sql_schema import SCHEMA
    from samplegate.sqlite import SqliteFault, read_file

    path = path_of(store)
    if not path.exists():
        return (), now

    def ask(db: sqlite3.Connection) -> tuple[Queue, ...]:
        return tuple(Queue(*row) for row in db.execute(_QUEUES.format("?"), (now, MAX_REVIEWERS)))

    try:
        return read_file(path, SCHEMA, ask), now
    except SqliteFault as problem:
        raise Unavailable(f"review store {path}: {problem}") from problem


def _in_postgres(url: str) -> tuple[tuple[Queue, ...], float]:
    check_driver()
    from samplegate.postgres.connection import PostgresConnection
    from samplegate.postgres.faults import PostgresFault

    connection = PostgresConnection(url, make=False)
    try:
        with connection.transaction(lambda: PATIENCE, "REPEATABLE READ, READ ONLY") as db:
            now = connection.now()
            rows = db.execute(_QUEUES.format("%s"), (now, MAX_REVIEWERS)).fetchall()
            return tuple(Queue(*row) for row in rows), now
    except PostgresFault as problem:
        raise Unavailable(f"review store {connection.place}: {problem}") from problem
    finally:
        connection.close()
