"""The decision log in the shared PostgreSQL database: each record as JSON, with columns to search by.

A gate needs only INSERT and SELECT: a record that is written never changes. ``database migrate`` makes and drops the
partitions, one for each day. A commit is on the disk when it returns, as far as the server promises that
(``synchronous_commit``).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import psycopg

from samplegate.audit.jsonl import KEY_BYTES
from samplegate.audit.record import ContentMode, Record, timestamp
from samplegate.audit.sqlite_log import empty_row, first_rows
from samplegate.files import Patience
from samplegate.key_file import combined_key
from samplegate.postgres.connection import PostgresConnection
from samplegate.postgres.faults import PostgresFault
from samplegate.postgres.url import shown

COLUMNS: Final = ("time", "decision_id", "server", "caller", "kind", "outcome", "rule", "record")
PAGE: Final = 500
"""Rows read in one transaction, because a long one slows the whole database down."""
READ_PATIENCE: Final = 20.0

_INSERT: Final = (
    "INSERT INTO decisions(time, decision_id, server, caller, kind, outcome, rule, record) SELECT * FROM"
    " unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[])"
)
_KEY: Final = "SELECT value FROM review_facts WHERE name = 'content_key'"
_PAGE: Final = "SELECT id, record FROM decisions WHERE time >= %s AND id > %s ORDER BY id LIMIT %s"
_PAGE_OF_ONE: Final = (
    "SELECT id, record FROM decisions WHERE decision_id >= %s AND decision_id < %s AND id > %s ORDER BY id LIMIT %s"
)


class PostgresLog:
    """A ``LogSink``. Waiting records share a transaction. ``file_key``: see ``key_file.combined_key``."""

    def __init__(self, url: str, *, content: ContentMode = "hash", file_key: bytes | None = None) -> None:
        self._connection = PostgresConnection(url)
        self._file_key = file_key
        self._content: ContentMode = content
        self._key: bytes | None = None if content != "none" else b""
        self._tried = empty_row(1)

    def location(self, now: float) -> str:
        """The database, without its password."""
        return self._connection.place

    def fault(self, now: float) -> str | None:
        """None: a database that cannot be reached now may be reached when a record is written."""
        return None

    def write_first(self, records: Sequence[Record], patience: Patience) -> int:
        """Insert the first of the records. Returns how many. Raises OSError."""
        with self._transaction(patience) as db:
            key = combined_key(_content_key(db), self._file_key) if self._key is None else self._key
            rows, self._tried = first_rows(records, self._content, key)
            _insert(db, rows)
        self._key = key  # which is committed by now, so that all gates have the same
        return len(rows)

    def probe(self, patience: Patience) -> None:
        """Test whether the last tried insert would succeed now, and roll it back. Raises OSError."""
        with contextlib.suppress(_Probed), self._transaction(patience) as db:
            _insert(db, [self._tried])
            raise _Probed

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @contextlib.contextmanager
    def _transaction(self, patience: Patience) -> Iterator[psycopg.Connection]:
        begun = time.monotonic()
        try:
            with self._connection.transaction(lambda: patience() - (time.monotonic() - begun)) as db:
                yield db
        except PostgresFault as problem:
            raise TimeoutError(problem.problem) if problem.kind == "busy" else OSError(0, str(problem)) from problem


class _Probed(Exception):
    """The probe's insert has worked and is rolled back."""


def _insert(db: psycopg.Connection, rows: Sequence[dict[str, Any]]) -> None:
    db.execute(_INSERT, [[_storable(row[name]) for row in rows] for name in COLUMNS])


def _storable(value: str | None) -> str | None:
    """The text without NUL, which PostgreSQL does not accept: in one record, it would fail the others of its batch."""
    return None if value is None else value.replace("\0", "\ufffd")


def _content_key(db: psycopg.Connection) -> bytes:
    """The key of content hashes, which all gates share. The first gate makes it."""
    db.execute(
        "INSERT INTO review_facts(name, value) VALUES('content_key', %s) ON CONFLICT DO NOTHING",
        (os.urandom(KEY_BYTES),),
    )
    (key,) = db.execute(_KEY).fetchone() or (b"",)
    return bytes(key)


def lines(url: str, *, since: float = 0.0, decision: str = "") -> Iterator[bytes]:
    """The records from a time on (Unix seconds) as lines of JSON, in the order of writing; or those of a decision, by
    the beginning of its ID. Raises OSError, also while iterating.

    Records that are written meanwhile may be missing.
    """
    statement, where = (_PAGE_OF_ONE, (decision, decision + "\uffff")) if decision else (_PAGE, (timestamp(since),))
    last, before = 0, -1
    connection = PostgresConnection(url, make=False)
    try:
        while last != before:
            before = last
            with connection.transaction(lambda: READ_PATIENCE, "REPEATABLE READ, READ ONLY") as db:
                rows = db.execute(statement, (*where, before, PAGE)).fetchall()
            for number, record in rows:
                last = number
                yield record.encode()
    except PostgresFault as problem:
        raise OSError(0, str(problem), shown(url)) from problem
    finally:
        connection.close()
