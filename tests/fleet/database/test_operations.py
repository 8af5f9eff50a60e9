"""Starts, mistakes of operators, full disks, two policies at once, and records that are lost with their database."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest

from samplegate.audit.postgres_log import PostgresLog
from tests.fakes import postgresql
from tests.fakes.daemon import ASK_SAMPLE, client
from tests.fakes.daemon_reviews import ACCEPTED, daemon, form, people, said
from tests.fakes.database_proxy import database_proxy
from tests.fakes.ledger_book import Book
from tests.fakes.limits import daily, one
from tests.fakes.postgresql import Database, Server
from tests.fakes.records import record
from tests.fleet.database.conftest import BOUND, Start
from tests.fleet.database.test_money import answers, level
from tests.system.gate.test_shared_database import POLICY, gates
from tests.system.postgres.test_import import Shared

pytestmark = pytest.mark.anyio


async def test_gates_that_start_together_on_an_empty_database_all_answer(database: Database, tmp_path: Path) -> None:
    """Row 1, with whole gates; tests/system/postgres/test_schema.py has twenty processes, and a killed migrator."""
    async with AsyncExitStack() as stack:
        for gate in await gates(stack, tmp_path, database.url, 4):
            caller = await stack.enter_async_context(client(gate, "/mcp", capabilities={}))
            await caller.begin()
            assert "structuredContent" in (await caller.call("legacy", 1, **ASK_SAMPLE))["result"]
    assert 4 == database.value("SELECT count(*) FROM decisions")
    assert 3 == database.value("SELECT count(*) FROM decisions WHERE outcome = 'answered'")


MISTAKES = {
    "too many connections": (
        "ALTER ROLE gate CONNECTION LIMIT 0",
        "ALTER ROLE gate CONNECTION LIMIT -1",
        "it has no free connection",
    ),
    "read-only": (
        "ALTER DATABASE {} SET default_transaction_read_only = on",
        "ALTER DATABASE {} SET default_transaction_read_only = off",
        "it is read-only",
    ),
    "without rights": (
        "REVOKE UPDATE ON samplegate.accounts FROM gate",
        "GRANT UPDATE ON samplegate.accounts TO gate",
        "this role lacks a right (42501)",
    ),
    "may not connect": (
        "REVOKE CONNECT ON DATABASE {} FROM gate, public",
        "GRANT CONNECT ON DATABASE {} TO gate",
        "this role may not connect to it",
    ),
    "renamed": (
        "ALTER SCHEMA samplegate RENAME TO elsewhere",
        "ALTER SCHEMA elsewhere RENAME TO samplegate",
        "",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_of_the_operator_fails_closed_is_named_and_can_be_mended(
    server: Server, database: Database, start: Start, case: str
) -> None:
    """Row 15."""
    mistake, mend, words = MISTAKES[case]
    name = database.place.rpartition("=")[2]

    def operator(statement: str) -> None:
        """Change something, and end the sessions that do not know of it."""
        with psycopg.connect(database.place, autocommit=True, options="-cdefault_transaction_read_only=off") as db:
            db.execute(statement.format(name).encode())
        with psycopg.connect(server.place, autocommit=True) as db:
            db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'gate'")

    start("open", database.url).end()
    if not database.value("SELECT count(*) FROM pg_roles WHERE rolname = 'gate'"):
        database.rows("CREATE ROLE gate LOGIN")
    database.rows("GRANT USAGE ON SCHEMA samplegate TO gate")
    database.rows("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA samplegate TO gate")
    spends = start("spend", database.as_role("gate"), 60)
    spends.until("answered", 3)
    operator(mistake)
    refused = spends.until("refused", 3)
    assert "unavailable" == refused["why"]
    assert words in refused["detail"]
    assert not any(word in refused["detail"] for word in (name, str(server.folder), "SELECT", "accounts"))
    operator(mend)
    assert 0 == spends.end()
    assert "limits.recovered" in spends.until("ends")["log"]
    assert answers([spends]) <= level(database) <= 100


@contextmanager
def small_disk(owner: Server, mebibytes: int) -> Iterator[Path]:
    """A file system of its own, in memory."""
    folder = owner.folder / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_full_disk_fails_closed_is_named_and_recovers() -> None:
    """Row 15: the tables are on a small disk, and the write-ahead log is not."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a small disk")
    with postgresql.server("fsync = off") as server, small_disk(server, 40) as disk:
        (disk / "tables").mkdir()
        server.own(disk / "tables")
        with psycopg.connect(server.place, autocommit=True) as db:
            db.execute(f"CREATE TABLESPACE small LOCATION '{disk / 'tables'}'".encode())
            db.execute("CREATE DATABASE small TABLESPACE small")
        database = Database(server.place.replace("dbname=postgres", "dbname=small"))
        log = PostgresLog(database.url, content="full")
        log.write_first([record("first")], lambda: 30.0)
        (disk / "filler").write_bytes(bytes(os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize - 2**20))
        written = 1

        def fill() -> None:
            nonlocal written
            for number in range(200):
                log.write_first([record(number, request={"text": os.urandom(50_000).hex()})], lambda: 30.0)
                written += 1

        with pytest.raises(OSError, match=r"its disk is full \(53100\); free disk space"):
            fill()
        with pytest.raises(OSError, match="full"):
            log.write_first([record("more", request={"text": os.urandom(50_000).hex()})], lambda: 30.0)
        (disk / "filler").unlink()
        log.probe(lambda: 30.0)
        log.write_first([record("last", request={"text": os.urandom(50_000).hex()})], lambda: 30.0)
        log.close()
        assert written + 1 == database.value("SELECT count(*) FROM decisions")
        with psycopg.connect(server.place, autocommit=True) as db:
            db.execute("DROP DATABASE small WITH (FORCE)")
            db.execute("DROP TABLESPACE small")


