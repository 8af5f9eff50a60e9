"""Many short waits with one timer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from samplegate.transport.http_server.http import Ticks


@dataclass
class Timer:
    """One scheduled call."""

    at: float
    call: Callable[[], object]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class Clock:
    """A fake event loop with the methods that a wait needs."""

    now: float = 100.0
    timers: list[Timer] = field(default_factory=list)
    made: int = 0

    def call_later(self, seconds: float, call: Callable[..., object], *args: object) -> Timer:
        self.made += 1
        self.timers.append(Timer(self.now + seconds, lambda: call(*args)))
        return self.timers[-1]

    def get_debug(self) -> bool:
        return False

    def call_soon(self, call: Callable[..., object], *args: object, context: object = None) -> None:
        call(*args)

    @property
    def running(self) -> list[Timer]:
        return [timer for timer in self.timers if not timer.cancelled]

    def turn(self, seconds: float) -> None:
        """Let this many seconds pass."""
        end = self.now + seconds
        while due := [timer for timer in self.running if timer.at <= end]:
            timer = min(due, key=lambda timer: timer.at)
            self.timers.remove(timer)
            self.now = max(self.now, timer.at)
            timer.call()
        self.now = end


def wait(clock: Clock) -> asyncio.Future[None]:
    loop: Any = clock
    return asyncio.Future(loop=loop)


def test_a_wait_ends_after_one_to_two_ticks() -> None:
    clock, ticks = Clock(), Ticks(1.0)
    first = wait(clock)
    ticks.end(first)
    clock.turn(0.9)
    late = wait(clock)
    ticks.end(late)
    clock.turn(1.0)
    assert (False, False) == (first.done(), late.done())
    clock.turn(0.1)
    assert (True, True) == (first.done(), late.done())


def test_a_wait_that_comes_after_a_tick_is_not_ended_by_the_next() -> None:
    clock, ticks = Clock(), Ticks(1.0)
    ticks.end(wait(clock))
    clock.turn(1.0)
    late = wait(clock)
    ticks.end(late)
    clock.turn(1.0)
    assert not late.done()
    clock.turn(1.0)
    assert late.done()


def test_many_waits_take_one_timer_and_none_is_left_without_them() -> None:
    clock, ticks = Clock(), Ticks(1.0)
    waits = [wait(clock) for _ in range(100)]
    for each in waits:
        ticks.end(each)
    assert 1 == clock.made
    clock.turn(2.0)
    assert all(each.done() for each in waits)
    assert [] == clock.running
    again = wait(clock)
    ticks.end(again)
    clock.turn(2.0)
    assert again.done()


def test_a_wait_that_has_ended_otherwise_is_left_alone() -> None:
    clock, ticks = Clock(), Ticks(1.0)
    cancelled, failed, other = wait(clock), wait(clock), wait(clock)
    for each in (cancelled, failed, other):
        ticks.end(each)
    cancelled.cancel()
    failed.set_exception(ValueError())
    clock.turn(2.0)
    assert (True, True) == (cancelled.cancelled(), other.done())
    assert isinstance(failed.exception(), ValueError)
