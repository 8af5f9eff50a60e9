"""The schema ``samplegate`` in a PostgreSQL database: its version, its creation and its migrations.

A migration expands before it contracts: it adds what the new release needs, and a later one removes what no release in
use needs any more. Each records the oldest version that can still use the tables (``least_reader``), so that gates of
two releases share a database during an upgrade.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psycopg
from psycopg import sql

from samplegate.postgres.faults import PostgresFault

if TYPE_CHECKING:
    from sqlalchemy import Connection

SCHEMA: Final = "samplegate"
VERSION: Final = "0004"
"""The newest revision in ``migrations/versions``, which this release uses."""
_LOCK: Final = 0x73616D706C656761  # "samplega": the key of the lock that migrations hold until their commit
_EXISTS: Final = (
    "SELECT to_regclass('samplegate.version') IS NOT NULL AND to_regclass('samplegate.compatibility') IS NOT NULL"
)
_FOUND: Final = "SELECT version_num, least_reader FROM samplegate.version, samplegate.compatibility"
_one_at_a_time: Final = threading.Lock()  # alembic's env.py finds its connection in a global


def version(db: psycopg.Connection) -> tuple[str, str] | None:
    """The version of the tables, and the oldest version that can use them; None without tables. Raises
    psycopg.Error."""
    if db.execute(_EXISTS).fetchone() != (True,):
        return None
    found = db.execute(_FOUND).fetchone()
    return None if found is None else (found[0], found[1])


def ensure(db: psycopg.Connection, *, make: bool, migrates: Callable[[], None] = lambda: None) -> None:
    """Check that this release can use the tables, and with ``make`` create or migrate them, after a call of
    ``migrates``. ``db`` is in autocommit mode. Raises PostgresFault and psycopg.Error."""
    check_encoding(db)
    found = version(db)
    if found is not None and found[0] >= VERSION:
        _check_reader(*found)
        return
    lacking = "it has no tables of samplegate" if found is None else f"its tables have version {found[0]}"
    remedy = "create them with: samplegate database migrate"
    if not make:
        raise PostgresFault("unreachable", lacking, remedy)
    migrates()
    try:
        migrate(db)
    except psycopg.errors.InsufficientPrivilege as problem:
        raise PostgresFault("read_only", f"{lacking}, and this role may not create them", remedy) from problem


def check_encoding(db: psycopg.Connection) -> None:
    """Check that the database keeps any text. Raises PostgresFault."""
    encoding = db.info.parameter_status("server_encoding")
    if encoding not in (None, "UTF8"):
        raise PostgresFault("refused", f"its encoding is {encoding}", "create it with: createdb -E UTF8 NAME")


def _check_reader(found: str, least_reader: str) -> None:
    if least_reader > VERSION:
        raise PostgresFault(
            "newer",
            f"its tables have version {found}, but this samplegate supports {VERSION!r}",
            "use a newer samplegate, as the other gates do",
        )


def migrate(db: psycopg.Connection, *, gates: str | None = None, readers: str | None = None) -> tuple[str | None, str]:
    """Create or migrate the tables in one transaction: after a kill, the database has either the old tables or the new
    ones. Of several processes, the first migrates. Returns the version before and after it.

    ``gates`` and ``readers`` are roles that get the rights of a gate, and of `samplegate report` and `why`. Raises
    psycopg.Error.
    """
    with through_core(db) as core, db.transaction():  # Core asks about the server first, and then rolls back
        db.execute("SET LOCAL lock_timeout = '30s'")
        db.execute("SET LOCAL idle_in_transaction_session_timeout = '20s'")  # less than the others wait
        db.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        found = version(db)
        if found is None or found[0] < VERSION:
            _upgrade(db, core)
        else:
            _check_reader(*found)
        for role, statements in ((gates, _GATE_RIGHTS), (readers, _READER_RIGHTS)):
            for statement in statements if role is not None else ():
                db.execute(sql.SQL(statement).format(role=sql.Identifier(role or "")))
        after = version(db)
    return None if found is None else found[0], VERSION if after is None else after[0]


_GATE_RIGHTS: Final = (
    "GRANT USAGE ON SCHEMA samplegate TO {role}",
    (
        "GRANT SELECT, INSERT, UPDATE, DELETE ON samplegate.reviews, samplegate.review_events,"
        " samplegate.review_deliveries, samplegate.review_facts, samplegate.review_uis, samplegate.accounts,"
        " samplegate.slots, samplegate.holders, samplegate.tasks TO {role}"
    ),
    "GRANT SELECT, INSERT ON samplegate.decisions TO {role}",
    "GRANT SELECT ON samplegate.version, samplegate.compatibility TO {role}",
)
_READER_RIGHTS: Final = (
    "GRANT USAGE ON SCHEMA samplegate TO {role}",
    "GRANT SELECT ON samplegate.decisions, samplegate.version, samplegate.compatibility TO {role}",
)


def _upgrade(db: psycopg.Connection, core: Connection) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    db.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = core
    with _one_at_a_time:
        command.upgrade(config, VERSION)
    newest = ScriptDirectory.from_config(config).get_revision(VERSION)
    db.execute("UPDATE samplegate.compatibility SET least_reader = %s", (newest.module.least_reader,))


def through_core(db: psycopg.Connection) -> Connection:
    """An SQLAlchemy connection over a driver's connection, which is in no transaction and stays open when this one is
    closed."""
    from sqlalchemy import create_engine
    from sqlalchemy.pool import StaticPool

    return create_engine(
        "postgresql+psycopg://",
        creator=lambda: db,
        poolclass=StaticPool,
        pool_reset_on_return=None,
        use_native_hstore=False,
    ).connect()
