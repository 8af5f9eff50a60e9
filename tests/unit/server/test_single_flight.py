"""Single-flight: concurrent reloads share the next run."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from samplegate.server.reload import SingleFlight

pytestmark = pytest.mark.anyio


class Operation:
    """An operation that runs until the test lets it end."""

    def __init__(self) -> None:
        self.begun = 0
        self.at_a_time = 0
        self.most = 0
        self.go = asyncio.Semaphore(0)
        self.started = asyncio.Semaphore(0)

    async def __call__(self) -> int:
        self.begun += 1
        mine = self.begun
        self.at_a_time += 1
        self.most = max(self.most, self.at_a_time)
        self.started.release()
        try:
            await self.go.acquire()
        finally:
            self.at_a_time -= 1
        return mine


async def test_whoever_asks_while_one_is_under_way_gets_the_next_together_with_the_others() -> None:
    act = Operation()
    joined = SingleFlight(act)
    with anyio.fail_after(10):
        first = asyncio.ensure_future(joined())
        await act.started.acquire()
        later = [asyncio.ensure_future(joined()) for _ in range(5)]
        await asyncio.sleep(0)
        act.go.release()
        act.go.release()
        assert (1, [2] * 5) == (await first, list(await asyncio.gather(*later)))
    assert (2, 1) == (act.begun, act.most)


async def test_askers_before_it_has_begun_share_one() -> None:
    act = Operation()
    joined = SingleFlight(act)
    act.go.release()
    with anyio.fail_after(10):
        assert [1, 1] == list(await asyncio.gather(joined(), joined()))


async def test_one_after_the_other_each_gets_its_own() -> None:
    act = Operation()
    joined = SingleFlight(act)
    for number in (1, 2, 3):
        act.go.release()
        with anyio.fail_after(10):
            assert number == await joined()


async def test_an_asker_who_leaves_ends_nothing_for_the_others() -> None:
    act = Operation()
    joined = SingleFlight(act)
    with anyio.fail_after(10):
        leaving, staying = asyncio.ensure_future(joined()), asyncio.ensure_future(joined())
        await act.started.acquire()
        leaving.cancel()
        await asyncio.wait([leaving])
        act.go.release()
        assert 1 == await staying


async def test_a_fault_reaches_every_asker_and_the_next_begins_anew() -> None:
    faults = [OSError("gone")]

    async def act() -> str:
        for fault in faults:
            raise fault
        return "done"

    joined = SingleFlight(act)
    with anyio.fail_after(10):
        assert [True, True] == [
            isinstance(found, OSError) for found in await asyncio.gather(joined(), joined(), return_exceptions=True)
        ]
        faults.clear()
        assert "done" == await joined()


async def test_the_end_ends_what_is_under_way_and_what_waits() -> None:
    act = Operation()
    joined = SingleFlight(act)
    with anyio.fail_after(10):
        first = asyncio.ensure_future(joined())
        await act.started.acquire()
        second = asyncio.ensure_future(joined())
        await asyncio.sleep(0)
        await joined.aclose()
        found = await asyncio.gather(first, second, return_exceptions=True)
    assert [asyncio.CancelledError] * 2 == [type(each) for each in found]
    assert (1, 0) == (act.begun, act.at_a_time)
