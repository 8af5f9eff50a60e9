"""What a connection makes of requests that are odd or hostile: trailers, asking for another protocol, and heads that are none."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from samplegate.links.front.bounds import Bounds
from samplegate.links.front.replies import Receive, Reply, Scope, Send, deliver
from tests.links.front.wires import Wire

pytestmark = pytest.mark.anyio
CHUNKED = b"POST /mcp HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"
PLAIN = b"POST /plain HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
INNER = b"DELETE /inner HTTP/1.1\r\nHost: x\r\n\r\n"


@dataclasses.dataclass
class App:
    """Reads each request whole, or not at all, and answers."""

    reads: bool = True
    seen: list[tuple[str, bytes]] = dataclasses.field(default_factory=list)
    scopes: list[Scope] = dataclasses.field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        body, more = b"", self.reads
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body, more = body + message["body"], message["more_body"]
        self.seen.append((scope["method"] + " " + scope["path"], body))
        await deliver(send, Reply(202))


async def asked(app: Any, *data: bytes, bounds: Bounds | None = None) -> Wire:
    wire = Wire(app, bounds)
    for piece in data:
        if wire.transport.is_closing():
            break
        wire.come(piece)
        await asyncio.sleep(0)
    return wire


async def test_trailers_are_no_headers() -> None:
    app = App()
    wire = await asked(app, CHUNKED + b"0\r\nMcp-Method: tools/call\r\nExpect: 100-continue\r\n\r\n", PLAIN)
    await wire.settled()
    assert [("POST /mcp", b"{}"), ("POST /plain", b"{}")] == app.seen
    assert [b"host", b"transfer-encoding"] == [name for name, _ in app.scopes[0]["headers"]]


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("trailer", [b"x: y\r\n" * 100, b"y" * 600], ids=["many", "one"])
async def test_trailers_without_end_are_refused(trailer: bytes, reads: bool) -> None:
    wire = await asked(App(reads), CHUNKED + b"0\r\nx: ", *[trailer] * 100, bounds=Bounds(head=1000))
    assert wire.transport.is_closing()
    assert 1 == wire.transport.out.count(b"HTTP/1.1 ")
    wire.connection.connection_lost(None)
    await wire.settled()


async def test_nothing_is_kept_of_trailers() -> None:
    wire = await asked(App(), CHUNKED + b"0\r\n", b"x: y\r\n" * 100)
    assert not wire.transport.is_closing()
    assert 2 == len(wire.connection.headers)
    wire.connection.connection_lost(None)
    await wire.settled()


async def test_a_large_body_in_many_chunks_is_no_trailer() -> None:
    app = App()
    wire = await asked(app, CHUNKED, *[b"3e8\r\n", b"x" * 1000, b"\r\n"] * 100, b"0\r\n\r\n", bounds=Bounds(head=500))
    await wire.settled()
    assert 100_002 == len(app.seen[0][1])


def upgrade(protocol: bytes, *lines: bytes, verb: bytes = b"POST") -> bytes:
    first = [verb + b" /mcp?x=1 HTTP/1.1", b"Host: x", b"X-Empty:", b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: " + protocol]
    return b"\r\n".join([*first, *lines, b"", b""])


@pytest.mark.parametrize("protocol", [b"h2c", b"websocket", b"other/1"])
@pytest.mark.parametrize("size", [1, 7, 10_000])
async def test_another_protocol_that_is_asked_for_is_ignored(protocol: bytes, size: int) -> None:
    app = App()
    data = upgrade(protocol, b"Content-Length: %d" % len(INNER)) + INNER + upgrade(protocol, b"Transfer-Encoding: chunked") + b"2\r\n{}\r\n0\r\n\r\n"
    data += upgrade(protocol, verb=b"GET") + PLAIN
    wire = await asked(app, *[data[at : at + size] for at in range(0, len(data), size)])
    await wire.settled()
    assert [("POST /mcp", INNER), ("POST /mcp", b"{}"), ("GET /mcp", b""), ("POST /plain", b"{}")] == app.seen
    assert (b"host", b"x") in app.scopes[0]["headers"]
    assert (b"x-empty", b"") in app.scopes[0]["headers"]
    assert (b"x=1", "1.1") == (app.scopes[0]["query_string"], app.scopes[0]["http_version"])
    assert 4 == wire.transport.out.count(b"HTTP/1.1 202 ")


async def test_a_connection_that_is_to_end_ends_after_an_upgrade_that_is_ignored() -> None:
    app = App()
    wire = await asked(app, upgrade(b"h2c", b"Connection: close", b"Content-Length: 2") + b"{}" + PLAIN)
    await wire.settled()
    assert [("POST /mcp", b"{}")] == app.seen
    assert wire.transport.closed


async def test_a_tunnel_is_refused_and_nothing_behind_it_is_a_request() -> None:
    app = App()
    wire = await asked(app, b"CONNECT localhost:80 HTTP/1.1\r\nHost: x\r\n\r\n" + PLAIN, PLAIN)
    await wire.settled()
    assert [] == app.seen
    assert wire.transport.closed
    assert wire.transport.out.startswith(b"HTTP/1.1 400 ")


async def test_the_head_of_an_upgrade_is_bounded_like_any() -> None:
    app = App()
    wire = await asked(app, upgrade(b"h2c", b"X: " + b"y" * 2000) + PLAIN, bounds=Bounds(head=1000))
    await wire.settled()
    assert ([], True) == (app.seen, wire.transport.closed)
    assert wire.transport.out.startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("rest", [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nX: " + b"y" * 2000], ids=["fault", "large"])
async def test_what_comes_behind_a_request_in_hand_is_not_refused_in_its_place(rest: bytes) -> None:
    started = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        started.set()
        while (await receive())["type"] != "http.disconnect":
            pass

    wire = await asked(app, PLAIN, bounds=Bounds(head=1000))
    await asyncio.wait_for(started.wait(), 10)
    wire.come(rest)
    assert wire.transport.is_closing()
    assert 1 == wire.transport.out.count(b"HTTP/1.1 ")
    wire.connection.connection_lost(None)
    await wire.settled()


async def test_what_is_no_request_is_said_to_be_none() -> None:
    wire = await asked(App(), b"nonsense\r\n\r\n")
    assert wire.transport.out.startswith(b"HTTP/1.1 400 ")
    assert wire.transport.closed
