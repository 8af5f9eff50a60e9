"""`decision_log: database`: records in the shared database, and the commands that read them as they read other logs."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest

from samplegate.audit.decision_log import AsyncDecisionLog, decision_log
from samplegate.audit.postgres_log import PostgresLog, lines
from samplegate.audit.record import content_hash
from samplegate.audit.sqlite_log import SqliteLog
from samplegate.errors import Unavailable
from samplegate.key_file import combined_key
from samplegate.policy.schema import AllowRule, ForwardRule, Match
from samplegate.protocol.outcomes import Reason
from tests.fakes import logged, postgresql
from tests.fakes.database_proxy import database_proxy
from tests.fakes.postgresql import Database, Server
from tests.fakes.records import NOON, RECORD, names, numbers, record
from tests.fakes.requests import compiled, form, sampling
from tests.fakes.shell import Ended, Run, Write
from tests.system.audit.test_sqlite_log import until_well

pytestmark = pytest.mark.anyio
OLD = compiled(
    AllowRule(name="models", match=Match(kind="sampling")), ForwardRule(name="person", match=Match(kind="elicitation"))
)
POLICY = """
version: 1
models: [{name: smart, model: openai/none}]
rules:
  - {name: no secrets, match: {kind: sampling, text: secret}, effect: deny}
  - {name: models, match: {kind: sampling}, effect: allow}
  - {name: person, match: {kind: elicitation}, effect: forward}
