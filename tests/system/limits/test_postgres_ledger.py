"""The ledger in PostgreSQL, directly and through PgBouncer: batches, locks, leases, commits with an unknown outcome.

The tests that are imported are those of the SQLite ledger that are not about files.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import psycopg
import pytest

from samplegate.limits import postgres_ledger
from samplegate.limits.accounts import identity
from samplegate.limits.backend import LedgerBackend, LedgerUnavailable
from samplegate.limits.ledger_thread import LedgerThread
from samplegate.limits.postgres_ledger import LEASE, PostgresLedger
from samplegate.limits.shared_ledger import SWEEP_EVERY, SharedLedger
from samplegate.policy import ledger
from samplegate.policy.ledger import LimitSpec, Refused, Reserved
from samplegate.postgres import connection
from tests.fakes import postgresql
from tests.fakes.database_proxy import DatabaseProxy, database_proxy
from tests.fakes.ledger_book import PATIENCE, Book, Open
from tests.fakes.limits import ONE, Clock, bucket, daily, one, per, slot, slots
from tests.system.limits.test_sqlite_ledger import (
    test_a_fault_of_ours_while_settling_is_in_nobodys_way,
    test_a_limit_that_allows_another_amount_keeps_what_is_drawn,
    test_a_limit_that_counts_something_else_begins_anew,
    test_accounts_of_a_limit_that_nobody_knows_go_after_more_than_a_year,
    test_another_period_is_another_limit,
    test_processes_that_draw_once_forget_idle_accounts_too,
    test_slots_and_counts_are_taken_together_or_not_at_all,
    test_what_is_drawn_outlives_the_process,
)

__all__ = [
    "test_a_fault_of_ours_while_settling_is_in_nobodys_way",
    "test_a_limit_that_allows_another_amount_keeps_what_is_drawn",
    "test_a_limit_that_counts_something_else_begins_anew",
    "test_accounts_of_a_limit_that_nobody_knows_go_after_more_than_a_year",
    "test_another_period_is_another_limit",
    "test_processes_that_draw_once_forget_idle_accounts_too",
    "test_slots_and_counts_are_taken_together_or_not_at_all",
    "test_what_is_drawn_outlives_the_process",
]


class InDatabase:
    """A ``Place``: a database, whose time is the test's clock, or the server's."""

    def __init__(self, url: str, place: str) -> None:
        self.url, self.place = url, place

    def ledger(self, specs: dict[str, LimitSpec], clock: Clock, *, real: bool = False, **more: Any) -> SharedLedger:
        return PostgresLedger(specs, self.url, clock, time=None if real else clock, **more)

    def rows(self, table: str) -> int:
        (found,) = self.ask(f"SELECT count(*) FROM samplegate.{table}")
        return int(found)

    def ask(self, statement: str) -> Any:
        with psycopg.connect(self.place, autocommit=True) as db:
            return db.execute(statement.encode()).fetchone()


@pytest.fixture(scope="module")
def server() -> Iterator[postgresql.Server]:
    with postgresql.server("fsync = off") as server:
        yield server


@pytest.fixture(scope="module")
def pooled(server: postgresql.Server) -> Iterator[str]:
    with postgresql.pgbouncer(server.place) as pooled:
        yield pooled


@pytest.fixture(scope="module")
def proxy(server: postgresql.Server) -> Iterator[DatabaseProxy]:
    with database_proxy(server.socket) as proxy:
        yield proxy


@pytest.fixture(params=["direct", "pooled"])
def place(request: pytest.FixtureRequest, server: postgresql.Server, pooled: str) -> InDatabase:
    postgresql.empty(server.place)
    return InDatabase(postgresql.url(pooled if request.param == "pooled" else server.place), server.place)


@pytest.fixture
def direct(server: postgresql.Server) -> InDatabase:
    postgresql.empty(server.place)
    return InDatabase(postgresql.url(server.place), server.place)


def opened(place: InDatabase) -> Iterator[Open]:
    books: list[Book] = []

    def make(*specs: LimitSpec, **more: Any) -> Book:
        books.append(Book(place, *specs, **more))
        return books[-1]

    yield make
    for each in books:
        each.close()


@pytest.fixture
def book(place: InDatabase) -> Iterator[Open]:
    yield from opened(place)


@pytest.fixture
def lossy(server: postgresql.Server, proxy: DatabaseProxy) -> Iterator[Open]:
    """Books that reach the server through a proxy."""
    postgresql.empty(server.place)
    yield from opened(InDatabase(postgresql.tcp_url(proxy.port), server.place))


# -- batches
# ----------------------------------------------------------------------------------------------------------------------


def batch(book: Book, *calls: Any) -> list[Reserved | Refused | bool]:
    return book.ledger.batch(calls, time.monotonic() + PATIENCE)


def test_calls_of_a_batch_take_effect_in_their_order(book: Open) -> None:
    ours = book(daily("d", 2))
    held = ours.taken(one("d"))
    draw = one("d")
    results = batch(
        ours, ours.charge(draw), ours.charge(draw), ours.settlement(held), ours.charge(draw), ours.charge(draw)
    )
    assert [Reserved, Refused, bool, Reserved, Refused] == list(map(type, results))


def test_a_batch_is_one_transaction(lossy: Open, proxy: DatabaseProxy, direct: InDatabase) -> None:
    ours = lossy(daily("d", 9), daily("e", 9))
    held = ours.taken(one("d"))
    proxy.commits = "unsent"
    with pytest.raises(LedgerUnavailable):
        batch(ours, ours.charge(one("e")), ours.charge(one("d")), ours.settlement(held))
    levels = "SELECT max(level), count(*) FROM samplegate.accounts"
    assert (ONE, 1) == direct.ask(levels)


def test_a_bug_in_one_call_fails_none_of_its_neighbors(book: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settlement beside the bug is made once, although its batch was tried before."""
    ours = book(daily("d", 10), daily("bad", 1))
    kept = ours.taken(*[one("d")] * 4)
    held = ours.taken(*[one("d")] * 2)
    reserve = ledger.reserve
    bad = identity(ours.specs["bad"])

    def faulty(specs: Any, look: Any, draws: Any, now: float) -> Any:
        if any(draw.limit == bad for draw in draws):
            raise RuntimeError("a bug")
        return reserve(specs, look, draws, now)

    monkeypatch.setattr(ledger, "reserve", faulty)
    done = run_together(
        ours.ledger, [ours.settlement(held), ours.charge(one("bad")), ours.charge(one("d")), ours.settlement(kept)]
    )
    assert ["bool", "RuntimeError", "Reserved", "bool"] == [type(one).__name__ for one in done]
    assert 9 == ours.room(one("d"))


