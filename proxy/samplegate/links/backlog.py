"""How much a peer has not yet taken, and who has to know: the side that feeds it, and whoever waits for it to be empty.

Not the queue itself: the writers hold the bytes, this holds their count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

HIGH_WATER: Final = 256 * 1024
"""Bytes waiting at which the other side is to be paused: four full pipes, so that a peer that only hiccups pauses nobody."""
LOW_WATER: Final = 64 * 1024
"""Bytes waiting at which it may go on: one full pipe, so that the peer does not run dry while the other side wakes up."""


def _nobody(over: bool) -> None:
    """Stands where the relay has not yet said whom to pause."""


class Backlog:
    """Counts the bytes that wait for one peer, and the lines that it will never get."""

    def __init__(self) -> None:
        self.size = 0
        self.dropped = 0
        self.pressure: Callable[[bool], None] = _nobody
        self._over = False
        self._lost = False
        self._waiters: list[asyncio.Future[None]] = []

    def add(self, size: int) -> None:
        self.size += size
        if self.size > HIGH_WATER and not self._over:
            self._over = True
            self.pressure(True)

    def remove(self, size: int) -> None:
        self.size -= size
        if self._over and self.size <= LOW_WATER:
            self._over = False
            self.pressure(False)
        if not self.size:
            self._wake()

    def lose(self) -> None:
        """The peer has gone: nothing waits any more, and nobody stays paused for it."""
        self._lost = True
        self.remove(self.size)

    async def drained(self, timeout: float) -> bool:
        """Wait until nothing waits; True if the system has taken all of it, False if time ran out or the peer has gone."""
        if self.size:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await asyncio.wait([waiter], timeout=timeout)
            waiter.cancel()
        return not self.size and not self._lost

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