def test_each_policy_has_its_own_maximum_of_one_account(database: Database) -> None:
    """Row 26: half of the gates have another amount for a limit of the same name."""
    old, new = Book(Shared(database), daily("d", 3)), Book(Shared(database), daily("d", 5))
    assert 3 == old.room(one("d"))
    assert 2 == new.room(one("d"))
    old.refused(one("d"))
    new.refused(one("d"))
    old.close()
    new.close()


async def test_a_verdict_is_worth_nothing_where_the_policy_denies(database: Database, tmp_path: Path) -> None:
    """Row 26: a verdict that was given under one policy, at a gate with another one."""
    deny = POLICY.replace("effect: escalate, reviewer: ops,", "effect: deny,")
    asked = form("under two policies")
    async with AsyncExitStack() as stack:
        folders = [tmp_path / name for name in ("asks", "denies", "asks again")]
        for folder in folders:
            folder.mkdir()
        killed = await stack.enter_async_context(daemon(folders[0], "legacy", policy=POLICY, database=database.url))
        caller = await stack.enter_async_context(client(killed, "/mcp", capabilities={}))
        await caller.begin()
        waiting = asyncio.create_task(caller.call("legacy", 1, **asked))
        review = await (await stack.enter_async_context(people(killed))).pending()
        killed.ending = True
        killed.process.send_signal(signal.SIGKILL)
        await asyncio.gather(waiting, return_exceptions=True)
        denies, again = await asyncio.gather(
            *(
                stack.enter_async_context(daemon(folder, "legacy", policy=policy, database=database.url))
                for folder, policy in zip(folders[1:], (deny, POLICY), strict=True)
            )
        )
        code, _ = await (await stack.enter_async_context(people(denies))).say(review, verdict="answer", **ACCEPTED)
        assert 200 == code
        callers = [await stack.enter_async_context(client(gate, "/mcp", capabilities={})) for gate in (denies, again)]
        for each in callers:
            await each.begin()
        async with asyncio.timeout(BOUND):
            assert "accept" not in str(await callers[0].call("legacy", 1, **asked))
            assert "answered" == database.value("SELECT state FROM reviews")
            assert None is database.value("SELECT used_by FROM reviews")
            assert "accept" == said(await callers[1].call("legacy", 1, **asked))["action"]
    assert [(review["id"],)] == database.rows("SELECT id FROM reviews WHERE used_by IS NOT NULL")


async def test_nothing_is_released_whose_record_was_lost(server: Server, database: Database, tmp_path: Path) -> None:
    """Row 27: the connection is cut between the insert and the commit, or after it."""
    with database_proxy(server.socket) as proxy:
        proxy.only = b"INSERT INTO decisions"
        url = postgresql.tcp_url(proxy.port, name=database.place.rpartition("=")[2])
        policy = POLICY.replace("requests: 3", "requests: 100")
        async with AsyncExitStack() as stack:
            gate = await stack.enter_async_context(
                daemon(tmp_path, "legacy", policy=policy, database=url, decision_log="database")
            )
            caller = await stack.enter_async_context(client(gate, "/mcp", capabilities={}))
            await caller.begin()
            released = []
            for number, how in enumerate(("pass", "unsent", "lost", "pass", "lost", "unsent", "pass"), 1):
                proxy.commits = how  # type: ignore[assignment]
                answer = await caller.call("legacy", number, **ASK_SAMPLE)
                released.append("result" in answer["result"]["structuredContent"])
    assert [True, False, False, True, False, False, True] == released
    assert 4 == proxy.lost
    recorded = database.value("SELECT count(*) FROM decisions WHERE outcome = 'answered'")
    assert 3 <= recorded <= 5  # those that were released, and those of which nobody knew
