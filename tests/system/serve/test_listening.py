"""Listeners: uvicorn logs nothing of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from samplegate.transport.http_server.http import HttpBounds
from samplegate.transport.http_server.listeners import listener
from samplegate.transport.http_server.uvicorn_protocol import Connections

pytestmark = pytest.mark.anyio
BOUND = 20.0


async def app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body"})


@contextlib.asynccontextmanager
async def listening(bounds: HttpBounds) -> AsyncIterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as ours:
        server = listener(Connections(app, bounds))
        task = asyncio.ensure_future(server.serve(sockets=[ours]))
        try:
            yield ours.getsockname()[1]
        finally:
            server.should_exit = server.force_exit = True
            await asyncio.wait_for(task, BOUND)


async def said(port: int, data: bytes) -> bytes:
    """All bytes until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        return await asyncio.wait_for(reader.read(), BOUND)
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    "sent", [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nConnection: upgrade, close\r\nUpgrade: h2c\r\n\r\n"]
)
async def test_uvicorn_says_nothing_of_its_own(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    root = logging.getLogger()
    before = (root.level, root.disabled)
    async with listening(HttpBounds()) as port:
        assert await said(port, sent)
        logging.getLogger("uvicorn.error").warning("said by uvicorn")
        logging.getLogger("uvicorn.error").error("said by uvicorn")
    assert before == (root.level, root.disabled)
    assert [] == [record for record in caplog.records if record.name.startswith("uvicorn")]
