"""The front on a real server with real sockets: both eras end to end, heads that are too large or never end, and clients that take nothing."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
import uvicorn

from samplegate.links.front import connection
from samplegate.links.front.bounds import Bounds
from samplegate.links.front.connection import bounded
from tests.links.front.fakes import META, MODERN, Front, Served, initialize, note, result, silent

pytestmark = pytest.mark.anyio
BOUND = 20.0
TYPES = {"accept": "application/json, text/event-stream"}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


@asynccontextmanager
async def serving(front: Front, kind: type[Any] | None = None, keep_alive: int = 600) -> AsyncIterator[int]:
    """The front on a port of this machine, with connections of this kind, which wait so many seconds for another request."""
    listener = socket.create_server(("127.0.0.1", 0))
    settings: dict[str, Any] = {"ws": "none", "lifespan": "off", "log_config": None, "access_log": False, "proxy_headers": False}
    server = uvicorn.Server(uvicorn.Config(front.app, http=kind or bounded(front.sessions.bounds), timeout_keep_alive=keep_alive, **settings))
    task = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = server.force_exit = True
        await asyncio.wait_for(task, BOUND)
        listener.close()


async def raw(port: int, *pieces: bytes) -> bytes:
    """Everything that comes back for these bytes until the server ends the connection."""
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
    lines = [f"{method} /mcp HTTP/1.1", "Host: localhost", "Content-Type: application/json", "Accept: */*", f"Content-Length: {len(data)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + data


async def test_both_eras_are_served_on_one_path() -> None:
    front = Front(Served(silent), bounds=Bounds(commit=0.0))
    async with serving(front) as port, aiohttp.ClientSession(f"http://127.0.0.1:{port}", headers=TYPES) as client:
        async with client.post("/mcp", json=initialize()) as answer:
            session = {"Mcp-Session-Id": answer.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
        async with client.post("/mcp", json=LIST, headers=session) as legacy, client.get("/mcp", headers=session) as listening:
            conversation = front.served.begun[0]
            conversation.lanes[conversation.got[1][0]].send(result(1, "legacy"), True)
            conversation.lanes[0].send(note("standalone"), False)
            assert b"legacy" in await legacy.read()
            assert b"id: 0-0" in await listening.content.readuntil(b"\n\n")
            assert b"standalone" in await listening.content.readuntil(b"\n\n")
        wanted = {"MCP-Protocol-Version": MODERN, "MCP-METHOD": "tools/list"}
        async with client.post("/mcp", json=LIST | {"params": {"_meta": META}}, headers=wanted) as modern:
            front.served.shared["local"].lanes[1].send(result(1, "modern"), True)
            assert b"modern" in await modern.read()
        async with client.delete("/mcp", headers=session) as answer:
            assert 204 == answer.status


async def test_a_modern_client_that_goes_cancels() -> None:
    front = Front(Served(silent))
    async with serving(front) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request(LIST | {"params": {"_meta": META}}, f"MCP-Protocol-Version: {MODERN}", "Mcp-Method: tools/list"))
        conversation = await front.served.asked()
        writer.close()
        await conversation.until(lambda: conversation.closed == [1])


async def test_headers_that_differ_in_case_only_are_twins() -> None:
    async with serving(Front()) as port:
        out = await raw(port, request(initialize(), "Mcp-Session-Id: a", "MCP-SESSION-ID: b", "Connection: close"))
    assert out.startswith(b"HTTP/1.1 400 ")


async def test_a_body_that_dribbles_is_given_up() -> None:
    async with serving(Front(bounds=Bounds(body_time=0.05))) as port:
        out = await raw(port, b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
    assert out.startswith(b"HTTP/1.1 408 ")


async def test_a_chunked_body_that_grows_too_large_is_given_up() -> None:
    async with serving(Front(bounds=Bounds(body=1000))) as port:
        head = b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        out = await raw(port, head, b"400\r\n" + b"x" * 1024 + b"\r\n")
    assert out.startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("sent", [b"", b"POST /mcp HTT", b"POST /mcp HTTP/1.1\r\nHost: x\r\nX-Slow: "])
async def test_a_head_that_does_not_come_is_not_waited_for(sent: bytes) -> None:
    async with serving(Front(bounds=Bounds(head_time=0.05))) as port:
        assert b"" == await raw(port, sent)


async def test_a_second_head_that_dribbles_is_not_waited_for_either() -> None:
    async with serving(Front(bounds=Bounds(head_time=0.05))) as port:
        out = await raw(port, request(initialize()), b"GET /mcp HTTP/1.1\r\nX-Slow: ")
    assert 1 == out.count(b"HTTP/1.1 ")


@pytest.mark.parametrize(
    "pieces",
    [
        [b"GET /mcp HTTP/1.1\r\n", *[b"X-%d: %s\r\n" % (n, b"x" * 1000) for n in range(20)], b"\r\n"],
        [b"GET /mcp HTTP/1.1\r\nX-Large: ", *[b"x" * 4000] * 5],
        [b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n"],
        [b"GET /mcp HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(4000)) + b"\r\n"],
    ],
)
async def test_a_head_that_is_too_large_is_refused(pieces: list[bytes]) -> None:
    async with serving(Front(bounds=Bounds(head=10_000))) as port:
        out = await raw(port, *pieces)
    assert out == b"" or out.startswith(b"HTTP/1.1 431 ")  # the refusal is lost where the client was still sending
    assert out.count(b"HTTP/1.1 ") <= 1


async def test_a_large_body_is_no_large_head() -> None:
    async with serving(Front(bounds=Bounds(head=1000))) as port:
        out = await raw(port, request(initialize() | {"x": "y" * 100_000}, "Connection: close"))
    assert out.startswith(b"HTTP/1.1 200 ")


async def test_requests_on_one_connection_follow_each_other() -> None:
    front = Front()
    async with serving(front) as port:
        out = await raw(port, request(initialize()) * 3 + request(initialize(), "Connection: close"))
    assert 4 == out.count(b"HTTP/1.1 200 ") == front.sessions.open


def deaf(port: int) -> socket.socket:
    """A client with room for little, which reads only when it is told to."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", port))
    return client


