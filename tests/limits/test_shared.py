"""What stands in the shared file: under what name, for how long, and what becomes of a commit of which nobody knows."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from samplegate.core import ledger
from samplegate.core.ledger import Draw, Refused, Reserved, Terms
from samplegate.limits import shared as shared_module
from samplegate.limits.faults import FILE, Broken
from samplegate.limits.owed import Correction
from samplegate.limits.shared import Shared
from tests.limits.desk import ONE, Clock, bucket, daily, one, slot, slots

DAY = 86_400.0


class Book:
    """The shared store of one process, without its thread."""

    def __init__(self, state: Path, *terms: Terms, clock: Clock | None = None) -> None:
        self.clock = clock or Clock()
        self.state = state
        self.shared = Shared({each.name: each for each in terms}, state, self.clock)
        self._made = 0

    def reserve(self, *draws: Draw) -> Reserved | Refused:
        self._made += 1
        return self.shared.reserve(str(self._made), draws, time.monotonic() + 5)

    def taken(self, *draws: Draw) -> Reserved:
        got = self.reserve(*draws)
        assert isinstance(got, Reserved), got
        return got

    def room(self, draw: Draw) -> int:
        got = 0
        while isinstance(self.reserve(draw), Reserved):
            got += 1
        return got

    def settle(self, reserved: Reserved, *actual: Draw) -> None:
        self.shared.settle(Correction(reserved, actual), time.monotonic() + 5)

    def close(self) -> None:
        self.shared.close(time.monotonic() + 5)

    def rows(self, table: str = "accounts") -> int:
        db = sqlite3.connect(self.state / FILE)
        (found,) = db.execute(f"SELECT count(*) FROM {table}").fetchone()
        db.close()
        return int(found)


Open = Callable[..., Book]


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Open]:
    books: list[Book] = []

    def make(*terms: Terms, **more: Any) -> Book:
        books.append(Book(tmp_path, *terms, **more))
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


ORIGINAL = Terms("d", "requests", 2 * ONE, "day", tz="UTC", by=("server",))
OTHERS = [
    msgspec.structs.replace(ORIGINAL, quantity="usd"),
    msgspec.structs.replace(ORIGINAL, per="month"),
    msgspec.structs.replace(ORIGINAL, per="bucket", period=60.0),
    msgspec.structs.replace(ORIGINAL, tz="Asia/Tokyo"),
    msgspec.structs.replace(ORIGINAL, by=("caller",)),
    msgspec.structs.replace(ORIGINAL, by=("server", "caller")),
]


@pytest.mark.parametrize("other", OTHERS, ids=lambda terms: f"{terms.quantity} {terms.per} {terms.tz} {','.join(terms.by)}")
def test_a_limit_that_counts_something_else_begins_anew(book: Open, other: Terms) -> None:
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


# -- how long ----------------------------------------------------------------------------------------------------------------------------------


def test_idle_accounts_are_forgotten_while_new_ones_come(book: Open) -> None:
    many = book(bucket("b", 1, seconds=1.0))
    for number in range(3_000):
        many.clock.now += 0.1
        many.taken(one("b", f'["{number}"]'))
    assert 600 > many.rows()


def test_processes_that_draw_once_forget_idle_accounts_too(book: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_module, "LOOKED_AT", 10)
    clock = Clock()
    first = book(bucket("b", 1, seconds=1.0), daily("d", 1), clock=clock)
    for number in range(40):
        first.taken(one("b", f'["{number}"]'), one("d", f'["{number}"]'))
    clock.now += 60.0
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


@pytest.mark.timeout(180)
def test_a_hundred_thousand_keys_are_no_slower(book: Open, tmp_path: Path) -> None:
    many = book(daily("d", 1))
    begun = time.process_time()
    for number in range(0, 100_000, 50):
        many.taken(*(one("d", f'["{each}"]') for each in range(number, number + 50)))
    assert 60 > time.process_time() - begun
    begun = time.process_time()
    for number in range(500):
        assert isinstance(many.reserve(one("d", f'["{number * 100}"]')), Refused)
        many.taken(one("d", f'["new {number}"]'))
    assert 10 > time.process_time() - begun
    assert 100_500 == many.rows()
    assert 40_000_000 > (tmp_path / FILE).stat().st_size


# -- commits of which nobody knows -------------------------------------------------------------------------------------------------------------


class Doubtful:
    """A connection whose next commit is carried out, and said to have failed."""

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
    file: Any = book.shared._file
    file._db = Doubtful(file._db)


def test_a_settlement_of_which_nobody_knows_is_not_made_twice(book: Open) -> None:
    ours = book(daily("d", 10), slots("s", 2))
    ours.taken(one("d"), one("d"), one("d"), one("d"))
    held = ours.taken(one("d"), one("d"), slot("s"))
    fail_commit(ours)
    with pytest.raises(Broken):
        ours.settle(held)
    assert ours.shared.owes
    assert 6 == ours.room(one("d"))
    assert 2 == ours.room(slot("s"))
    assert not ours.shared.owes


def test_the_slots_of_a_reservation_of_which_nobody_knows_are_freed(book: Open) -> None:
    ours = book(daily("d", 3), slots("s", 1))
    ours.taken(one("d"))
    fail_commit(ours)
    with pytest.raises(Broken):
        ours.reserve(one("d"), slot("s"))
    assert 1 == ours.room(slot("s"))
    assert 1 == ours.room(one("d"))  # the charge stays at its worst


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
