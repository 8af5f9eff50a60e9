"""Reviews of many gates: one release for each verdict, whatever is killed, paused or lost; events, outboxes, clocks."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress

import pytest

from samplegate.reviews.review import Verdict
from samplegate.reviews.sql_store import SqlReviewStore
from tests.fakes import postgresql
from tests.fakes.database_proxy import database_proxy
from tests.fakes.postgresql import Database, Server
from tests.fakes.stored_reviews import YES, form, review
from tests.fakes.webhook_endpoint import answer, endpoint
from tests.fleet.database.conftest import BOUND, Client, Start, until
from tests.paths import ROOT

FORM = Verdict(word="answer", result={"action": "accept", "content": {"password": "s3cret"}})


def decided(store: SqlReviewStore, number: int) -> None:
    """A review with a verdict that no gate waits for."""
    assert store.open(review(f"rv_{number}", lookup=f"l{number}", late=1e6), announce=False, most=100_000)
    assert store.decide(f"rv_{number}", YES, who="ana", door="cli")


def test_a_use_whose_answer_is_lost_is_asked_again_and_released_once(server: Server, database: Database) -> None:
    """Row 8: the COMMIT of `use` is sent and its answer is lost, or it is not sent."""
    with database_proxy(server.socket) as proxy:
        store = SqlReviewStore(postgresql.tcp_url(proxy.port, name=database.place.rpartition("=")[2]))
        for number, how in enumerate(("lost", "unsent", "pass")):
            decided(store, number)
            assert store.seek(f"l{number}", stage="request", waiter="w", seconds=9.0)
            proxy.commits = how  # type: ignore[assignment]
            assert store.use([(f"rv_{number}", "w", "d1")])
            assert store.use([(f"rv_{number}", "w", "d1")])
            assert not store.use([(f"rv_{number}", "w", "d2")])
            assert not store.use([(f"rv_{number}", "v", "d1")])
        store.close()
        assert 2 == proxy.lost
    assert [("d1",)] * 3 == database.rows("SELECT used_by FROM reviews")
    assert 3 == database.value("SELECT count(*) FROM review_events WHERE what = 'used'")


def test_the_secrets_of_a_form_are_erased_although_the_answer_was_lost(server: Server, database: Database) -> None:
    """Row 8, for a verdict with a password."""
    with database_proxy(server.socket) as proxy:
        store = SqlReviewStore(postgresql.tcp_url(proxy.port, name=database.place.rpartition("=")[2]))
        assert store.open(form("rv_f", late=1e6), announce=False, most=9)
        assert store.decide("rv_f", FORM, who="ana", door="page")
        assert store.seek("sha256:l", stage="request", waiter="w", seconds=9.0)
        proxy.commits = "lost"
        assert store.use([("rv_f", "w", "d1")])
        store.close()
    assert "s3cret" not in str(database.rows("SELECT * FROM reviews"))


def test_twenty_waiters_release_each_verdict_once(database: Database, start: Start) -> None:
    """Row 9."""
    rounds = 60
    store = SqlReviewStore(database.url)
    for number in range(rounds):
        decided(store, number)
    store.close()
    waiters = [start("wait", database.url, rounds) for _ in range(20)]
    for waiter in waiters:
        waiter.until("ready")
    for waiter in waiters:
        waiter.go()
    assert [0] * 20 == [waiter.end() for waiter in waiters]
    released = Counter(each["round"] for waiter in waiters for each in waiter.all("released"))
    assert dict.fromkeys(range(rounds), 1) == dict(released)
    assert rounds == database.value("SELECT count(*) FROM review_events WHERE what = 'used'")


def test_a_holder_that_was_paused_beyond_its_lease_releases_nothing(database: Database, start: Start) -> None:
    """Row 10: another waiter has taken the verdict over, and used it."""
    store = SqlReviewStore(database.url)
    decided(store, 0)
    paused = start("lease", database.url, 1)
    paused.until("leased")
    paused.send(signal.SIGSTOP)
    other = start("lease", database.url, 60)
    other.until("leased")
    other.go()
    assert other.until("used")["used"]
    paused.go()
    paused.send(signal.SIGCONT)
    assert not paused.until("used")["used"]
    assert 1 == database.value("SELECT count(*) FROM review_events WHERE what = 'used'")
    store.close()


@pytest.mark.parametrize("shift", ["+1h", "-1h", "+400d"])
def test_a_gate_whose_clock_is_wrong_changes_nothing(database: Database, start: Start, shift: str) -> None:
    """Row 11: its leases, expiries, events and days are those of the database."""
    store = SqlReviewStore(database.url)
    decided(store, 0)
    assert store.seek("l0", stage="request", waiter="lives", seconds=60.0)
    assert store.open(review("rv_pending", lookup="l1"), announce=False, most=9)
    program = [sys.executable, "-m", "tests.fakes.programs.database_client"]
    with subprocess.Popen(
        ["faketime", "-f", shift, *program, "clock", database.url],
        cwd=ROOT, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": f"{ROOT / 'proxy'}:{ROOT}"},
    ) as process:  # fmt: skip
        wrong = Client(process)
        assert 0 == wrong.end()
    opened = wrong.until("opened")
    assert abs(opened["own"] - time.time()) > 3_000, "faketime has no effect"
    assert not opened["stolen"]
    assert abs(opened["created"] - time.time()) < BOUND
    assert abs(opened["wall"] - time.time()) < BOUND
    assert [] == wrong.until("expired")["ids"]
    assert abs(wrong.until("answered")["time"] - time.time()) < BOUND
    assert store.use([("rv_0", "lives", "d1")])
    right = start("spend", database.url, 0.5)
    assert 0 == right.end()
    assert right.all("answered")
    (stamp,) = database.rows("SELECT stamp FROM accounts")[0]
    assert abs(stamp - time.time()) < 86_400 + BOUND
    store.close()


def test_every_event_is_seen_once_and_in_order(database: Database, start: Start) -> None:
    """Row 16: twenty writers and a poller."""
    store = SqlReviewStore(database.url)
    store.last_change()
    writers = [start("write", database.url, 8) for _ in range(20)]
    seen: list[int] = []
    end = time.monotonic() + BOUND
    while len(seen) < 20 * 8 * 2 and time.monotonic() < end:
        seen += [event.number for event in store.changes(seen[-1] if seen else 0, 50)]
    assert [0] * 20 == [writer.end() for writer in writers]
    assert list(range(1, 20 * 8 * 2 + 1)) == seen
    assert seen[-1] == store.last_change()
    store.close()


def test_the_outboxes_of_twenty_gates_deliver_all_and_at_most_eight_at_a_time(database: Database, start: Start) -> None:
    """Row 17: a receiver that fails first; the leader is killed within a POST, and another gate takes over."""
    number = 60
    store = SqlReviewStore(database.url)
    for each in range(number):
        assert store.open(review(f"rv_{each}", lookup=f"l{each}", expires=1e12), announce=True, most=1_000)
    database.rows("UPDATE reviews SET expires = extract(epoch FROM clock_timestamp()) + 900")
    asyncio.run(asyncio.wait_for(delivered(database, start, number), BOUND * 2))
    assert number == database.value("SELECT count(*) FROM review_deliveries WHERE state = 'done'")
    assert number == database.value("SELECT count(*) FROM review_events WHERE what = 'told'")
    store.close()


async def delivered(database: Database, start: Start, number: int) -> None:
    under_way = most = failures = 0
    received: Counter[str] = Counter()
    many = asyncio.Event()

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal under_way, most, failures
        id = hook.seen[-1].headers["webhook-id"]
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.05)
        under_way -= 1
        if failures < 3:
            failures += 1
            writer.write(answer("503 Unavailable"))
        else:
            received[id] += 1
            writer.write(answer())
        await writer.drain()
        if len(received) >= 10:
            many.set()

    async with endpoint() as hook:
        hook.behave = behave
        gates = [start("outbox", database.url, hook.url, each) for each in range(1, 21)]
        takers = {(await asyncio.to_thread(gate.until, "ready"))["taker"]: gate for gate in gates}
        await many.wait()
        leader = await asyncio.to_thread(
            database.value, "SELECT convert_from(value, 'UTF8') FROM review_facts WHERE name = 'leader of ops'"
        )
        takers[leader].send(signal.SIGKILL)
        # those that it had taken are free after their own lease of a minute
        freed = "UPDATE review_deliveries SET held_until = 0 WHERE taker = %s"
        await asyncio.to_thread(takers[leader].end)
        while len(received) < number:
            hook.came.clear()
            # again and again: the server may commit what the leader took after the leader has ended
            await asyncio.to_thread(database.rows, freed, leader)
            with suppress(TimeoutError):
                await asyncio.wait_for(hook.came.wait(), 1.0)
            await asyncio.sleep(0.2)
        done = "SELECT count(*) FROM review_deliveries WHERE state = 'waiting'"
        await asyncio.to_thread(until, lambda: not database.value(done))
        new = await asyncio.to_thread(
            database.value, "SELECT convert_from(value, 'UTF8') FROM review_facts WHERE name = 'leader of ops'"
        )
    assert most <= 8
    assert leader != new
    assert number == len(received)


def test_gates_that_start_before_a_herd_answer_soon(database: Database, start: Start) -> None:
    """Row 30: ten thousand due messages and ten thousand pending reviews."""
    store = SqlReviewStore(database.url)
    assert store.open(review("rv_0", lookup="l0"), announce=True, most=9)
    columns = (
        "SELECT column_name FROM information_schema.columns"
        " WHERE table_schema = 'samplegate' AND table_name = %s ORDER BY ordinal_position"
    )
    for table in ("reviews", "review_deliveries"):
        names = [name for (name,) in database.rows(columns, table)]
        values = ", ".join("id || '_' || i" if name == "id" else name for name in names)
        database.rows(f"INSERT INTO {table} SELECT {values} FROM {table}, generate_series(1, 10000) i")
    database.rows("UPDATE reviews SET expires = extract(epoch FROM clock_timestamp()) + 900")
    database.rows("ANALYZE")

    def transactions() -> int:
        found: int = database.value("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()")
        return found

    hook = "http://127.0.0.1:9/closed"
    gates = [start("outbox", database.url, hook, number) for number in range(1, 11)]
    for gate in gates:
        gate.until("ready")
    spender = start("spend", database.url, 4)
    first = spender.until("answered")
    assert first["took"] < 1.0 + 4.0
    before, begun = transactions(), time.monotonic()
    assert 0 == spender.end()
    until(lambda: time.monotonic() - begun > 4.0)
    own = 3 * (len(spender.all("answered")) + len(spender.all("refused")))
    rate = (transactions() - before - own) / (time.monotonic() - begun)
    assert rate < 30 * len(gates)
    store.close()
