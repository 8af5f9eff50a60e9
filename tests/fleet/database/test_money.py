"""One dollar a day for many processes: kills, restarts, hangs, partitions, freezes, and lost answers."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest

from tests.fakes import postgresql
from tests.fakes.database_proxy import database_proxy
from tests.fakes.postgresql import Database, Server
from tests.fakes.programs.database_client import CENT
from tests.fleet.database.conftest import BOUND, Client, Start, until
from tests.paths import ROOT

LEVEL: LiteralString = "SELECT coalesce(max(level), 0) FROM samplegate.accounts"
PATIENCE = 7.0
"""Seconds within which every call ends, by itself or by the caller's patience (async_ledger.PATIENCE and GRACE)."""
SLACK = 4.0
"""Seconds for a machine that is busy."""


def answers(clients: Sequence[Client]) -> int:
    return sum(len(client.all("answered")) for client in clients)


def assert_in_patience(clients: Sequence[Client]) -> None:
    slow = [each for client in clients for each in client.said if each.get("took", 0.0) > PATIENCE + SLACK]
    assert [] == slow


def level(database: Database) -> int:
    """Whole cents in the ledger, rounded down."""
    found: int = database.value(LEVEL)
    return found // CENT


class Audit:
    """Compares the ledger with what was answered, over and over: it must never be below."""

    def __init__(self, database: Database, clients: Sequence[Client]) -> None:
        self.below: list[tuple[int, int]] = []
        self.looks = 0
        self._place, self._clients = database, clients
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        with psycopg.connect(self._place.place, autocommit=True) as db:
            while not self._over.wait(0.005):
                self._look(db)
            self._look(db)

    def _look(self, db: psycopg.Connection) -> None:
        truth = answers(self._clients)
        (found,) = db.execute(LEVEL).fetchone() or (0,)
        self.looks += 1
        if found // CENT < truth:
            self.below.append((truth, found // CENT))

    def __enter__(self) -> Audit:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(BOUND)


def test_a_dollar_lasts_for_twenty_processes_half_of_which_are_killed(database: Database, start: Start) -> None:
    """Row 3: kill -9 at random moments. What was answered is at most a dollar, and the ledger is never below it."""
    start("open", database.url).end()
    clients = [start("spend", database.url, 60) for _ in range(20)]
    with Audit(database, clients) as audit:
        until(lambda: answers(clients) >= 20)
        killed = random.Random(3).sample(clients, 10)
        for client in killed:
            client.send(signal.SIGKILL)
        left = [client for client in clients if client not in killed]
        assert [0] * 10 == [client.end() for client in left]
        assert [-signal.SIGKILL] * 10 == [client.end() for client in killed]
    assert 20 <= answers(clients) <= 100
    assert answers(clients) <= level(database) <= 100
    assert level(database) - answers(clients) <= 2 * len(killed) + 1  # what the killed ones had reserved
    assert ([], True) == (audit.below, audit.looks > 0)
    assert_in_patience(clients)


def test_a_server_that_is_killed_and_restarted_under_load_recovers(start: Start) -> None:
    """Row 4: nothing over budget; unavailable meanwhile, within the callers' patience; back by itself."""
    with postgresql.server() as server:
        database = Database(server.place)
        start("open", database.url).end()
        clients = [start("spend", database.url, 60) for _ in range(6)]
        until(lambda: answers(clients) >= 10)
        server.kill()
        seen = answers(clients)
        until(lambda: all(client.all("refused") for client in clients))
        server.start()
        until(lambda: answers(clients) > seen or all(client.all("ends") for client in clients))
        assert [0] * 6 == [client.end() for client in clients]
        spent, found = answers(clients), level(database)
        assert seen < spent <= 100
        assert spent <= found <= 100
        refused = [each for client in clients for each in client.all("refused")]
        assert {"unavailable", "full"} == {each["why"] for each in refused}
        assert any("limits.recovered" in client.until("ends")["log"] for client in clients)
        assert_in_patience(clients)


def test_a_server_that_hangs_is_given_up_in_time_and_used_again(start: Start) -> None:
    """Row 5: all of its processes are stopped. Every call ends within its patience, and the threads come back."""
    with postgresql.server("fsync = off") as server:
        database = Database(server.place)
        start("open", database.url).end()
        clients = [start("spend", database.url, 60) for _ in range(4)]
        until(lambda: answers(clients) >= 4)
        stopped = server.processes()
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            until(lambda: all(any(each["why"] == "unavailable" for each in one.all("refused")) for one in clients))
            seen = answers(clients)
        finally:
            for pid in reversed(stopped):
                os.kill(pid, signal.SIGCONT)
        assert [0] * 4 == [client.end() for client in clients]
        assert seen < answers(clients) <= level(database) <= 100
        assert_in_patience(clients)


def test_a_partition_without_fin_stops_one_process_and_no_other(
    server: Server, database: Database, start: Start
) -> None:
    """Row 6, with a proxy that passes nothing on but acknowledges everything, as a pooler or a load balancer may."""
    start("open", database.url).end()
    with database_proxy(server.socket) as proxy:
        name = database.place.rpartition("=")[2]
        cut = start("spend", postgresql.tcp_url(proxy.port, name=name), 60)
        cut.until("answered", 3)
        proxy.stall()
        seen = answers([cut])
        others = [start("spend", database.url, 60) for _ in range(2)]
        until(lambda: answers(others) >= 10)
        cut.until("refused")
        proxy.resume()
        assert [0] * 3 == [client.end() for client in (cut, *others)]
        assert answers([cut, *others]) <= level(database) <= 100
        assert seen >= 3
        assert_in_patience([cut, *others])


@contextmanager
def namespace(name: str) -> Iterator[str]:
    """A network namespace that a pair of virtual interfaces connects to this one; its address there is .1, here .2."""

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    with ExitStack() as stack:
        ip("netns", "add", name)
        stack.callback(ip, "netns", "del", name)
        ip("link", "add", f"{name}a", "type", "veth", "peer", "name", f"{name}b", "netns", name)
        ip("addr", "add", "10.213.77.2/30", "dev", f"{name}a")
        ip("link", "set", f"{name}a", "up")
        ip("netns", "exec", name, "ip", "addr", "add", "10.213.77.1/30", "dev", f"{name}b")
        ip("netns", "exec", name, "ip", "link", "set", f"{name}b", "up")
        yield "10.213.77.2"


def test_a_network_that_is_down_is_noticed_by_the_sockets(start: Start, tmp_path: Path) -> None:
    """Row 6, in a network namespace whose interface goes down: no packet arrives, and none is acknowledged."""
    if os.geteuid() != 0:
        pytest.skip("needs root, for network namespaces")
    name = f"sg{os.getpid() % 100_000}"
    with namespace(name) as address, postgresql.server("fsync = off", "listen_addresses = '*'") as server:
        hba = server.data / "pg_hba.conf"
        hba.write_text(f"{hba.read_text()}host all all 10.213.77.0/30 trust\n")
        server.run("pg_ctl", "-D", server.data, "-s", "reload")
        database = Database(server.place)
        start("open", database.url).end()
        program = [sys.executable, "-m", "tests.fakes.programs.database_client"]
        url = f"postgresql://postgres@{address}/postgres"
        with subprocess.Popen(
            ["ip", "netns", "exec", name, *program, "spend", url, "60"], cwd=ROOT, stdout=subprocess.PIPE,
            stdin=subprocess.PIPE, env={**os.environ, "PYTHONPATH": f"{ROOT / 'proxy'}:{ROOT}"},
        ) as process:  # fmt: skip
            try:
                cut = Client(process)
                cut.until("answered", 3)
                subprocess.run(["ip", "link", "set", f"{name}a", "down"], check=True)
                cut.until("refused")
                other = start("spend", database.url, 60)
                other.until("answered", 5)  # the backend of the other one holds no lock
                subprocess.run(["ip", "link", "set", f"{name}a", "up"], check=True)
                subprocess.run(["ip", "addr", "replace", f"{address}/30", "dev", f"{name}a"], check=True)
                assert [0, 0] == [client.end() for client in (cut, other)]
            finally:
                process.kill()
        assert answers([cut, other]) <= level(database) <= 100
        assert_in_patience([cut, other])


def test_a_gate_that_is_frozen_with_the_hot_row_lets_go_of_it(database: Database, start: Start) -> None:
    """Row 7: SIGSTOP between lock and commit. The others proceed within 3 s; the frozen gate charges nothing."""
    start("open", database.url).end()
    frozen = start("freeze", database.url)
    frozen.until("locked")
    begun = time.monotonic()
    other = start("spend", database.url, 60)
    assert other.until("answered")["at"] - begun < 3.0 + SLACK
    assert 0 == other.end()
    spent = level(database)
    frozen.send(signal.SIGCONT)
    assert "limits: the shared database" in frozen.until("refused")["detail"]
    assert 0 == frozen.end()
    assert (spent, answers([other])) == (level(database), spent)
    assert 99 <= spent <= 100
