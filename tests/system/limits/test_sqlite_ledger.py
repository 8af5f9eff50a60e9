"""The ledger in SQLite: names and lifetimes of rows in memory and in the file, and commits with an unknown outcome."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from samplegate.limits import shared_ledger
from samplegate.limits.accounts import identity
from samplegate.limits.backend import LedgerUnavailable
from samplegate.limits.shared_ledger import EXAMINED_PER_DRAW, SWEEP_EVERY
from samplegate.limits.sqlite_ledger import FILE, SqliteLedger
from samplegate.policy import ledger
from samplegate.policy.ledger import SKEW, Draw, LimitSpec, Refused, Reserved
from tests.fakes.ledger_book import Book, Open
from tests.fakes.limits import ONE, Clock, bucket, daily, one, per, slot, slots
from tests.fakes.sqlite_steps import steps

DAY = 86_400.0


class Folder:
    """A ``Place``: a state folder."""

    def __init__(self, state: Path) -> None:
        self.state = state

    def ledger(self, specs: dict[str, LimitSpec], clock: Clock, **more: Any) -> SqliteLedger:
        return SqliteLedger(specs, self.state, clock, **more)

    def rows(self, table: str) -> int:
        db = sqlite3.connect(self.state / FILE)
        (found,) = db.execute(f"SELECT count(*) FROM {table}").fetchone()
        db.close()
        return int(found)


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Open]:
    books: list[Book] = []

    def make(*specs: LimitSpec, **more: Any) -> Book:
        books.append(Book(Folder(tmp_path), *specs, **more))
        return books[-1]

    yield make
    for each in books:
        each.close()


def test_what_is_drawn_outlives_the_process(book: Open) -> None:
    first = book(daily("d", 3))
    first.taken(one("d"))
    first.close()
    assert 2 == book(daily("d", 3)).room(one("d"))


def test_a_limit_that_allows_another_amount_keeps_what_is_drawn(book: Open) -> None:
    book(daily("d", 3)).taken(one("d"), one("d"))
    assert 3 == book(daily("d", 5)).room(one("d"))


ORIGINAL = LimitSpec("d", "requests", 2 * ONE, "day", tz="UTC", by=("server",))
OTHERS = [
    msgspec.structs.replace(ORIGINAL, quantity="usd"),
    msgspec.structs.replace(ORIGINAL, per="month"),
    msgspec.structs.replace(ORIGINAL, per="bucket", period=60.0),
    msgspec.structs.replace(ORIGINAL, tz="Asia/Tokyo"),
    msgspec.structs.replace(ORIGINAL, by=("caller",)),
    msgspec.structs.replace(ORIGINAL, by=("server", "caller")),
]


@pytest.mark.parametrize("other", OTHERS, ids=lambda spec: f"{spec.quantity} {spec.per} {spec.tz} {','.join(spec.by)}")
def test_a_limit_that_counts_something_else_begins_anew(book: Open, other: LimitSpec) -> None:
    book(ORIGINAL).taken(one("d"), one("d"))
    assert isinstance(book(ORIGINAL).reserve(one("d")), Refused)
    book(other).taken(one("d"), one("d"))


def test_another_period_is_another_limit(book: Open) -> None:
    book(bucket("b", 1, seconds=3_600.0)).taken(one("b"))
    book(bucket("b", 1, seconds=7_200.0)).taken(one("b"))


def test_slots_and_counts_are_taken_together_or_not_at_all(book: Open) -> None:
    both = book(daily("d", 3), slots("s", 1))
    held = both.taken(one("d"), slot("s"))
    assert isinstance(both.reserve(one("d"), slot("s")), Refused)
    both.settle(held, one("d"))
    both.taken(one("d"), slot("s"))
    assert 1 == both.room(one("d"))


def test_the_slots_of_a_holder_whose_file_was_removed_are_free(book: Open, tmp_path: Path) -> None:
    first = book(slots("s", 1))
    first.taken(slot("s"))
    (lock,) = (tmp_path / "holders").iterdir()
    lock.unlink()
    assert 1 == book(slots("s", 1)).room(slot("s"))


def test_a_holder_of_a_strange_name_touches_no_file(book: Open, tmp_path: Path) -> None:
    first = book(slots("s", 1))
    first.taken(slot("s"))
    (tmp_path / "precious.lock").touch()
    with sqlite3.connect(tmp_path / FILE) as db:
        db.execute("UPDATE slots SET holder = '../precious'")
    db.close()
    assert 1 == book(slots("s", 1)).room(slot("s"))
    assert (tmp_path / "precious.lock").exists()


# -- how long
# ----------------------------------------------------------------------------------------------------------------------


def test_idle_accounts_are_forgotten_while_new_ones_come(book: Open) -> None:
    many = book(bucket("b", 1, seconds=1.0))
    for number in range(3_000):
        many.clock.now += 0.1
        many.taken(one("b", f'["{number}"]'))
    assert 600 > many.rows()


def test_processes_that_draw_once_forget_idle_accounts_too(book: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    first = book(bucket("b", 1, seconds=1.0), daily("d", 1), clock=clock)
    for number in range(40):
        first.taken(one("b", f'["{number}"]'), one("d", f'["{number}"]'))
    clock.now += 60.0
    monkeypatch.setattr(shared_ledger, "SWEEP_EVERY", 2)
    for _ in range(12):
        once = book(bucket("b", 1, seconds=1.0), daily("d", 1), clock=clock)
        once.reserve(one("d", "[]"))
        once.close()
    assert 41 == first.rows()


def test_an_account_that_is_not_idle_is_kept(book: Open) -> None:
    many = book(daily("d", 1))
    for number in range(1_000):
        many.taken(one("d", f'["{number}"]'))
    assert 1_000 == many.rows()
    many.clock.now += DAY
    for number in range(1_000):
        many.taken(one("d", f'["new {number}"]'))
    assert 1_300 > many.rows()


def test_accounts_of_a_limit_that_nobody_knows_go_after_more_than_a_year(book: Open) -> None:
    clock = Clock()
    book(daily("old", 1), clock=clock).taken(one("old"))
    clock.now += 399 * DAY
    now = book(daily("d", 1), clock=clock)
    now.taken(one("d"))
    assert 2 == now.rows()
    clock.now += 3 * DAY
    book(daily("d", 1), clock=clock).taken(one("d"))
    assert 1 == now.rows()


@pytest.mark.parametrize("shared", [False, True], ids=["memory", "file"])
def test_many_keys_make_no_reservation_slower(book: Open, tmp_path: Path, shared: bool) -> None:
    many = book(daily("d", 1), shared=shared)
    made = 0

    def filled(number: int) -> None:
        nonlocal made
        while made < number:
            many.taken(*(one("d", f'["{each}"]') for each in range(made, made + SWEEP_EVERY)))
            made += SWEEP_EVERY

    def drawn() -> None:
        """Charge so often that idle accounts are searched for twice."""
        for number in range(2 * SWEEP_EVERY):
            many.refused(one("d", f'["{number}"]'))
            many.taken(one("d", f'["{made} {number}"]'))

    filled(SWEEP_EVERY * EXAMINED_PER_DRAW * 2)
    accounts: Any = many.ledger._accounts
    db = accounts._file._db if shared else many.ledger._memory.db
    assert db is not None
    few = steps(db, drawn)
    filled(5_000)
    assert 0 < steps(db, drawn) < 1.5 * few
    assert made + 4 * SWEEP_EVERY == (many.rows() if shared else len(many.ledger))
    if shared:
        assert 400 * made > sum(path.stat().st_size for path in tmp_path.glob(f"{FILE}*") if "wal" not in path.name)


# -- commits with an unknown outcome
# -------------------------------------------------------------------------------------------------------------


class Doubtful:
    """A connection whose next commit succeeds but raises."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.failing = True

    def commit(self) -> None:
        self._db.commit()
        if self.failing:
            self.failing = False
            raise sqlite3.OperationalError("disk I/O error")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)