def run_together(backend: LedgerBackend, calls: list[Any]) -> list[Any]:
    """Results and exceptions of calls that wait at the same time for a ledger's thread."""
    thread = LedgerThread(lambda: backend)
    begin = threading.Event()
    thread.run(lambda _: begin.wait(PATIENCE), time.monotonic() + PATIENCE)
    futures = [thread.call(call, time.monotonic() + PATIENCE) for call in calls]
    begin.set()
    found = [future.exception(PATIENCE) or future.result() for future in futures]
    thread.close()
    return found


def test_many_waiting_calls_need_few_transactions(direct: InDatabase) -> None:
    ours = Book(direct, daily("d", 1_000), real=True)
    ours.taken(one("d"))
    before = direct.ask("SELECT pg_current_xact_id()::text::bigint")[0]
    done = run_together(ours.ledger, [ours.charge(one("d")) for _ in range(200)])
    after = direct.ask("SELECT pg_current_xact_id()::text::bigint")[0]
    ours.close()
    assert 200 == sum(isinstance(one, Reserved) for one in done)
    assert 6 >= after - before
    assert (201 * ONE,) == direct.ask("SELECT level FROM samplegate.accounts")


# -- locks
# ----------------------------------------------------------------------------------------------------------------------


def test_ledgers_with_accounts_in_opposite_orders_never_deadlock(place: InDatabase) -> None:
    names = [f"d{number}" for number in range(8)]
    begin = threading.Barrier(4)

    def draw(turn: int) -> int:
        ours = Book(place, *(daily(name, 1_000) for name in names), real=True)
        order = names if turn % 2 else names[::-1]
        begin.wait(20)
        for _ in range(25):
            ours.taken(*(one(name) for name in order))
        ours.close()
        return 25

    with ThreadPoolExecutor(4) as pool:
        assert 100 == sum(pool.map(draw, range(4)))
    assert (100 * ONE, 100 * ONE) == place.ask("SELECT min(level), max(level) FROM samplegate.accounts")


