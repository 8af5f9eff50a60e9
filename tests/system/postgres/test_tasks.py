"""The store of tasks in PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from samplegate.errors import Unavailable
from samplegate.tasks.postgres_table import PostgresTable
from samplegate.tasks.store import SqlTasks, TaskStore
from tests.fakes import task_stores
from tests.fakes.postgresql import Database
from tests.fakes.task_stores import create

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "case", [task_stores.keeps_tasks, task_stores.undoes_a_lost_claim, task_stores.refuses_more_than_it_takes]
)
async def test_a_store(case: Callable[[TaskStore], object], database: Database) -> None:
    store = SqlTasks(lambda: PostgresTable(database.url), most=2)
    await case(store)  # type: ignore[misc]
    store.close()


async def test_each_key_goes_to_one_process(database: Database) -> None:
    await task_stores.gives_each_key_to_one(lambda: SqlTasks(lambda: PostgresTable(database.url)))


async def test_an_expired_task_makes_room(database: Database) -> None:
    store = SqlTasks(lambda: PostgresTable(database.url), most=1)
    await store.step("a", create("1"))
    database.rows("UPDATE tasks SET expires = 0")
    assert None is not await store.step("a", create("2"))
    assert 1 == database.value("SELECT count(*) FROM tasks")
    store.close()


async def test_a_database_that_is_gone_is_named_without_its_password(database: Database) -> None:
    store = SqlTasks(lambda: PostgresTable("postgresql://gate:hunter2@127.0.0.1:1/none"))
    with pytest.raises(Unavailable, match="tasks: ") as raised:
        await store.step("a", create())
    assert "hunter2" not in str(raised.value)
