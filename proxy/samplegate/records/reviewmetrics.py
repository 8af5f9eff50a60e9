"""The metrics of reviews, as `run` and `serve` both count them. Not the counters; see ``metrictable.py``."""

from __future__ import annotations

from typing import Final

from samplegate.records.metrictable import Metric

ANSWERED_IN: Final = (1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 900.0, 1800.0, 3600.0, 14_400.0, 43_200.0, 86_400.0)  # people, not programs

OF_REVIEWS: Final = (
    Metric(
        "samplegate_reviews_total",
        "counter",
        ("reviewer", "door", "outcome"),
        "Reviews that this process asked for and that are over: approved, rejected, answered, expired or withdrawn, by whose word and which door.",
    ),
    Metric(
        "samplegate_review_duration_seconds", "histogram", ("reviewer",), "From the opening of a review to a person's verdict.", bounds=ANSWERED_IN
    ),
    Metric("samplegate_reviews_pending", "gauge", ("reviewer",), "Reviews in the store that wait for a verdict, whoever asked for them."),
    Metric("samplegate_review_oldest_seconds", "gauge", ("reviewer",), "How long the oldest of them has waited; 0 where none waits."),
    Metric(
        "samplegate_review_deliveries_total",
        "counter",
        ("reviewer", "result"),
        "Tries to tell a reviewer by webhook or command: delivered, answered (with a verdict), again (it is tried once more), failed (given up).",
    ),
    Metric(
        "samplegate_review_store_failures_total",
        "counter",
        (),
        "Looks of this process at the store of reviews that failed; nothing is approved meanwhile.",
    ),
)
