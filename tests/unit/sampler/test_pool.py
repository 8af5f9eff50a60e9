"""Which worker gets a call, and when workers start and end. The workers are stand-ins of a few lines, which answer only
the calls that are called ``answered``."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskGroup

from samplegate.sampler import pool
from samplegate.sampler.pool import BUSY, WorkerPool
from samplegate.sampler.process import WorkerGone, WorkerProcess
from tests.unit.sampler.test_client import EXCUSED, READY, is_running

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

WORKER = (
    READY
    + """
for line in sys.stdin:
    frame = json.loads(line)
    if frame.get('name') == 'answered':
        print(json.dumps({'id': frame['id']}), flush=True)
"""
)
ONLY_ONE = "import os, sys\nif os.path.exists('first'): sys.exit(3)\nopen('first', 'w').close()\n" + WORKER
KILL = signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL


class Calls:
    """Calls of a pool, and what became of them."""

    def __init__(self, pool: WorkerPool, group: TaskGroup) -> None:
        self.pool = pool
        self.rehearsed: list[WorkerProcess] = []
        """The workers that were rehearsed."""
        self.may_rehearse = anyio.Event()
        self.may_rehearse.set()
        self.failed: list[str] = []
        self._group = group

    async def rehearse(self, child: WorkerProcess) -> None:
        self.rehearsed.append(child)
        await self.may_rehearse.wait()

    async def call(self, name: str = "held") -> None:
        """Make a call, as the client does."""
        try:
            async with self.pool.slots:
                child = await self.pool.running(self.rehearse)
                await child.call({"name": name}, lambda _: None)
        except WorkerGone as why:
            self.failed.append(str(why))

    async def hold(self, count: int) -> None:
        """Begin calls that no worker answers, until each is at a worker."""
        wanted = sum(self.by_worker()) + count
        for _ in range(count):
            self._group.start_soon(self.call)
        await until(lambda: wanted == sum(self.by_worker()))

    def by_worker(self) -> list[int]:
        """The number of calls in flight at each worker."""
        return [worker.calls for worker in self.pool.states() if worker.state == "ready"]

    async def two(self) -> None:
        """Fill the first worker until it is busy, and wait for the second."""
        await self.hold(BUSY + 1)
        await until(lambda: 2 == len(self.pool.pids))


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while not condition():  # noqa: ASYNC110 - processes give no event
            await anyio.sleep(0.001)


@asynccontextmanager
async def calling(environment: Mapping[str, str], count: int, program: str = WORKER) -> AsyncIterator[Calls]:
    made = WorkerPool(environment, [sys.executable, "-c", program], count)
    async with anyio.create_task_group() as group:
        calls = Calls(made, group)
        try:
            yield calls
        finally:
            await made.release()
            group.cancel_scope.cancel()


async def test_a_second_worker_starts_only_when_the_first_is_busy(environment: Mapping[str, str]) -> None:
    async with calling(environment, 2) as calls:
        await calls.hold(BUSY)
        assert ["ready"] == [worker.state for worker in calls.pool.states()]
        await calls.hold(1)
        assert ["ready", "starting"] == [worker.state for worker in calls.pool.states()]
        assert [BUSY + 1] == calls.by_worker()
        await until(lambda: 2 == len(calls.pool.pids))
        assert [BUSY + 1, 0] == calls.by_worker()


async def test_there_are_never_more_workers_than_the_setting_permits(environment: Mapping[str, str]) -> None:
    async with calling(environment, 1) as calls:
        await calls.hold(3 * BUSY)
        assert ["ready"] == [worker.state for worker in calls.pool.states()]
    async with calling(environment, 2) as calls:
        await calls.two()
        await calls.hold(3 * BUSY)
        assert ["ready", "ready"] == [worker.state for worker in calls.pool.states()]


async def test_a_burst_before_the_first_worker_is_ready_starts_the_second(environment: Mapping[str, str]) -> None:
    async with calling(environment, 2) as calls:
        await calls.hold(2 * BUSY)
        await until(lambda: 2 == len(calls.pool.pids))


async def test_a_call_goes_to_the_worker_with_the_fewest_calls_in_flight(environment: Mapping[str, str]) -> None:
    async with calling(environment, 2) as calls:
        await calls.two()
        for second in range(1, BUSY + 2):
            await calls.hold(1)
            assert [BUSY + 1, second] == calls.by_worker()
        await calls.hold(4)
        assert [BUSY + 3, BUSY + 3] == calls.by_worker()
        await calls.call("answered")
        assert [BUSY + 3, BUSY + 3] == calls.by_worker()


async def test_a_worker_is_rehearsed_before_its_first_call_if_others_can_answer(environment: Mapping[str, str]) -> None:
    async with calling(environment, 2) as calls:
        calls.may_rehearse = anyio.Event()
        await calls.hold(BUSY + 1)
        assert [] == calls.rehearsed, "calls wait for the first worker"
        await until(lambda: 1 == len(calls.rehearsed))
        await calls.hold(1)
        assert [BUSY + 2] == calls.by_worker()
        calls.may_rehearse.set()
        await until(lambda: 2 == len(calls.pool.pids))
        assert calls.pool.pids[1:] == tuple(child.pid for child in calls.rehearsed)


async def test_a_dead_worker_fails_its_own_calls_only_and_is_replaced(environment: Mapping[str, str]) -> None:
    async with calling(environment, 2) as calls:
        await calls.two()
        await calls.hold(2)
        first, second = calls.pool.pids
        os.kill(second, KILL)
        await until(lambda: 2 == len(calls.failed))
        assert [BUSY + 1] == calls.by_worker()
        assert (first,) == calls.pool.pids
        assert ["ready", "not started"] == [worker.state for worker in calls.pool.states()]
        await calls.call("answered")
        await until(lambda: 2 == len(calls.pool.pids))
        assert first == calls.pool.pids[0]
        await calls.hold(1)
        assert [BUSY + 1, 1] == calls.by_worker()
        assert 2 == len(calls.failed)


async def test_if_all_workers_die_the_next_call_starts_one(environment: Mapping[str, str]) -> None:
    async with calling(environment, 2) as calls:
        await calls.two()
        before = calls.pool.pids
        for pid in before:
            os.kill(pid, KILL)
        await until(lambda: BUSY + 1 == len(calls.failed) and () == calls.pool.pids)
        await calls.call("answered")
        assert 1 == len(calls.pool.pids)
        assert not {*before} & {*calls.pool.pids}


async def test_without_a_worker_concurrent_calls_share_one_failed_start(environment: Mapping[str, str]) -> None:
    async with calling(environment, 4, EXCUSED) as calls, anyio.create_task_group() as group:
        for _ in range(3 * BUSY):
            group.start_soon(calls.call)
    assert {"the worker process cannot start: no litellm here; install it"} == {*calls.failed}
    assert 3 * BUSY == len(calls.failed)


async def test_a_failed_start_beside_a_running_worker_is_reported_and_retried_later(
    environment: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with calling(environment, 2, ONLY_ONE) as calls:
        problems: list[str] = []
        calls.pool.on_failed_start = problems.append
        await calls.hold(BUSY + 1)
        await until(lambda: bool(problems))
        assert "exited with code 3" in problems[0]
        await calls.hold(1)
        assert [("ready", BUSY + 2), ("failed", 0)] == [(each.state, each.calls) for each in calls.pool.states()]
        assert [] == calls.failed
        assert 1 == len(problems)


async def test_a_worker_that_dies_during_its_rehearsal_gets_no_call_and_is_a_failed_start(
    environment: Mapping[str, str],
) -> None:
    async with calling(environment, 2) as calls:
        problems: list[str] = []
        calls.pool.on_failed_start = problems.append
        calls.may_rehearse = anyio.Event()
        await calls.hold(BUSY + 1)
        await until(lambda: 1 == len(calls.rehearsed))
        os.kill(calls.rehearsed[0].pid, KILL)
        await until(lambda: not calls.rehearsed[0].alive)
        calls.may_rehearse.set()
        await until(lambda: bool(problems))
        await calls.hold(1)
        assert [("ready", BUSY + 2), ("failed", 0)] == [(each.state, each.calls) for each in calls.pool.states()]
        assert 1 == len(calls.rehearsed)


async def test_each_worker_has_slots_of_its_own(
    environment: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "BUSY", 1)
    monkeypatch.setattr(pool, "MAX_CALLS", 3)
    async with calling(environment, 2) as calls, anyio.create_task_group() as group:
        await calls.hold(2)
        await until(lambda: 2 == len(calls.pool.pids))
        await calls.hold(4)
        assert [3, 3] == calls.by_worker()
        for _ in range(4):
            group.start_soon(calls.call)
        await until(lambda: 4 == calls.pool.slots.statistics().tasks_waiting)
        os.kill(calls.pool.pids[1], KILL)
        await until(lambda: 3 == len(calls.failed))
        assert 3 == calls.by_worker()[0], "the slots of a dead worker are gone"
        group.cancel_scope.cancel()


async def test_closing_ends_every_worker_and_the_one_that_starts(environment: Mapping[str, str]) -> None:
    async with calling(environment, 3) as calls:
        await calls.two()
        calls.may_rehearse = anyio.Event()
        await calls.hold(BUSY + 1)
        await until(lambda: 2 == len(calls.rehearsed))
        pids = {*calls.pool.pids, *(child.pid for child in calls.rehearsed)}
        assert 3 == len(pids)
    assert [] == [pid for pid in pids if is_running(pid)]
    assert {"the worker process was stopped because the gate is shutting down"} == {*calls.failed}
