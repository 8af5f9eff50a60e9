"""How often the worker reports progress."""

from __future__ import annotations

from samplegate.sampler.worker.__main__ import PROGRESS_INTERVAL, throttled


def test_the_first_is_told_at_once_and_the_others_seldom() -> None:
    told: list[int] = []
    now = 100.0
    tell = throttled(told.append, lambda: now)
    for step in range(1, 101):
        tell(step)
        now += PROGRESS_INTERVAL / 10

    assert 1 == told[0]
    assert 10 == len(told)
