"""The gate's own metrics, as `run` and `serve` both count them: names, labels and what each says. Not the counters.

A metric is an entry here, or in ``daemonmetrics.py`` for what only a daemon has, and a row in deploy/README.md.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

SECONDS: Final = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)  # canned answers to human reviews


class Metric(msgspec.Struct, frozen=True):
    """A metric as it stands in the file and in the documentation."""

    name: str
    type: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str
    bounds: tuple[float, ...] = SECONDS
    """Upper ends of a histogram's buckets, in seconds."""


GATE: Final = (
    Metric(
        "samplegate_requests_total",
        "counter",
        ("server", "kind", "rule", "effect", "outcome", "reason", "decided_by"),
        "Sampling and elicitation requests, by what was decided and what came of it; one that is forwarded or put off in the modern era counts "
        "again when it comes back, and one whose verdict could not be used once more as unanswered.",
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
    Metric(
        "samplegate_log_dropped_total",
        "counter",
        (),
        "Lines of the log that nobody will see: stderr is closed, or nobody reads it and 256 KiB wait already.",
    ),
)
