"""The import of a state folder into the shared database: balances of shared limits, and reviews that are not over.

Each file is copied in one transaction, which also notes the file's contents. So a file whose import was interrupted
before it was renamed is not imported twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import psycopg
from psycopg import sql

from samplegate.config.settings import ProcessSettings
from samplegate.errors import Unavailable
from samplegate.limits import sqlite_ledger
from samplegate.limits.balances import account_of, spec_of
from samplegate.policy import ledger
from samplegate.postgres.connection import PostgresConnection
from samplegate.postgres.faults import PostgresFault
from samplegate.process_locks import MAX_FILES, Holder, is_alive
from samplegate.reviews.review import DECIDED
from samplegate.reviews.sql_schema import SCHEMA as REVIEWS
from samplegate.reviews.sql_store import ENDED_SESSION, FAILED_SIGN_INS
from samplegate.sqlite import Schema, SqliteFault, fault_of

PATIENCE: Final = 60.0
IMPORTED: Final = ".imported"
RUNNING: Final = "a gate that uses it is running; stop all gates first"
_ALIVE: Final = "SELECT id FROM reviews WHERE state = 'pending' OR (used_by IS NULL AND state IN ({}))"


class Imported(NamedTuple):
    """What was imported."""

    accounts: int
    reviews: int
    renamed: tuple[Path, ...]


def import_state(settings: ProcessSettings, url: str) -> Imported:
    """Import the state folder into the database. Raises Unavailable."""
    if not settings.state.is_dir():
        raise Unavailable(f"{settings.state}: there is no such folder; pass the gates' state folder with --state")
    connection = PostgresConnection(url)
    limits, reviews = settings.state / sqlite_ledger.FILE, settings.reviews_file
    renamed: list[Path] = []
    try:
        accounts = _moved(_Source(limits, sqlite_ledger.SCHEMA, "holders", _accounts), connection, renamed)
        kept = 0
        if settings.store is None:  # otherwise gates go on using that file
            kept = _moved(_Source(reviews, REVIEWS, f"{reviews.name}-holders", _reviews), connection, renamed)
    except PostgresFault as problem:
        raise Unavailable(f"database {connection.place}: {problem}") from problem
    finally:
        connection.close()
    return Imported(accounts, kept, tuple(renamed))


class _Source(NamedTuple):
    """A file, the folder beside it with the locks of its processes, and the function that copies it at a time."""

    path: Path
    schema: Schema
    holders: str
    copy: Callable[[sqlite3.Connection, psycopg.Connection, float], int]


def _moved(source: _Source, connection: PostgresConnection, renamed: list[Path]) -> int:
    """Copy a file into the database, and rename it. Returns how much was copied; 0 without a file."""
    path, holders = source.path, source.path.with_name(source.holders)
    if not path.exists():
        return 0
    running = [name for name in Holder(holders).registered()[:MAX_FILES] if is_alive(holders, name)]
    if running:
        raise Unavailable(f"{path}: {RUNNING}")
    with _exclusive(path, source.schema) as old:
        contents = hashlib.sha256()
        for line in old.iterdump():
            contents.update(line.encode("utf-8", "surrogatepass"))
        mark = f"imported {contents.hexdigest()}"
        with connection.transaction(lambda: PATIENCE) as new:
            new.execute("SELECT number FROM review_facts WHERE name = 'events' FOR UPDATE")
            noted = new.execute(
                "INSERT INTO review_facts(name) VALUES(%s) ON CONFLICT DO NOTHING RETURNING name", (mark,)
            ).fetchone()
            count = 0 if noted is None else source.copy(old, new, connection.now())
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(path.with_name(path.name + IMPORTED + suffix))
    renamed.append(path.with_name(path.name + IMPORTED))
    return count


@contextlib.contextmanager
def _exclusive(path: Path, schema: Schema) -> Iterator[sqlite3.Connection]:
    """The file, locked against all other processes. Raises Unavailable."""
    try:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
            if not schema.is_current(db):
                raise SqliteFault("newer", f"its {schema.contents} have an older version", "start a gate once")
            try:
                db.execute("PRAGMA journal_mode=DELETE")  # which no other process may have open
            except sqlite3.OperationalError as problem:
                raise SqliteFault("busy", RUNNING) from problem
            db.execute("BEGIN EXCLUSIVE")
            yield db
            db.execute("ROLLBACK")
    except (sqlite3.Error, OSError, SqliteFault) as problem:
        raise Unavailable(f"{path}: {problem if isinstance(problem, SqliteFault) else fault_of(problem)}") from problem


def _accounts(old: sqlite3.Connection, new: psycopg.Connection, now: float) -> int:
    """Add the balances to those in the database."""
    rows = old.execute("SELECT limit_name, key, level, stamp, warned FROM accounts ORDER BY limit_name, key").fetchall()
    for limit, key, *rest in rows:
        account = account_of(*rest)
        found = new.execute(
            "SELECT level, stamp, warned FROM accounts WHERE limit_name = %s AND key = %s FOR UPDATE", (limit, key)
        ).fetchone()
        both = account if found is None else _sum(limit, account_of(*found), account, now)
        new.execute(
            "INSERT INTO accounts VALUES(%s, %s, %s, %s, %s) ON CONFLICT(limit_name, key) DO UPDATE"
            " SET level = excluded.level, stamp = excluded.stamp, warned = excluded.warned",
            (limit, key, both.level, both.stamp, bool(both.warned)),
        )
    return len(rows)


def _sum(limit: str, one: ledger.Account, other: ledger.Account, now: float) -> ledger.Account:
    """Both balances together. What has drained from a bucket depends on its maximum, which only policies know; so
    nothing is taken off, and the sum is rather too much."""
    spec = spec_of(limit)
    if spec is not None and spec.per != "bucket":
        return ledger.merged(msgspec.structs.replace(spec, max_units=ledger.MAX_UNITS), one, other, now)
    level = min(one.level + other.level, 4 * ledger.MAX_UNITS)  # what a column can hold
    return ledger.Account(level, max(one.stamp, other.stamp), one.warned or other.warned)


def _reviews(old: sqlite3.Connection, new: psycopg.Connection, _now: float) -> int:
    """Copy the reviews that are pending or wait for their use, with their history and their deliveries, what is known
    of sign-ins, and the key of links and sessions if the database has none."""
    marks = ", ".join("?" * len(DECIDED))
    ids = [id for (id,) in old.execute(_ALIVE.format(marks), sorted(DECIDED))]
    known = new.execute("SELECT id FROM reviews WHERE id = ANY(%s)", (ids,)).fetchone()
    if known is not None:
        raise PostgresFault("refused", f"it has review {known[0]} already", "was a copy of the state folder imported?")
    for id in ids:
        for table in ("reviews", "review_deliveries", "review_uis"):
            names, rows = _rows(old, f"SELECT * FROM {table} WHERE {'id' if table == 'reviews' else 'review'} = ?", id)
            _insert(new, table, names, rows)
        names, rows = _rows(old, "SELECT * FROM review_events WHERE review = ? ORDER BY number", id)
        number = names.index("number")
        for row in rows:
            (row[number],) = new.execute(
                "UPDATE review_facts SET number = number + 1 WHERE name = 'events' RETURNING number"
            ).fetchone() or (0,)
            _insert(new, "review_events", names, [row])
    for (key,) in old.execute("SELECT value FROM review_facts WHERE name = 'key'"):
        new.execute("INSERT INTO review_facts(name, value) VALUES('key', %s) ON CONFLICT DO NOTHING", (key,))
    for beginning in (ENDED_SESSION, FAILED_SIGN_INS):
        facts = old.execute("SELECT name, number, value FROM review_facts WHERE name LIKE ?", (f"{beginning}%",))
        for fact in facts.fetchall():
            new.execute("INSERT INTO review_facts(name, number, value) VALUES(%s, %s, %s) ON CONFLICT DO NOTHING", fact)
    return len(ids)


def _rows(old: sqlite3.Connection, statement: str, id: str) -> tuple[list[str], list[list[Any]]]:
    found = old.execute(statement, (id,))
    names = [column[0] for column in found.description]
    return names, [
        [bool(value) if name == "announced" else value for name, value in zip(names, row, strict=True)]
        for row in found.fetchall()
    ]


def _insert(new: psycopg.Connection, table: str, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    statement = sql.SQL("INSERT INTO {}({}) VALUES({})").format(
        sql.Identifier(table),
        sql.SQL(", ").join(map(sql.Identifier, names)),
        sql.SQL(", ").join([sql.Placeholder()] * len(names)),
    )
    for row in rows:
        new.execute(statement, list(row))
