"""The asynchronous decision log: its queue and deadlines, over a fake sink."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager

import anyio
import anyio.lowlevel
import pytest

from samplegate.audit import decision_log
from samplegate.audit.decision_log import AsyncDecisionLog
from samplegate.audit.record import Record
from samplegate.errors import Unavailable
from samplegate.files import Patience
from tests.fakes.loops import BOTH_LOOPS
from tests.fakes.records import RECORD, numbers, record

pytestmark = pytest.mark.anyio
WAIT = 30.0  # seconds; a bound that only ends a hang


class FakeSink:
    """A sink that keeps record ids. Each call waits for ``go`` and fails with the result of ``fails`` for its ids."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.kept: list[str] = []
        self.most = 1_000
        self.probes = 0
        self.closed = 0
        self.go = threading.Event()
        self.go.set()
        self.begun = threading.Semaphore(0)
        self.fails: Callable[[list[str]], Exception | None] = lambda _: None

    def location(self, now: float) -> str:
        return "the place"

    def fault(self, now: float) -> str | None:
        return None

    def write_first(self, records: Sequence[Record], patience: Patience) -> int:
        ids = [one.decision_id for one in records][: self.most]
        self.calls.append(ids)
        self.begun.release()
        assert self.go.wait(WAIT)
        if (problem := self.fails(ids)) is not None:
            raise problem
        self.kept += ids
        return len(ids)

    def probe(self, patience: Patience) -> None:
        self.probes += 1
        if (problem := self.fails([])) is not None:
            raise problem

    def close(self) -> None:
        self.closed += 1

    @contextmanager
    def held(self) -> Iterator[None]:
        """Calls that begin inside the block end only after it."""
        self.go.clear()
        try:
            yield
        finally:
            self.go.set()

    async def entered(self) -> None:
        """Wait until a call has begun."""
        assert await anyio.to_thread.run_sync(lambda: self.begun.acquire(timeout=WAIT))


def full(_: list[str]) -> Exception:
    return OSError(28, "No space left on device")


async def blocked() -> None:
    """Run every task until it blocks."""
    for _ in range(20):
        await anyio.lowlevel.checkpoint()


async def refused(log: AsyncDecisionLog, *ids: object) -> list[str]:
    """The error message of each write, one write after the other."""
    why = []
    for id in ids:
        with pytest.raises(Unavailable) as problem:
            await log.write(record(id))
        why.append(str(problem.value))
    return why


async def until(what: Callable[[], bool], turn: Callable[[], Awaitable[object]]) -> None:
    with anyio.fail_after(WAIT):
        while not what():
            await turn()


async def test_what_comes_while_a_batch_is_under_way_is_the_next_batch() -> None:
    sink = FakeSink()
    log = AsyncDecisionLog(sink)
    with anyio.fail_after(WAIT):
        async with anyio.create_task_group() as group:
            with sink.held():
                group.start_soon(log.write, record("first"))
                await sink.entered()
                for number in range(20):
                    group.start_soon(log.write, record(number))
                await blocked()
    assert [["first"], numbers(range(20))] == sink.calls
    assert "the place" == log.last


async def test_a_place_that_takes_only_some_is_given_the_others_again() -> None:
    sink = FakeSink()
    sink.most = 3
    log = AsyncDecisionLog(sink)
    async with anyio.create_task_group() as group:
        with sink.held():
            for number in range(8):
                group.start_soon(log.write, record(number))
            await blocked()
    assert numbers(range(8)) == sink.kept
    assert 3 == max(map(len, sink.calls))


async def test_a_failure_is_told_to_all_that_waited_for_it() -> None:
    sink = FakeSink()
    log = AsyncDecisionLog(sink)
    sink.fails = full
    told: list[str] = []

    async def write(number: int) -> None:
        told.extend(await refused(log, number))

    async with anyio.create_task_group() as group:
        with sink.held():
            group.start_soon(write, 0)
            await sink.entered()
            for number in range(1, 5):
                group.start_soon(write, number)
            await blocked()
    assert ["decision log: the place cannot be written: No space left on device"] * 5 == told
    assert [["0"], ["1", "2", "3", "4"]] == sink.calls


async def test_a_record_that_nothing_can_be_made_of_is_nobody_elses_fault() -> None:
    sink = FakeSink()
    log = AsyncDecisionLog(sink)
    sink.fails = lambda ids: ZeroDivisionError() if "bad" in ids else None
    failed: list[str] = []

    async def write(id: str) -> None:
        try:
            await log.write(record(id))
        except ZeroDivisionError:
            failed.append(id)

    async with anyio.create_task_group() as group:
        with sink.held():
            group.start_soon(write, "first")
            await sink.entered()
            for id in ("a", "bad", "b"):
                group.start_soon(write, id)
            await blocked()
    assert (["first", "a", "b"], ["bad"]) == (sink.kept, failed)


