"""Odd and hostile requests over real sockets: the client's answers, and the requests that the application saw."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from samplegate.server.listeners import listener
from samplegate.transport.http_server.http import Bounds, Receive, Reply, Scope, Send, deliver
from samplegate.transport.http_server.uvicorn_protocol import Connections

pytestmark = pytest.mark.anyio
BOUND = 20.0
HEAD = 4000
END = b"GET /end HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
INNER = b"DELETE /inner HTTP/1.1\r\nHost: x\r\n\r\n"
ONE, LAST, HIDDEN = "POST /mcp {}", "GET /end", f"POST /mcp {INNER.decode()}"


def post(
    *lines: bytes, body: bytes = b"{}", version: bytes = b"1.1", length: bool = True, target: bytes = b"/mcp"
) -> bytes:
    framing = [b"Content-Length: %d" % len(body)] if length else []
    return b"\r\n".join([b"POST " + target + b" HTTP/" + version, b"Host: x", *framing, *lines, b"", b""]) + body


CHUNKED = b"POST /mcp HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
OFFER = (b"Connection: Upgrade, HTTP2-Settings", b"HTTP2-Settings: AAMAAABkAAQAAP__")
CUT = post(*OFFER, b"Upgrade: h2c", body=INNER)


@dataclass
class App:
    """Reads each request whole and answers 202; ``/unread`` without reading it, ``/begun`` with a stream that goes on
    for ever."""

    seen: list[str] = field(default_factory=list)
    headers: list[list[bytes]] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._answer(scope, receive, send)
        finally:
            self.over.set()

    async def until(self, done: Callable[[], bool]) -> None:
        """Wait for the results of the requests."""
        async with asyncio.timeout(BOUND):
            while not done():
                await self.over.wait()
                self.over.clear()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        at, body, more = len(self.seen), b"", scope["path"] != "/unread"
        self.seen.append(f"{scope['method']} {scope['path']}")
        if scope["path"] == "/begun":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"first", "more_body": True})
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.seen[at] += " gone"
                return
            body, more = body + message["body"], message["more_body"] or scope["path"] == "/begun"
        self.headers.append([name for name, _ in scope["headers"]])
        self.seen[at] += f" {body.decode()}" if body else ""
        await deliver(send, Reply(202))


@contextlib.asynccontextmanager
async def listening(app: Any, bounds: Bounds, keep_alive: int = 600) -> AsyncIterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as ours:
        server = listener(Connections(app, bounds), keep_alive=keep_alive)
        task = asyncio.ensure_future(server.serve(sockets=[ours]))
        try:
            yield ours.getsockname()[1]
        finally:
            server.should_exit = server.force_exit = True
            await asyncio.wait_for(task, BOUND)


async def exchanged(
    port: int, pieces: Sequence[bytes], *, half: bool = False, pause: float = 0.02
) -> tuple[list[int], bytes]:
    """The statuses of all that comes back until the server ends the connection, and the bytes. ``half``: no more is
    sent than ``pieces``."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    out = b""
    reading = asyncio.ensure_future(read(reader))
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause)
        if half:
            writer.write_eof()
    except (ConnectionError, RuntimeError):  # uvloop raises the second where the connection is over
        pass
    finally:
        out = await asyncio.wait_for(reading, BOUND)
        writer.close()
    return [int(line.split()[1]) for line in out.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")], out


async def read(reader: asyncio.StreamReader) -> bytes:
    out = b""
    with contextlib.suppress(ConnectionError):
        while piece := await reader.read(65536):
            out += piece
    return out


def sliced(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


Row = tuple[list[bytes], list[int], list[str]]
ROWS: dict[str, Row] = {
    "plain": ([post(), END], [202, 202], [ONE, LAST]),
    "one byte at a time": ([*sliced(post(), 1), END], [202, 202], [ONE, LAST]),
    "pipelined": ([post() * 3 + END], [202, 202, 202, 202], [ONE, ONE, ONE, LAST]),
    "pipelined, cut anywhere": ([*sliced(post() * 3, 70), END], [202, 202, 202, 202], [ONE, ONE, ONE, LAST]),
    "line ends before a request": ([b"\r\n\r\n" + post(), b"\r\n" + END], [202, 202], [ONE, LAST]),
    "1.0": ([post(version=b"1.0"), END], [202], [ONE]),
    "1.0 keep-alive": ([post(b"Connection: keep-alive", version=b"1.0"), END], [202], [ONE]),
    "close": ([post(b"Connection: close") + post(), END], [202], [ONE]),
    "expect": (
        [post(b"Expect: 100-continue", b"Content-Length: 2", body=b"", length=False), b"{}" + END],
        [100, 202, 202],
        [ONE, LAST],
    ),
    "expect, unread": (
        [post(b"Expect: 100-continue", body=b"", target=b"/unread") + END],
        [202, 202],
        ["POST /unread", LAST],
    ),
    "unread body": ([post(target=b"/unread"), END], [202, 202], ["POST /unread", LAST]),
    "no host": ([b"GET /mcp HTTP/1.1\r\n\r\n", END], [202, 202], ["GET /mcp", LAST]),
    "lower-case method": ([b"post /mcp HTTP/1.1\r\nHost: x\r\n\r\n", END], [400], []),
    "unknown method": ([b"BREW /mcp HTTP/1.1\r\nHost: x\r\n\r\n", END], [400], []),
    "nonsense": ([b"nonsense\r\n\r\n", END], [400], []),
    "nonsense behind an answer": ([post(), b"nonsense\r\n\r\n", END], [202, 400], [ONE]),
    "0.9": ([b"GET /mcp\r\n\r\n", END], [202], ["GET /mcp"]),
    "2.0": ([b"GET /mcp HTTP/2.0\r\nHost: x\r\n\r\n", END], [202], ["GET /mcp"]),
    "h2 with prior knowledge": ([b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9), END], [400], []),
    "tls": ([b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), END], [400], []),
    "tunnel": ([b"CONNECT localhost:80 HTTP/1.1\r\nHost: x\r\n\r\n" + post(), END], [400], []),
    "target in absolute form": ([b"GET http://x/mcp HTTP/1.1\r\nHost: x\r\n\r\n", END], [202, 202], ["GET /mcp", LAST]),
    "target of another host": ([b"GET http://y/mcp HTTP/1.1\r\nHost: x\r\n\r\n", END], [400], []),
    "target with an escape": ([b"GET /m%63p HTTP/1.1\r\nHost: x\r\n\r\n", END], [400], []),
    "target with an escape in its query": (
        [b"GET /mcp?x=%63 HTTP/1.1\r\nHost: x\r\n\r\n", END],
        [202, 202],
        ["GET /mcp", LAST],
    ),
    "target with a fragment": ([b"GET /mcp#x HTTP/1.1\r\nHost: x\r\n\r\n", END], [400], []),
    "target that is a star": ([b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", END], [400], []),
    "target with a space": ([b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", END], [400], []),
    "target that is not ASCII": ([b"GET /\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n", END], [400], []),
    "length and chunked": ([post(b"Transfer-Encoding: chunked", body=b"0\r\n\r\n") + INNER, END], [400], []),
    "two lengths": ([post(b"Content-Length: 3") + END], [400], []),
    "the same length twice": ([post(b"Content-Length: 2") + END], [400], []),
    "length below zero": ([post(b"Content-Length: -1", length=False) + END], [400], []),
    "length with a plus": ([post(b"Content-Length: +2", length=False) + END], [400], []),
    "length too long": ([post(b"Content-Length: " + b"9" * 30, length=False) + END], [400], []),
    "chunked, chunked": (
        [post(b"Transfer-Encoding: chunked, chunked", length=False, body=b"0\r\n\r\n") + END],
        [400],
        [],
    ),
    "chunked, identity": (
        [post(b"Transfer-Encoding: chunked, identity", length=False, body=b"0\r\n\r\n") + END],
        [400],
        [],
    ),
    "gzip": ([post(b"Transfer-Encoding: gzip", length=False) + END], [400], []),
    "chunked by 1.0": ([CHUNKED.replace(b"1.1", b"1.0") + b"2\r\n{}\r\n0\r\n\r\n", END], [202], [ONE]),
    "chunks": ([CHUNKED + b"1\r\n{\r\n", b"1\r\n}\r\n0\r\n\r\n" + END], [202, 202], [ONE, LAST]),
    "chunk with an extension": ([CHUNKED + b"2;x=y\r\n{}\r\n0\r\n\r\n" + END], [202, 202], [ONE, LAST]),
    "chunk of no size": ([CHUNKED + b"x\r\n{}\r\n0\r\n\r\n" + END], [400], []),
    "chunk of no size, late": ([CHUNKED + b"1\r\n{\r\n", b"x\r\n}\r\n0\r\n\r\n" + END], [400], ["POST /mcp gone"]),
    "chunk that is longer than it says": ([CHUNKED + b"1\r\n{}\r\n0\r\n\r\n" + END], [400], []),
    "chunk size over 64 bits": ([CHUNKED + b"f" * 17 + b"\r\n{}\r\n0\r\n\r\n" + END], [400], []),
    "large body in many chunks": (
        [CHUNKED, *[b"64\r\n" + b"y" * 100 + b"\r\n"] * 100, b"0\r\n\r\n" + END],
        [202, 202],
        ["POST /mcp " + "Y" * 100, LAST],
    ),
    "trailers": ([CHUNKED + b"2\r\n{}\r\n0\r\nMcp-Method: tools/call\r\n\r\n" + END], [202, 202], [ONE, LAST]),
    "trailers, late": (
        [CHUNKED + b"2\r\n{}\r\n", b"0\r\nMcp-Method: tools/call\r\n\r\n" + END],
        [202, 202],
        [ONE, LAST],
    ),
    "trailers without end": (
        [CHUNKED + b"2\r\n{}\r\n0\r\n", *[b"x: y\r\n" * 700] * 10, END],
        [431],
        ["POST /mcp gone"],
    ),
    "a trailer without end": ([CHUNKED + b"2\r\n{}\r\n0\r\nx: ", *[b"y" * 3000] * 10, END], [431], ["POST /mcp gone"]),
    "chunk extension without end": ([CHUNKED + b"2;x=", *[b"y" * 3000] * 10, END], [431], ["POST /mcp gone"]),
    "folded header": ([post(b"X: a\r\n b") + END], [400], []),
    "space before the colon": ([post(b"X : a") + END], [400], []),
    "space before the name": ([b"GET /mcp HTTP/1.1\r\n Host: x\r\n\r\n" + END], [400], []),
    "no colon": ([post(b"X") + END], [400], []),
    "line feeds only": ([post().replace(b"\r\n", b"\n") + END], [400], []),
    "a carriage return in a header": ([post(b"X: a\rb") + END], [400], []),
    "a zero in a header": ([post(b"X: a\0b") + END], [400], []),
    "a header that is not ASCII": ([post(b"X: \xff") + END], [202, 202], [ONE, LAST]),
    "upgrade to h2c": ([post(*OFFER, b"Upgrade: h2c", body=INNER), END], [202, 202], [HIDDEN, LAST]),
    "upgrade to h2c, the body apart": (
        [post(*OFFER, b"Upgrade: h2c", body=INNER)[: -len(INNER)], INNER + END],
        [202, 202],
        [HIDDEN, LAST],
    ),
    "upgrade to h2c, one byte at a time": ([*sliced(post(*OFFER, b"Upgrade: h2c"), 1), END], [202, 202], [ONE, LAST]),
    "upgrade to a websocket": (
        [b"GET /mcp HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + END],
        [202, 202],
        ["GET /mcp", LAST],
    ),
    "upgrade with chunks": (
        [
            post(*OFFER, b"Upgrade: h2c", b"Transfer-Encoding: chunked", length=False, body=b"2\r\n{}\r\n0\r\n\r\n")
            + END
        ],
        [202, 202],
        [ONE, LAST],
    ),
    "upgrade and close": ([post(b"Connection: close, upgrade", b"Upgrade: h2c") + post(), END], [202], [ONE]),
    "upgrade behind an answer": (
        [post(), post(*OFFER, b"UPGRADE:h2c", body=INNER), END],
        [202, 202, 202],
        [ONE, HIDDEN, LAST],
    ),
    "upgrade behind a request": ([post() + post(*OFFER, b"Upgrade: h2c", body=INNER) + END], [], []),
    "upgrade behind a request, cut in its head": ([post() + CUT[:60], CUT[60:] + END], [202, 400], [ONE]),
    "upgrade of a bad head": ([post(b"X : y", *OFFER, b"Upgrade: h2c") + END], [400], []),
    "large head at once": ([post(b"X: " + b"y" * HEAD) + END], [431], []),
    "large head in pieces": ([b"POST /mcp HTTP/1.1\r\nX: ", *[b"y" * 1000] * 6, END], [431], []),
    "many headers": ([post(*[b"X-%d: y" % n for n in range(500)]) + END], [202, 202], [ONE, LAST]),
    "large target": ([post(target=b"/" + b"x" * HEAD) + END], [431], []),
    "large head of an upgrade": ([post(*OFFER, b"Upgrade: h2c", b"X: " + b"y" * HEAD) + END], [431], []),
    "large head behind an answer": ([post(), post(b"X: " + b"y" * HEAD) + END], [202, 431], [ONE]),
    "large body": ([post(body=b"y" * 3 * HEAD) + END], [202, 202], ["POST /mcp " + "Y" * 120, LAST]),
    "nonsense behind a request in hand": (
        [post(target=b"/begun"), b"nonsense\r\n\r\n", END],
        [200],
        ["POST /begun gone"],
    ),
    "large head behind a request in hand": (
        [post(target=b"/begun"), b"GET / HTTP/1.1\r\nX: " + b"y" * 2 * HEAD, END],
        [200],
        ["POST /begun gone"],
    ),
}


@pytest.mark.parametrize("name", ROWS)
async def test_odd_requests_are_answered_as_listed(name: str) -> None:
    pieces, statuses, seen = ROWS[name]
    app = App()
    async with listening(app, Bounds(head=HEAD)) as port:
        found, _ = await exchanged(port, pieces, pause=0.005)
        await app.until(lambda: all(one.endswith("gone") for one in app.seen if "begun" in one))
    assert (statuses, seen) == (found, [one.replace("y" * 100, "Y") for one in app.seen])
    assert not any(b"mcp-method" in names for names in app.headers), "a trailer is no header"


HALF: dict[str, tuple[bytes, list[int], list[str]]] = {
    "nothing": (b"", [], []),
    "half a head": (post()[:20], [], []),
    "half a body": (post()[:-1], [], ["POST /mcp gone"]),
    "a request": (post(), [], [ONE]),
}


@pytest.mark.parametrize("name", HALF)
async def test_a_client_that_closes_its_side_ends_the_connection(name: str) -> None:
    sent, statuses, seen = HALF[name]
    app = App()
    async with listening(app, Bounds()) as port:
        found, _ = await exchanged(port, [sent] if sent else [], half=True)
        await app.until(lambda: seen == app.seen)
    assert found in (statuses, [202])  # whether a whole request was answered before its connection ended is chance


SLOW: dict[str, tuple[list[bytes], list[int]]] = {
    "nothing": ([], []),
    "half a head": ([post()[:20]], []),
    "a head byte by byte": ([post()[:20], *[b"x"] * 1000], []),
    "a second head": ([post(), b"GET /mcp HTTP/1.1\r\nX-Slow: "], [202]),
    "a second head byte by byte": ([post(), b"GET /mcp HTTP/1.1\r\nX-Slow: ", *[b"x"] * 1000], [202]),
    "a head behind a request": ([post() + b"GET /mcp HTTP/1.1\r\nX-Slow: ", *[b"x"] * 1000], [202]),
    "the head of an upgrade": ([post(*OFFER, b"Upgrade: h2c", body=b"")[:-6], *[b"x"] * 1000], []),
}


@pytest.mark.parametrize("name", SLOW)
async def test_a_head_that_does_not_come_is_not_waited_for(name: str) -> None:
    pieces, statuses = SLOW[name]
    async with listening(App(), Bounds(head_time=0.2)) as port:
        found, _ = await exchanged(port, pieces, pause=0.01)
    assert found in (statuses, [])  # a second head may end the connection before the first was answered


@pytest.mark.parametrize("before", [b"", post()[:-1]], ids=["a request", "the end of a body"])
async def test_a_request_does_not_wait_for_the_head_behind_it(before: bytes) -> None:
    async with listening(App(), Bounds()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        if before:
            writer.write(before)
            await asyncio.sleep(0.02)
        writer.write(post()[len(before) :] + END[:20])
        async with asyncio.timeout(BOUND):
            assert b" 202 " in await reader.readuntil(b"\r\n\r\n")
            writer.write(END[20:])
            assert 1 == (await reader.read()).count(b" 202 ")
        writer.close()


async def test_connections_without_a_request_make_room() -> None:
    async with listening(App(), Bounds(head_time=0.05, connections=64)) as port:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(64)]
        async with asyncio.timeout(BOUND):
            assert [b""] * 64 == [await reader.read() for reader, _ in idle]
        assert [202] == (await exchanged(port, [END]))[0]
        for _, writer in idle:
            writer.close()


@pytest.mark.parametrize(
    "pieces", [[post()], [post(target=b"/unread")], [post(), b"\r\n"]], ids=["idle", "unread", "line ends"]
)
async def test_a_connection_that_asks_no_more_is_ended(pieces: list[bytes]) -> None:
    async with listening(App(), Bounds(head_time=1), keep_alive=1) as port:
        assert [202] == (await exchanged(port, pieces))[0]


async def test_a_connection_whose_body_ends_after_its_answer_is_ended() -> None:
    """Otherwise silent connections could fill the listener."""
    async with listening(App(), Bounds(connection_idle=0.4)) as port:
        assert [202] == (await exchanged(port, [post(target=b"/unread")[:-1], b"}"], pause=0.2))[0]


async def test_a_connection_that_asks_again_in_time_goes_on() -> None:
    pieces = [part for _ in range(8) for part in (post()[:20], post()[20:])]
    async with listening(App(), Bounds(connection_idle=1), keep_alive=1) as port:
        assert [202] * 9 == (await exchanged(port, [*pieces, END], pause=0.2))[0]


TARGETS = [b"http://127.0.0.1:99999/", b"http://127.0.0.1", b"/\xc3\xa9"]


@pytest.mark.parametrize("target", TARGETS)
async def test_a_target_that_cannot_be_read_is_not_answered_in_place_of_an_earlier_request(target: bytes) -> None:
    host = target.removeprefix(b"http://").rstrip(b"/") if target.startswith(b"http") else b"x"
    bad = b"GET %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (target, host)
    async with listening(App(), Bounds()) as port:
        assert [400] == (await exchanged(port, [bad]))[0]
        assert 400 not in (await exchanged(port, [post() + bad]))[0]
