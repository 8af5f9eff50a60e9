"""Metrics and logs of HTTP requests."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from samplegate.runtime.process import ProcessContext
from samplegate.server.metrics import REASONS, RequestCounter
from samplegate.telemetry.log import EventLog, Level
from samplegate.telemetry.metrics import Metrics
from samplegate.transport.http_server import http as front
from samplegate.transport.http_server.http import AccessRecord
from tests.fakes.metrics import value

REQUESTS, SECONDS, REFUSED = (
    "samplegate_http_requests_total",
    "samplegate_http_request_duration_seconds",
    "samplegate_http_refused_total",
)
CALL = AccessRecord(
    "db",
    "ci",
    "POST",
    "legacy",
    "tools/call",
    200,
    "json",
    "",
    "",
    0.0004127,
    "0a1b2c3d",
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
)


class CountedListener:
    """The parts of a listener that count requests."""

    def __init__(self, level: Level = "info") -> None:
        self.stream = io.StringIO()
        self.metrics = Metrics()
        self.log = EventLog(level, "json", self.stream)
        self.counting = RequestCounter(cast("ProcessContext", SimpleNamespace(metrics=self.metrics, log=self.log)))

    def lines(self) -> list[dict[str, Any]]:
        self.log.writer.flush()
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]


def test_a_request_is_a_line_with_what_is_known_of_it() -> None:
    listener = CountedListener()
    listener.counting.access(CALL)
    (line,) = listener.lines()
    assert line.pop("time").endswith("Z")
    expected = {name: value for name, value in msgspec.structs.asdict(CALL).items() if value != ""}
    assert {"level": "info", "event": "http.request", **expected, "seconds": 0.000413} == line


def test_what_is_not_known_does_not_stand_in_it() -> None:
    listener = CountedListener()
    listener.counting.access(AccessRecord("db", "local", "other", "", "", 0, "", "", "", 0.0, "", ""))
    assert ["time", "level", "event", "server", "caller", "http", "status", "seconds"] == list(listener.lines()[0])


def test_at_level_warning_it_is_counted_and_not_logged() -> None:
    listener = CountedListener("warning")
    listener.counting.access(CALL)
    assert ([], 1) == (listener.lines(), value(listener.metrics, REQUESTS))


@pytest.mark.parametrize(
    "hostile",
    ['ci"}\n{"event": "forged"}', "\x1b[2J", "##vso[x]", "\ud800", "c" * 100_000],
    ids=lambda text: ascii(text)[:20],
)
def test_a_caller_or_a_method_that_a_stranger_chose_stays_one_value_of_one_line(hostile: str) -> None:
    listener = CountedListener()
    listener.counting.access(msgspec.structs.replace(CALL, caller=hostile, method=hostile))
    listener.counting.access(CALL)
    first, second = listener.lines()
    assert ("http.request", "db", "ci") == (first["event"], first["server"], second["caller"])
    assert first["caller"][:999] == hostile[:999]
    assert "##" not in listener.stream.getvalue()


def test_requests_are_counted_by_server_era_class_and_status_and_timed() -> None:
    listener = CountedListener()
    for told in (CALL, CALL, msgspec.structs.replace(CALL, era="modern"), msgspec.structs.replace(CALL, status=503)):
        listener.counting.access(told)
    listener.counting.access(msgspec.structs.replace(CALL, method="answer", status=202))
    listener.counting.access(msgspec.structs.replace(CALL, server=None, era="", method="", http="GET", status=404))
    counts = [value(listener.metrics, REQUESTS, era=era, method=method, status=status) for era, method, status in (
        ("legacy", "call", "2xx"), ("modern", "call", "2xx"), ("legacy", "call", "5xx"), ("legacy", "message", "2xx"),
        (None, "stream", "4xx"),
    )]  # fmt: skip
    assert ([2, 1, 1, 1, 1], 5, 3) == (
        counts,
        value(listener.metrics, SECONDS),
        value(listener.metrics, SECONDS, era="legacy", method="call"),
    )


def test_a_request_to_a_server_that_was_removed_meanwhile_is_counted_from_one_again() -> None:
    listener = CountedListener()
    for _ in range(3):
        listener.counting.access(CALL)
        listener.counting.access(msgspec.structs.replace(CALL, server="docs"))
    listener.metrics.forget(server="db")
    assert (0, 0, 3) == (
        value(listener.metrics, REQUESTS, server="db"),
        value(listener.metrics, SECONDS, server="db"),
        value(listener.metrics, REQUESTS),
    )
    for told in (CALL, msgspec.structs.replace(CALL, server="docs")):
        listener.counting.access(told)
    both = [[value(listener.metrics, name, server=server) for name in (REQUESTS, SECONDS)] for server in ("db", "docs")]
    assert [[1, 1], [4, 4]] == both


@pytest.mark.parametrize("reason", sorted(front.REASONS))
def test_a_request_that_the_front_refused_is_counted_as_a_metric_that_there_is(reason: Any) -> None:
    listener = CountedListener()
    listener.counting.access(msgspec.structs.replace(CALL, reason=reason, status=400))
    assert (reason in REASONS) == value(listener.metrics, REFUSED, server="db")
    assert reason == listener.lines()[0]["reason"]


def test_a_stream_that_a_slow_client_lost_is_counted() -> None:
    listener = CountedListener()
    listener.counting.access(msgspec.structs.replace(CALL, http="GET", method="", form="sse", end="slow"))
    assert (1, 0) == (
        value(listener.metrics, "samplegate_streams_dropped_total", server="db"),
        value(listener.metrics, SECONDS),
    )