def test_new_accounts_are_made_once_by_many_ledgers(place: InDatabase) -> None:
    begin = threading.Barrier(4)

    def draw(turn: int) -> int:
        ours = Book(place, daily("d", 1), real=True)
        begin.wait(20)
        got = 0
        for number in range(20):
            keys = [f'["{(number * 7 + step) % 60}"]' for step in range(5)]
            got += sum(isinstance(ours.reserve(one("d", key)), Reserved) for key in keys[:: turn % 2 * 2 - 1])
        ours.close()
        return got

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(draw, range(4))) == place.rows("accounts")
    assert (ONE, ONE) == place.ask("SELECT min(level), max(level) FROM samplegate.accounts")


def test_new_accounts_that_others_delete_as_idle_are_made_again(book: Open, direct: InDatabase) -> None:
    """As often as it happens, while there is time: gates that start together all look for idle accounts."""
    ours = book(daily("d", 9))
    ours.taken(one("d", '["first"]'))
    with psycopg.connect(direct.place, autocommit=True) as db:
        db.execute("CREATE SEQUENCE samplegate.deleted")
        db.execute(
            "CREATE FUNCTION samplegate.sweep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " IF nextval('samplegate.deleted') <= 5 THEN DELETE FROM samplegate.accounts WHERE level = 0; END IF;"
            " RETURN NULL; END $$"
        )
        db.execute(
            "CREATE TRIGGER sweep AFTER INSERT ON samplegate.accounts"
            " FOR EACH STATEMENT EXECUTE FUNCTION samplegate.sweep()"
        )
        try:
            ours.taken(one("d", '["second"]'))
        finally:
            db.execute("DROP FUNCTION samplegate.sweep() CASCADE")
            db.execute("DROP SEQUENCE samplegate.deleted")
    assert (ONE, ONE) == direct.ask("SELECT min(level), max(level) FROM samplegate.accounts")
    assert 2 == ours.rows()