"""


def opened(url: str, *, patience: float = 5.0, **more: Any) -> AsyncDecisionLog:
    return AsyncDecisionLog(PostgresLog(url, **more), patience=patience)


def told(url: str, **more: Any) -> list[str]:
    return [json.loads(line)["decision_id"] for line in lines(url, **more)]


async def test_a_record_is_a_row_with_what_it_is_searched_by(database: Database, tmp_path: Path) -> None:
    log = decision_log("database", database=database.url, state=tmp_path, server="db", content="none")
    log.check_writable(NOON)
    await log.write(RECORD)
    await log.aclose()
    assert [("d1", "db", "local", "sampling", "denied", None)] == database.rows(
        "SELECT decision_id, server, caller, kind, outcome, rule FROM decisions"
    )
    assert ["d1"] == told(database.url)
    assert [] == names(tmp_path)


async def test_records_that_wait_share_a_transaction(database: Database) -> None:
    log = opened(database.url, content="none")
    await log.write(record("first"))
    before = database.value("SELECT pg_current_xact_id()::text::bigint")
    async with anyio.create_task_group() as group:
        for number in range(300):
            group.start_soon(log.write, record(number))
    after = database.value("SELECT pg_current_xact_id()::text::bigint")
    await log.aclose()
    assert sorted(["first", *numbers(range(300))]) == sorted(told(database.url))
    assert 20 > after - before


async def test_a_name_with_nul_in_one_record_fails_no_other(database: Database) -> None:
    log = opened(database.url, content="none")
    strange = ["a\0b", "\ud800", "x" * 5_000, "\U0001f600", ""]
    async with anyio.create_task_group() as group:
        for number, name in enumerate(strange):
            group.start_soon(log.write, record(number, caller=name, server=name, rule=name))
    await log.aclose()
    assert sorted(numbers(range(5))) == sorted(told(database.url))
    assert 1 == database.value("SELECT count(*) FROM decisions WHERE caller = %s", "a\ufffdb")


async def test_all_gates_hash_contents_with_one_key(database: Database) -> None:
    for id in ("a", "b"):
        log = opened(database.url, content="hash")
        await log.write(record(id, request={"messages": ["secret"]}))
        await log.aclose()
    first, second = hashes(database)
    assert first == second
    key = bytes(database.value("SELECT value FROM review_facts WHERE name = 'content_key'"))
    assert first == content_hash({"messages": ["secret"]}, key)
    assert "secret" not in str(database.rows("SELECT record FROM decisions"))
    log = opened(database.url, content="hash", file_key=b"in a file")
    await log.write(record("c", request={"messages": ["secret"]}))
    await log.aclose()
    assert content_hash({"messages": ["secret"]}, combined_key(key, b"in a file")) == hashes(database)[-1]


def hashes(database: Database) -> list[str]:
    return [json.loads(line)["request_hash"] for line in lines(database.url)]


async def test_a_key_of_a_transaction_that_failed_is_not_used(database: Database) -> None:
    """Another gate makes the key; then both have the same."""
    first, second = opened(database.url), opened(database.url)
    await second.write(record("opens", server="s"))
    database.rows("DELETE FROM review_facts WHERE name = 'content_key'")
    database.rows("ALTER TABLE decisions ADD CONSTRAINT never CHECK (server <> 'bad')")
    with pytest.raises(Unavailable):
        await first.write(record("fails", server="bad"))
    await opened(database.url).write(record("makes the key", request={"a": 1}))
    await first.write(record("has the key", request={"a": 1}))
    one, other = [json.loads(line)["request_hash"] for line in lines(database.url) if "key" in line.decode()][-2:]
    assert one == other


async def test_a_log_that_cannot_be_reached_is_unavailable_and_recovers(cluster: Server, database: Database) -> None:
    with database_proxy(cluster.socket) as proxy:
        log = opened(postgresql.tcp_url(proxy.port, name=database.place.rpartition("=")[2]), content="none")
        await log.write(record("before"))
        proxy.commits = "unsent"
        with pytest.raises(Unavailable, match="cannot be reached"):
            await log.write(record("cut"))
        await until_well(log)
        await log.write(record("after"))
        await log.aclose()
    assert ["before", "after"] == told(database.url)


async def test_a_record_of_which_nobody_knows_is_unavailable_and_may_be_there(
    cluster: Server, database: Database
) -> None:
    with database_proxy(cluster.socket) as proxy:
        log = opened(postgresql.tcp_url(proxy.port, name=database.place.rpartition("=")[2]), content="none")
        await log.write(record("before"))
        proxy.commits = "lost"
        with pytest.raises(Unavailable):
            await log.write(record("lost"))
        await log.aclose()
    assert ["before", "lost"] == told(database.url)


async def test_a_lock_that_another_has_ends_the_write_in_time(database: Database) -> None:
    log = opened(database.url, patience=0.3, content="none")
    await log.write(record("before"))
    with psycopg.connect(database.place) as other:
        other.execute("LOCK TABLE samplegate.decisions IN ACCESS EXCLUSIVE MODE")
        begun = time.monotonic()
        with pytest.raises(Unavailable):
            await log.write(record("late"))
        assert 4.0 > time.monotonic() - begun
    await log.write(record("after"))
    await log.aclose()
    assert ["before", "after"] == told(database.url)


async def test_many_records_are_read_in_pages_in_the_order_of_writing(database: Database) -> None:
    log = PostgresLog(database.url, content="none")
    for first in range(0, 1_300, 100):
        log.write_first([record(number, time=NOON + number) for number in range(first, first + 100)], lambda: 30.0)
    log.close()
    assert numbers(range(1_300)) == told(database.url)
    assert numbers(range(1_200, 1_300)) == told(database.url, since=NOON + 1_200)
    assert ["77", *numbers(range(770, 780))] == told(database.url, decision="77")


async def test_reading_changes_nothing_and_needs_the_tables(database: Database) -> None:
    with pytest.raises(OSError, match="no tables of samplegate"):
        told(database.url)
    assert None is database.value("SELECT to_regnamespace('samplegate')")


# -- the commands
# ----------------------------------------------------------------------------------------------------------------------


def requests() -> list[Any]:
    found = [
        logged.record(OLD, sampling("a secret" if number % 3 == 0 else "hello"), decision_id=f"{number:024}", run="r1")
        for number in range(20)
    ]
    found += [logged.record(OLD, form(a="string"), can=True, decision_id=f"{20:024}", run="r1")]
    return [*found, logged.record(OLD, sampling("hello"), decision_id=f"{21:024}", run="other", reason=Reason.RULE)]


@pytest.fixture
def both(database: Database, tmp_path: Path) -> tuple[str, str]:
    """The same records in the database and in a SQLite log."""
    for log in (PostgresLog(database.url, content="full"), SqliteLog(tmp_path / "log.db", content="full")):
        left = requests()
        while left:
            left = left[log.write_first(left, lambda: 30.0) :]
        log.close()
    return database.url, f"sqlite:{tmp_path / 'log.db'}"


def without_place(ended: Ended, *places: str) -> tuple[int, str]:
    text = ended.out
    for place in places:
        text = text.replace(place, "LOG")
    return ended.code, text


COMMANDS = [
    ("report",),
    ("report", "--json"),
    ("why", f"{3:024}"),
    ("why", f"{20:024}", "--json"),
    ("replay", "--policy", "new.yaml"),
    ("replay", "--policy", "new.yaml", "--json", "--fail-on-change"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_commands_say_the_same_of_either_log(
    run: Run, write: Write, both: tuple[str, str], command: tuple[str, ...]
) -> None:
    write("new.yaml", POLICY)
    url, file = both
    shown = url.partition("?")[0]
    ours, theirs = (run(*command, "--log", log) for log in (url, file))
    assert without_place(theirs, file) == without_place(ours, shown)
    assert ours.out.strip()
    assert "" == ours.err


def test_the_variable_names_the_database(
    run: Run, write: Write, both: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, _ = both
    by_url = run("report", "--log", url)
    monkeypatch.setenv("SAMPLEGATE_DATABASE", url)
    assert by_url == run("report", "--log", "database")
    assert by_url == run("report", "--log", url.partition("?")[0])


def test_a_database_without_records_or_tables_is_told(run: Run, database: Database) -> None:
    ended = run("report", "--log", database.url)
    assert 2 == ended.code
    assert "no tables of samplegate" in ended.err
    assert database.url not in ended.err


def test_records_that_arrive_while_it_is_read_may_be_missing_and_nothing_fails(database: Database) -> None:
    log = PostgresLog(database.url, content="none")
    log.write_first([record(number) for number in range(600)], lambda: 30.0)
    found = lines(database.url)
    next(found)
    writer = threading.Thread(target=lambda: log.write_first([record("new")], lambda: 30.0))
    writer.start()
    writer.join(20)
    assert 599 <= len(list(found)) <= 600
    log.close()
