"""The benchmark's load client: requests have a constant length, and only complete, correct responses count."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bench.overhttp import load
from bench.overhttp.wire import Calls, Connection, Era, WrongAnswer, check, connect, header, request

pytestmark = pytest.mark.anyio
JSON = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 52\r\nMCP-Session-Id:"
    b' aB\r\n\r\n{"jsonrpc":"2.0","id":10000001,"result":{"text":"x"}}'
)
CHUNKED = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-type: text/event-stream\r\n\r\n"
    b'3d\r\ndata: {"jsonrpc":"2.0","id":10000001,"result":{"text":"x"}}\n\n\r\n0\r\n\r\n'
)


@asynccontextmanager
async def server_sending(*pieces: bytes, stays: bool = False) -> AsyncIterator[str]:
    """The URL of a server that responds with these pieces, then closes the connection, or waits for the client to close
    it if ``stays``."""
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read(1)
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            if stays:
                await reader.read()
        finally:
            writer.close()
            over.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/bare"
        async with asyncio.timeout(10):
            await over.wait()


async def response_to(*pieces: bytes) -> tuple[bytes, bytes] | None:
    """The response that a connection reads from these pieces; None if there is no valid response."""
    async with server_sending(*pieces) as at:
        connection = await connect(at)
        try:
            return await connection.ask(b"x", 10)
        except WrongAnswer:
            return None
        finally:
            connection.close()


@pytest.mark.parametrize("whole", [JSON, CHUNKED])
async def test_an_answer_counts_once_it_is_whole(whole: bytes) -> None:
    for cut in (len(whole), 20, len(whole) - 3):
        found = await response_to(whole[:cut], whole[cut:])
        assert found is not None
        check(*found, b"10000001")
    assert await response_to(whole[:-3]) is None


async def test_a_header_is_found_whatever_its_case_and_keeps_its_value() -> None:
    found = await response_to(JSON)
    assert found is not None
    assert "aB" == header(found[0], b"mcp-session-id")


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (b"HTTP/1.1 404 Not Found", b'{"id":7,"result":{"text":"x"}}'),
        (b"HTTP/1.1 200 OK", b'{"id":8,"result":{"text":"x"}}'),
        (b"HTTP/1.1 200 OK", b'{"id":7,"error":{"text":"x"}}'),
        (b"HTTP/1.1 200 OK", b'{"id":7,"result":{}}'),
    ],
    ids=["status", "id", "error", "content"],
)
def test_what_is_no_right_answer_is_refused(head: bytes, body: bytes) -> None:
    check(b"HTTP/1.1 200 OK", b'{"id": 7, "result":{"text":"x"}}', b"7")
    with pytest.raises(WrongAnswer):
        check(head, body, b"7")


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_each_call_has_an_id_of_its_own_and_the_same_length(era: Era) -> None:
    calls = Calls("http://127.0.0.1:1/mcp", era, "s" if era == "legacy" else None)
    (one, first), (two, second) = calls.next(), calls.next()
    assert one != two
    assert len(first) == len(second)
    assert first.replace(one, two) == second
    head, _, body = first.partition(b"\r\n\r\n")
    assert b"content-length: %d\r\n" % len(body) in head + b"\r\n"


async def test_a_lap_with_a_wrong_answer_is_none() -> None:
    async with server_sending(JSON.replace(b"10000001", b"10000009"), stays=True) as at:
        client = await load.client(at, "legacy", 1, plain=True)
        with pytest.raises(WrongAnswer, match="10000009"):
            await load.lap(client, 1, 5)
        client.close()


async def test_nothing_is_asked_on_a_connection_that_is_closed() -> None:
    with pytest.raises(WrongAnswer, match="closed"):
        await Connection().ask(request("http://127.0.0.1:1/mcp", "{}"))