def test_a_ledger_that_stops_within_a_transaction_loses_its_locks(book: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time: nothing that was sent may keep the server from noticing that nothing comes."""
    monkeypatch.setattr(connection, "IDLE_TIMEOUT", 0.1)
    stops, other = book(daily("d", 100)), book(daily("d", 100))
    (draw,) = stops.on([one("d")])
    accounts: Any = stops.ledger._accounts
    taken = 0

    def stop() -> None:
        nonlocal taken
        with accounts.transaction(lambda: 5.0, lambda: {(draw.limit, draw.key)}):
            other.taken(one("d"))
            taken += 1

    for _ in range(12):
        with pytest.raises(LedgerUnavailable):
            stop()
    assert 12 == taken


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_a_network_that_fails_within_the_writes_leaves_no_lock(
    lossy: Open, proxy: DatabaseProxy, direct: InDatabase, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    """The server waits for the rest of a message no longer than for a message."""
    monkeypatch.setattr(connection, "IDLE_TIMEOUT", 0.1)
    other = Book(direct, daily("d", 9))
    other.taken(one("d"))
    ours = lossy(daily("d", 9))
    stalled = proxy.stalled
    proxy.stall_in = (b"UPDATE accounts", share)
    with ThreadPoolExecutor(1) as pool:
        fails = pool.submit(ours.reserve, one("d"), seconds=2.5)
        while proxy.stalled == stalled:
            time.sleep(0.001)
        other.taken(one("d"))
        with pytest.raises(LedgerUnavailable):
            fails.result(PATIENCE)
    assert 7 == other.room(one("d"))
    other.close()


def test_the_writes_and_the_commit_are_one_message(lossy: Open, proxy: DatabaseProxy) -> None:
    """The last thing that is sent, so nothing that a gate does or suffers can come between them."""
    ours = lossy(daily("d", 9))
    ours.taken(one("d"))
    stalled = proxy.stalled
    proxy.stall_in = (b"UPDATE accounts", 1.0)
    ours.taken(one("d"))
    assert stalled + 1 == proxy.stalled
    proxy.cut()


def test_a_lock_that_is_held_refuses_within_the_deadline(book: Open, place: InDatabase) -> None:
    ours = book(daily("d", 9))
    ours.taken(one("d"))
    with psycopg.connect(place.place) as other:
        other.execute("SELECT * FROM samplegate.accounts FOR UPDATE")
        begun = time.monotonic()
        with pytest.raises(LedgerUnavailable) as raised:
            ours.reserve(one("d"), seconds=0.3)
        assert 3.0 > time.monotonic() - begun
    assert ("busy", True) == (raised.value.kind, raised.value.undone)
    assert 8 == ours.room(one("d"))


def test_a_deadline_that_has_passed_sends_nothing(book: Open) -> None:
    ours = book(daily("d", 9))
    with pytest.raises(LedgerUnavailable):
        ours.reserve(one("d"), seconds=-1.0)
    assert 9 == ours.room(one("d"))


# -- keys and amounts
# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["", "a\u0000b", "\ud800", "\U0001f600" * 75, "%s", "'; --", "{}", "\\x00"])
def test_a_strange_key_is_an_account_or_a_fault_and_never_free(book: Open, key: str) -> None:
    ours = book(daily("d", 1), daily("other", 1))
    try:
        ours.taken(one("d", key))
    except (LedgerUnavailable, ValueError):
        assert "\u0000" in key or "\ud800" in key
    else:
        ours.refused(one("d", key))
    ours.taken(one("other"))


def test_the_highest_level_can_be_stored(book: Open) -> None:
    ours = book(daily("d", 10**12))
    held = ours.taken(one("d"))
    ours.settle(held, *[ledger.Draw("d", "[]", 9 * 10**18)])
    ours.refused(one("d"))


def test_idle_accounts_are_forgotten_while_new_ones_come(book: Open) -> None:
    many = book(bucket("b", 1, seconds=1.0))
    many.taken(*(one("b", f'["old {number}"]') for number in range(600)))
    for number in range(200):
        many.clock.now += 0.5
        many.taken(one("b", f'["{number}"]'))
    assert 200 > many.rows()


def test_an_account_that_is_not_idle_is_kept(book: Open) -> None:
    many = book(daily("d", 1))
    many.taken(*(one("d", f'["{number}"]') for number in range(500)))
    for number in range(100):
        many.taken(one("d", f'["new {number}"]'))
    assert 600 == many.rows()


def test_an_idle_account_that_is_drawn_on_meanwhile_is_kept(book: Open, direct: InDatabase) -> None:
    """A sweep deletes only the rows that it has read, and skips those that others have locked."""
    ours = book(bucket("b", 1, seconds=1.0))
    ours.taken(one("b", '["old"]'))
    ours.clock.now += 60.0
    with psycopg.connect(direct.place) as other:
        other.execute("SELECT * FROM samplegate.accounts FOR UPDATE")
        for number in range(2 * SWEEP_EVERY):
            ours.taken(one("b", f'["{number}"]'))
    assert (1,) == direct.ask("SELECT count(*) FROM samplegate.accounts WHERE key = '[\"old\"]'")


def test_many_keys_make_no_reservation_slower(direct: InDatabase) -> None:
    """The server finds the accounts of a reservation by the index."""
    ours = Book(direct, daily("d", 1))
    ours.taken(one("d"))
    plans: list[tuple[str, list[Any]]] = [
        (postgres_ledger._LOCK, [["a"], ["b"]]),
        (postgres_ledger._NEXT, ["a", "b", 256]),
    ]
    with psycopg.connect(direct.place, autocommit=True) as db:
        db.execute(
            "INSERT INTO samplegate.accounts SELECT 'gone', i::text, 1, %s, false FROM generate_series(1, 20000) i",
            (ours.clock.now,),
        )
        db.execute("ANALYZE samplegate.accounts")
        db.execute("SET search_path = samplegate")
        found = [
            "".join(line for (line,) in db.execute(f"EXPLAIN {statement}".encode(), parameters).fetchall())
            for statement, parameters in plans
        ]
    assert [True, True] == ["accounts_pkey" in plan for plan in found], found
    ours.close()


# -- slots
# ----------------------------------------------------------------------------------------------------------------------


def test_the_slots_of_a_holder_whose_lease_has_ended_are_free(book: Open) -> None:
    clock = Clock()
    dead = book(slots("s", 1), clock=clock)
    dead.taken(slot("s"))
    other = book(slots("s", 1), clock=clock)
    other.refused(slot("s"))
    clock.now += LEASE - 1
    other.refused(slot("s"))
    clock.now += 1
    other.taken(slot("s"))
    dead.refused(slot("s"))


def test_the_slots_of_a_holder_that_renews_are_not_free(book: Open) -> None:
    clock = Clock()
    living = book(slots("s", 1), clock=clock)
    held = living.taken(slot("s"))
    other = book(slots("s", 1), clock=clock)
    for _ in range(4):
        clock.now += LEASE - 1
        assert living.ledger.renew(time.monotonic() + PATIENCE)
        other.refused(slot("s"))
    living.settle(held)
    other.taken(slot("s"))


def test_a_holder_that_ends_frees_its_slots_at_once(book: Open) -> None:
    first = book(slots("s", 1))
    first.taken(slot("s"))
    first.close()
    book(slots("s", 1)).taken(slot("s"))


def test_freeing_a_slot_that_another_has_taken_over_frees_none_of_its(book: Open) -> None:
    clock = Clock()
    paused = book(slots("s", 1), clock=clock)
    held = paused.taken(slot("s"))
    clock.now += LEASE
    other = book(slots("s", 1), clock=clock)
    other.taken(slot("s"))
    paused.settle(held)
    book(slots("s", 1), clock=clock).refused(slot("s"))


def test_an_account_of_slots_may_be_forgotten_while_slots_are_taken(book: Open) -> None:
    ours = book(slots("s", 1), bucket("b", 1, seconds=1.0))
    ours.taken(slot("s"))
    for number in range(200):
        ours.clock.now += 0.1
        ours.taken(one("b", f'["{number}"]'))
    other = book(slots("s", 1), clock=ours.clock)
    other.refused(slot("s"))


# -- commits with an unknown outcome
# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["lost", "unsent"])
def test_a_reservation_of_which_nobody_knows_is_refused_and_its_slots_are_freed(
    lossy: Open, proxy: DatabaseProxy, how: Any
) -> None:
    ours = lossy(daily("d", 3), slots("s", 1))
    ours.taken(one("d"))
    ours.settle(ours.taken(slot("s")))
    proxy.commits = how
    with pytest.raises(LedgerUnavailable) as raised:
        ours.reserve(one("d"), slot("s"))
    assert not raised.value.undone
    assert 1 == ours.room(slot("s"))
    assert (1 if how == "lost" else 2) == ours.room(one("d"))


@pytest.mark.parametrize("how", ["lost", "unsent"])
def test_a_new_account_of_which_nobody_knows_is_not_charged(lossy: Open, proxy: DatabaseProxy, how: Any) -> None:
    ours = lossy(daily("d", 3))
    ours.taken(one("d"))
    proxy.commits = how
    with pytest.raises(LedgerUnavailable) as raised:
        ours.reserve(one("d", '["new"]'))
    assert raised.value.undone
    assert 3 == ours.room(one("d", '["new"]'))


@pytest.mark.parametrize("how", ["lost", "unsent"])
def test_a_settlement_of_which_nobody_knows_is_not_made_twice(lossy: Open, proxy: DatabaseProxy, how: Any) -> None:
    ours = lossy(daily("d", 10), slots("s", 2))
    ours.taken(one("d"), one("d"), one("d"), one("d"))
    held = ours.taken(one("d"), one("d"), slot("s"))
    proxy.commits = how
    with pytest.raises(LedgerUnavailable):
        ours.settle(held)
    assert ours.ledger.has_pending
    assert (6 if how == "lost" else 4) == ours.room(one("d"))
    assert 2 == ours.room(slot("s"))
    assert not ours.ledger.has_pending


def test_a_settlement_that_the_server_refuses_is_made_later(direct: InDatabase, server: postgresql.Server) -> None:
    """The server has answered that the transaction failed, so there is no doubt about it."""
    ours = Book(direct, daily("d", 3))
    held = ours.taken(one("d"))
    with psycopg.connect(server.place, autocommit=True) as db:
        db.execute("ALTER TABLE samplegate.accounts ADD CONSTRAINT never CHECK (level > 0 OR stamp = 0)")
        with pytest.raises(LedgerUnavailable) as raised:
            ours.settle(held)
        db.execute("ALTER TABLE samplegate.accounts DROP CONSTRAINT never")
    assert raised.value.undone
    assert 3 == ours.room(one("d"))
    ours.close()


@pytest.mark.parametrize("sent", ["lost", "unsent"])
def test_a_renewal_of_which_nobody_knows_is_not_taken_for_one(lossy: Open, proxy: DatabaseProxy, sent: Any) -> None:
    ours = lossy(slots("s", 1))
    ours.taken(slot("s"))
    proxy.commits = sent
    with pytest.raises(LedgerUnavailable):
        ours.ledger.renew(time.monotonic() + PATIENCE)
    assert ours.ledger.renew(time.monotonic() + PATIENCE)


def test_a_connection_that_was_lost_is_replaced_at_the_next_transaction(lossy: Open, proxy: DatabaseProxy) -> None:
    ours = lossy(daily("d", 3))
    ours.taken(one("d"))
    accepted = proxy.accepted
    proxy.cut()
    ours.taken(one("d"))
    assert accepted + 1 == proxy.accepted
    assert 1 == ours.room(one("d"))


def test_a_server_that_does_not_answer_gives_the_thread_back(lossy: Open, proxy: DatabaseProxy) -> None:
    ours = lossy(daily("d", 3))
    ours.taken(one("d"))
    proxy.stall()
    begun, kinds = time.monotonic(), set[str]()
    try:
        for _ in range(2):
            with pytest.raises(LedgerUnavailable) as raised:
                ours.reserve(one("d"), seconds=0.2)
            kinds.add(raised.value.kind)
    finally:
        proxy.resume()
    assert {"busy", "unreachable"} == kinds
    assert 15 > time.monotonic() - begun
    ours.taken(one("d"))


def test_accounts_in_memory_go_on_without_a_server(lossy: Open, proxy: DatabaseProxy) -> None:
    ours = lossy(per("process", "p", 3), shared=False)
    ours.taken(one("p"))
    assert 2 == ours.room(one("p"))
    assert 0 == ours.rows("accounts")


def test_a_limit_that_is_shared_from_now_on_moves_its_account(book: Open) -> None:
    ours = book(daily("d", 5), slots("s", 2), shared=False)
    ours.taken(one("d"), one("d"), slot("s"))
    spec = {id: msgspec.structs.replace(each, shared=True) for id, each in ours.ledger._specs.items()}
    ours.ledger.update_limits(spec)
    ours.specs = {each.name: each for each in spec.values()}
    assert ours.ledger.flush(time.monotonic() + PATIENCE)
    other = book(daily("d", 5), slots("s", 2), clock=ours.clock)
    assert 3 == other.room(one("d"))
    assert 1 == other.room(slot("s"))
