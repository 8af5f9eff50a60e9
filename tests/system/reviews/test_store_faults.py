"""A store that is locked, missing, full, damaged, foreign or newer: every call reports it, and nothing is taken for a
verdict."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from samplegate import sqlite
from samplegate.errors import Unavailable
from samplegate.reviews import async_store as threads
from samplegate.reviews import sql_database
from samplegate.reviews.async_store import AsyncReviewStore
from samplegate.reviews.review import Filter, Review
from samplegate.reviews.sql_database import OutcomeUnknown, SqliteDatabase, path_of
from samplegate.reviews.sql_store import SqlReviewStore
from samplegate.sqlite import CoreFile
from tests.fakes.review_store import TimedReviews
from tests.fakes.stored_reviews import NOW, YES, filled, form, review


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "reviews.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqlReviewStore]:
    opened = SqlReviewStore(f"sqlite:{path}")
    yield opened
    opened.close()


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another connection holds the write lock."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def test_the_file_and_its_folder_are_made_for_their_owner_alone(store: SqlReviewStore, path: Path) -> None:
    store.open(review(), announce=False, most=9)
    assert (0o700, {0o600}) == (
        path.parent.stat().st_mode & 0o777,
        {file.stat().st_mode & 0o777 for file in path.parent.iterdir()},
    )


def test_nothing_is_made_before_the_first_call(store: SqlReviewStore, path: Path) -> None:
    assert store.changed == 0
    assert not path.parent.exists()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("mysql://bob:hunter2@db/reviews", r"store: unknown kind 'mysql'; write sqlite:PATH or postgresql://..."),
        ("/var/lib/reviews.db", r"store: it has no kind; write sqlite:PATH or postgresql://..."),
        ("sqlite:", r"store: it has no path; write sqlite:PATH"),
    ],
)
def test_a_store_of_another_kind_is_refused_without_its_password(url: str, says: str) -> None:
    with pytest.raises(Unavailable) as refused:
        SqlReviewStore(url)
    assert says == str(refused.value)
    assert Path("x/y.db") == path_of("sqlite:x/y.db")


def test_a_store_that_is_to_be_there_is_not_made(path: Path) -> None:
    with pytest.raises(Unavailable, match=r"reviews\.db: it does not exist; pass the gate's store with --store"):
        SqlReviewStore(f"sqlite:{path}", make=False).last_change()
    assert not path.parent.exists()


def test_a_lock_that_is_held_too_long_is_unavailable_and_reading_goes_on(
    store: SqlReviewStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_database, "PATIENCE", 0.05)
    store.open(review(), announce=False, most=9)
    with locked(path):
        with pytest.raises(Unavailable, match="another process has locked it"):
            store.decide("rv_a", YES, who="ann", door="page")
        found = store.get("rv_a")
        assert found is not None
        assert "pending" == found.state
    assert store.decide("rv_a", YES, who="ann", door="page") is not None


def test_a_lock_that_is_given_back_in_time_is_waited_for(store: SqlReviewStore, path: Path) -> None:
    store.open(review(), announce=False, most=9)
    begun = threading.Event()
    done: list[object] = []

    def decide() -> None:
        begun.set()
        done.append(store.decide("rv_a", YES, who="ann", door="page"))

    with locked(path):
        thread = threading.Thread(target=decide)
        thread.start()
        begun.wait(10)
        assert [] == done
    thread.join(20)
    assert 1 == len(done)


@pytest.mark.anyio
async def test_calls_that_wait_for_one_another_share_one_patience(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, refused = AsyncReviewStore(f"sqlite:{path}"), []
    await store.write(lambda reviews: reviews.open(review(), announce=False, most=9))
    monkeypatch.setattr(sql_database, "PATIENCE", 0.3)

    async def decide() -> None:
        with pytest.raises(Unavailable):
            await store.write(lambda reviews: reviews.decide("rv_a", YES, who="ann", door="page"))
        refused.append(1)

    with locked(path), anyio.fail_after(10):  # forty timeouts would be 12 s
        async with anyio.create_task_group() as group:
            for _ in range(40):
                group.start_soon(decide)
    assert 40 == len(refused)
    store.close()


@pytest.mark.anyio
async def test_a_call_that_does_not_end_is_not_waited_for_by_those_behind_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "STALL_TIMEOUT", 0.05)
    store, begun, over = AsyncReviewStore(f"sqlite:{path}"), threading.Event(), threading.Event()
    real = SqlReviewStore.key

    def hangs(self: SqlReviewStore) -> bytes:
        begun.set()
        assert over.wait(60)
        return real(self)

    monkeypatch.setattr(SqlReviewStore, "key", hangs)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(store.write, lambda reviews: reviews.key())
            await anyio.to_thread.run_sync(begun.wait)
            with pytest.raises(
                Unavailable, match=r"review store: a call has not finished within 0\.05s; check the disk"
            ):
                await store.write(lambda reviews: reviews.expire())
            over.set()
        assert [] == await store.write(lambda reviews: reviews.expire())
    finally:
        over.set()
        store.close()


@pytest.mark.anyio
async def test_a_fault_tells_watchers_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_database, "PATIENCE", 0.01)
    store, told = AsyncReviewStore(f"sqlite:{path}"), []
    await store.write(lambda reviews: reviews.open(review(), announce=False, most=9))
    store.watch(lambda: told.append(1))
    with locked(path), pytest.raises(Unavailable):
        await store.write(lambda reviews: reviews.decide("rv_a", YES, who="ann", door="page"))
    assert [] == told
    store.close()


@pytest.mark.anyio
async def test_a_call_that_is_cancelled_once_begun_is_carried_out_and_told(path: Path) -> None:
    store, told = AsyncReviewStore(f"sqlite:{path}"), []
    await store.write(lambda reviews: reviews.open(review(), announce=False, most=9))
    with anyio.CancelScope() as scope:

        def nudge() -> None:
            told.append(1)
            scope.cancel()

        store.watch(nudge)
        await store.write(lambda reviews: reviews.decide("rv_a", YES, who="ann", door="page"))
        await anyio.lowlevel.checkpoint()
        told.append(2)
    found = await store.read(lambda reviews: reviews.get("rv_a"))
    assert found is not None
    assert ([1], "approved") == (told, found.state)
    store.close()


def test_a_file_that_is_gone_holds_no_verdict_and_a_new_one_takes_its_place(store: SqlReviewStore, path: Path) -> None:
    store.open(review(waiter="w", held_until=NOW + 50), announce=False, most=9)
    store.decide("rv_a", YES, who="ann", door="page")
    for file in path.parent.iterdir():
        file.unlink()
    assert not store.use([("rv_a", "w", "d")])
    assert ([], 0) == (store.list(Filter()), store.last_change())
    assert store.open(review(), announce=False, most=9)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_unavailable(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(Unavailable, match="Permission denied"):
        SqlReviewStore(f"sqlite:{tmp_path / 'reviews.db'}").last_change()
    tmp_path.chmod(0o700)


def test_a_folder_that_is_a_file_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(Unavailable, match=r"file/reviews\.db: Not a directory"):
        SqlReviewStore(f"sqlite:{tmp_path / 'file' / 'reviews.db'}").last_change()


def test_a_store_that_is_a_folder_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"cannot be opened|Is a directory"):
        SqlReviewStore(f"sqlite:{tmp_path}").last_change()


def test_a_full_disk_is_unavailable_and_leaves_no_half_review(
    store: SqlReviewStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.open(review(), announce=False, most=9)
    store.close()
    monkeypatch.setattr(sqlite, "MAX_PAGES", 60)
    with pytest.raises(Unavailable, match="its disk is full; free disk space"):
        store.open(review("rv_b", params={"text": "x" * 1_000_000}), announce=True, most=9)
    assert (None, [], ["rv_a"]) == (store.get("rv_b"), store.history("rv_b"), [one.id for one in store.list(Filter())])
    assert store.decide("rv_a", YES, who="ann", door="page") is not None


def test_a_secret_that_has_served_is_in_no_file_of_the_store(store: SqlReviewStore, path: Path) -> None:
    store.open(form(waiter="w", held_until=NOW + 9), announce=False, most=9)
    store.decide("rv_f", filled(user="ann", password="hunter2"), who="ann", door="page")
    assert b"hunter2" in b"".join(file.read_bytes() for file in path.parent.iterdir())
    store.use([("rv_f", "w", "d")])
    assert b"hunter2" not in b"".join(file.read_bytes() for file in path.parent.iterdir())


def test_a_use_that_is_repeated_erases_what_the_first_one_did_not(
    store: SqlReviewStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.open(form(waiter="w", held_until=NOW + 9), announce=False, most=9)
    store.decide("rv_f", filled(user="ann", password="hunter2"), who="ann", door="page")
    with monkeypatch.context() as patch:
        patch.setattr(store.database, "scrub", lambda: None)  # the process ended before
        assert store.use([("rv_f", "w", "d")])
    assert store.use([("rv_f", "w", "d")])
    assert b"hunter2" not in b"".join(file.read_bytes() for file in path.parent.iterdir())


class FailingCommit:
    """A connection whose next commit raises, after it has succeeded or in place of it."""

    def __init__(self, file: CoreFile, *, succeeds: bool) -> None:
        self._file, self._db, self._succeeds = file, file._db, succeeds
        file._db = self  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    def commit(self) -> None:
        self._file._db = self._db
        if self._succeeds:
            self._db.commit()  # type: ignore[union-attr]
        raise sqlite3.OperationalError("disk I/O error")


def file_of(store: SqlReviewStore) -> CoreFile:
    assert isinstance(store.database, SqliteDatabase)
    return store.database._file


@pytest.mark.parametrize("succeeds", [True, False])
def test_a_use_whose_commit_fails_is_asked_again_and_is_one_use(store: SqlReviewStore, succeeds: bool) -> None:
    store.open(review(waiter="w", held_until=NOW + 9), announce=False, most=9)
    store.decide("rv_a", YES, who="ann", door="page")
    FailingCommit(file_of(store), succeeds=succeeds)
    assert store.use([("rv_a", "w", "d")])
    assert ["opened", "approved", "used"] == [event.what for event in store.history("rv_a")]
    assert not store.use([("rv_a", "w", "e")])


def test_a_verdict_whose_commit_fails_is_unavailable(store: SqlReviewStore) -> None:
    store.open(review(), announce=False, most=9)
    FailingCommit(file_of(store), succeeds=False)
    with pytest.raises(OutcomeUnknown, match="review store "):
        store.decide("rv_a", YES, who="ann", door="page")
    assert ["opened"] == [event.what for event in store.history("rv_a")]


def test_what_is_forgotten_is_in_no_file_of_the_store(path: Path) -> None:
    with contextlib.closing(TimedReviews(f"sqlite:{path}")) as store:
        store.open(review(params={"text": "remember me" * 10_000}), announce=False, most=9)
        store.at(NOW + 100).expire()
        assert 1 == store.at(NOW + 101).purge(0.0)
        assert b"remember me" not in b"".join(file.read_bytes() for file in path.parent.iterdir())


@pytest.mark.anyio
async def test_a_store_that_was_closed_opens_again(path: Path) -> None:
    store = AsyncReviewStore(f"sqlite:{path}")
    await store.write(lambda reviews: reviews.open(review(), announce=False, most=9))
    store.close()
    found = await store.read(lambda reviews: reviews.get("rv_a"))
    assert found is not None
    assert isinstance(await store.write(lambda reviews: reviews.decide("rv_a", YES, who="ann", door="page")), Review)
    store.close()


@pytest.mark.anyio
async def test_closing_waits_for_a_call_under_way(path: Path) -> None:
    store = AsyncReviewStore(f"sqlite:{path}")
    await store.write(lambda reviews: reviews.open(review(), announce=False, most=9))
    done: list[object] = []

    async def decide() -> None:
        done.append(await store.write(lambda reviews: reviews.decide("rv_a", YES, who="ann", door="page")))

    async with anyio.create_task_group() as group:
        group.start_soon(decide)
        await anyio.lowlevel.checkpoint()
        store.close()
    assert isinstance(done[0], Review)
    store.close()


def test_what_is_no_database_is_left_as_it_is(store: SqlReviewStore, path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"my shopping list\n" * 100)
    with pytest.raises(Unavailable, match="it is not a database; use another file"):
        store.last_change()
    assert b"my shopping list\n" * 100 == path.read_bytes()


def test_a_damaged_database_is_unavailable(store: SqlReviewStore, path: Path) -> None:
    for n in range(50):
        store.open(review(f"rv_{n}"), announce=False, most=99)
    store.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(Unavailable, match=r"it is corrupted; move it aside"):
        store.list(Filter())


def test_a_database_of_something_else_is_left_as_it_is(store: SqlReviewStore, path: Path) -> None:
    path.parent.mkdir()
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE songs (name)")
    before = path.read_bytes()
    with pytest.raises(Unavailable, match="it contains tables from another program; use another store"):
        store.last_change()
    assert before == path.read_bytes()


def test_a_database_of_a_newer_version_is_left_as_it_is(store: SqlReviewStore, path: Path) -> None:
    store.last_change()
    store.close()
    with contextlib.closing(sqlite3.connect(path)) as newer, newer:
        newer.execute("UPDATE review_version SET version_num = '0099'")
    with pytest.raises(
        Unavailable,
        match=(
            r"its reviews have version '0099', but this samplegate supports '0003'; use a matching samplegate version,"
            r" or use another"
            r" store"
        ),
    ):
        store.last_change()
