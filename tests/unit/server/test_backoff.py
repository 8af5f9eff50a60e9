"""When a server that died is restarted."""

from __future__ import annotations

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.server.servers import FIRST_DELAY, MAX_DELAY, STABLE_AFTER, Backoff

lives = st.lists(st.floats(0, 1000), max_size=60)


def after(*lived: float) -> Backoff:
    """The backoff after processes that lived for these numbers of seconds."""
    # each starts at 0, so that nothing is rounded
    return reduce(lambda known, seconds: known.died(0.0, seconds), lived, Backoff())


@pytest.mark.parametrize(
    ("deaths", "wait"),
    [(0, 0), (1, 0), (2, 0.5), (3, 1), (4, 2), (5, 4), (6, 8), (7, 16), (8, 30), (9, 30), (5000, 30)],
)
def test_the_first_start_is_at_once_and_then_the_wait_doubles_up_to_half_a_minute(deaths: int, wait: float) -> None:
    assert wait == after(*[1.0] * deaths).wait


def test_a_server_that_was_steady_begins_anew() -> None:
    assert (Backoff(1), 0) == (after(1, 1, 1, STABLE_AFTER), after(1, 1, 1, STABLE_AFTER).wait)


def test_a_clock_that_stands_still_is_no_steady_life() -> None:
    assert Backoff(3) == Backoff(2).died(100.0, 100.0)


@given(lives)
def test_no_wait_is_longer_than_the_longest_and_none_falls_before_a_server_was_steady(lived: list[float]) -> None:
    known = Backoff()
    for seconds in lived:
        before, known = known.wait, known.died(0.0, seconds)
        assert 0 <= known.wait <= MAX_DELAY
        assert known.wait == 0 if seconds >= STABLE_AFTER else known.wait >= before


@given(st.integers(2, 1000), st.floats(0, STABLE_AFTER, exclude_max=True))
def test_a_server_that_always_dies_is_started_at_most_so_often(deaths: int, lived: float) -> None:
    """For any number of deaths, the waits add up to the doubled sequence."""
    waits = [after(*[lived] * count).wait for count in range(1, min(deaths, 20))]
    assert sum(waits) == sum(min(MAX_DELAY, FIRST_DELAY * 2**n) for n in range(len(waits) - 1))
