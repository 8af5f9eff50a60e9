"""Queues of pending reviews by reviewer, for operators. Reading the store changes nothing and delays no process."""

from __future__ import annotations

import sqlite3
from typing import Final

import msgspec

from samplegate.errors import Unavailable

MAX_REVIEWERS: Final = 1_000


class Queue(msgspec.Struct, frozen=True):
    """The pending reviews of one reviewer; times in Unix seconds."""

    reviewer: str
    pending: int
    oldest: float
    """When the oldest was created."""
    next_expiry: float


def read_queues(store: str, now: float) -> tuple[Queue, ...]:
    """The queues of a store (``sqlite:PATH``) at ``now`` by its clock; none without a store. Raises Unavailable."""
    from samplegate.reviews.sql_database import path_of
    from samplegate.reviews.sql_schema import SCHEMA
    from samplegate.sqlite import SqliteFault, read_file

    path = path_of(store)
    if not path.exists():
        return ()

    def ask(db: sqlite3.Connection) -> tuple[Queue, ...]:
        rows = db.execute(
            "SELECT reviewer, count(*), min(created), min(expires) FROM reviews WHERE state = 'pending' AND expires > ?"
            " GROUP BY reviewer ORDER BY reviewer LIMIT ?",
            (now, MAX_REVIEWERS),
        )
        return tuple(Queue(*row) for row in rows)

    try:
        return read_file(path, SCHEMA, ask)
    except SqliteFault as problem:
        raise Unavailable(f"review store {path}: {problem}") from problem
