"""The demo's users in a real SQLite file, and the purges done to them. Not a store of the gate's.

A purge is kept by its ticket, so that a step asked for twice is done once: in the modern era a server runs its steps
again in every round.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

USERS: Final = (
    ("ada", "2026-07-30", 1),
    ("boris", "2023-02-11", 0),
    ("chen", "2026-07-29", 1),
    ("dora", "2022-12-01", 0),
    ("emil", "2026-06-17", 1),
    ("fatou", "2023-05-09", 0),
    ("gita", "2026-07-28", 1),
    ("hugo", "2021-10-23", 0),
)
"""Name, day last seen, whether the account is active."""

_SCHEMA: Final = """
CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT NOT NULL, last_seen TEXT NOT NULL, active INTEGER NOT NULL);
CREATE TABLE purges (ticket TEXT PRIMARY KEY, found INTEGER NOT NULL, total INTEGER NOT NULL, deleted INTEGER, reason TEXT, audit TEXT);
"""  # noqa: E501


@dataclass(frozen=True, slots=True)
class Found:
    """How many accounts were inactive when the purge was opened, of how many."""

    inactive: int
    total: int


@dataclass(frozen=True, slots=True)
class Purge:
    """What the file says about a purge."""

    deleted: int | None
    reason: str | None
    audit: str | None


@contextmanager
def _open(path: Path) -> Iterator[sqlite3.Connection]:
    """One connection, one transaction."""
    with closing(sqlite3.connect(path, timeout=5)) as connection, connection:
        yield connection


def create(path: Path) -> None:
    """Make the file with its users."""
    with _open(path) as db:
        db.executescript(_SCHEMA)
        db.executemany("INSERT INTO users (name, last_seen, active) VALUES (?, ?, ?)", USERS)


def names(path: Path) -> list[str]:
    """The users that are there."""
    with _open(path) as db:
        return [name for (name,) in db.execute("SELECT name FROM users ORDER BY id")]


def count_inactive(path: Path, ticket: str) -> Found:
    """Open the purge and count; for a ticket already open, what was counted then."""
    with _open(path) as db:
        db.execute(
            "INSERT OR IGNORE INTO purges (ticket, found, total) SELECT ?, count(*) FILTER (WHERE active = 0), count(*)"
            " FROM users",
            (ticket,),
        )
        inactive, total = db.execute("SELECT found, total FROM purges WHERE ticket = ?", (ticket,)).fetchone()
        return Found(inactive, total)


def delete_inactive(path: Path, ticket: str, reason: str) -> int:
    """Delete the inactive accounts once per ticket. Returns how many rows that took."""
    with _open(path) as db:
        (done,) = db.execute("SELECT deleted FROM purges WHERE ticket = ?", (ticket,)).fetchone()
        if done is not None:
            return int(done)
        deleted = db.execute("DELETE FROM users WHERE active = 0").rowcount
        db.execute("UPDATE purges SET deleted = ?, reason = ? WHERE ticket = ?", (deleted, reason, ticket))
        return deleted


def write_audit(path: Path, ticket: str, entry: str) -> None:
    """Keep the audit entry beside the purge."""
    with _open(path) as db:
        db.execute("UPDATE purges SET audit = ? WHERE ticket = ?", (entry, ticket))


def purge(path: Path, ticket: str) -> Purge | None:
    """What became of a purge, None if there is none."""
    with _open(path) as db:
        row = db.execute("SELECT deleted, reason, audit FROM purges WHERE ticket = ?", (ticket,)).fetchone()
    return None if row is None else Purge(*row)
