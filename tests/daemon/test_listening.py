"""Listeners: how long connections without a request stay, and that uvicorn says nothing of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from samplegate.daemon.listening import listener
from samplegate.links.front.bounds import Bounds
from samplegate.links.front.connection import bounded

pytestmark = pytest.mark.anyio
BOUND = 20.0


async def app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body"})


@contextlib.asynccontextmanager
async def listening(bounds: Bounds, **more: int) -> AsyncIterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as ours:
        server = listener(app, http=bounded(bounds), **more)
        task = asyncio.ensure_future(server.serve(sockets=[ours]))
        try:
            yield ours.getsockname()[1]
        finally:
            server.should_exit = server.force_exit = True
            await asyncio.wait_for(task, BOUND)


async def said(port: int, data: bytes) -> bytes:
    """All that comes back until the server ends the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        return await asyncio.wait_for(reader.read(), BOUND)
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_connections_without_a_request_make_room() -> None:
    async with listening(Bounds(head_time=0.05, connections=64)) as port:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(64)]
        async with asyncio.timeout(BOUND):
            assert [b""] * 64 == [await reader.read() for reader, _ in idle]
        assert (await said(port, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        for _, writer in idle:
            writer.close()


async def test_a_connection_that_asks_no_more_is_ended() -> None:
    async with listening(Bounds(), keep_alive=1) as port:
        assert (await said(port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")).startswith(b"HTTP/1.1 200 ")


async def test_a_head_without_end_is_refused() -> None:
    async with listening(Bounds(head=1000)) as port:
        out = await said(port, b"GET / HTTP/1.1\r\nX: " + b"y" * 300_000)
    assert out == b"" or out.startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("sent", [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nConnection: upgrade, close\r\nUpgrade: h2c\r\n\r\n"])
async def test_uvicorn_says_nothing_of_its_own(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    root = logging.getLogger()
    before = (root.level, root.disabled)
    async with listening(Bounds()) as port:
        assert await said(port, sent)
        logging.getLogger("uvicorn.error").warning("said by uvicorn")
        logging.getLogger("uvicorn.error").error("said by uvicorn")
    assert before == (root.level, root.disabled)
    assert [] == [record for record in caplog.records if record.name.startswith("uvicorn")]
