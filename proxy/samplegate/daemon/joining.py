"""One thing at a time, for all who ask for it: reloads that are wished for together. It knows nothing of what is done."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Joined(Generic[T]):
    """Whoever asks while one is under way gets the next, together with all others who wait for it.

    Not the one under way: that may have read the files before the change that is asked for. An asker who is cancelled ends nothing.
    """

    def __init__(self, act: Callable[[], Awaitable[T]]) -> None:
        self._act = act
        self._running: asyncio.Task[T] | None = None
        self._next: asyncio.Task[T] | None = None

    async def __call__(self) -> T:
        """What the act returns or raises. CancelledError after ``aclose``."""
        if self._next is None:
            self._next = asyncio.create_task(self._turn(self._running))
            self._next.add_done_callback(lambda done: done.cancelled() or done.exception())  # so that asyncio does not complain of it
        return await asyncio.shield(self._next)

    async def aclose(self) -> None:
        """End what is under way and what waits."""
        tasks = [task for task in (self._running, self._next) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _turn(self, before: asyncio.Task[T] | None) -> T:
        if before is not None and not before.done():
            await asyncio.wait([before])
        self._running, self._next = self._next, None
        return await self._act()
