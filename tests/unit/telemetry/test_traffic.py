"""Metrics of HTTP requests."""

from __future__ import annotations

import pytest

from samplegate.telemetry.observers import method_class, status_class


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


@pytest.mark.parametrize(
    ("status", "shown"),
    [(200, "2xx"), (202, "2xx"), (404, "4xx"), (503, "5xx"), (None, "gone"), (0, "other"), (700, "other")],
)
def test_a_status_is_put_into_a_class(status: int | None, shown: str) -> None:
    assert shown == status_class(status)
