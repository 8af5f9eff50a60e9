"""Specs, a manual clock, manual timers and a log for the tests of the limits."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel

from samplegate.limits.limiter import Limiter
from samplegate.policy.ledger import SCALE, Draw, LimitSpec, Refused, Reserved

NOON = 1_795_003_200.0
ONE = SCALE["requests"]


def bucket(name: str, most: int, seconds: float = 60.0, **more: Any) -> LimitSpec:
    return LimitSpec(name, "requests", most * ONE, "bucket", period=seconds, **more)


def daily(name: str, most: int, **more: Any) -> LimitSpec:
    return LimitSpec(name, "requests", most * ONE, "day", **more)


def slots(name: str, most: int, **more: Any) -> LimitSpec:
    return LimitSpec(name, "concurrent", most, "slots", **more)


def per(what: Any, name: str, most: int) -> LimitSpec:
    return LimitSpec(name, "requests", most * ONE, what)


def one(limit: str, key: str = "[]") -> Draw:
    return Draw(limit, key, ONE)


def slot(limit: str, key: str = "[]") -> Draw:
    return Draw(limit, key, 1)


async def all_blocked() -> None:
    """Let every task run until it waits for time or a thread. anyio's own function checks only ten times a second."""
    for _ in range(20):
        await anyio.lowlevel.checkpoint()


class Clock:
    """Unix seconds, moved by hand."""

    def __init__(self, now: float = NOON) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Timer:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Timers:
    """A manual ``call_later`` of a loop. ``pass_`` moves the time, also that of the clock."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.now = 0.0
        self._due: list[tuple[float, int, Timer, Callable[[], None]]] = []
        self._numbers = count()
        self._made: anyio.Event | None = None

    def __call__(self, seconds: float, what: Callable[[], None]) -> Timer:
        timer = Timer()
        if self._made is not None:
            self._made.set()
        heapq.heappush(self._due, (self.now + seconds, next(self._numbers), timer, what))
        return timer

    @property
    def left(self) -> int:
        return sum(not timer.cancelled for _, _, timer, _ in self._due)

    async def until_one(self) -> None:
        """Wait for a timer that has not fired. A thread may have to answer first."""
        while not self.left:
            self._made = anyio.Event()
            await self._made.wait()

    async def pass_(self, seconds: float) -> None:
        """Fire every timer that is due at its time, and let all tasks run."""
        end = self.now + seconds
        await all_blocked()
        while self._due and self._due[0][0] <= end:
            at, _, timer, what = heapq.heappop(self._due)
            self.clock.now += at - self.now
            self.now = at
            if not timer.cancelled:
                what()
            await all_blocked()
        self.clock.now += end - self.now
        self.now = end


class Log:
    """A log that keeps events with their fields."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []

    def _say(self, event: str, **fields: object) -> None:
        self.events.append((event, fields))

    debug = info = warning = error = _say

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.events]


class Desk:
    """The limits of one process, with fakes for its surroundings."""

    def __init__(
        self, *specs: LimitSpec, state: Path = Path("/nonexistent/state"), clock: Clock | None = None, **more: Any
    ) -> None:
        self.clock = clock or Clock()
        self.timers = Timers(self.clock)
        self.log = Log()
        self.state = state
        self.file = state / "limits.sqlite3"
        self.admission = Limiter(
            {one.name: one for one in specs},
            state=state,
            clock=self.clock,
            log=self.log,
            **{"later": self.timers, **more},
        )

    async def reserve(self, *draws: Draw, wait: float | None = None) -> Reserved | Refused:
        return await self.admission.reserve(draws, wait)

    async def taken(self, *draws: Draw, wait: float | None = None) -> Reserved:
        got = await self.reserve(*draws, wait=wait)
        assert isinstance(got, Reserved), got
        return got

    async def refused(self, *draws: Draw, wait: float | None = None) -> Refused:
        got = await self.reserve(*draws, wait=wait)
        assert isinstance(got, Refused), got
        return got

    def update_limits(self, *specs: LimitSpec) -> None:
        """Put another policy in force."""
        self.admission.update_limits({one.name: one for one in specs})

    async def settle(self, reserved: Reserved, *actual: Draw) -> None:
        await self.admission.settle(reserved, actual)

    async def room(self, draw: Draw) -> int:
        """How many more of these fit. They stay charged."""
        got = 0
        while isinstance(await self.reserve(draw), Reserved):
            got += 1
        return got
