"""Export of spans by OTLP over HTTP, on OpenTelemetry's SDK, which reads its own environment variables.

Spans wait in a bounded queue, and the SDK's thread sends them in batches. A collector that is slow or down costs spans,
and never time: neither an answer nor the end of the process waits for it, apart from a last flush within a second.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.environment_variables import OTEL_BSP_MAX_QUEUE_SIZE
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from samplegate import __version__
from samplegate.errors import Log
from samplegate.telemetry.metrics import Metrics
from samplegate.telemetry.spans import RequestTracer
from samplegate.urls import without_url_secrets

NAME: Final = "samplegate"
"""The name of the service, unless the environment has another one, and of the instrumentation."""
QUEUE: Final = 2048  # spans: the SDK's default
FLUSH: Final = 1.0  # seconds for the last spans at the end of the process
SPANS: Final = "samplegate_spans_total"
HEADERS_LOGGER: Final = "opentelemetry.util.re"
HEADERS_FAULT: Final = (
    "OTEL_EXPORTER_OTLP_HEADERS or OTEL_EXPORTER_OTLP_TRACES_HEADERS: an entry is not NAME=VALUE, so it is not sent;"
    " separate entries by commas, and write other characters as %XX"
)


class Traces:
    """The export of one process's spans. Raises ValueError or another exception of the SDK for a value that it does not
    accept."""

    def __init__(self, environment: Mapping[str, str], metrics: Metrics, log: Log) -> None:
        messages = Messages(log)
        logger = logging.getLogger("opentelemetry")
        logger.addHandler(messages)
        logger.propagate = False
        named = {SERVICE_NAME: NAME, SERVICE_VERSION: __version__, **OTELResourceDetector().detect().attributes}
        self._exporter = CountedExporter(OTLPSpanExporter(), _queue_size(environment), metrics, messages)
        self._provider = TracerProvider(resource=Resource.create(named), shutdown_on_exit=False)
        self._provider.add_span_processor(BoundedProcessor(self._exporter))
        self._closing = threading.Thread(target=self._provider.shutdown, name="samplegate-spans", daemon=True)
        self._log = log
        self.spans = RequestTracer(self._provider.get_tracer(NAME, __version__), log)
        atexit.register(self._end)

    def close(self, seconds: float) -> None:
        """Send the spans that wait, for at most so long. The rest has until the end of the process."""
        if self._closing.ident is None:
            self._closing.start()
        self._closing.join(seconds)

    def _end(self) -> None:
        if self._closing.ident is not None:  # Python starts no thread any more
            self._closing.join(FLUSH)
        if lost := self._exporter.abandon():
            self._log.warning("traces.dropped", spans=lost, problem="the process ended before they were sent")


def _queue_size(environment: Mapping[str, str]) -> int:
    try:
        return int(environment.get(OTEL_BSP_MAX_QUEUE_SIZE) or QUEUE)
    except ValueError:
        return QUEUE


class CountedExporter(SpanExporter):
    """An exporter that counts the spans that wait for it, and what becomes of them. ``size``: how many may wait."""

    def __init__(self, exporter: SpanExporter, size: int, metrics: Metrics, messages: Messages) -> None:
        self.size = size
        self._exporter = exporter
        self._metrics = metrics
        self._messages = messages
        self._lock = threading.Lock()
        self._waiting = 0

    def admit(self) -> bool:
        """Count a span that is to wait. False if too many do: it is dropped."""
        with self._lock:
            room = self._waiting < self.size
            self._waiting += room
        if not room:
            self._metrics.count(SPANS, result="dropped")
        return room

    def abandon(self) -> int:
        """Count the spans that still wait as dropped, and return their number."""
        with self._lock:
            lost, self._waiting = self._waiting, 0
        if lost:
            self._metrics.count(SPANS, lost, result="dropped")
        return lost

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send a batch, in the SDK's thread."""
        result = self._exporter.export(spans)
        sent = result is SpanExportResult.SUCCESS
        with self._lock:
            known = min(len(spans), self._waiting)
            self._waiting -= known
        if known:
            self._metrics.count(SPANS, known, result="exported" if sent else "failed")
        if sent:
            self._messages.forget()
        return result

    def shutdown(self) -> None:
        """End what is being sent."""
        self._exporter.shutdown()


class BoundedProcessor(BatchSpanProcessor):
    """A batch processor that drops spans before the SDK would, which drops without a count that others can read."""

    def __init__(self, exporter: CountedExporter) -> None:
        super().__init__(exporter, max_queue_size=exporter.size)
        self._counted = exporter

    def on_end(self, span: ReadableSpan) -> None:
        """Let a sampled span wait for its export."""
        sampled = span.context is not None and span.context.trace_flags.sampled
        if sampled and self._counted.admit():
            super().on_end(span)


class Messages(logging.Handler):
    """The SDK's log records as events of our log: of consecutive failures, each kind once."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log
        self._seen: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Log a record, unless one of its kind was logged since the last success."""
        if record.msg in self._seen:
            return
        self._seen.add(str(record.msg))
        tell = self._log.error if record.levelno >= logging.ERROR else self._log.warning
        # the SDK's message about a wrong header has its value
        problem = HEADERS_FAULT if record.name == HEADERS_LOGGER else without_url_secrets(record.getMessage())
        tell("traces.failed", problem=problem)

    def forget(self) -> None:
        """Log all kinds again."""
        self._seen.clear()
