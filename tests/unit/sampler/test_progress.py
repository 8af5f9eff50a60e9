"""How often the worker tells what it hears."""

from __future__ import annotations

from samplegate.sampler.worker.__main__ import HEARD_EVERY, telling


def test_the_first_is_told_at_once_and_the_others_seldom() -> None:
    told: list[int] = []
    now = 100.0
    tell = telling(told.append, lambda: now)
    for step in range(1, 101):
        tell(step)
        now += HEARD_EVERY / 10

    assert 1 == told[0]
    assert 10 == len(told)
