"""Each measurement of gates with a shared database measures something, in a tiny form. Speed is not tested."""

from __future__ import annotations

import sys

import pytest

from bench import traces
from bench.shared import hot_account, reviews, samples

pytestmark = pytest.mark.timeout(180)


def test_gates_draw_on_one_account_in_each_way() -> None:
    (found,) = hot_account.measure((2,), (1,), 0.5)
    assert (2, 1) == (found.gates, found.accounts)
    assert found.sqlite is not None
    for draws in (found.batched, found.bare, found.sqlite, found.loaded):
        assert 0 < draws.p50 <= draws.p99
        assert 0 < draws.rate
    assert 0 < found.loaded.needed


def test_samples_are_answered_at_each_place() -> None:
    (found,) = samples.measure(1, 5, at_once=(2,))
    assert (2, set(samples.PLACES)) == (found.at_once, set(found.took))
    assert all(0 < took.p50 <= took.p99 for took in found.took.values())


def test_reviews_are_decided_at_another_gate_and_at_the_same() -> None:
    found = reviews.measure(1)
    assert [("PostgreSQL", 1), ("SQLite", 1)] == [(one.place, one.reviews) for one in found]
    assert all(0 < span.p50 for one in found for span in (one.listed, one.told, one.released))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_spans_arrive_from_the_gate_with_traces() -> None:
    found = traces.measure(laps=1, samples=3, starts=1)
    assert found is not None
    assert all(0 < pair.off and 0 < pair.on for pair in (found.sample, found.cpu, found.start, found.memory))
