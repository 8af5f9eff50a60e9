"""The metrics that only a daemon has: its policy and reloads, HTTP in front, servers behind, its own health. Not the counters."""

from __future__ import annotations

from typing import Final

from samplegate.records.metrictable import Metric

QUICK: Final = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""A call that is only passed through takes half a millisecond; one that waits for a person takes minutes."""

OF_THE_DAEMON: Final = (
    Metric("samplegate_build_info", "gauge", ("version", "python"), "Always 1: which version runs, on which Python."),
    Metric("samplegate_policy_info", "gauge", ("hash",), "Always 1: the hash of the policy in force, as records name it."),
    Metric("samplegate_policy_loaded_timestamp_seconds", "gauge", (), "When the policy in force was taken, as a unix time."),
    Metric("samplegate_reloads_total", "counter", ("result",), "Reloads: changed, unchanged, or refused (a file is wrong; the old one stays)."),
    Metric("samplegate_reload_last_success", "gauge", (), "1 where the latest reload was taken, 0 where it was refused."),
    Metric(
        "samplegate_http_requests_total",
        "counter",
        ("server", "era", "method", "status"),
        "HTTP requests of clients, by class of method (begin, call, end, message, stream, other) and of status (2xx to 5xx, or gone: "
        "the client left).",
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
        "HTTP requests that were not let in: auth, origin, host, headers, body (too large, too slow or unreadable), session (unknown, or another "
        "caller's), path (no server is there) or busy (a bound is reached, or the gate drains).",
    ),
    Metric("samplegate_issuer_key_fetches_total", "counter", ("result",), "Fetches of the keys that callers' JWTs are signed with: ok or failed."),
    Metric("samplegate_connections_open", "gauge", ("listener",), "Open connections of the public and of the admin listener."),
    Metric("samplegate_sessions_open", "gauge", ("server", "era"), "Open sessions of legacy clients, and conversations that modern callers share."),
    Metric("samplegate_lanes_open", "gauge", ("server",), "Streams to clients with requests under way, subscriptions among them."),
    Metric("samplegate_streams_dropped_total", "counter", ("server",), "Streams that were closed because their client read too slowly."),
    Metric("samplegate_children_started_total", "counter", ("server",), "Processes of stdio servers that were started."),
    Metric(
        "samplegate_children_exited_total",
        "counter",
        ("server", "how"),
        "Processes of stdio servers that ended: asked (we ended them), code (by themselves, with any exit code), signal, or failed (never came up).",
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
        "Calls of clients that ended in an error because their server died, could not be reached (unreachable), was removed by a reload (removed) "
        "or did not answer within `call_timeout` (timeout).",
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
