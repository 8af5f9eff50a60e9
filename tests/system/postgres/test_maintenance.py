"""`samplegate database migrate`: tables, rights of roles, and the partitions of the decision log."""

from __future__ import annotations

import threading
import time
from datetime import UTC, date, datetime, timedelta
from typing import Any

import psycopg
import pytest

from samplegate.audit.postgres_log import PostgresLog
from samplegate.limits.accounts import identity
from samplegate.limits.backend import Charge
from samplegate.limits.postgres_ledger import PostgresLedger
from samplegate.policy.ledger import Reserved
from samplegate.postgres import maintenance
from samplegate.reviews.sql_store import SqlReviewStore
from tests.fakes import postgresql
from tests.fakes.limits import Clock, daily, one, slot, slots
from tests.fakes.postgresql import Database, Server
from tests.fakes.records import record
from tests.fakes.shell import Run
from tests.fakes.stored_reviews import YES, review

PARTITIONS = "SELECT relname FROM pg_class WHERE relispartition AND relkind = 'r' ORDER BY relname"


def partitions(database: Database) -> list[str]:
    return [name for (name,) in database.rows(PARTITIONS)]


def today(database: Database) -> date:
    found: date = database.value("SELECT (now() AT TIME ZONE 'UTC')::date")
    return found


def name(day: date) -> str:
    return f"decisions_{day:%Y%m%d}"


def at(day: date) -> float:
    return datetime(day.year, day.month, day.day, 12, tzinfo=UTC).timestamp()


def write(database: Database, url: str, *times: float) -> None:
    log = PostgresLog(url, content="none")
    assert len(times) == log.write_first([record(f"at {when}", time=when) for when in times], lambda: 30.0)
    log.close()


def migrate(run: Run, database: Database, *arguments: str) -> str:
    ended = run("database", "migrate", "--database", database.url, *arguments)
    assert (0, "") == (ended.code, ended.err)
    return ended.out


def test_the_first_run_creates_and_later_ones_find_the_tables(run: Run, database: Database) -> None:
    first = migrate(run, database)
    assert "tables created, version 0004" in first
    assert "15 partitions created, 0 dropped" in first
    again = migrate(run, database)
    assert "tables up to date, version 0004" in again
    assert "0 partitions created, 0 dropped" in again


def test_partitions_are_made_ahead_and_records_go_into_their_day(run: Run, database: Database) -> None:
    migrate(run, database)
    day = today(database)
    ahead = [name(day + timedelta(days=number)) for number in range(15)]
    assert [*ahead, "decisions_other"] == partitions(database)
    write(database, database.url, at(day), at(day + timedelta(days=14)), at(day + timedelta(days=15)))
    found = database.rows("SELECT tableoid::regclass::text, count(*) FROM decisions GROUP BY 1 ORDER BY 1")
    assert [(ahead[0], 1), (ahead[14], 1), ("decisions_other", 1)] == found


def test_records_of_other_days_are_moved_to_partitions_of_their_own(run: Run, database: Database) -> None:
    """Gates had created the tables and written before the first run."""
    day = datetime.now(UTC).date()
    days = [day - timedelta(days=number) for number in (0, 1, 40)]
    write(database, database.url, *(at(one) for one in days))
    assert ["decisions_other"] == partitions(database)
    before = database.rows("SELECT id, time, decision_id, record FROM decisions ORDER BY id")
    assert "17 partitions created" in migrate(run, database)
    assert 0 == database.value("SELECT count(*) FROM decisions_other")
    assert before == database.rows("SELECT id, time, decision_id, record FROM decisions ORDER BY id")
    assert [(name(one), 1) for one in sorted(days)] == database.rows(
        "SELECT tableoid::regclass::text, count(*) FROM decisions GROUP BY 1 ORDER BY 1"
    )
    write(database, database.url, at(day))
    assert 4 == database.value("SELECT count(*) FROM decisions")
    assert 4 == database.value("SELECT max(id) FROM decisions")


def test_the_borders_of_a_day_are_those_of_utc(run: Run, database: Database) -> None:
    migrate(run, database)
    day = today(database)
    begin = datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()
    write(database, database.url, begin, begin + 86_399.999, begin + 86_400.0)
    assert [(name(day), 2), (name(day + timedelta(days=1)), 1)] == database.rows(
        "SELECT tableoid::regclass::text, count(*) FROM decisions GROUP BY 1 ORDER BY 1"
    )


