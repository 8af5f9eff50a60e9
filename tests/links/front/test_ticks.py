"""Many short waits with one timer."""

from __future__ import annotations

import asyncio
from typing import Any

from samplegate.links.front.ticks import Ticks
from tests.links.front.wires import Clock


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
