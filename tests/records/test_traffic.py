"""What HTTP requests are counted as."""

from __future__ import annotations

from typing import get_args

import pytest

from samplegate.records.metrics import Metrics
from samplegate.records.observers import Refusal, Traffic, method_class, status_class
from tests.metered import value

REQUESTS, SECONDS, REFUSED = "samplegate_http_requests_total", "samplegate_http_request_duration_seconds", "samplegate_http_refused_total"


@pytest.mark.parametrize(
    ("http", "method", "sort"),
    [
        ("POST", "tools/call", "call"),
        ("POST", "prompts/get", "call"),
        ("POST", "resources/read", "call"),
        ("POST", "initialize", "begin"),
        ("POST", "server/discover", "begin"),
        ("POST", "subscriptions/listen", "stream"),
        ("POST", "notifications/initialized", "message"),
        ("POST", None, "message"),
        ("POST", "tools/list", "other"),
        ("POST", "made/up by a client", "other"),
        ("GET", None, "stream"),
        ("DELETE", None, "end"),
        ("OPTIONS", None, "other"),
        ("MADEUP", "tools/call", "other"),
    ],
)
def test_a_request_is_put_into_a_class(http: str, method: str | None, sort: str) -> None:
    assert sort == method_class(http, method)


@pytest.mark.parametrize(("status", "shown"), [(200, "2xx"), (202, "2xx"), (404, "4xx"), (503, "5xx"), (None, "gone"), (0, "other"), (700, "other")])
def test_a_status_is_put_into_a_class(status: int | None, shown: str) -> None:
    assert shown == status_class(status)


def test_an_answered_request_is_counted_and_timed() -> None:
    metrics = Metrics()
    Traffic(metrics).answered(server="db", era="legacy", http="POST", method="tools/call", status=200, seconds=0.0004)
    labels = {"server": "db", "era": "legacy", "method": "call"}
    assert (1, 1) == (value(metrics, REQUESTS, **labels, status="2xx"), value(metrics, SECONDS, **labels))


def test_a_stream_is_counted_and_not_timed_for_it_lasts_as_long_as_its_client() -> None:
    metrics = Metrics()
    Traffic(metrics).answered(server="db", era="legacy", http="GET", method=None, status=200, seconds=3600)
    assert (1, 0) == (value(metrics, REQUESTS, method="stream"), value(metrics, SECONDS))


def test_a_request_that_names_no_server_is_counted_without_one() -> None:
    metrics = Metrics()
    Traffic(metrics).answered(server=None, era=None, http="POST", method=None, status=404, seconds=0.001)
    assert 1 == value(metrics, REQUESTS, server=None, era=None, status="4xx")


@pytest.mark.parametrize("reason", get_args(Refusal))
def test_a_refused_request_is_counted_by_its_reason(reason: Refusal) -> None:
    metrics = Metrics()
    Traffic(metrics).refused("db", reason)
    assert 1 == value(metrics, REFUSED, server="db", reason=reason)


def test_after_its_server_was_removed_a_request_is_counted_in_a_series_that_is_shown() -> None:
    metrics = Metrics()
    traffic = Traffic(metrics)
    for _ in range(2):
        for server in ("db", "docs"):
            traffic.answered(server=server, era="modern", http="POST", method="tools/call", status=200, seconds=0.1)
    metrics.forget(server="db")
    assert [0, 2] == [value(metrics, REQUESTS, server=server) for server in ("db", "docs")]
    for server in ("db", "docs"):
        traffic.answered(server=server, era="modern", http="POST", method="tools/call", status=200, seconds=0.1)
    assert [(1, 1), (3, 3)] == [(value(metrics, REQUESTS, server=server), value(metrics, SECONDS, server=server)) for server in ("db", "docs")]
