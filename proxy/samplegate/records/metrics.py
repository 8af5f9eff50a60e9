"""The gate's counters: one small port, kept in memory, written as Prometheus text on demand. Not a server, and no push to one.

Every metric stands in METRICS; labels come from finite sets that the operator controls, never from a peer. prometheus-client costs
0.1 s to import, so it is imported when a file is written (``metricsfile.py``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, Final, Literal

import msgspec

SECONDS: Final = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)  # canned answers to human reviews
NONE: Final = "none"  # what a label says where there is nothing to say


class Metric(msgspec.Struct, frozen=True):
    """A metric as it stands in the file and in the documentation."""

    name: str
    type: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str


METRICS: Final = (
    Metric(
        "samplegate_requests_total",
        "counter",
        ("server", "kind", "rule", "effect", "outcome", "reason", "decided_by"),
        "Sampling and elicitation requests, by what was decided and what came of it; one that is forwarded in the modern era counts again when it "
        "comes back.",
    ),
    Metric("samplegate_shadow_decisions_total", "counter", ("server", "kind", "rule", "effect"), "What shadow rules would have done."),
    Metric("samplegate_rounds_total", "counter", ("server", "door"), "Rounds opened, by their door: push, input_required, url_error, unasked."),
    Metric("samplegate_rounds_failed_total", "counter", ("server", "door"), "Rounds that a fault in the gate ended, unanswered; the log has it."),
    Metric(
        "samplegate_request_duration_seconds",
        "histogram",
        ("server", "kind", "effect"),
        "From the decision on a request to its record: what a model, the client or nobody took to answer it.",
    ),
    Metric(
        "samplegate_frames_dropped_total",
        "counter",
        ("server", "side", "reason"),
        "Frames that were not passed on, by side and reason: unasked (an answer to nothing), oversized, failed (a fault in the gate).",
    ),
    Metric(
        "samplegate_frames_refused_total",
        "counter",
        ("server", "side", "reason"),
        "Lines and frames of a side that were not taken: no JSON-RPC, ambiguous, or not allowed now. Whoever waits gets an error.",
    ),
    Metric(
        "samplegate_model_calls_total",
        "counter",
        ("model", "result"),
        "Calls of a model, by our name for it; the result is ok, cancelled or the failure.",
    ),
    Metric("samplegate_model_call_duration_seconds", "histogram", ("model",), "Duration of a model's call."),
    Metric(
        "samplegate_model_first_token_seconds", "histogram", ("model",), "From asking a model to the first token of its answer, where there was one."
    ),
    Metric("samplegate_model_tokens_total", "counter", ("model", "direction"), "Tokens that models reported: input or output."),
    Metric(
        "samplegate_cost_usd_total",
        "counter",
        ("server", "model", "rule"),
        "Dollars that calls of models came to, as settled; calls without a known price are in samplegate_unpriced_calls_total instead.",
    ),
    Metric("samplegate_unpriced_calls_total", "counter", ("server", "model", "rule"), "Calls of models whose cost is unknown, which is not zero."),
    Metric(
        "samplegate_fallbacks_total",
        "counter",
        ("model_from", "model_to", "reason"),
        "Requests that went on to the next model after one that failed; the reason is the failure.",
    ),
    Metric(
        "samplegate_limit_used_ratio",
        "gauge",
        ("limit",),
        "How full the account of a limit was when this process last drew on it or corrected it, of several the fullest: 1 is used up, "
        "more is an overrun.",
    ),
    Metric(
        "samplegate_limit_reservations_total",
        "counter",
        ("limit", "result"),
        "Reservations on a limit: granted, waited (granted after a wait), refused, or unavailable (the state could not be asked).",
    ),
    Metric("samplegate_limit_wait_seconds", "histogram", ("limit",), "How long a request with `on_limit: wait` waited for room, in vain or not."),
    Metric("samplegate_limit_warnings_total", "counter", ("limit",), "How often a limit came over its `warn_at`: once in a window."),
    Metric(
        "samplegate_limit_overruns_total",
        "counter",
        ("limit",),
        "Requests that came to more than was reserved on a limit; it is booked all the same.",
    ),
    Metric("samplegate_brakes_total", "counter", ("server", "brake"), "How often a brake was put on a server: requests_per_call or repeats."),
    Metric(
        "samplegate_redactions_total", "counter", ("pattern", "where"), "Secrets that were found in a prompt or in an answer, by the pattern's name."
    ),
    Metric(
        "samplegate_records_failed_total", "counter", ("server",), "Records that the decision log would not take; whoever waited was left unanswered."
    ),
)
"""Every metric there is. A rename is a change that the changelog names."""

_TABLE: Final = {metric.name: metric for metric in METRICS}


class _Histogram(msgspec.Struct, eq=False):
    counts: list[int]
    total: float = 0.0


class Metrics:
    """The counters of one process. Not locked: it is used from the event loop's thread only."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[tuple[str, ...], float]] = {}
        self._observed: dict[str, dict[tuple[str, ...], _Histogram]] = {}

    def count(self, name: str, amount: float = 1, /, **labels: object) -> None:
        """Add to a counter. Labels are the metric's own, all of them; None reads ``none``. Raises ValueError for a metric that is not in METRICS."""
        series = self._counts.setdefault(name, {})
        values = _values(name, "counter", labels)
        series[values] = series.get(values, 0) + amount

    def set(self, name: str, value: float, /, **labels: object) -> None:
        """Say how high a gauge is; otherwise as count."""
        self._counts.setdefault(name, {})[_values(name, "gauge", labels)] = value

    def observe(self, name: str, value: float, /, **labels: object) -> None:
        """Put a value, in seconds, into a histogram; otherwise as count."""
        series = self._observed.setdefault(name, {})
        values = _values(name, "histogram", labels)
        found = series.setdefault(values, _Histogram([0] * (len(SECONDS) + 1)))
        found.counts[bisect_left(SECONDS, value)] += 1
        found.total += value

    def value(self, name: str, **labels: object) -> float:
        """How far a counter or gauge is, or how many values a histogram holds, over every series with these labels, summed; for tests."""
        metric = _TABLE[name]
        wanted = [(metric.labels.index(label), _text(value)) for label, value in labels.items()]
        amounts = dict(self._counts.get(name, {})) | {values: sum(found.counts) for values, found in self._observed.get(name, {}).items()}
        return sum(amount for values, amount in amounts.items() if all(values[index] == text for index, text in wanted))

    def collect(self) -> Iterator[Any]:
        """What prometheus-client asks of a collector; for a registry of its own."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        for metric in METRICS:
            if metric.type != "histogram":
                family = CounterMetricFamily if metric.type == "counter" else GaugeMetricFamily
                numbers = family(metric.name, metric.help, labels=metric.labels)
                for values, amount in sorted(self._counts.get(metric.name, {}).items()):
                    numbers.add_metric(values, amount)
                yield numbers
            else:
                histogram = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
                for values, found in sorted(self._observed.get(metric.name, {}).items()):
                    histogram.add_metric(values, _buckets(found), found.total)
                yield histogram


def _values(name: str, type: str, labels: dict[str, object]) -> tuple[str, ...]:
    metric = _TABLE.get(name)
    if metric is None or metric.type != type or len(labels) != len(metric.labels) or not all(label in labels for label in metric.labels):
        raise ValueError(f"metric {name}: no {type} of METRICS with labels {sorted(labels)}")
    return tuple(_text(labels[label]) for label in metric.labels)


def _text(value: object) -> str:
    """Halves of characters, as a command line may hold them, are written out: the file is UTF-8."""
    text = NONE if value is None else str(value)
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _buckets(found: _Histogram) -> list[tuple[str, float]]:
    """Cumulative, as the format wants them."""
    total, out = 0, []
    for bound, count in zip((*map(repr, SECONDS), "+Inf"), found.counts, strict=True):
        total += count
        out.append((bound, float(total)))
    return out
