"""When the heap is trimmed, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from samplegate.runtime import heap
from samplegate.runtime.heap import MAX_FREE, TRIM_DELAY, Trimmer
from tests.fakes.virtual_time import VIRTUAL

pytestmark = pytest.mark.anyio
MOMENT = TRIM_DELAY / 4


@pytest.fixture
def anyio_backend() -> object:
    return VIRTUAL


class Heap:
    """A fake heap: the bytes that a session holds, and how often the heap was trimmed."""

    def __init__(self) -> None:
        self.held = 0
        self.trims = 0
        self.trimmer = Trimmer(lambda: self.held)

    def trim(self) -> None:
        self.trims += 1

    async def frame(self, held: int) -> None:
        """A large frame arrives, after which ``held`` bytes are held. The next frame may follow a moment later."""
        self.held = held
        self.trimmer.report_large_frame()
        await anyio.sleep(MOMENT)


@asynccontextmanager
async def watched(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Heap]:
    made = Heap()
    monkeypatch.setattr(heap, "_trim", made.trim)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.trimmer.watch)
        await anyio.sleep(MOMENT)
        yield made
        tasks.cancel_scope.cancel()


async def test_it_is_trimmed_once_when_large_frames_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    async with watched(monkeypatch) as seen:
        for _ in range(12):
            await seen.frame(held=0)
        assert 0 == seen.trims
        await anyio.sleep(10 * TRIM_DELAY)
        assert 1 == seen.trims


async def test_it_is_trimmed_again_when_less_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    async with watched(monkeypatch) as seen:
        await seen.frame(held=3 * MAX_FREE)
        await anyio.sleep(10 * TRIM_DELAY)
        assert 1 == seen.trims
        seen.held = 2 * MAX_FREE
        await anyio.sleep(10 * TRIM_DELAY)
        assert 2 == seen.trims
        seen.held = 0
        await anyio.sleep(10 * TRIM_DELAY)
        assert 3 == seen.trims


async def test_it_is_trimmed_again_after_frames_that_came_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow peer's frames arrive seconds apart, and each leaves more bytes held."""
    async with watched(monkeypatch) as seen:
        for number in range(1, 5):
            await seen.frame(held=number * 2 * MAX_FREE)
            await anyio.sleep(3 * TRIM_DELAY)
            assert number == seen.trims
