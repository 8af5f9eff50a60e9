"""The HTTP front on a real server with real sockets: all protocol versions end to end, headers that are too large or
never end, and clients that do not read."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from uvicorn.server import ServerState

from samplegate.transport.http_server import uvicorn_protocol
from samplegate.transport.http_server.http import HttpBounds
from samplegate.transport.http_server.listeners import listener
from samplegate.transport.http_server.uvicorn_protocol import Connections
from tests.fakes.http_front import META, MODERN, Front, Served, initialize, note, result, silent
from tests.fakes.loops import BOTH_LOOPS

pytestmark = pytest.mark.anyio
BOUND = 20.0
TYPES = {"accept": "application/json, text/event-stream"}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


@asynccontextmanager
async def serving(front: Front, connections: Connections | None = None) -> AsyncIterator[int]:
    """The front on a local port."""
    ours = socket.create_server(("127.0.0.1", 0))
    server = listener(connections or Connections(front.app, front.sessions.bounds))
    task = asyncio.ensure_future(server.serve(sockets=[ours]))
    try:
        yield ours.getsockname()[1]
    finally:
        server.should_exit = server.force_exit = True
        await asyncio.wait_for(task, BOUND)
        ours.close()


async def raw(port: int, *pieces: bytes) -> bytes:
    """All bytes of the response until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        return await asyncio.wait_for(reader.read(), BOUND)
    except ConnectionError:
        return b""
    finally:
        writer.close()


