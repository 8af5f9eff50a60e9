"""`samplegate database import`: balances and reviews of a state folder, once, and not while a gate runs."""

from __future__ import annotations

import hashlib
import sqlite3
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from samplegate.limits.postgres_ledger import PostgresLedger
from samplegate.policy.ledger import LimitSpec, Refused
from samplegate.reviews.review import Filter, Review
from samplegate.reviews.sql_store import SqlReviewStore
from samplegate.runtime import database_import
from tests.fakes.ledger_book import Book
from tests.fakes.limits import ONE, Clock, bucket, daily, one, slot, slots
from tests.fakes.postgresql import Database
from tests.fakes.shell import Ended, Run, Write
from tests.fakes.stored_reviews import APP, LOADING, NO, READY, YES, filled, form, review
from tests.system.limits.test_sqlite_ledger import Folder

LIMITS = (daily("d", 10), bucket("b", 5), slots("s", 2))


class Shared:
    """A ``Place``: the database."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def ledger(self, specs: dict[str, LimitSpec], clock: Clock, **more: Any) -> PostgresLedger:
        return PostgresLedger(specs, self.database.url, clock, time=clock, **more)

    def rows(self, table: str) -> int:
        return int(self.database.value(f"SELECT count(*) FROM {table}"))


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    return folder


def now() -> Clock:
    return Clock(time.time())


def imported(run: Run, database: Database, state: Path) -> Ended:
    return run("database", "import", "--database", database.url, "--state", str(state))


def spend(state: Path, number: int) -> None:
    book = Book(Folder(state), *LIMITS, clock=now())
    for _ in range(number):
        book.taken(one("d"), one("b"))
    book.taken(slot("s"))
    book.close()


def test_balances_are_added_to_those_in_the_database_and_the_file_is_renamed(
    run: Run, database: Database, state: Path
) -> None:
    spend(state, 3)
    shared = Book(Shared(database), *LIMITS, clock=now())
    shared.taken(one("d"), one("d"))
    shared.close()
    ended = imported(run, database, state)
    assert (0, "") == (ended.code, ended.err)
    assert "2 balances and 0 reviews imported" in ended.out
    assert f"renamed {state / 'limits.sqlite3.imported'}" in ended.out
    assert ["holders", "limits.sqlite3.imported"] == sorted(path.name for path in state.iterdir())
    after = Book(Shared(database), *LIMITS, clock=now())
    assert 5 == after.room(one("d"))
    assert 2 == after.room(slot("s"))
    assert isinstance(after.reserve(*[one("b")] * 3), Refused)
    after.close()


def test_nothing_is_imported_twice(run: Run, database: Database, state: Path) -> None:
    spend(state, 3)
    assert "2 balances" in imported(run, database, state).out
    assert "0 balances and 0 reviews" in imported(run, database, state).out
    (state / "limits.sqlite3.imported").rename(state / "limits.sqlite3")  # as after a kill before it was renamed
    assert "0 balances" in imported(run, database, state).out
    assert 3 * ONE == database.value("SELECT level FROM accounts WHERE limit_name LIKE '%day%'")


def test_another_file_with_other_balances_is_imported_too(run: Run, database: Database, state: Path) -> None:
    spend(state, 3)
    assert 0 == imported(run, database, state).code
    (state / "limits.sqlite3.imported").unlink()
    spend(state, 2)
    assert 0 == imported(run, database, state).code
    assert 5 * ONE == database.value("SELECT level FROM accounts WHERE limit_name LIKE '%day%'")


def test_an_import_that_is_interrupted_before_its_commit_leaves_all_as_it_was(
    run: Run, database: Database, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spend(state, 3)

    def fail(old: sqlite3.Connection, new: psycopg.Connection, at: float) -> int:
        copy(old, new, at)
        raise psycopg.OperationalError("the network is gone")

    copy = database_import._accounts
    with monkeypatch.context() as patch:
        patch.setattr(database_import, "_accounts", fail)
        ended = imported(run, database, state)
    assert 2 == ended.code
    assert "cannot be reached" in ended.err
    assert (state / "limits.sqlite3").exists()
    assert 0 == database.value("SELECT count(*) FROM accounts")
    assert "2 balances" in imported(run, database, state).out


def test_reviews_that_are_not_over_come_with_their_history_and_deliveries(
    run: Run, database: Database, state: Path
) -> None:
    old = SqlReviewStore(f"sqlite:{state / 'reviews.db'}")
    for id in ("rv_pending", "rv_approved", "rv_used", "rv_expired"):
        assert old.open(review(id, waiter=f"w {id}", late=1e6), announce=True, most=9)
    assert old.open(form("rv_form", late=1e6), announce=False, most=9)
    old.decide("rv_approved", YES, who="ana", door="api")
    old.decide("rv_form", filled(user="\u0000 \ud800", password="s3cret"), who="ana", door="page")
    old.decide("rv_used", NO, who="ana", door="cli")
    assert old.use([("rv_used", "w rv_used", "d9")])
    old.withdraw("rv_expired", waiter="w rv_expired", why="gone")
    before = {one.id: one for one in old.list(Filter(limit=99))}
    history = {id: [(event.what, event.who, event.at) for event in old.history(id)] for id in before}
    key = old.key()
    old.close()
    new = SqlReviewStore(database.url)
    assert new.open(review("rv_there"), announce=False, most=9)
    ended = imported(run, database, state)
    assert (0, "") == (ended.code, ended.err)
    assert "0 balances and 3 reviews imported" in ended.out
    left = {"rv_pending", "rv_approved", "rv_form"}
    assert {*left, "rv_there"} == {one.id for one in new.list(Filter(limit=99))}
    assert [before[id] for id in sorted(left)] == [new.get(id) for id in sorted(left)]
    assert {id: history[id] for id in left} == {
        id: [(event.what, event.who, event.at) for event in new.history(id)] for id in left
    }
    numbers = [event.number for event in new.changes(0, 99)]
    assert list(range(1, len(numbers) + 1)) == numbers
    assert key == new.key()
    assert 3 == database.value("SELECT count(*) FROM review_deliveries")
    assert new.seek("sha256:l", stage="request", waiter="w rv_approved", seconds=9.0)
    new.close()


def test_reviews_with_a_servers_ui_keep_its_bytes_and_the_verdict_that_is_bound_to_them(
    run: Run, database: Database, state: Path
) -> None:
    body = APP + bytes(range(256))
    ready = replace(READY, sha256=hashlib.sha256(body).hexdigest(), size=len(body), context={"theme": "light"})
    failed = replace(LOADING, state="failed", problem="no answer within 10s")
    ids = ("rv_bound", "rv_ready", "rv_failed", "rv_loading")
    old = SqlReviewStore(f"sqlite:{state / 'reviews.db'}")
    for id in ids:
        assert old.open(form(id, late=1e6, expires=time.time() + 900, ui=LOADING), announce=False, most=9)
    for id, ui in (("rv_bound", ready), ("rv_ready", ready), ("rv_failed", failed)):
        assert old.attach_ui(id, ui, body if ui is ready else b"") is not None
    bound = replace(filled(user="ann"), ui=ready.sha256)
    assert isinstance(old.decide("rv_bound", bound, who="ana", door="page"), Review)
    before = [old.get(id) for id in ids]
    old.close()
    ended = imported(run, database, state)
    assert (0, "") == (ended.code, ended.err)
    new = SqlReviewStore(database.url)
    after = [new.get(id) for id in ids]
    assert before == after
    assert [ready, ready, failed, LOADING] == [one.ui for one in after if one is not None]
    assert [body, body, None, None] == [new.ui_body(id) for id in ids]
    assert after[0] is not None
    assert bound == after[0].verdict
    assert body == new.open_ui("rv_ready", ready.sha256, token="t", until=time.time() + 60), "a page can show it"
    new.close()


def test_the_key_of_a_database_that_has_one_stays(run: Run, database: Database, state: Path) -> None:
    old, new = SqlReviewStore(f"sqlite:{state / 'reviews.db'}"), SqlReviewStore(database.url)
    assert old.key() != (key := new.key())
    old.close()
    assert 0 == imported(run, database, state).code
    assert key == new.key()
    new.close()


@pytest.mark.parametrize("what", ["counts", "slots", "reviews"])
def test_a_gate_that_runs_is_in_the_way(run: Run, database: Database, state: Path, what: str) -> None:
    """Also one that only counts requests, and has taken no slot."""
    if what == "reviews":
        store = SqlReviewStore(f"sqlite:{state / 'reviews.db'}")
        store.last_change()
        close, name = store.close, "reviews.db"
    else:
        gate = Book(Folder(state), *LIMITS, clock=now())
        gate.taken(one("d") if what == "counts" else slot("s"))
        close, name = gate.close, "limits.sqlite3"
    ended = imported(run, database, state)
    assert (2, "") == (ended.code, ended.out)
    assert "a gate that uses it is running; stop all gates first" in ended.err
    assert (state / name).exists()
    close()
    assert 0 == imported(run, database, state).code


def test_a_state_folder_without_files_has_nothing_to_import(run: Run, database: Database, state: Path) -> None:
    ended = imported(run, database, state)
    assert "0 balances and 0 reviews imported" in ended.out
    assert f"{state}: no file of limits or reviews was found" in ended.out


def test_a_state_folder_that_is_not_there_is_refused(run: Run, database: Database, state: Path) -> None:
    """A mistyped name would begin every budget at zero."""
    ended = imported(run, database, state / "other")
    assert (2, "") == (ended.code, ended.out)
    assert f"{state / 'other'}: there is no such folder" in ended.err


def test_a_store_that_takes_precedence_keeps_its_reviews(
    run: Run, write: Write, database: Database, state: Path
) -> None:
    store = SqlReviewStore(f"sqlite:{state / 'own.db'}")
    assert store.open(review("rv_own"), announce=False, most=9)
    store.close()
    write("s.yaml", f"database: {database.url}\nstate: {state}\nstore: sqlite:{state / 'own.db'}\n")
    ended = run("database", "import", "--settings", "s.yaml")
    assert (0, "") == (ended.code, ended.err)
    assert "store: takes precedence over `database`, so its reviews stay where they are" in ended.out
    assert (state / "own.db").exists()


def test_sessions_that_were_ended_stay_so(run: Run, database: Database, state: Path) -> None:
    """The database takes over the key of their cookies."""
    old, new = SqlReviewStore(f"sqlite:{state / 'reviews.db'}"), SqlReviewStore(database.url)
    old.end_session("one", token="t", until=time.time() + 900)
    ended = old.ended_sessions()
    old.close()
    assert 0 == imported(run, database, state).code
    assert ended == new.ended_sessions()
    new.close()


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0" + b"x" * 2_000])
def test_a_damaged_file_is_refused_and_kept(run: Run, database: Database, state: Path, content: bytes) -> None:
    (state / "limits.sqlite3").write_bytes(content)
    ended = imported(run, database, state)
    assert 2 == ended.code
    assert "limits.sqlite3" in ended.err
    assert content == (state / "limits.sqlite3").read_bytes()


def test_a_review_that_is_in_both_fails_and_changes_nothing(run: Run, database: Database, state: Path) -> None:
    old, new = SqlReviewStore(f"sqlite:{state / 'reviews.db'}"), SqlReviewStore(database.url)
    for store in (old, new):
        assert store.open(review("rv_same"), announce=False, most=9)
    assert old.open(review("rv_other"), announce=False, most=9)
    old.close()
    ended = imported(run, database, state)
    assert 2 == ended.code
    assert "it has review rv_same already; was a copy of the state folder imported?" in ended.err
    assert ["rv_same"] == [one.id for one in new.list(Filter(limit=9))]
    new.close()


def test_the_highest_levels_can_be_added(run: Run, database: Database, state: Path) -> None:
    spend(state, 1)
    with sqlite3.connect(state / "limits.sqlite3") as db:
        db.execute("UPDATE accounts SET level = ?", (4 * 10**18,))
    db.close()
    shared = Book(Shared(database), *LIMITS, clock=now())
    shared.taken(one("b"), one("d"))
    shared.close()
    database.rows("UPDATE accounts SET level = %s", 4 * 10**18)
    assert 0 == imported(run, database, state).code
    assert (4 * 10**18, 4 * 10**18) == database.rows("SELECT min(level), max(level) FROM accounts")[0]
    again = Book(Shared(database), *LIMITS, clock=now())
    again.refused(one("b"))
    again.close()