async def test_a_client_that_takes_no_stream_is_cut_off_and_its_call_cancelled() -> None:
    front = Front(Served(silent), bounds=Bounds(commit=0.0, stalled=0.1))
    async with serving(front) as port:
        client = deaf(port)
        client.sendall(request(LIST | {"params": {"_meta": META}}, f"MCP-Protocol-Version: {MODERN}", "Mcp-Method: tools/list"))
        conversation = await front.served.asked()
        for _ in range(300):
            conversation.lanes[1].send(note("x" * 100_000), False)
            await asyncio.sleep(0)
        await conversation.until(lambda: conversation.closed == [1])
        client.close()
    assert "slow" == front.told[0].end


@pytest.mark.parametrize(("stalled", "keep_alive"), [(0.1, 600), (600, 1)])
async def test_a_client_that_takes_no_answer_is_cut_off(stalled: float, keep_alive: int) -> None:
    """The application is long done with it: the bytes are the server's. Either clock sees that none is taken."""
    gone = asyncio.Event()
    front = Front(Served(lambda c, lane, f: c.lanes[lane].send(result(f.id, "x" * 10_000_000), True)), bounds=Bounds(stalled=stalled))
    kind = bounded(front.sessions.bounds)
    lost = kind.connection_lost

    def connection_lost(self: Any, problem: Exception | None) -> None:
        lost(self, problem)
        gone.set()

    kind.connection_lost = connection_lost
    async with serving(front, kind, keep_alive) as port:
        client = deaf(port)
        client.sendall(request(LIST | {"params": {"_meta": META}}, f"MCP-Protocol-Version: {MODERN}", "Mcp-Method: tools/list"))
        await asyncio.wait_for(gone.wait(), BOUND)
        client.close()
    assert 200 == front.told[0].status


async def test_a_client_that_reads_slowly_gets_all_of_it() -> None:
    front = Front(Served(lambda c, lane, f: c.lanes[lane].send(result(f.id, "x" * 3_000_000), True)), bounds=Bounds(stalled=5))
    async with serving(front) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(request(LIST | {"params": {"_meta": META}}, f"MCP-Protocol-Version: {MODERN}", "Mcp-Method: tools/list", "Connection: close"))
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


@asynccontextmanager
async def crowded(bounds: Bounds) -> AsyncIterator[tuple[int, list[str]]]:
    """A listener with as many idle connections as it takes; its port, and what is told of those that are refused."""
    told: list[str] = []
    async with serving(Front(bounds=bounds), bounded(bounds, refused=lambda: told.append("busy"))) as port:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(bounds.connections)]
        yield port, told
        for _, writer in idle:
            writer.close()


async def test_one_connection_too_many_is_told_to_come_back_whether_it_asks_or_not() -> None:
    async with crowded(Bounds(connections=3)) as (port, told):
        asked, silent = await raw(port, request(LIST)), await raw(port)
    assert ["busy", "busy"] == told
    assert asked == silent
    assert asked.startswith(b"HTTP/1.1 503 ")
    assert b"\r\nretry-after: 5\r\n" in asked


def telling(kind: type[Any]) -> asyncio.Queue[bool]:
    """What says of each connection that is gone whether it had been taken."""
    gone: asyncio.Queue[bool] = asyncio.Queue()
    lost = kind.connection_lost

    def connection_lost(self: Any, problem: Exception | None) -> None:
        gone.put_nowait(self not in self.away)
        lost(self, problem)

    kind.connection_lost = connection_lost
    return gone


async def test_a_connection_that_goes_makes_room_though_others_are_being_turned_away() -> None:
    bounds = Bounds(connections=2)
    kind = bounded(bounds)
    gone = telling(kind)
    async with serving(Front(bounds=bounds), kind) as port:
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(7)]
        assert {b"HTTP/1.1 503"} == {(await asyncio.wait_for(reader.read(), BOUND))[:12] for reader, _ in opened[2:]}
        opened[0][1].close()
        while not await asyncio.wait_for(gone.get(), BOUND):
            pass
        assert not (await raw(port, request(initialize(), "Connection: close"))).startswith(b"HTTP/1.1 503 ")
        for _, writer in opened:
            writer.close()


async def test_who_is_turned_away_and_stays_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_LINGER", 0.01)
    bounds = Bounds(connections=0)
    kind = bounded(bounds)
    gone = telling(kind)
    async with serving(Front(bounds=bounds), kind) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        assert not await asyncio.wait_for(gone.get(), BOUND)
        writer.close()


async def test_only_some_of_those_who_are_turned_away_may_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_LINGER", 2 * BOUND)
    bounds = Bounds(connections=0, lingering=2)
    kind = bounded(bounds)
    gone = telling(kind)
    async with serving(Front(bounds=bounds), kind) as port:
        away = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        assert not await asyncio.wait_for(gone.get(), BOUND)
        assert gone.empty()
        for _, writer in away:
            writer.close()