def request(body: object, *headers: str, method: str = "POST") -> bytes:
    data = json.dumps(body).encode()
    lines = [
        f"{method} /mcp HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        "Accept: */*",
        f"Content-Length: {len(data)}",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + data


@BOTH_LOOPS
async def test_both_eras_are_served_on_one_path() -> None:
    front = Front(Served(silent), bounds=HttpBounds(commit=0.0))
    async with serving(front) as port, aiohttp.ClientSession(f"http://127.0.0.1:{port}", headers=TYPES) as client:
        async with client.post("/mcp", json=initialize()) as answer:
            session = {"Mcp-Session-Id": answer.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
        async with (
            client.post("/mcp", json=LIST, headers=session) as legacy,
            client.get("/mcp", headers=session) as listening,
        ):
            conversation = front.served.begun[0]
            conversation.streams[conversation.got[1][0]].send(result(1, "legacy"), True)
            conversation.streams[0].send(note("standalone"), False)
            assert b"legacy" in await legacy.read()
            assert b"id: 0-0" in await listening.content.readuntil(b"\n\n")
            assert b"standalone" in await listening.content.readuntil(b"\n\n")
        wanted = {"MCP-Protocol-Version": MODERN, "MCP-METHOD": "tools/list"}
        async with client.post("/mcp", json=LIST | {"params": {"_meta": META}}, headers=wanted) as modern:
            front.served.shared["local"].streams[1].send(result(1, "modern"), True)
            assert b"modern" in await modern.read()
        async with client.delete("/mcp", headers=session) as answer:
            assert 204 == answer.status


@BOTH_LOOPS
async def test_a_modern_client_that_goes_cancels() -> None:
    front = Front(Served(silent))
    async with serving(front) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            request(LIST | {"params": {"_meta": META}}, f"MCP-Protocol-Version: {MODERN}", "Mcp-Method: tools/list")
        )
        conversation = await front.served.asked()
        writer.close()
        await conversation.until(lambda: conversation.closed == [1])


async def test_headers_that_differ_in_case_only_are_twins() -> None:
    async with serving(Front()) as port:
        out = await raw(port, request(initialize(), "Mcp-Session-Id: a", "MCP-SESSION-ID: b", "Connection: close"))
    assert out.startswith(b"HTTP/1.1 400 ")


async def test_a_body_that_dribbles_is_given_up() -> None:
    async with serving(Front(bounds=HttpBounds(body_time=0.05))) as port:
        out = await raw(
            port, b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        )
    assert out.startswith(b"HTTP/1.1 408 ")


async def test_a_chunked_body_that_grows_too_large_is_given_up() -> None:
    async with serving(Front(bounds=HttpBounds(body=1000))) as port:
        head = b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        out = await raw(port, head, b"400\r\n" + b"x" * 1024 + b"\r\n")
    assert out.startswith(b"HTTP/1.1 413 ")


async def test_a_large_body_is_no_large_head() -> None:
    async with serving(Front(bounds=HttpBounds(head=1000))) as port:
        out = await raw(port, request(initialize() | {"x": "y" * 100_000}, "Connection: close"))
    assert out.startswith(b"HTTP/1.1 200 ")


def slow_reader(port: int) -> socket.socket:
    """A client with a small receive buffer, which reads only when the test tells it to."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", port))
    return client


@BOTH_LOOPS
async def test_a_client_that_takes_no_stream_is_cut_off_and_its_call_cancelled() -> None:
    front = Front(Served(silent), bounds=HttpBounds(commit=0.0, stalled=0.1))
    async with serving(front) as port:
        client = slow_reader(port)
        client.sendall(
            request(LIST | {"params": {"_meta": META}}, f"MCP-Protocol-Version: {MODERN}", "Mcp-Method: tools/list")
        )
        conversation = await front.served.asked()
        for _ in range(300):
            conversation.streams[1].send(note("x" * 100_000), False)
            await asyncio.sleep(0)
        await conversation.until(lambda: conversation.closed == [1])
        client.close()
    assert "slow" == front.access_log[0].end


@BOTH_LOOPS
async def test_a_client_that_takes_no_answer_is_cut_off() -> None:
    """The application has finished long ago; uvicorn still holds the bytes."""
    front = Front(
        Served(lambda c, stream, f: c.streams[stream].send(result(f.id, "x" * 10_000_000), True)),
        bounds=HttpBounds(stalled=0.1),
    )
    connections = Connections(front.app, front.sessions.bounds)
    async with serving(front, connections) as port:
        client = slow_reader(port)
        client.sendall(
            request(LIST | {"params": {"_meta": META}}, f"MCP-Protocol-Version: {MODERN}", "Mcp-Method: tools/list")
        )
        await until(lambda: bool(front.access_log) and not connections.open)
        client.close()
    assert 200 == front.access_log[0].status


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


class FakeTransport(asyncio.Transport):
    """A fake transport; ``left`` is the number of bytes that the client has not read."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.left, self.closing, self.aborted = 1000, False, False

    def write(self, data: object) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closing

    def get_write_buffer_size(self) -> int:
        return self.left

    def abort(self) -> None:
        self.aborted = True

    def close(self) -> None:
        self.closing = True


@pytest.mark.parametrize("state", ["paused", "closing", "open"])
@pytest.mark.parametrize(
    ("left", "cut"), [([900, 800, 700, 1], False), ([900, 900], True), ([900, 800, 800], True), ([900, 0, 900], False)]
)
async def test_a_connection_is_cut_only_when_its_client_takes_nothing(state: str, left: list[int], cut: bool) -> None:
    """In the states paused and closing. In the state open, uvicorn may still add bytes, so their number says
    nothing."""
    front = Front(bounds=HttpBounds(stalled=30, head_time=10_000))
    connections, wire = Connections(front.app, front.sessions.bounds), FakeTransport()
    made = connections.protocol(app_state={}, config=listener(connections).config, server_state=ServerState())
    made.connection_made(wire)
    if state == "paused":
        made.pause_writing()
    wire.closing = state == "closing"
    for at, now in enumerate(left):
        assert not wire.aborted
        wire.left = now
        made.check(100 + 30 * at)
    assert (cut and state != "open") == wire.aborted == made.stalled
    made.connection_lost(None)


@BOTH_LOOPS
async def test_a_client_that_reads_slowly_gets_all_of_it() -> None:
    front = Front(
        Served(lambda c, stream, f: c.streams[stream].send(result(f.id, "x" * 3_000_000), True)),
        bounds=HttpBounds(stalled=5),
    )
    async with serving(front) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(
            request(
                LIST | {"params": {"_meta": META}},
                f"MCP-Protocol-Version: {MODERN}",
                "Mcp-Method: tools/list",
                "Connection: close",
            )
        )
        size = 0
        async with asyncio.timeout(BOUND):
            while piece := await reader.read(65536):
                size += len(piece)
        writer.close()
    assert size > 3_000_000


async def test_many_clients_at_once_each_get_their_own_answer() -> None:
    front = Front()
    async with serving(front) as port, aiohttp.ClientSession(f"http://127.0.0.1:{port}", headers=TYPES) as client:

        async def one(n: int) -> int:
            wanted = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/list"}
            async with client.post("/mcp", json=LIST | {"id": n, "params": {"_meta": META}}, headers=wanted) as answer:
                return int((await answer.json())["id"])

        assert list(range(200)) == await asyncio.gather(*(one(n) for n in range(200)))


def counted(bounds: HttpBounds, refusals: list[str] | None = None) -> Connections:
    return Connections(
        Front(bounds=bounds).app, bounds, refused=lambda: None if refusals is None else refusals.append("busy")
    )


@BOTH_LOOPS
async def test_one_connection_too_many_is_told_to_come_back_whether_it_asks_or_not() -> None:
    refusals: list[str] = []
    async with serving(Front(), counted(HttpBounds(connections=3), refusals)) as port:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        asked, silent = await raw(port, request(LIST)), await raw(port)
        for _, writer in idle:
            writer.close()
    assert ["busy", "busy"] == refusals
    assert asked == silent
    assert asked.startswith(b"HTTP/1.1 503 ")
    assert b"\r\nretry-after: 5\r\n" in asked


async def test_a_connection_that_goes_makes_room_though_others_are_being_turned_away() -> None:
    connections = counted(HttpBounds(connections=2))
    async with serving(Front(), connections) as port:
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(7)]
        assert {b"HTTP/1.1 503"} == {(await asyncio.wait_for(reader.read(), BOUND))[:12] for reader, _ in opened[2:]}
        opened[0][1].close()
        await until(lambda: len(connections.open) == 1)
        assert not (await raw(port, request(initialize(), "Connection: close"))).startswith(b"HTTP/1.1 503 ")
        for _, writer in opened:
            writer.close()


@pytest.mark.parametrize(("linger", "lingering", "stay"), [(0.01, 64, 0), (2 * BOUND, 2, 2)])
async def test_a_client_that_is_turned_away_may_stay_only_a_moment_and_only_some_may(
    monkeypatch: pytest.MonkeyPatch, linger: float, lingering: int, stay: int
) -> None:
    monkeypatch.setattr(uvicorn_protocol, "_LINGER", linger)
    lost: asyncio.Queue[None] = asyncio.Queue()
    leave = Connections.leave

    def leaving(self: Connections, one: uvicorn_protocol.Connection) -> bool:
        lost.put_nowait(None)
        return leave(self, one)

    monkeypatch.setattr(Connections, "leave", leaving)
    async with serving(Front(), counted(HttpBounds(connections=0, lingering=lingering))) as port:
        away = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        for _ in range(3 - stay):
            await asyncio.wait_for(lost.get(), BOUND)
        assert lost.empty()
        for _, writer in away:
            writer.close()


async def test_more_requests_than_may_wait_for_their_answers_end_the_connection() -> None:
    front = Front(bounds=HttpBounds(pipelined=3))
    async with serving(front) as port:
        assert 0 == (await raw(port, request(initialize()) * 4)).count(b"HTTP/1.1 ")
        assert 3 == (await raw(port, request(initialize()) * 2 + request(initialize(), "Connection: close"))).count(
            b"HTTP/1.1 200 "
        )
