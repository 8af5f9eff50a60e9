"""The watch over the shared database: what it tells, and that it survives faults of its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from samplegate.runtime import database as watching
from samplegate.runtime.database import DatabaseWatch
from tests.fakes import postgresql
from tests.fakes.database_proxy import database_proxy
from tests.fakes.postgresql import Database, Server

pytestmark = pytest.mark.anyio


class Context:
    """What the watch uses of a process."""

    def __init__(self) -> None:
        self.database_problems: tuple[str, ...] = ()
        self.withdrawn: frozenset[bytes] = frozenset()
        self.told: list[tuple[str, str]] = []
        self.log = SimpleNamespace(error=self._tell, warning=self._tell, info=self._tell)
        self.metrics = SimpleNamespace(set=self._set)
        self.failing: list[float] = []
        self.broken = False

    def _tell(self, event: str, *, problem: str = "", **_: object) -> None:
        self.told.append((event, problem))

    def _set(self, name: str, value: float) -> None:
        if self.broken:
            raise KeyError(name)
        if name == "samplegate_database_failing":
            self.failing.append(value)

    async def until(self, event: str, times: int = 1) -> None:
        with anyio.fail_after(30):
            while [name for name, _ in self.told].count(event) < times:
                await anyio.lowlevel.checkpoint()


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "INTERVAL", 0.01)


@pytest.mark.usefixtures("often")
async def test_a_database_that_fails_is_told_once_and_so_is_its_return(cluster: Server, database: Database) -> None:
    context: Any = Context()
    with database_proxy(cluster.socket) as proxy:
        url = postgresql.tcp_url(proxy.port, name=database.place.rpartition("=")[2])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(DatabaseWatch(context, url).run)
            for times in (1, 2):
                proxy.refuse(True)
                await context.until("database.problem", times)
                assert "cannot be reached" in context.database_problems[0]
                proxy.refuse(False)
                await context.until("database.works", times)
            tasks.cancel_scope.cancel()
    assert ["database.problem", "database.works"] * 2 == [event for event, _ in context.told]
    assert {0.0, 1.0} == set(context.failing)


@pytest.mark.usefixtures("often")
async def test_a_fault_of_its_own_does_not_end_the_gate(database: Database) -> None:
    context: Any = Context()
    context.broken = True
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(DatabaseWatch(context, database.url).run)
        await context.until("database.watch_failed", 2)
        context.broken = False
        with anyio.fail_after(30):
            while not context.failing:
                await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()


TOKENS = ("11" * 32, "22" * 32)


@pytest.mark.usefixtures("often")
async def test_a_token_that_is_withdrawn_while_the_database_fails_is_withdrawn_later(
    cluster: Server, database: Database
) -> None:
    """The log says that the others accept it until then. What was done last counts."""
    context: Any = Context()
    with database_proxy(cluster.socket) as proxy:
        url = postgresql.tcp_url(proxy.port, name=database.place.rpartition("=")[2])
        watch = DatabaseWatch(context, url)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch.run)
            while not context.failing:
                await anyio.lowlevel.checkpoint()
            proxy.refuse(True)
            await context.until("database.problem")
            await watch.withdraw(TOKENS, [])
            await watch.withdraw([], TOKENS[1:])
            await context.until("database.tokens_not_withdrawn", 2)
            proxy.refuse(False)
            with anyio.fail_after(30):
                while not context.withdrawn:
                    await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
    assert frozenset([bytes.fromhex(TOKENS[0])]) == context.withdrawn
