"""An OTLP receiver on loopback, in place of a collector: it decodes spans, or fails as it is told to."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Literal

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

KINDS: Final = {Span.SPAN_KIND_SERVER: "server", Span.SPAN_KIND_CLIENT: "client", Span.SPAN_KIND_INTERNAL: "internal"}


class SeenSpan:
    """A span that arrived, with plain values."""

    def __init__(self, span: Span, resource: Mapping[str, Any]) -> None:
        self.name = span.name
        self.kind = KINDS[span.kind]
        self.trace_id, self.span_id, self.parent = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
        self.attributes = {one.key: plain(one.value) for one in span.attributes}
        self.events = [(event.name, {one.key: plain(one.value) for one in event.attributes}) for event in span.events]
        self.links = [(link.trace_id.hex(), link.span_id.hex()) for link in span.links]
        self.failed = span.status.code == 2
        self.ended = span.end_time_unix_nano
        self.resource = resource


def plain(value: AnyValue) -> Any:
    """The Python value of an attribute."""
    which = value.WhichOneof("value")
    assert which is not None
    found = getattr(value, which)
    return [plain(one) for one in found.values] if which == "array_value" else found


class Receiver:
    """``behave``: ``accept`` spans, ``refuse`` them with a 400, answer 503 (``busy``), or ``hang`` until the end."""

    def __init__(self) -> None:
        self.behave: Literal["accept", "refuse", "busy", "hang"] = "accept"
        self.spans: list[SeenSpan] = []
        self.bodies: list[bytes] = []
        self.paths: list[str] = []
        self.headers: list[Mapping[str, str]] = []
        self.over = threading.Event()
        self.news = threading.Condition()
        self.url = ""

    def named(self, prefix: str) -> list[SeenSpan]:
        """The spans whose name begins so."""
        return [span for span in self.spans if span.name.startswith(prefix)]

    def wait(self, number: int, seconds: float = 30.0) -> list[SeenSpan]:
        """Wait for this many spans."""
        with self.news:
            assert self.news.wait_for(lambda: len(self.spans) >= number, seconds), [span.name for span in self.spans]
        return self.spans

    def wait_for_requests(self, number: int, seconds: float = 30.0) -> None:
        """Wait for this many requests, whatever became of them."""
        with self.news:
            assert self.news.wait_for(lambda: len(self.bodies) >= number, seconds)

    def take(self, path: str, headers: Mapping[str, str], body: bytes) -> int:
        """Take one request, and return the status of its response."""
        with self.news:
            self.paths.append(path)
            self.headers.append({name.lower(): value for name, value in headers.items()})
            self.bodies.append(body)
            if self.behave == "accept":
                for group in ExportTraceServiceRequest.FromString(body).resource_spans:
                    resource = {one.key: plain(one.value) for one in group.resource.attributes}
                    self.spans += [SeenSpan(span, resource) for scope in group.scope_spans for span in scope.spans]
            self.news.notify_all()
        if self.behave == "hang":
            self.over.wait(60)
        return {"accept": 200, "refuse": 400}.get(self.behave, 503)


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver that ends with the block."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            self.send_response(receiver.take(self.path, dict(self.headers), body))
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

        def handle(self) -> None:
            try:
                super().handle()
            except OSError:  # the gate has ended
                return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        receiver.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield receiver
        finally:
            receiver.over.set()
            server.shutdown()
            thread.join(10)
