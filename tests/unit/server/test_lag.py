"""Lag of the event loop."""

from __future__ import annotations

import pytest

from samplegate.server.metrics import LAG_INTERVAL, measure_loop_lag


@pytest.mark.anyio
async def test_a_wake_up_that_comes_late_is_told_and_one_that_comes_early_is_none() -> None:
    now, late, told = 100.0, [0.0, 0.25, -0.001], list[float]()

    async def sleep(seconds: float) -> None:
        nonlocal now
        if not late:
            raise StopAsyncIteration
        now += seconds + late.pop(0)

    with pytest.raises(StopAsyncIteration):
        await measure_loop_lag(told.append, sleep, lambda: now)
    assert [0.0, 0.25, 0.0] == pytest.approx(told)
    assert now == pytest.approx(100.249 + 3 * LAG_INTERVAL)