def fail_commit(book: Book) -> None:
    accounts: Any = book.ledger._accounts
    file = accounts._file
    file._db = Doubtful(file._db)


def test_a_settlement_of_which_nobody_knows_is_not_made_twice(book: Open) -> None:
    ours = book(daily("d", 10), slots("s", 2))
    ours.taken(one("d"), one("d"), one("d"), one("d"))
    held = ours.taken(one("d"), one("d"), slot("s"))
    fail_commit(ours)
    with pytest.raises(LedgerUnavailable):
        ours.settle(held)
    assert ours.ledger.has_pending
    assert 6 == ours.room(one("d"))
    assert 2 == ours.room(slot("s"))
    assert not ours.ledger.has_pending


def test_the_slots_of_a_reservation_of_which_nobody_knows_are_freed(book: Open) -> None:
    ours = book(daily("d", 3), slots("s", 1))
    ours.taken(one("d"))
    fail_commit(ours)
    with pytest.raises(LedgerUnavailable):
        ours.reserve(one("d"), slot("s"))
    assert 1 == ours.room(slot("s"))
    assert 1 == ours.room(one("d"))  # the charge stays at its upper bound


def test_a_fault_of_ours_while_settling_is_in_nobodys_way(book: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = book(daily("d", 3), slots("s", 1))
    held = ours.taken(one("d"), slot("s"))

    def fault(*_: object, **__: object) -> object:
        raise RuntimeError("a fault")

    with monkeypatch.context() as patched:
        patched.setattr(ledger, "settle", fault)
        with pytest.raises(RuntimeError):
            ours.settle(held)
        ours.taken(one("d"), slot("s"))
    assert 1 == ours.room(one("d"))


# -- in memory
# ----------------------------------------------------------------------------------------------------------------------


def test_what_was_undone_warns_again(book: Open) -> None:
    kept = book(daily("a", 4, warn_at=0.5), shared=False)
    first = kept.taken(Draw("a", "[]", 2_000_000))
    assert (identity(kept.specs["a"]),) == first.warned
    kept.settle(first, undo=True)
    assert () == kept.taken(one("a")).warned
    assert 1 == len(kept.taken(one("a")).warned)


@pytest.mark.parametrize(
    "draws", [[Draw("s", "[]", 3)], [slot("s"), slot("s"), slot("s")]], ids=["one draw", "several draws"]
)
def test_more_slots_than_there_are_never_fit(book: Open, draws: list[Draw]) -> None:
    refused = book(slots("s", 2), shared=False).refused(*draws)
    assert ("s", "never") == (refused.limit, refused.why)


def test_idle_accounts_in_memory_are_forgotten_while_new_ones_come(book: Open) -> None:
    kept = book(bucket("a", 1, seconds=1.0), shared=False)
    for number in range(4_000):
        kept.clock.now += 0.1
        kept.taken(one("a", f'["{number}"]'))
    # some hundred are never idle: for a second, plus the allowed difference of clocks
    assert 250 > len(kept.ledger)


def test_idle_accounts_are_found_among_those_that_are_not(book: Open) -> None:
    kept = book(daily("d", 1), bucket("a", 1, seconds=1.0), shared=False)
    for number in range(600):
        kept.taken(one("d", f'["{number}"]'))
    for number in range(4_000):
        kept.clock.now += 0.05
        kept.taken(one("a", f'["{number}"]'))
    assert 600 <= len(kept.ledger) < 1_200


def test_too_many_accounts_in_memory_are_refused_until_some_are_idle(book: Open) -> None:
    kept = book(bucket("a", 1), slots("s", 1), shared=False, most=100)
    for number in range(99):
        kept.taken(one("a", f'["{number}"]'))
    held = kept.taken(slot("s"))
    for draw in (one("a", '["new"]'), slot("s", '["new"]')):
        refused = kept.refused(draw)
        assert (draw.limit, "unavailable") == (refused.limit, refused.why)
        assert "100 accounts" in refused.detail
    kept.settle(held)
    kept.taken(slot("s", '["new"]'))
    kept.clock.now += 60 + SKEW
    kept.taken(one("a", '["new"]'))


def test_an_idle_account_that_is_drawn_on_counts_among_the_most(tmp_path: Path) -> None:
    """The account could be the one that is dropped to free disk space for the other account of the same request."""
    kept = Book(Folder(tmp_path), bucket("idle", 10, seconds=1), per("process", "ever", 10**6), shared=False, most=20)
    for number in range(200):
        kept.clock.now += 100
        kept.reserve(one("idle", '["i"]'), one("ever", f'["{number}"]'))
        kept.reserve(one("idle", '["i"]'))
    assert 20 >= len(kept.ledger.drawn())


def test_the_event_loop_reads_while_the_thread_reserves(tmp_path: Path) -> None:
    """Each reader gets the account that it asked for, on every version of Python."""
    book = Book(Folder(tmp_path), per("process", "full", 1), per("process", "busy", 10**9), shared=False)
    book.taken(one("full"))
    asked, granted = book.on([one("full")]), 0
    specs = {identity(each): each for each in book.specs.values()}
    ended = threading.Event()

    def reserve() -> None:
        nonlocal granted
        while not ended.is_set():
            granted += isinstance(book.reserve(one("busy")), Reserved)

    thread = threading.Thread(target=reserve)
    thread.start()
    try:
        found = {isinstance(book.ledger.exhausted(specs, asked), Refused) for _ in range(5_000)}
    finally:
        ended.set()
        thread.join()
    assert {True} == found
    full, busy = (draw.limit for draw in book.on([one("full"), one("busy")]))
    assert {(full, "[]"): ONE, (busy, "[]"): granted * ONE} == book.ledger.drawn()


def test_an_account_that_was_forgotten_can_be_settled(book: Open) -> None:
    kept = book(bucket("a", 2, seconds=1.0), per("call", "c", 1), shared=False)
    held = kept.taken(one("a"), one("c"))
    kept.clock.now += 100_000
    for number in range(100):
        kept.reserve(one("a", f'["{number}"]'))
    kept.settle(held, one("a"))
    kept.taken(one("a"), one("c"))
