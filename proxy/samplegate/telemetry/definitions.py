"""Definitions of all metrics: names, types, labels and help.

Each metric has a row in deploy/metrics.md. Labels come from finite sets that the operator controls, never from a peer.
A renamed metric needs an entry in the changelog.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

# from fixed answers to human reviews
SECONDS: Final = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)
# for humans, not programs
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
"""A call that is only passed through takes half a millisecond; one that waits for a reviewer takes minutes."""


class Metric(msgspec.Struct, frozen=True):
    """A metric, as in the exposition and the documentation."""

    name: str
    type: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str
    bounds: tuple[float, ...] = SECONDS
    """Upper bounds of a histogram's buckets, in seconds."""


METRICS: Final[tuple[Metric, ...]] = (
    # of `run` and `serve`
    Metric(
        "samplegate_requests_total",
        "counter",
        ("server", "kind", "rule", "effect", "outcome", "reason", "decided_by"),
        "Sampling and elicitation requests by decision and outcome. A request that is forwarded or postponed in"
        " 2026-07-28 counts again when it returns, and a request whose decision could not be used counts once more as"
        " unanswered.",
    ),
    Metric(
        "samplegate_shadow_decisions_total",
        "counter",
        ("server", "kind", "rule", "effect"),
        "Decisions that shadow rules would have made.",
    ),
    Metric(
        "samplegate_rounds_total",
        "counter",
        ("server", "door"),
        "Input rounds by how the request arrived (door): push, input_required, url_error, task, tool_result or unasked"
        " (unsolicited answers).",
    ),
    Metric(
        "samplegate_rounds_failed_total",
        "counter",
        ("server", "door"),
        "Input rounds that an internal error ended without an answer; see the log.",
    ),
    Metric(
        "samplegate_request_duration_seconds",
        "histogram",
        ("server", "kind", "effect"),
        "Time from the decision on a request to its record, including the model or the client that answers it.",
    ),
    Metric(
        "samplegate_frames_dropped_total",
        "counter",
        ("server", "side", "reason"),
        "Dropped frames by side and reason: unasked (an unsolicited answer), oversized or failed (an internal error).",
    ),
    Metric(
        "samplegate_frames_refused_total",
        "counter",
        ("server", "side", "reason"),
        "Rejected lines and frames by side and reason: not JSON-RPC, ambiguous, or not allowed now. A waiting peer"
        " gets an error.",
    ),
    Metric(
        "samplegate_model_calls_total",
        "counter",
        ("model", "result"),
        "Model calls by the model's name in the policy; the result is ok, cancelled or the failure.",
    ),
    Metric("samplegate_model_call_duration_seconds", "histogram", ("model",), "Duration of model calls."),
    Metric(
        "samplegate_model_first_token_seconds",
        "histogram",
        ("model",),
        "Time from a model call to the first token of its answer, if there is one.",
    ),
    Metric(
        "samplegate_model_tokens_total",
        "counter",
        ("model", "direction"),
        "Tokens reported by models, by direction: input or output.",
    ),
    Metric(
        "samplegate_cost_usd_total",
        "counter",
        ("server", "model", "rule"),
        "Cost of model calls in US dollars. Calls with unknown cost are in samplegate_unpriced_calls_total instead.",
    ),
    Metric(
        "samplegate_unpriced_calls_total",
        "counter",
        ("server", "model", "rule"),
        "Model calls with unknown cost. They are not in samplegate_cost_usd_total.",
    ),
    Metric(
        "samplegate_fallbacks_total",
        "counter",
        ("model_from", "model_to", "reason"),
        "Requests that moved to the next model after a failure; the reason is the failure.",
    ),
    Metric(
        "samplegate_limit_used_ratio",
        "gauge",
        ("limit",),
        "Fraction of a limit in use at this process's last reservation or settlement; the highest of its accounts. 1"
        " is fully used; above 1 is an overrun.",
    ),
    Metric(
        "samplegate_limit_reservations_total",
        "counter",
        ("limit", "result"),
        "Reservations on a limit: granted, waited (granted after a wait), refused or unavailable (the state could not"
        " be reached).",
    ),
    Metric(
        "samplegate_limit_wait_seconds",
        "histogram",
        ("limit",),
        "Time spent waiting for a limit with `on_limit: wait`, whether or not the request was then admitted.",
    ),
    Metric(
        "samplegate_limit_warnings_total",
        "counter",
        ("limit",),
        "Number of times a limit's usage crossed its `warn_at`, at most once per period.",
    ),
    Metric(
        "samplegate_limit_overruns_total",
        "counter",
        ("limit",),
        "Requests that used more than they had reserved on a limit. The limit is charged in full.",
    ),
    Metric(
        "samplegate_brakes_total",
        "counter",
        ("server", "brake"),
        "How often loop detection stopped a server: requests_per_call or repeats.",
    ),
    Metric(
        "samplegate_redactions_total",
        "counter",
        ("pattern", "where"),
        "Secrets found in prompts or answers, by pattern.",
    ),
    Metric(
        "samplegate_records_failed_total",
        "counter",
        ("server",),
        "Records that could not be written to the decision log. Their requests were not answered.",
    ),
    Metric(
        "samplegate_log_dropped_total",
        "counter",
        (),
        "Dropped log lines: stderr is closed, or is not read and 256 KiB are waiting.",
    ),
    # of reviews
    Metric(
        "samplegate_reviews_total",
        "counter",
        ("reviewer", "door", "outcome"),
        "Reviews completed by this process, by outcome (approved, rejected, answered, expired or withdrawn) and by how"
        " the decision arrived (door).",
    ),
    Metric(
        "samplegate_review_duration_seconds",
        "histogram",
        ("reviewer",),
        "Time from the opening of a review to the reviewer's decision.",
        bounds=ANSWERED_IN,
    ),
    Metric(
        "samplegate_reviews_pending",
        "gauge",
        ("reviewer",),
        "Pending reviews in the store, of all processes.",
    ),
    Metric(
        "samplegate_review_oldest_seconds",
        "gauge",
        ("reviewer",),
        "Age of the oldest pending review; 0 if there is none.",
    ),
    Metric(
        "samplegate_review_deliveries_total",
        "counter",
        ("reviewer", "result"),
        "Notifications to reviewers by webhook or command: delivered, answered (with a decision), again (to be"
        " retried) or failed (given up).",
    ),
    Metric(
        "samplegate_review_store_failures_total",
        "counter",
        (),
        "Failed review-store operations in this process. Nothing is approved while the store is down.",
    ),
    # of `serve` only: its policy and reloads, HTTP clients, servers, and its own health
    Metric(
        "samplegate_build_info",
        "gauge",
        ("version", "python"),
        "Always 1; the labels are the versions of samplegate and Python.",
    ),
    Metric(
        "samplegate_policy_info",
        "gauge",
        ("hash",),
        "Always 1; the label is the hash of the policy in force, as in the decision log.",
    ),
    Metric(
        "samplegate_policy_loaded_timestamp_seconds", "gauge", (), "When the policy in force was loaded, in Unix time."
    ),
    Metric(
        "samplegate_reloads_total",
        "counter",
        ("result",),
        "Reloads by result: changed, unchanged or refused (a file is invalid; the old configuration stays in effect).",
    ),
    Metric("samplegate_reload_last_success", "gauge", (), "1 if the latest reload was applied, 0 if it was refused."),
    Metric(
        "samplegate_http_requests_total",
        "counter",
        ("server", "era", "method", "status"),
        "Client HTTP requests by method class (begin, call, end, message, stream, other) and status class (2xx to 5xx,"
        " or gone: the client disconnected).",
    ),
    Metric(
        "samplegate_http_request_duration_seconds",
        "histogram",
        ("server", "era", "method"),
        "Time from the head of a request to the end of its response; open streams are not included.",
        QUICK,
    ),
    Metric(
        "samplegate_http_refused_total",
        "counter",
        ("server", "reason"),
        "Rejected HTTP requests by reason: auth, origin, host, headers, body (too large, too slow or unreadable),"
        " session (unknown, or another caller's), path (no such server) or busy (a limit is reached, or the gate is"
        " draining).",
    ),
    Metric(
        "samplegate_issuer_key_fetches_total",
        "counter",
        ("result",),
        "Fetches of the keys that verify callers' JWTs and proxies' assertions: ok or failed.",
    ),
    Metric(
        "samplegate_connections_open",
        "gauge",
        ("listener",),
        "Open connections by listener: public, reviews or admin.",
    ),
    Metric(
        "samplegate_sessions_open",
        "gauge",
        ("server", "era"),
        "Open sessions: client sessions (legacy) and server sessions shared by callers (modern).",
    ),
    Metric(
        "samplegate_lanes_open",
        "gauge",
        ("server",),
        "Open streams to clients: requests in progress and subscriptions.",
    ),
    Metric(
        "samplegate_streams_dropped_total",
        "counter",
        ("server",),
        "Streams that were closed because the client read too slowly.",
    ),
    Metric("samplegate_children_started_total", "counter", ("server",), "Stdio server processes started."),
    Metric(
        "samplegate_children_exited_total",
        "counter",
        ("server", "how"),
        "Exited stdio server processes by cause: asked (stopped by the gate), code (exited on their own), signal"
        " (killed) or failed (never started).",
    ),
    Metric(
        "samplegate_children_restarted_total",
        "counter",
        ("server",),
        "Restarts of stdio servers after their processes died.",
    ),
    Metric(
        "samplegate_calls_lost_total",
        "counter",
        ("server", "reason"),
        "Calls that failed because their server died, could not be reached (unreachable), was removed by a reload"
        " (removed) or did not answer within `call_timeout` (timeout).",
    ),
    Metric(
        "samplegate_notifications_dropped_total",
        "counter",
        ("server",),
        "Notifications from shared servers that were dropped because they belong to no single caller.",
    ),
    Metric(
        "samplegate_event_loop_lag_seconds",
        "histogram",
        (),
        "Event-loop lag: the delay added to every request.",
        QUICK,
    ),
    Metric(
        "samplegate_decision_log_failing",
        "gauge",
        (),
        "1 while the decision log cannot be written: requests are not answered, and the gate is not ready.",
    ),
    Metric("samplegate_draining", "gauge", (), "1 while the gate is shutting down."),
    # of traces, in `run` and `serve`
    Metric(
        "samplegate_spans_total",
        "counter",
        ("result",),
        "Spans of traces by result: exported, failed (the collector did not accept them) or dropped (too many were"
        " waiting, or the process ended).",
    ),
    Metric(
        "samplegate_database_failing",
        "gauge",
        (),
        "1 if the shared database could not be used at the last look, at most 10 seconds ago.",
    ),
    Metric(
        "samplegate_database_standby_asynchronous",
        "gauge",
        (),
        "1 if the shared database has a standby that need not confirm commits, so that a failover may lose some.",
    ),
    Metric(
        "samplegate_assertions_refused_total",
        "counter",
        ("reason",),
        "Requests to the reviewers' listener that were refused for a proxy's assertion, by reason: underscore,"
        " repeated, two_kinds, site, malformed, algorithm, unknown_key, signature, expired, not_yet, issuer, audience,"
        " claims, bound, subject, email, no_role (valid, but without rights) or no_keys (they cannot be fetched).",
    ),
)
