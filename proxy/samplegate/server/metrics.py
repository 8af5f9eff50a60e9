"""Metrics and access log of HTTP requests, and gauges of conversations and the process. No decisions are made here."""

from __future__ import annotations

import platform
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import anyio

from samplegate import __version__
from samplegate.runtime.process import ProcessContext
from samplegate.server.servers import Public
from samplegate.telemetry.log import AccessLog
from samplegate.telemetry.observers import method_class, status_class
from samplegate.transport.http_server.http import AccessRecord

REASONS: Final[dict[str, str]] = {
    "accept": "headers",
    "content_type": "headers",
    "header": "headers",
    "mismatch": "headers",
    "protocol": "headers",
    "version": "headers",
    "meta": "headers",
    "body_size": "body",
    "body_time": "body",
    "batch": "body",
    "parse": "body",
    "gone": "session",
    "session": "session",
    "event": "session",
    "busy": "busy",
    "session_full": "busy",
    "draining": "busy",
}
"""Metric labels of the endpoint's reasons for a refusal."""

_LOGGED: Final = tuple(name for name in AccessRecord.__struct_fields__ if name != "seconds")


class RequestCounter:
    """Counts and logs HTTP requests."""

    def __init__(self, context: ProcessContext) -> None:
        self._context = context
        self._lines = AccessLog(context.log)
        context.metrics.only("samplegate_build_info", version=__version__, python=platform.python_version())

    def access(self, record: AccessRecord) -> None:
        """Count a completed HTTP request and write its line to the access log."""
        metrics, server = self._context.metrics, record.server
        method = method_class(record.http, record.method if record.method != "answer" else None)
        labels = {"server": server, "era": record.era or None, "method": method}
        metrics.count("samplegate_http_requests_total", **labels, status=status_class(record.status or None))
        if method != "stream":  # a stream lasts as long as its client
            metrics.observe("samplegate_http_request_duration_seconds", record.seconds, **labels)
        if record.reason in REASONS:
            metrics.count("samplegate_http_refused_total", server=server, reason=REASONS[record.reason])
        if record.end == "slow":
            metrics.count("samplegate_streams_dropped_total", server=server)
        if self._lines.wanted:
            fields = {name: value for name in _LOGGED if (value := getattr(record, name)) != ""}
            fields["seconds"] = round(record.seconds, 6)
            self._lines.write(fields)

    def count_refused_connection(self) -> None:
        """Count a connection that was refused because there were too many. It has named no server yet."""
        self._context.metrics.count("samplegate_http_refused_total", server=None, reason="busy")

    def refresh(self, public: Public, connections: Mapping[str, int]) -> None:
        """Set the gauges to the current values; ``connections`` is by listener."""
        metrics = self._context.metrics
        for name, server in public.servers.items():
            for era, count in server.open_conversations().items():
                metrics.set("samplegate_sessions_open", count, server=name, era=era)
            metrics.set("samplegate_lanes_open", server.open_streams(), server=name)
        for listener, count in connections.items():
            metrics.set("samplegate_connections_open", count, listener=listener)
        metrics.set("samplegate_decision_log_failing", 0 if self._context.decisions.problem() is None else 1)


LAG_INTERVAL: Final = 0.5  # seconds: 120 samples a minute, at negligible cost


async def measure_loop_lag(
    observe: Callable[[float], object],
    sleep: Callable[[float], Awaitable[object]] = anyio.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Measure the event-loop lag: call ``observe`` with the seconds by which each wake-up was late, until cancelled."""
    while True:
        due = clock() + LAG_INTERVAL
        await sleep(LAG_INTERVAL)
        observe(max(0.0, clock() - due))
