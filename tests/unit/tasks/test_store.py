"""Stores of tasks in memory and in a file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from samplegate.errors import Unavailable
from samplegate.protocol.task_state import TaskRecord, unchanged
from samplegate.tasks import store as tasks
from samplegate.tasks.sqlite_table import FILE, SqliteTable
from samplegate.tasks.store import MemoryTasks, SqlTasks, TaskStore
from tests.fakes import task_stores
from tests.fakes.task_stores import LIFE, create, step

pytestmark = pytest.mark.anyio


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[TaskStore]:
    made: TaskStore
    if request.param == "memory":
        made = MemoryTasks(clock, most=2)
    else:
        made = SqlTasks(lambda: SqliteTable(tmp_path, clock), most=2)
    yield made
    made.close()


@pytest.mark.parametrize(
    "case", [task_stores.keeps_tasks, task_stores.undoes_a_lost_claim, task_stores.refuses_more_than_it_takes]
)
async def test_a_store(case: Callable[[TaskStore], object], store: TaskStore) -> None:
    await case(store)  # type: ignore[misc]


async def test_an_expired_task_is_gone_and_makes_room(store: TaskStore, clock: Clock) -> None:
    for id in ("1", "2"):
        await store.step("a", create(id))
    clock.now += LIFE
    assert None is await store.step("a", step(unchanged))
    made = await store.step("a", create("1", token="new"))
    assert made is not None
    assert "new" == made.token


async def test_each_key_goes_to_one_process(tmp_path: Path) -> None:
    await task_stores.gives_each_key_to_one(lambda: SqlTasks(lambda: SqliteTable(tmp_path)))


async def test_the_file_is_for_its_owner_and_keeps_no_content_that_was_removed(tmp_path: Path) -> None:
    store = SqlTasks(lambda: SqliteTable(tmp_path))

    def remember(record: TaskRecord, now: float) -> bool:
        record.params = '{"secret":"hunter2"}'
        return True

    def forget(record: TaskRecord, now: float) -> bool:
        record.params = None
        return True

    await store.step("a", create())
    await store.step("a", step(remember))
    await store.step("a", step(forget))
    store.close()
    assert 0o600 == (tmp_path / FILE).stat().st_mode & 0o777
    assert [] == files_with(tmp_path, b"hunter2")


def files_with(folder: Path, text: bytes) -> list[str]:
    return [file.name for file in folder.iterdir() if text in file.read_bytes()]


async def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("no database, but long enough for a header" * 10)
    store = SqlTasks(lambda: SqliteTable(tmp_path))
    with pytest.raises(Unavailable, match=f"tasks: {FILE} in the state folder"):
        await store.step("a", create())


async def test_a_file_that_recovers_is_used_again(tmp_path: Path) -> None:
    store = SqlTasks(lambda: SqliteTable(tmp_path))
    await store.step("a", create())
    other = sqlite3.connect(tmp_path / FILE)
    other.execute("BEGIN IMMEDIATE")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks, "TIMEOUT", 0.05)
        with pytest.raises(Unavailable, match="locked"):
            await store.step("a", step(lambda _record, _now: True))
    other.rollback()
    other.close()
    assert None is not await store.step("a", step(unchanged))
    store.close()


async def test_the_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "MAX_MEMORY", 1_000)
    store = MemoryTasks()
    await store.step("a", create("1"))
    await store.step("a", create("2"))
    with pytest.raises(Unavailable, match="memory"):
        await store.step("a", create("3"))