def test_old_partitions_are_dropped_only_if_that_is_asked_for(run: Run, database: Database) -> None:
    day = datetime.now(UTC).date()
    write(database, database.url, *(at(day - timedelta(days=number)) for number in (0, 6, 7, 8, 400)))
    assert "19 partitions created, 0 dropped" in migrate(run, database)
    assert "0 partitions created, 2 dropped" in migrate(run, database, "--keep-days", "7")
    kept = [name(day - timedelta(days=number)) for number in (7, 6, 0)]
    assert kept == partitions(database)[:3]
    assert 3 == database.value("SELECT count(*) FROM decisions")
    assert "0 partitions created, 0 dropped" in migrate(run, database, "--keep-days", "7")


@pytest.mark.parametrize("what", ["made", "dropped"])
def test_gates_write_while_a_dump_is_in_the_way_of_partitions(
    run: Run, database: Database, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Who waits for a lock makes the gates wait behind it, so it waits for less time than they do, and gives up."""
    monkeypatch.setattr(maintenance, "PAUSE", 0.2)
    monkeypatch.setattr(maintenance, "LOCK_TIMEOUT", 0.3)
    day = today(database)
    migrate(run, database)
    if what == "made":
        database.rows(f"DROP TABLE {name(day + timedelta(days=3))}")
    else:
        write(database, database.url, at(day - timedelta(days=9)))
        migrate(run, database)
    waits: list[float] = []
    over = threading.Event()

    def gate() -> None:
        log = PostgresLog(database.url, content="none")
        while not over.is_set():
            begun = time.monotonic()
            log.write_first([record(f"w{len(waits)}", time=at(day))], lambda: 30.0)
            waits.append(time.monotonic() - begun)
        log.close()

    with psycopg.connect(database.place) as dump:
        dump.execute("LOCK TABLE samplegate.decisions IN ACCESS SHARE MODE")
        writes = threading.Thread(target=gate)
        writes.start()
        try:
            found = migrate(run, database, "--keep-days", "7")
        finally:
            over.set()
            writes.join(30)
    assert "0 partitions created, 0 dropped" in found
    assert "1 partitions left, because a long transaction uses it; run it again" in found
    assert len(waits) > 5
    assert max(waits) < 2.0
    later = migrate(run, database, "--keep-days", "7")
    assert ("1 partitions created, 0 dropped" if what == "made" else "0 partitions created, 1 dropped") in later


def test_a_database_of_another_encoding_is_refused(run: Run, cluster: Server) -> None:
    with psycopg.connect(cluster.place, autocommit=True) as db:
        db.execute("DROP DATABASE IF EXISTS latin")
        db.execute("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    place = cluster.place.replace("dbname=postgres", "dbname=latin")
    ended = run("database", "migrate", "--database", postgresql.url(place))
    assert (2, "") == (ended.code, ended.out)
    assert "its encoding is LATIN1; create it with: createdb -E UTF8 NAME" in ended.err


def test_tables_that_only_newer_releases_can_use_are_left_alone(run: Run, database: Database) -> None:
    migrate(run, database)
    database.rows("UPDATE version SET version_num = '0009'")
    database.rows("UPDATE compatibility SET least_reader = '0009'")
    ended = run("database", "migrate", "--database", database.url)
    assert (2, "") == (ended.code, ended.out)
    assert "use a newer samplegate" in ended.err


@pytest.mark.parametrize("days", ["0", "-1", "x", "36501", ""])
def test_a_number_of_days_that_is_none_is_refused(run: Run, days: str) -> None:
    with pytest.raises(SystemExit):
        run("database", "migrate", "--database", "postgresql://h/d", "--keep-days", days)


def test_records_are_written_while_partitions_are_made(run: Run, database: Database) -> None:
    """An insert waits for the lock, and succeeds."""
    day = datetime.now(UTC).date()
    write(database, database.url, *(at(day) for _ in range(200)))
    log = PostgresLog(database.url, content="none")
    log.write_first([record("before", time=at(day))], lambda: 30.0)
    migrate(run, database)
    log.write_first([record("after", time=at(day))], lambda: 30.0)
    log.close()
    assert 202 == database.value(f"SELECT count(*) FROM {name(day)}")


# -- rights
# ----------------------------------------------------------------------------------------------------------------------


def denied(url: str, statement: str) -> bool:
    with psycopg.connect(url) as db:
        try:
            db.execute(statement.encode())
        except psycopg.errors.InsufficientPrivilege:
            return True
    return False


@pytest.fixture
def roles(database: Database) -> Any:
    """A gate's role, a reader's, and one with a name that needs quotes; dropped with all that they were granted."""
    names = ("gate", "reader", 'o"dd role')
    for role in names:
        database.rows('CREATE ROLE "{}" LOGIN'.format(role.replace('"', '""')))
    yield names
    for role in names:
        quoted = role.replace('"', '""')
        database.rows(f'DROP OWNED BY "{quoted}"')
        database.rows(f'DROP ROLE "{quoted}"')


def test_a_gates_role_has_what_a_gate_needs_and_cannot_change_the_log(
    run: Run, database: Database, roles: tuple[str, ...]
) -> None:
    migrate(run, database, "--gates", "gate", "--readers", "reader")
    gate, day = database.as_role("gate"), today(database)
    write(database, gate, at(day), at(day + timedelta(days=20)))
    log = PostgresLog(gate)
    assert 1 == log.write_first([record("hashed", time=at(day))], lambda: 30.0)
    log.probe(lambda: 30.0)
    log.close()
    store = SqlReviewStore(gate)
    assert store.open(review(), announce=True, most=9)
    assert store.decide("rv_a", YES, who="ana", door="cli")
    assert ["", "ops"] == list(store.lead(["", "ops"], holder="me", seconds=9.0))
    store.resign(holder="me")
    assert 0 == store.purge(1e9)
    assert store.key()
    store.close()
    clock = Clock()
    specs = {identity(spec): spec for spec in (daily("d", 3, shared=True), slots("s", 1, shared=True))}
    ledger = PostgresLedger(specs, gate, clock)
    by_name = {spec.name: id for id, spec in specs.items()}
    draws = (one(by_name["d"]), slot(by_name["s"]))
    assert isinstance(ledger.reserve("r", Charge("r", draws).draws, 1e12), Reserved)
    ledger.close(1e12)
    tables = ["decisions", "decisions_other", name(day)]
    forbidden = [
        *(f"UPDATE samplegate.{table} SET record = ''" for table in tables),
        *(f"DELETE FROM samplegate.{table}" for table in tables),
        *(f"TRUNCATE samplegate.{table}" for table in tables),
        *(f"DROP TABLE samplegate.{table}" for table in tables),
        f"ALTER TABLE samplegate.decisions DETACH PARTITION samplegate.{name(day)}",
        "UPDATE samplegate.version SET version_num = '9'",
        "UPDATE samplegate.compatibility SET least_reader = '9'",
        "CREATE TABLE samplegate.mine(x int)",
        "DROP SCHEMA samplegate CASCADE",
    ]
    assert [] == [statement for statement in forbidden if not denied(gate, statement)]


def test_a_readers_role_reads_decisions_and_nothing_else(run: Run, database: Database, roles: tuple[str, ...]) -> None:
    migrate(run, database, "--gates", "gate", "--readers", "reader")
    day = today(database)
    write(database, database.url, at(day))
    reader = database.as_role("reader")
    ended = run("report", "--log", reader, "--json")
    assert (0, "") == (ended.code, ended.err)
    tables = ["reviews", "review_events", "review_deliveries", "review_facts", "review_uis"]
    tables += ["accounts", "slots", "holders"]
    assert [] == [table for table in tables if not denied(reader, f"SELECT * FROM samplegate.{table}")]
    assert [] == [
        statement
        for statement in (
            "INSERT INTO samplegate.decisions(time, record) VALUES('', '')",
            "DELETE FROM samplegate.decisions",
            f"DELETE FROM samplegate.{name(day)}",
        )
        if not denied(reader, statement)
    ]


def test_a_role_may_have_any_name(run: Run, database: Database, roles: tuple[str, ...]) -> None:
    migrate(run, database, "--gates", roles[2])
    assert database.value("SELECT has_table_privilege(%s, 'samplegate.accounts', 'UPDATE')", roles[2])


def test_a_role_that_does_not_exist_is_named_as_the_problem_and_nothing_is_changed(
    run: Run, database: Database
) -> None:
    ended = run("database", "migrate", "--database", database.url, "--gates", "missing")
    assert (2, "") == (ended.code, ended.out)
    assert "a role does not exist (42704); create it" in ended.err
    assert None is database.value("SELECT to_regclass('samplegate.version')")


def test_a_role_that_may_not_migrate_is_told_so(run: Run, database: Database, roles: tuple[str, ...]) -> None:
    ended = run("database", "migrate", "--database", database.as_role("gate"))
    assert 2 == ended.code
    assert "lacks a right" in ended.err


def test_no_database_and_a_password_are_refused_before_anything_is_connected(run: Run) -> None:
    ended = run("database", "migrate")
    assert 2 == ended.code
    assert "no database is known" in ended.err
    with pytest.raises(SystemExit):
        run("database", "migrate", "--database", "postgresql://u:secret@h/d")
