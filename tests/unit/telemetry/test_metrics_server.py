"""`run --metrics-port`: scrapes over a real socket."""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread
import pytest
from prometheus_client.parser import text_string_to_metric_families

from samplegate.errors import Unavailable
from samplegate.telemetry import metrics as served
from samplegate.telemetry.metrics import MAX_CONNECTIONS, MAX_HEAD, Metrics, MetricsServer
from tests.fakes.loops import BOTH_LOOPS

pytestmark = pytest.mark.anyio


class Events:
    def __init__(self) -> None:
        self.seen: list[str] = []

    def info(self, event: str, **fields: object) -> None:
        self.seen.append(event)

    debug = warning = error = info


@asynccontextmanager
async def serving(
    shown: Callable[[str], Awaitable[tuple[bytes, str]]] | None = None, log: Events | None = None
) -> AsyncIterator[int]:
    server = await MetricsServer.open(shown or Metrics().page, 0, log or Events())
    try:
        yield server.port
    finally:
        with anyio.fail_after(10):
            await server.aclose()


def pages(*bodies: bytes) -> Callable[[str], Awaitable[tuple[bytes, str]]]:
    """The given pages, one after the other."""
    left = list(bodies)

    async def page(accept: str) -> tuple[bytes, str]:
        return left.pop(0), "text/plain"

    return page


async def ask(
    port: int, method: str = "GET", path: str = "/metrics", **headers: str
) -> tuple[int, dict[str, str], str]:
    def real() -> tuple[int, dict[str, str], str]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        try:
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            return (
                response.status,
                {name.lower(): value for name, value in response.getheaders()},
                response.read().decode(),
            )
        finally:
            connection.close()

    return await anyio.to_thread.run_sync(real)


async def raw(port: int, sent: bytes) -> bytes:
    with anyio.fail_after(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(sent)
            return await reader.read()
        except ConnectionError:  # the connection was aborted while we wrote
            return b""
        finally:
            writer.transport.abort()


@BOTH_LOOPS
async def test_a_scrape_gets_what_is_counted_now() -> None:
    metrics = Metrics()
    async with serving(metrics.page) as port:
        for expected in (1.0, 2.0):
            metrics.count("samplegate_rounds_total", server="db", door="push")
            status, headers, body = await ask(port)
            families = text_string_to_metric_families(body)  # type: ignore[no-untyped-call,unused-ignore]
            counted = [
                sample.value
                for family in families
                for sample in family.samples
                if sample.name == "samplegate_rounds_total"
            ]
            assert (200, [expected]) == (status, counted)
            assert headers["content-type"].startswith("text/plain; version=0.0.4")


async def test_a_scrape_chooses_its_format() -> None:
    async with serving() as port:
        _, headers, body = await ask(port, accept="application/openmetrics-text;version=1.0.0")
    assert headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert body.endswith("# EOF\n")


async def test_head_is_get_without_the_body() -> None:
    async with serving(pages(b"x\n")) as port:
        status, headers, body = await ask(port, "HEAD")
    assert (200, "2", "") == (status, headers["content-length"], body)


@pytest.mark.parametrize(
    ("method", "path", "host", "status"),
    [
        ("GET", "/", "localhost:1", 200),
        ("GET", "/metrics?name[]=x", "127.0.0.1", 200),
        ("GET", "/reload", "localhost", 404),
        ("POST", "/metrics", "localhost", 405),
        ("GET", "/metrics", "evil.example", 403),
        ("GET", "/metrics", "evil.example:80", 403),
        ("GET", "/metrics", "127.0.0.1.evil.example", 403),
    ],
)
async def test_it_shows_one_page_under_its_own_names(method: str, path: str, host: str, status: int) -> None:
    async with serving() as port:
        assert status == (await ask(port, method, path, host=host))[0]


@pytest.mark.parametrize(
    "sent", [b"\r\n\r\n", b"GET\r\n\r\n", b"\x00\xff\r\n\r\n", b"GET /metrics HTTP/1.1\r\nno colon\r\nhost\r\n\r\n"]
)
async def test_what_is_no_request_gets_an_error_and_the_next_is_served(sent: bytes) -> None:
    async with serving() as port:
        assert (await raw(port, sent)).split(b" ")[1] in (b"403", b"404")
        assert 200 == (await ask(port))[0]


async def test_a_head_without_an_end_is_cut_off() -> None:
    async with serving() as port:
        assert b"" == await raw(port, b"GET /metrics HTTP/1.1\r\n" + b"x: y\r\n" * MAX_HEAD)
        assert 200 == (await ask(port))[0]


async def test_a_client_that_says_nothing_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "PATIENCE", 0.05)
    async with serving() as port:
        assert b"" == await raw(port, b"GET /metrics HT")


@BOTH_LOOPS
async def test_a_client_that_does_not_read_its_answer_keeps_no_other_out_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(served, "PATIENCE", 0.05)
    monkeypatch.setattr(served, "MAX_CONNECTIONS", 1)
    request = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n"
    async with serving(pages(b"x" * 50_000_000, b"y")) as port:
        with anyio.fail_after(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
            writer.write(request)
            await reader.readexactly(1)  # the response is under way, and larger than this side reads
            while not (answer := await raw(port, request)):
                pass
            writer.transport.abort()
    assert answer.endswith(b"\r\n\r\ny")


async def test_only_so_many_are_connected_at_a_time() -> None:
    async with serving() as port:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MAX_CONNECTIONS)]
        assert b"" == await raw(port, b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n")
        for _, writer in idle:
            writer.transport.abort()


async def test_a_fault_is_logged_and_told_by_a_fixed_sentence() -> None:
    async def shown(accept: str) -> tuple[bytes, str]:
        raise KeyError("a secret")

    log = Events()
    async with serving(shown, log) as port:
        status, _, body = await ask(port)
    assert (500, "internal error in the gate; see the log\n", ["metrics.failed"]) == (status, body, log.seen)


@BOTH_LOOPS
async def test_a_port_that_is_taken_is_unavailable_with_a_remedy() -> None:
    async with serving() as port:
        with pytest.raises(
            Unavailable,
            match=(
                rf"metrics port: cannot listen on 127\.0\.0\.1:{port}: address already in use; choose another"
                r" --metrics-port"
            ),
        ):
            await MetricsServer.open(Metrics().page, port, Events())


@BOTH_LOOPS
@pytest.mark.parametrize("port", [-1, 65536])
async def test_a_port_that_is_none_is_unavailable(port: int) -> None:
    with pytest.raises(Unavailable, match=f"metrics port: {port} is not a port"):
        await MetricsServer.open(Metrics().page, port, Events())


@BOTH_LOOPS
async def test_after_the_end_nobody_listens_and_the_port_is_free() -> None:
    async with serving() as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.transport.abort()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
