"""Metrics of limits."""

from __future__ import annotations

import pytest

from samplegate.policy.ledger import Draw, LimitSpec, Refused, Reserved
from samplegate.telemetry.metrics import Metrics
from samplegate.telemetry.observers import USED, LimitMetrics
from tests.fakes.metrics import value

TERMS = {"day": LimitSpec("day", "usd", 1000, "day"), "room": LimitSpec("room", "concurrent", 4, "slots")}
DAY, ROOM = Draw("day", "[]", 100), Draw("room", "[]", 1)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.mark.parametrize(
    ("answer", "wait", "result"),
    [
        (Reserved("r", (DAY,), 0.0), None, "granted"),
        (Reserved("r", (DAY,), 0.0), 0.01, "granted"),
        (Reserved("r", (DAY,), 0.0), 2.0, "waited"),
        (Refused("day", "full"), 2.0, "refused"),
        (Refused("day", "unavailable"), None, "unavailable"),
    ],
)
def test_a_reservation_is_counted_by_what_came_of_it(
    metrics: Metrics, answer: Reserved | Refused, wait: float | None, result: str
) -> None:
    LimitMetrics(TERMS, metrics).count_reservation((DAY,), answer, wait)
    assert 1 == value(metrics, "samplegate_limit_reservations_total", limit="day", result=result)
    assert (wait == 2.0) == value(metrics, "samplegate_limit_wait_seconds", limit="day")


def test_how_full_a_limit_is_follows_the_settlement_beyond_its_end(metrics: Metrics) -> None:
    limits = LimitMetrics(TERMS, metrics)
    reserved = Reserved("r", (DAY, ROOM), 0.0, fill={"day": 0.1, "room": 0.25})
    limits.count_reservation(reserved.draws, reserved, None)
    assert [] == limits.count_settlement(reserved, (Draw("day", "[]", 40), ROOM))
    assert pytest.approx(0.04) == value(metrics, "samplegate_limit_used_ratio", limit="day")
    assert 0 == value(metrics, "samplegate_limit_used_ratio", limit="room"), "its slot is free again"
    limits.count_reservation(reserved.draws, reserved, None)
    assert ["day"] == limits.count_settlement(reserved, (Draw("day", "[]", 3000), ROOM))
    assert pytest.approx(3.0) == value(metrics, "samplegate_limit_used_ratio", limit="day")
    assert 1 == value(metrics, "samplegate_limit_overruns_total", limit="day")


def test_the_series_of_a_limit_that_is_gone_are_gone_and_stay_so(metrics: Metrics) -> None:
    limits = LimitMetrics(TERMS, metrics)
    reserved = Reserved("r", (DAY, ROOM), 0.0, fill={"day": 0.1, "room": 0.25})
    limits.count_reservation(reserved.draws, reserved, 2.0)
    limits.update_limits({"room": TERMS["room"]})
    assert ["day"] == limits.count_settlement(reserved, (Draw("day", "[]", 3000), ROOM), TERMS), (
        "the overrun is told all the same"
    )
    limits.count_reservation((DAY,), Reserved("q", (DAY,), 0.0, fill={"day": 0.2}), 2.0)
    limits.count_reservation((DAY,), Refused("day", "unavailable"), None)
    assert [] == [
        sample
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.labels.get("limit") == "day"
    ]
    assert 0 == value(metrics, USED, limit="room"), "its slot is free again"


def test_how_full_a_limit_is_is_told_of_its_new_amount(metrics: Metrics) -> None:
    limits = LimitMetrics(TERMS, metrics)
    reserved = Reserved("r", (DAY,), 0.0, fill={"day": 0.1})
    limits.count_reservation(reserved.draws, reserved, None)
    now = {"day": LimitSpec("day", "usd", 500, "day")}
    limits.update_limits(now)
    assert pytest.approx(0.2) == value(metrics, USED, limit="day")
    limits.count_settlement(reserved, (Draw("day", "[]", 50),), TERMS)
    assert pytest.approx(0.1) == value(metrics, USED, limit="day")


def test_what_was_drawn_on_a_limit_that_counts_something_else_now_says_nothing_of_it(metrics: Metrics) -> None:
    limits = LimitMetrics(TERMS, metrics)
    reserved = Reserved("r", (DAY,), 0.0, fill={"day": 0.1})
    limits.count_reservation(reserved.draws, reserved, None)
    limits.update_limits({"day": LimitSpec("day", "requests", 500, "day")})
    assert 0 == value(metrics, USED, limit="day")
    assert ["day"] == limits.count_settlement(reserved, (Draw("day", "[]", 10**9),), TERMS)
    assert 0 == value(metrics, USED, limit="day")


def test_a_settlement_on_limits_that_nobody_knows_is_harmless(metrics: Metrics) -> None:
    assert [] == LimitMetrics({}, metrics).count_settlement(Reserved("r", (DAY, ROOM), 0.0), (DAY,))
