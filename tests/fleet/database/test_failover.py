"""Standbys: what an asynchronous one may lose is told, and with a synchronous one nothing is lost."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import pytest

from samplegate.postgres.connection import PostgresConnection
from samplegate.postgres.faults import PostgresFault
from tests.fakes import postgresql
from tests.fakes.daemon import admin
from tests.fakes.daemon_reviews import daemon
from tests.fakes.postgresql import Database, Server
from tests.fakes.shell import samplegate
from tests.fleet.database.conftest import BOUND, Start, until
from tests.fleet.database.test_money import answers, assert_in_patience, level
from tests.system.gate.test_shared_database import POLICY

WARNING = "a standby is connected, but synchronous_standby_names is empty"


@pytest.fixture
def pair() -> Iterator[tuple[Server, Server]]:
    """A primary and its standby, which replicates asynchronously."""
    with postgresql.server("wal_level = replica") as primary, postgresql.standby(primary) as standby:
        until(lambda: Database(primary.place).value("SELECT count(*) FROM pg_stat_replication") == 1)
        yield primary, standby


def synchronous(primary: Server) -> None:
    primary.configure("synchronous_standby_names = 'standby'")
    primary.run("pg_ctl", "-D", primary.data, "-s", "reload")
    until(lambda: Database(primary.place).value("SELECT sync_state FROM pg_stat_replication") == "sync")


def of_both(primary: Server, standby: Server) -> str:
    return f"postgresql://postgres@/postgres?host={primary.folder},{standby.folder}"


@pytest.mark.anyio
async def test_an_asynchronous_standby_is_told_in_the_log_the_status_and_by_migrate(
    pair: tuple[Server, Server], tmp_path: Path
) -> None:
    """Row 12."""
    primary, _ = pair
    database = Database(primary.place)
    done = await anyio.to_thread.run_sync(
        lambda: samplegate(tmp_path, "database", "migrate", "--database", database.url)
    )
    assert (0, True) == (done.code, f"warning: {WARNING}" in done.out)
    async with daemon(tmp_path, "legacy", policy=POLICY, database=database.url) as gate:
        await gate.said(WARNING)
        assert any(WARNING in problem for problem in json.loads(await status(gate))["problems"])
        await anyio.to_thread.run_sync(synchronous, primary)
        with anyio.fail_after(BOUND):
            async for text in looks(gate):
                if not any(WARNING in problem for problem in json.loads(text)["problems"]):
                    break
    done = await anyio.to_thread.run_sync(
        lambda: samplegate(tmp_path, "database", "migrate", "--database", database.url)
    )
    assert (0, False) == (done.code, "warning" in done.out)


async def status(gate: object) -> str:
    code, text = await admin(gate, "/status", accept="application/json")  # type: ignore[arg-type]
    assert 200 == code
    return text


async def looks(gate: object) -> AsyncIterator[str]:
    while True:
        yield await status(gate)


def test_nothing_that_was_confirmed_is_lost_with_a_synchronous_standby(
    pair: tuple[Server, Server], start: Start
) -> None:
    """Rows 12 and 13: the primary is killed under load and the standby promoted; gates that know both find it. Later
    the old primary, as a standby's data or read-only, is refused."""
    primary, standby = pair
    url = of_both(primary, standby)
    start("open", url).end()
    synchronous(primary)
    clients = [start("spend", url, 60) for _ in range(4)]
    until(lambda: answers(clients) >= 15)
    primary.kill()
    seen = answers(clients)
    standby.run("pg_ctl", "-D", standby.data, "-s", "-w", "promote")
    database = Database(standby.place)
    assert seen <= level(database)
    assert [0] * 4 == [client.end() for client in clients]
    assert seen < answers(clients) <= level(database) <= 100
    assert_in_patience(clients)


def test_a_commit_that_waits_for_a_standby_is_refused_in_time(pair: tuple[Server, Server], start: Start) -> None:
    """Row 12: without its synchronous standby, the primary confirms nothing, and so does no gate."""
    primary, standby = pair
    database = Database(primary.place)
    start("open", database.url).end()
    synchronous(primary)
    client = start("spend", database.url, 60)
    client.until("answered", 3)
    standby.stop()
    client.until("refused")
    seen = answers([client])
    standby.start()
    client.until("answered", seen + 1)
    assert 0 == client.end()
    assert answers([client]) <= level(database) <= 100
    assert_in_patience([client])


def test_a_standby_is_refused_as_read_only_and_the_primary_is_found_beside_it(pair: tuple[Server, Server]) -> None:
    """Row 13."""
    primary, standby = pair
    connection = PostgresConnection(postgresql.url(standby.place))
    with pytest.raises(PostgresFault) as raised, connection.transaction(lambda: 5.0):
        pass
    assert ("read_only", "it is read-only") == (raised.value.kind, raised.value.problem)
    for hosts in ((primary, standby), (standby, primary)):
        both = PostgresConnection(of_both(*hosts))
        with both.transaction(lambda: 30.0) as db:
            assert ("off",) == db.execute("SHOW transaction_read_only").fetchone()
        both.close()
