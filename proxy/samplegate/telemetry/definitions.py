"""Definitions of all metrics: names, types, labels and help.

Each has a row in deploy/README.md. Labels come from finite sets that the operator controls, never from a peer. A rename
is a change that the changelog names.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

# canned answers to human reviews
SECONDS: Final = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)
# people, not programs
ANSWERED_IN: Final = (1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 900.0, 1800.0, 3600.0, 14_400.0, 43_200.0, 86_400.0)
QUICK: Final = (
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
)
"""A call that is only passed through takes half a millisecond; one that waits for a person takes minutes."""


class Metric(msgspec.Struct, frozen=True):
    """A metric, as the exposition and the documentation have it."""

    name: str
    type: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str
    bounds: tuple[float, ...] = SECONDS
    """Upper ends of a histogram's buckets, in seconds."""


METRICS: Final[tuple[Metric, ...]] = (
    # of `run` and `serve`
    Metric(
        "samplegate_requests_total",
        "counter",
        ("server", "kind", "rule", "effect", "outcome", "reason", "decided_by"),
        "Sampling and elicitation requests, by what was decided and what came of it; one that is forwarded or put off"
        " in the modern era counts again when it comes back, and one whose verdict could not be used once more as"
        " unanswered.",
    ),
    Metric(
        "samplegate_shadow_decisions_total",
        "counter",
        ("server", "kind", "rule", "effect"),
        "What shadow rules would have done.",
    ),
    Metric(
        "samplegate_rounds_total",
        "counter",
        ("server", "door"),
        "Rounds opened, by their door: push, input_required, url_error, unasked.",
    ),
    Metric(
        "samplegate_rounds_failed_total",
        "counter",
        ("server", "door"),
        "Rounds that a fault in the gate ended, unanswered; the log has it.",
    ),
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
        "Frames that were not passed on, by side and reason: unasked (an answer to nothing), oversized, failed (a fault"
        " in the gate).",
    ),
    Metric(
        "samplegate_frames_refused_total",
        "counter",
        ("server", "side", "reason"),
        "Lines and frames of a side that were not taken: no JSON-RPC, ambiguous, or not allowed now. Whoever waits gets"
        " an error.",
    ),
    Metric(
        "samplegate_model_calls_total",
        "counter",
        ("model", "result"),
        "Calls of a model, by our name for it; the result is ok, cancelled or the failure.",
    ),
    Metric("samplegate_model_call_duration_seconds", "histogram", ("model",), "Duration of a model's call."),
    Metric(
        "samplegate_model_first_token_seconds",
        "histogram",
        ("model",),
        "From asking a model to the first token of its answer, where there was one.",
    ),
    Metric(
        "samplegate_model_tokens_total",
        "counter",
        ("model", "direction"),
        "Tokens that models reported: input or output.",
    ),
    Metric(
        "samplegate_cost_usd_total",
        "counter",
        ("server", "model", "rule"),
        "Dollars that calls of models came to, as settled; calls without a known price are in"
        " samplegate_unpriced_calls_total instead.",
    ),
    Metric(
        "samplegate_unpriced_calls_total",
        "counter",
        ("server", "model", "rule"),
        "Calls of models whose cost is unknown, which is not zero.",
    ),
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
        "How full the account of a limit was when this process last drew on it or corrected it, of several the fullest:"
        " 1 is used up, more is an overrun.",
    ),
    Metric(
        "samplegate_limit_reservations_total",
        "counter",
        ("limit", "result"),
        "Reservations on a limit: granted, waited (granted after a wait), refused, or unavailable (the state could not"
        " be asked).",
    ),
    Metric(
        "samplegate_limit_wait_seconds",
        "histogram",
        ("limit",),
        "How long a request with `on_limit: wait` waited for room, in vain or not.",
    ),
    Metric(
        "samplegate_limit_warnings_total",
        "counter",
        ("limit",),
        "How often a limit came over its `warn_at`: once in a window.",
    ),
    Metric(
        "samplegate_limit_overruns_total",
        "counter",
        ("limit",),
        "Requests that came to more than was reserved on a limit; it is booked all the same.",
    ),
    Metric(
        "samplegate_brakes_total",
        "counter",
        ("server", "brake"),
        "How often a brake was put on a server: requests_per_call or repeats.",
    ),
    Metric(
        "samplegate_redactions_total",
        "counter",
        ("pattern", "where"),
        "Secrets that were found in a prompt or in an answer, by the pattern's name.",
    ),
    Metric(
        "samplegate_records_failed_total",
        "counter",
        ("server",),
        "Records that the decision log would not take; whoever waited was left unanswered.",
    ),
    Metric(
        "samplegate_log_dropped_total",
        "counter",
        (),
        "Lines of the log that nobody will see: stderr is closed, or nobody reads it and 256 KiB wait already.",
    ),
    # of reviews
    Metric(
        "samplegate_reviews_total",
        "counter",
        ("reviewer", "door", "outcome"),
        "Reviews that this process asked for and that are over: approved, rejected, answered, expired or withdrawn, by"
        " whose word and which door.",
    ),
    Metric(
        "samplegate_review_duration_seconds",
        "histogram",
        ("reviewer",),
        "From the opening of a review to a person's verdict.",
        bounds=ANSWERED_IN,
    ),
    Metric(
        "samplegate_reviews_pending",
        "gauge",
        ("reviewer",),
        "Reviews in the store that wait for a verdict, whoever asked for them.",
    ),
    Metric(
        "samplegate_review_oldest_seconds",
        "gauge",
        ("reviewer",),
        "How long the oldest of them has waited; 0 where none waits.",
    ),
    Metric(
        "samplegate_review_deliveries_total",
        "counter",
        ("reviewer", "result"),
        "Tries to tell a reviewer by webhook or command: delivered, answered (with a verdict), again (it is tried once"
        " more), failed (given up).",
    ),
    Metric(
        "samplegate_review_store_failures_total",
        "counter",
        (),
        "Looks of this process at the store of reviews that failed; nothing is approved meanwhile.",
    ),
    # of `serve` alone: its policy and reloads, HTTP in front, servers behind, its own health
    Metric("samplegate_build_info", "gauge", ("version", "python"), "Always 1: which version runs, on which Python."),
    Metric(
        "samplegate_policy_info", "gauge", ("hash",), "Always 1: the hash of the policy in force, as records name it."
    ),
    Metric(
        "samplegate_policy_loaded_timestamp_seconds", "gauge", (), "When the policy in force was taken, as a unix time."
    ),
    Metric(
        "samplegate_reloads_total",
        "counter",
        ("result",),
        "Reloads: changed, unchanged, or refused (a file is wrong; the old one stays).",
    ),
    Metric(
        "samplegate_reload_last_success", "gauge", (), "1 where the latest reload was taken, 0 where it was refused."
    ),
    Metric(
        "samplegate_http_requests_total",
        "counter",
        ("server", "era", "method", "status"),
        "HTTP requests of clients, by class of method (begin, call, end, message, stream, other) and of status (2xx to"
        " 5xx, or gone: the client left).",
    ),
    Metric(
        "samplegate_http_request_duration_seconds",
        "histogram",
        ("server", "era", "method"),
        "From the head of a request to the end of its response; streams that stand open are not in it.",
        QUICK,
    ),
    Metric(
        "samplegate_http_refused_total",
        "counter",
        ("server", "reason"),
        "HTTP requests that were not let in: auth, origin, host, headers, body (too large, too slow or unreadable),"
        " session (unknown, or another caller's), path (no server is there) or busy (a bound is reached, or the gate"
        " drains).",
    ),
    Metric(
        "samplegate_issuer_key_fetches_total",
        "counter",
        ("result",),
        "Fetches of the keys that callers' JWTs are signed with: ok or failed.",
    ),
    Metric(
        "samplegate_connections_open",
        "gauge",
        ("listener",),
        "Open connections of the public and of the admin listener.",
    ),
    Metric(
        "samplegate_sessions_open",
        "gauge",
        ("server", "era"),
        "Open sessions of legacy clients, and conversations that modern callers share.",
    ),
    Metric(
        "samplegate_lanes_open",
        "gauge",
        ("server",),
        "Streams to clients with requests under way, subscriptions among them.",
    ),
    Metric(
        "samplegate_streams_dropped_total",
        "counter",
        ("server",),
        "Streams that were closed because their client read too slowly.",
    ),
    Metric(
        "samplegate_children_started_total", "counter", ("server",), "Processes of stdio servers that were started."
    ),
    Metric(
        "samplegate_children_exited_total",
        "counter",
        ("server", "how"),
        "Processes of stdio servers that ended: asked (we ended them), code (by themselves, with any exit code),"
        " signal, or failed (never came up).",
    ),
    Metric(
        "samplegate_children_restarted_total",
        "counter",
        ("server",),
        "Starts that followed a death: of those started, the ones that were not wanted.",
    ),
    Metric(
        "samplegate_calls_lost_total",
        "counter",
        ("server", "reason"),
        "Calls of clients that ended in an error because their server died, could not be reached (unreachable), was"
        " removed by a reload (removed) or did not answer within `call_timeout` (timeout).",
    ),
    Metric(
        "samplegate_notifications_dropped_total",
        "counter",
        ("server",),
        "Notifications of a shared server that belong to no one caller and were passed to nobody.",
    ),
    Metric(
        "samplegate_event_loop_lag_seconds",
        "histogram",
        (),
        "How late the event loop wakes: what every request waits for besides its own work.",
        QUICK,
    ),
    Metric(
        "samplegate_decision_log_failing",
        "gauge",
        (),
        "1 while the decision log takes no records: requests are left unanswered, and the gate is not ready.",
    ),
    Metric("samplegate_draining", "gauge", (), "1 from the signal to stop until the end."),
)