async def test_a_record_waits_only_so_long_for_earlier_ones() -> None:
    sink = FakeSink()
    log = AsyncDecisionLog(sink, queue=1.0)  # the thread takes the first one in this time, also on a loaded machine
    async with anyio.create_task_group() as group:
        with sink.held():
            group.start_soon(log.write, record("first"))
            await sink.entered()
            assert [
                "decision log: the place could not be written in time (earlier records are still waiting)"
            ] == await refused(log, "late")
    assert ["first"] == sink.kept


async def test_a_disk_that_does_not_answer_keeps_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = FakeSink()
    log = AsyncDecisionLog(sink, queue=0.05)
    monkeypatch.setattr(decision_log, "GRACE", 0.05)
    with sink.held():
        assert ["decision log: the place could not be written in time (the disk is not responding)"] == await refused(
            log, "stuck"
        )
        assert "the disk is not responding" in str(log.problem())


async def test_no_more_wait_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision_log, "MAX_WAITING", 2)
    sink = FakeSink()
    log = AsyncDecisionLog(sink)
    async with anyio.create_task_group() as group:
        with sink.held():
            group.start_soon(log.write, record("first"))
            await sink.entered()
            for id in ("a", "b"):
                group.start_soon(log.write, record(id))
            await blocked()
            assert ["decision log: the place accepts no more records: 2 are already waiting"] == await refused(
                log, "too many"
            )
    assert ["first", "a", "b"] == sink.kept


@BOTH_LOOPS
async def test_who_is_cancelled_before_its_turn_is_not_on_record() -> None:
    sink = FakeSink()
    log = AsyncDecisionLog(sink)
    async with anyio.create_task_group() as group:
        with sink.held():
            group.start_soon(log.write, record("first"))
            await sink.entered()
            async with anyio.create_task_group() as others:
                others.start_soon(log.write, record("cancelled"))
                await blocked()
                others.cancel_scope.cancel()
            group.start_soon(log.write, record("last"))
            await blocked()
    assert ["first", "last"] == sink.kept


@BOTH_LOOPS
async def test_who_is_cancelled_during_its_turn_waits_and_knows_that_it_stands() -> None:
    sink = FakeSink()
    log = AsyncDecisionLog(sink)
    stood: list[str] = []

    async def write() -> None:
        await log.write(RECORD)
        stood.append("it stands")

    async with anyio.create_task_group() as group:
        with sink.held():
            group.start_soon(write)
            await sink.entered()
            group.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await blocked()
            assert [] == stood
    assert (["d1"], ["it stands"]) == (sink.kept, stood)


async def test_a_problem_is_told_until_a_record_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision_log, "PROBE_INTERVAL", 1_000.0)
    sink = FakeSink()
    log = AsyncDecisionLog(sink)
    assert log.problem() is None
    sink.fails = full
    await refused(log, "lost")
    assert "decision log: the place cannot be written: No space left on device" == log.problem()
    sink.fails = lambda _: None
    await log.write(RECORD)
    assert log.problem() is None


async def test_a_problem_is_over_when_a_probe_finds_room_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision_log, "PROBE_INTERVAL", 0.0)
    sink = FakeSink()
    log = AsyncDecisionLog(sink)
    sink.fails = full
    await refused(log, "lost")
    while sink.probes < 3:
        assert log.problem() is not None
        await anyio.lowlevel.checkpoint()
    sink.fails = lambda _: None
    await until(lambda: log.problem() is None, anyio.lowlevel.checkpoint)
    assert [] == sink.kept


async def test_probes_are_not_made_at_every_question() -> None:
    sink = FakeSink()
    log = AsyncDecisionLog(sink)
    sink.fails = full
    await refused(log, "lost")
    for _ in range(100):
        assert log.problem() is not None
    await log.aclose()
    assert 1 == sink.probes


async def test_the_end_waits_for_what_waits_and_takes_nothing_any_more() -> None:
    sink = FakeSink()
    log = AsyncDecisionLog(sink)
    async with anyio.create_task_group() as group:
        with sink.held():
            group.start_soon(log.write, record("first"))
            await sink.entered()
            group.start_soon(log.write, record("second"))
            await blocked()
            group.start_soon(log.aclose)
            await blocked()
            assert 0 == sink.closed
    assert (["first", "second"], 1) == (sink.kept, sink.closed)
    assert ["decision log: the place accepts no more records: the log is closed"] == await refused(log, "late")


async def test_an_end_before_any_record_starts_nothing() -> None:
    sink = FakeSink()
    await AsyncDecisionLog(sink).aclose()
    assert (0, []) == (sink.closed, sink.calls)


async def test_an_end_does_not_wait_for_a_disk_that_does_not_answer() -> None:
    sink = FakeSink()
    log = AsyncDecisionLog(sink)
    with sink.held():
        writing = asyncio.ensure_future(log.write(RECORD))
        await sink.entered()
        log.set_shutdown_deadline(0.05)
        with anyio.fail_after(WAIT):
            await log.aclose()
    await writing
