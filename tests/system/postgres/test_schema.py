"""Versions of the tables, and their creation by many processes, some of which are killed."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator

import psycopg
import pytest

from samplegate.postgres import schema
from samplegate.postgres.connection import PostgresConnection
from samplegate.postgres.faults import PostgresFault
from samplegate.reviews import sql_schema
from samplegate.reviews.sql_store import SqlReviewStore
from tests.fakes.forked import Forked, Forks, forks
from tests.fakes.postgresql import Database
from tests.fakes.stored_reviews import review
from tests.paths import ROOT

TABLES = "SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace('samplegate') AND relkind IN ('r', 'p')"
ALL = 13
LATER = ("votes", "proposal", "also_from", "also_names", "ui")
"""Columns of ``reviews`` that later steps add."""
SLOW = """
CREATE FUNCTION wait() RETURNS event_trigger LANGUAGE plpgsql AS
    $$ BEGIN IF to_regclass('samplegate.accounts') IS NOT NULL THEN PERFORM pg_advisory_xact_lock(42); END IF; END $$;
CREATE EVENT TRIGGER slow ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION wait()
"""


def opened(url: str, *, make: bool = True, seconds: float = 30.0) -> None:
    connection = PostgresConnection(url, make=make)
    try:
        with connection.transaction(lambda: seconds):
            pass
    finally:
        connection.close()


@pytest.fixture(scope="module")
def clients() -> Iterator[Forks]:
    with forks("tests.fakes.programs.database_client") as found:
        yield found


def started(clients: Forks, database: Database) -> Forked:
    """A process that opens the database, which creates the tables."""
    return clients.start("open", database.url, cwd=ROOT, env=dict(os.environ))


def test_twenty_processes_create_the_tables_together(clients: Forks, database: Database) -> None:
    with contextlib.ExitStack() as running:
        processes = [running.enter_context(started(clients, database)) for _ in range(20)]
        assert [0] * 20 == [process.wait(50) for process in processes]
    assert ALL == database.value(TABLES)
    assert [("0004", "0004")] == database.rows("SELECT * FROM version, compatibility")


def test_a_killed_migration_leaves_nothing_and_the_next_process_completes_it(
    clients: Forks, database: Database
) -> None:
    """It is killed within the statements that create the tables."""
    for statement in SLOW.strip().split(";\nCREATE EVENT"):
        database.rows(statement if statement.startswith("CREATE FUNC") else f"CREATE EVENT{statement}")
    with psycopg.connect(database.place) as db:
        db.execute("SELECT pg_advisory_xact_lock(42)")
        killed = started(clients, database)
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 42 AND NOT granted"
        until = time.monotonic() + 40
        while database.value(waiting) != 1:
            assert time.monotonic() < until
            time.sleep(0.02)
        other = threading.Thread(target=opened, args=(database.url,))
        other.start()
        killed.kill()
        assert -signal.SIGKILL == killed.wait(20)
        killed.close()
        assert 0 == database.value(TABLES)
    other.join(40)
    assert not other.is_alive()
    assert ALL == database.value(TABLES)


VERSIONS = [
    ("0005", "0004", None),
    ("0005", "0005", "newer"),
    ("0004", "0004", None),
]


@pytest.mark.parametrize(("version", "least", "kind"), VERSIONS)
def test_the_oldest_reader_decides_whether_newer_tables_are_used(
    database: Database, version: str, least: str, kind: str | None
) -> None:
    opened(database.url)
    database.rows("UPDATE version SET version_num = %s", version)
    database.rows("UPDATE compatibility SET least_reader = %s", least)
    if kind is None:
        opened(database.url)
        return
    with pytest.raises(PostgresFault) as raised:
        opened(database.url)
    assert kind == raised.value.kind
    assert "0005" in raised.value.problem
    assert "newer samplegate" in raised.value.remedy


def test_older_tables_are_migrated_or_named(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that may not migrate says who does."""
    opened(database.url)
    monkeypatch.setattr(schema, "VERSION", "0005")
    with pytest.raises(PostgresFault) as raised:
        opened(database.url, make=False)
    assert ("unreachable", "its tables have version 0004") == (raised.value.kind, raised.value.problem)
    assert "samplegate database migrate" in raised.value.remedy


def test_reviews_of_the_first_version_are_kept(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gate of that version, for which one approval is enough, then refuses the tables."""
    monkeypatch.setattr(schema, "VERSION", "0001")
    opened(database.url)
    kept = sql_schema.row(review(), announced=False)
    old = {name: value for name, value in kept.items() if name not in LATER}
    names = ", ".join(old)
    database.rows(f"INSERT INTO reviews({names}) VALUES({', '.join(['%s'] * len(old))})", *old.values())
    monkeypatch.setattr(schema, "VERSION", "0004")
    store = SqlReviewStore(database.url)
    assert review() == store.get("rv_a")
    store.close()
    assert [("0004", "0004")] == database.rows("SELECT * FROM version, compatibility")
    monkeypatch.setattr(schema, "VERSION", "0001")
    with pytest.raises(PostgresFault) as raised:
        opened(database.url)
    assert "newer" == raised.value.kind


def test_a_migrator_that_is_frozen_gives_way(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its transaction ends, because the others wait for it only for so long."""
    found: list[str] = []

    def upgrade(db: psycopg.Connection, _: object) -> None:
        (value,) = db.execute("SHOW idle_in_transaction_session_timeout").fetchone() or ("",)
        found.append(value)
        (value,) = db.execute("SHOW lock_timeout").fetchone() or ("",)
        found.append(value)
        raise RuntimeError

    monkeypatch.setattr(schema, "_upgrade", upgrade)
    with pytest.raises(RuntimeError):
        opened(database.url)
    idle, lock = (int(value.removesuffix("s")) for value in found)
    assert 0 < idle < lock


def test_tables_that_are_gone_are_a_fault(database: Database) -> None:
    connection = PostgresConnection(database.url)
    with connection.transaction(lambda: 30.0):
        pass
    database.rows("DROP SCHEMA samplegate CASCADE")
    with pytest.raises(PostgresFault) as raised, connection.transaction(lambda: 5.0) as db:
        db.execute("SELECT * FROM accounts")
    assert "damaged" == raised.value.kind
    with connection.transaction(lambda: 30.0) as db:  # and are created again by the next connection
        assert [] == db.execute("SELECT * FROM accounts").fetchall()
    connection.close()
