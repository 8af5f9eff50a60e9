"""A real listener of the daemon, and a client that sends it arbitrary bytes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from samplegate.transport.http_server.http import HttpBounds, HttpReply, Receive, Scope, Send, deliver
from samplegate.transport.http_server.listeners import listener
from samplegate.transport.http_server.uvicorn_protocol import Connections

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
    """Reads each request completely and answers 202. ``/unread`` answers without reading it, ``/begun`` with an endless
    stream."""

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
        await deliver(send, HttpReply(202))


@contextlib.asynccontextmanager
async def listening(app: Any, bounds: HttpBounds, keep_alive: int = 600) -> AsyncIterator[int]:
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
    """The statuses of all responses until the server closes the connection, and the bytes. ``half``: close the sending
    side after ``pieces``."""
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
    except (ConnectionError, RuntimeError):  # uvloop raises the second after the connection is closed
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
