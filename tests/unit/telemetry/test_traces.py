"""When traces are on, the bounded queue of spans, and the log of a collector's failures."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import Final

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.util.re import parse_env_headers

from samplegate.telemetry import traces
from samplegate.telemetry.metrics import Metrics
from samplegate.telemetry.otlp import HEADERS_FAULT, HEADERS_LOGGER, BoundedProcessor, CountedExporter, Messages
from samplegate.urls import without_url_secrets
from tests.fakes.gate_ports import Silent
from tests.fakes.metrics import value

ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
NOWHERE: Final = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {ENDPOINT: ""},
        {ENDPOINT: NOWHERE, "OTEL_SDK_DISABLED": "TRUE"},
        {ENDPOINT: NOWHERE, "OTEL_TRACES_EXPORTER": "none"},
        {ENDPOINT: NOWHERE, "OTEL_TRACES_EXPORTER": "console"},
        {"OTEL_TRACES_EXPORTER": "otlp"},
    ],
)
def test_traces_are_off_without_an_endpoint_and_where_the_environment_disables_them(
    environment: dict[str, str],
) -> None:
    log = Silent()
    assert (None, []) == (traces.open_traces(environment, Metrics(), log), log.events)


@pytest.mark.parametrize("name", [ENDPOINT, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
def test_another_protocol_is_an_error_in_the_log(name: str) -> None:
    log = Silent()
    environment = {name: NOWHERE, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    assert None is traces.open_traces(environment, Metrics(), log)
    assert [
        (
            "traces.unavailable",
            {
                "problem": f"{name} is set, but the protocol 'grpc' is not supported; set"
                " OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf and an endpoint for it; to run without traces, set"
                " OTEL_TRACES_EXPORTER=none"
            },
        )
    ] == log.events


def test_a_missing_package_is_an_error_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "samplegate.telemetry.otlp", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    log = Silent()
    assert None is traces.open_traces({ENDPOINT: NOWHERE}, Metrics(), log)
    assert [
        (
            "traces.unavailable",
            {
                "problem": f"{ENDPOINT} is set, but opentelemetry.sdk.trace is not installed; install samplegate[otel];"
                " to run without traces, set OTEL_TRACES_EXPORTER=none"
            },
        )
    ] == log.events


class Stuck(SpanExporter):
    """An exporter that is called by the test only."""

    def __init__(self, result: SpanExportResult = SpanExportResult.SUCCESS) -> None:
        self.result = result

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return self.result


def test_spans_beyond_the_bound_are_dropped_and_counted() -> None:
    metrics = Metrics()
    exporter = CountedExporter(Stuck(), 3, metrics, Messages(Silent()))
    assert [True, True, True, False, False] == [exporter.admit() for _ in range(5)]
    exporter.export([ReadableSpan("a"), ReadableSpan("b")])
    assert [True, True, False] == [exporter.admit() for _ in range(3)]
    assert (3, 0) == (exporter.abandon(), exporter.abandon())
    exporter.export([ReadableSpan("late")])  # it was sent after the end, and is counted as dropped already
    assert {"exported": 2, "dropped": 6, "failed": 0} == {
        result: value(metrics, "samplegate_spans_total", result=result) for result in ("exported", "dropped", "failed")
    }


def test_a_failed_export_is_counted() -> None:
    metrics = Metrics()
    exporter = CountedExporter(Stuck(SpanExportResult.FAILURE), 3, metrics, Messages(Silent()))
    assert exporter.admit()
    exporter.export([ReadableSpan("a")])
    assert (1, 0) == (
        value(metrics, "samplegate_spans_total", result="failed"),
        value(metrics, "samplegate_spans_total", result="exported"),
    )


def test_the_sdks_processor_sends_what_was_admitted() -> None:
    metrics = Metrics()
    sent: list[str] = []

    class Keeping(Stuck):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            sent.extend(span.name for span in spans)
            return SpanExportResult.SUCCESS

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BoundedProcessor(CountedExporter(Keeping(), 600, metrics, Messages(Silent()))))
    tracer = provider.get_tracer("t")
    for name in ("a", "b"):
        tracer.start_span(name).end()
    provider.shutdown()
    assert (["a", "b"], 2) == (sorted(sent), value(metrics, "samplegate_spans_total", result="exported"))


def test_of_consecutive_failures_each_kind_is_logged_once() -> None:
    log = Silent()
    messages = Messages(log)

    def say(level: int, text: str, *args: object) -> None:
        messages.handle(logging.LogRecord("opentelemetry.x", level, "x.py", 1, text, args, None))

    for status in (503, 503):
        say(logging.WARNING, "Transient error %s", status)
        say(logging.ERROR, "Failed: %s", "http://me:secret@collector/v1?key=secret")
    told = [
        ("traces.failed", {"problem": "Transient error 503"}),
        ("traces.failed", {"problem": "Failed: http://[removed]@collector/v1?[removed]"}),
    ]
    assert told == log.events
    messages.forget()
    say(logging.WARNING, "Transient error %s", 500)
    assert [*told, ("traces.failed", {"problem": "Transient error 500"})] == log.events


def test_a_text_without_urls_is_unchanged() -> None:
    assert "is it up? no" == without_url_secrets("is it up? no")


def test_a_header_that_is_mistyped_is_not_shown() -> None:
    """The SDK's message has its value, which may be a token."""
    log = Silent()
    parse = logging.getLogger(HEADERS_LOGGER)
    messages = Messages(log)
    parse.addHandler(messages)
    try:
        assert {} == parse_env_headers("Authorization: Bearer s3cret")
    finally:
        parse.removeHandler(messages)
    ((event, told),) = log.events
    assert ("traces.failed", HEADERS_FAULT) == (event, told["problem"])
