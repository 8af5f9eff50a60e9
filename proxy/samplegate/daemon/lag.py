"""How late the event loop wakes a task that asked for a time. It measures and repairs nothing."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final

import anyio

EVERY: Final = 0.5  # seconds: 120 values a minute, which cost nothing


async def measure(
    observe: Callable[[float], object],
    sleep: Callable[[float], Awaitable[object]] = anyio.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Tell ``observe`` the seconds by which each wake-up was late, until cancelled."""
    while True:
        due = clock() + EVERY
        await sleep(EVERY)
        observe(max(0.0, clock() - due))
