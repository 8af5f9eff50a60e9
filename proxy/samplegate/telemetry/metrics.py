"""Metrics of one process on prometheus-client: counters, gauges and histograms, their text file, and a listener for
scrapes."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import anyio
from anyio import to_thread

from samplegate.errors import Log, Unavailable
from samplegate.telemetry.definitions import METRICS

NONE: Final = "none"  # the text of a label without a value

HOST: Final = "127.0.0.1"
MAX_HEAD: Final = 16_384  # bytes
PATIENCE: Final = 5.0  # seconds to receive a request's head, and the same to send the response
MAX_CONNECTIONS: Final = 16  # connections: a scrape needs one
LOOPBACK_HOSTS: Final = ("127.0.0.1", "localhost")


class Metrics:
    """The metrics of one process; any thread may use them. ``read``: False if the metrics are never read.

    Then nothing is counted, and prometheus-client is not imported, which would add 40 ms to a start.
    """

    def __init__(self, *, read: bool = True) -> None:
        self._metrics: dict[str, Any] = {}
        self._read = read
        if not read:
            return
        from prometheus_client import (
            CollectorRegistry,
            Counter,
            Gauge,
            Histogram,
            ProcessCollector,
            disable_created_metrics,
        )

        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        for metric in METRICS:
            # A registered metric without labels reads 0, which is wrong before the first measurement.
            registry = self.registry if metric.labels else None
            if metric.type == "histogram":
                made: Any = Histogram(metric.name, metric.help, metric.labels, registry=registry, buckets=metric.bounds)
            else:
                made = {"counter": Counter, "gauge": Gauge}[metric.type](
                    metric.name, metric.help, metric.labels, registry=registry
                )
            self._metrics[metric.name] = made
        self._unregistered = {metric.name for metric in METRICS if not metric.labels}
        self._scraped = CollectorRegistry()
        self._scraped.register(self.registry)
        ProcessCollector(registry=self._scraped)
        self._one_at_a_time = anyio.CapacityLimiter(1)

    def count(self, name: str, amount: float = 1, /, **labels: object) -> None:
        """Add to a counter. All labels of the metric are required; None reads ``none``. Raises ValueError for other
        labels."""
        self._series(name, labels).inc(amount)

    def set(self, name: str, value: float, /, **labels: object) -> None:
        """Set a gauge; labels as for ``count``."""
        self._series(name, labels).set(value)

    def only(self, name: str, /, **labels: object) -> None:
        """Set this series of an info gauge to 1, and remove all its other series."""
        if self._read:
            self._metrics[name].clear()
        self.set(name, 1, **labels)

    def observe(self, name: str, value: float, exemplar: dict[str, str] | None = None, /, **labels: object) -> None:
        """Add a value, in seconds, to a histogram; labels as for ``count``. ``exemplar``: the IDs of a span, shown in
        OpenMetrics only."""
        self._series(name, labels).observe(value, exemplar)

    def forget(self, **labels: object) -> None:
        """Remove every series with these labels, such as those of a server that a reload removed."""
        wanted = {label: _text(value) for label, value in labels.items()}
        for metric in METRICS if self._read and labels else ():
            if labels.keys() <= set(metric.labels):
                self._metrics[metric.name].remove_by_labels(wanted)

    async def page(self, accept: str) -> tuple[bytes, str]:
        """The text for a scrape with this Accept header, including the process's own metrics, and its content type.

        A thread renders it, because 10,000 lines take 0.1 s. Concurrent scrapes are rendered one at a time.
        """
        return await to_thread.run_sync(self._page, accept, limiter=self._one_at_a_time)

    def _page(self, accept: str) -> tuple[bytes, str]:
        from prometheus_client.exposition import choose_encoder

        encode, content_type = choose_encoder(accept)
        return encode(self._scraped), content_type

    def _series(self, name: str, labels: dict[str, object]) -> Any:
        if not self._read:
            return _UNREAD
        metric = self._metrics[name]
        if labels:
            return metric.labels(**{label: _text(value) for label, value in labels.items()})
        if name in self._unregistered:
            self._unregistered.discard(name)
            self.registry.register(metric)
        return metric


class _Unread:
    """A series of metrics that are never read."""

    def inc(self, amount: float, exemplar: dict[str, str] | None = None) -> None:
        """Do nothing."""

    set = observe = inc


_UNREAD: Final = _Unread()


def _text(value: object) -> str:
    """The text of a label. Lone surrogates, which a command line can contain, are escaped, because the text is
    UTF-8."""
    text = NONE if value is None else str(value)
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def metrics_file(metrics: Metrics, template: str | None, server: str) -> MetricsFile | None:
    """The configured file, with ``{server}`` and ``{pid}`` replaced; other braces stay. None without a setting."""
    if template is None:
        return None
    safe = "".join(character if character.isalnum() or character in "._-" else "_" for character in server)
    return MetricsFile(metrics, Path(template.replace("{server}", safe).replace("{pid}", str(os.getpid()))))


class MetricsFile:
    """Metrics as a file of Prometheus text, for a collector that reads folders."""

    def __init__(self, metrics: Metrics, path: Path) -> None:
        self._metrics = metrics
        self._path = path
        self._lock = threading.Lock()  # an older text must not replace a newer one

    def write(self) -> None:
        """Replace the file atomically, so that a collector never reads half of it. Raises Unavailable."""
        from prometheus_client import generate_latest

        draft = self._path.with_name(f".{self._path.name[:40]}.{os.urandom(8).hex()}")  # a collector reads *.prom only
        with self._lock:
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                try:
                    draft.write_bytes(generate_latest(self._metrics.registry))
                    # regardless of the umask: a collector runs as another user, and the file has no secrets
                    draft.chmod(0o644)
                    draft.replace(self._path)
                finally:
                    draft.unlink(missing_ok=True)
            except OSError as problem:
                reason = problem.strerror or problem
                raise Unavailable(f"metrics file: {self._path} cannot be written: {reason}") from problem

    async def keep(
        self,
        seconds: float,
        log: Log,
        sleep: Callable[[float], Awaitable[object]] = anyio.sleep,
    ) -> None:
        """Write the file periodically, in a thread, until cancelled. Only the first of several consecutive failures is
        logged."""
        failing = False
        while True:
            await sleep(seconds)
            try:
                await to_thread.run_sync(self.write, abandon_on_cancel=True)
            except Unavailable as problem:
                if not failing:
                    log.warning("metrics.unwritten", problem=str(problem))
                failing = True
            else:
                failing = False


class MetricsServer:
    """The listener of `run --metrics-port` on 127.0.0.1; created by ``open``. Other users of the machine can read it.

    It speaks as little HTTP as a scrape needs: one request for each connection, without a body, with a head of bounded
    size and time.
    """

    def __init__(self, page: Callable[[str], Awaitable[tuple[bytes, str]]], log: Log) -> None:
        self._page = page
        self._log = log
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(cls, page: Callable[[str], Awaitable[tuple[bytes, str]]], port: int, log: Log) -> MetricsServer:
        """Listen on a port; 0 is any free port. ``page``: an Accept header -> a text and its content type. Raises
        Unavailable."""
        found = cls(page, log)
        if not 0 <= port <= 65535:  # uvloop would never return from such an attempt
            raise Unavailable(
                f"metrics port: {port} is not a port; set --metrics-port to 1 to 65535, or 0 for any free port"
            )
        try:
            found._server = await asyncio.start_server(
                found._connected, HOST, port, limit=MAX_HEAD, backlog=MAX_CONNECTIONS
            )
        except OSError as problem:
            what = (os.strerror(problem.errno) if problem.errno else str(problem)).lower()
            raise Unavailable(
                f"metrics port: cannot listen on {HOST}:{port}: {what}; choose another"
                " --metrics-port, or 0 for any free port"
            ) from problem
        return found

    @property
    def port(self) -> int:
        """The port it listens on; 0 while closed."""
        return int(self._server.sockets[0].getsockname()[1]) if self._server is not None and self._server.sockets else 0

    async def aclose(self) -> None:
        """Stop listening and drop all connections."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request. Its errors affect only its own connection."""
        try:
            async with asyncio.timeout(PATIENCE):
                head = await reader.readuntil(b"\r\n\r\n")
            writer.write(await self._answer(head))
            async with asyncio.timeout(PATIENCE):
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            with suppress(Exception):
                writer.transport.abort()

    async def _answer(self, head: bytes) -> bytes:
        request, *lines = head.decode("latin-1").split("\r\n")
        method, _, rest = request.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines if line)]
        if any(
            value.rpartition(":")[0] not in LOOPBACK_HOSTS and value not in LOOPBACK_HOSTS
            for name, value in headers
            if name == "host"
        ):
            return _response("403 Forbidden", b"host: not accepted by this listener; use 127.0.0.1\n", method)
        if path not in ("/metrics", "/"):
            return _response("404 Not Found", b"not found; use /metrics\n", method)
        if method not in ("GET", "HEAD"):
            return _response(
                "405 Method Not Allowed", b"method not allowed; use GET or HEAD\n", method, more="allow: GET, HEAD\r\n"
            )
        try:
            body, content_type = await self._page(",".join(value for name, value in headers if name == "accept"))
        except Exception:
            self._log.error("metrics.failed", exc_info=True)
            return _response("500 Internal Server Error", b"internal error in the gate; see the log\n", method)
        return _response("200 OK", body, method, content_type)


def _response(
    status: str, body: bytes, method: str, content_type: str = "text/plain; charset=utf-8", more: str = ""
) -> bytes:
    length = f"content-length: {len(body)}\r\n"
    fields = f"content-type: {content_type}\r\n{length}cache-control: no-store\r\nconnection: close\r\n{more}"
    head = f"HTTP/1.1 {status}\r\n{fields}\r\n"
    return head.encode("latin-1") + (b"" if method == "HEAD" else body)
