"""A scripted HTTP server, down to the bytes, and a link to it. It keeps every request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from samplegate.protocol.frames import Frame
from samplegate.protocol.rounds import Note
from samplegate.transport import sse
from samplegate.transport.http_client.connection import RemoteConnection, pool
from tests.fakes.recorder import BOUND

REVISION: Final = "2025-11-25"
MODERN: Final = "2026-07-28"
META: Final = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@dataclass
class Asked:
    """A request, and methods to answer it."""

    verb: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def frame(self) -> dict[str, Any]:
        found = json.loads(self.body) if self.body else {}
        assert isinstance(found, dict)
        return found

    @property
    def method(self) -> str:
        return str(self.frame.get("method", ""))

    def header(self, name: str) -> str | None:
        found = [value for key, value in self.headers if key == name.lower()]
        assert len(found) < 2, f"{name} stands {len(found)} times"
        return found[0] if found else None

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, status: int, body: bytes = b"", kind: str = "application/json", **more: str) -> None:
        """Write a whole response."""
        head = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *([f"Content-Type: {kind}"] if body else [])]
        head += [f"{name.replace('_', '-')}: {value}" for name, value in more.items()]
        await self.write("\r\n".join(head).encode() + b"\r\n\r\n" + body)

    async def result(self, result: object = None, **more: str) -> None:
        """Write a result as one JSON body."""
        await self.answer(200, self.answering(result if result is not None else {}), **more)

    def answering(self, result: object) -> bytes:
        return json.dumps({"jsonrpc": "2.0", "id": self.frame["id"], "result": result}).encode()

    def error(self, code: int, message: str = "no", id: object = None) -> bytes:
        return json.dumps(
            {
                "jsonrpc": "2.0",
                "id": self.frame.get("id") if id is None else id,
                "error": {"code": code, "message": message},
            }
        ).encode()

    async def stream(self, **more: str) -> None:
        """Write the head of an event stream."""
        head = ["HTTP/1.1 200 OK", "Content-Type: text/event-stream", "Transfer-Encoding: chunked"]
        head += [f"{name.replace('_', '-')}: {value}" for name, value in more.items()]
        await self.write("\r\n".join(head).encode() + b"\r\n\r\n")

    async def event(self, data: object = b"", id: str | None = None, retry: int | None = None) -> None:
        """Write one event of a stream."""
        await self.chunk(sse.event(data if isinstance(data, bytes) else json.dumps(data).encode(), id, retry))

    async def chunk(self, data: bytes) -> None:
        await self.write(b"%x\r\n%s\r\n" % (len(data), data))

    async def end(self) -> None:
        """End a stream regularly."""
        await self.write(b"0\r\n\r\n")

    def cut(self) -> None:
        """Close the connection in the middle of a response."""
        self.writer.close()

    async def left(self) -> None:
        """Wait until the client has closed the connection."""
        async with asyncio.timeout(BOUND):
            with suppress(ConnectionError):
                assert b"" == await self.reader.read(1)


Handler = Callable[[Asked], Awaitable[None]]


@dataclass
class Scripted:
    """The server's behavior: the first handler whose key begins the request, such as "POST tools/call" or "GET", else
    that of a plain legacy server."""

    on: dict[str, Handler] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    port: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp?key=secret"

    async def until(self, count: int, what: str = "") -> list[Asked]:
        """Wait for this many requests that begin with ``words``."""
        async with asyncio.timeout(BOUND):
            while len(self.of(what)) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.of(what)

    def of(self, what: str) -> list[Asked]:
        return [one for one in self.asked if f"{one.verb} {one.method}".startswith(what)]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                asked = await _read(reader, writer)
                self.asked.append(asked)
                self._changed.set()
                await self._handle(asked)
        writer.close()

    async def _handle(self, asked: Asked) -> None:
        words = f"{asked.verb} {asked.method}"
        for begin, handler in self.on.items():
            if words.startswith(begin):
                await handler(asked)
                return
        await plain(asked)


async def plain(asked: Asked) -> None:
    """Answer as a legacy server without a standalone stream."""
    if asked.verb == "GET":
        await asked.answer(405)
    elif asked.verb == "DELETE":
        await asked.answer(204)
    elif asked.method == "initialize":
        await asked.result({"protocolVersion": REVISION, "capabilities": {}}, Mcp_Session_Id="session-1")
    elif "id" not in asked.frame or "method" not in asked.frame:
        await asked.answer(202)
    else:
        await asked.result({"did": asked.method})


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    verb, path, _ = head[0].split(" ", 2)
    headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in head[1:] if line)]
    size = int(dict(headers).get("content-length", "0"))
    return Asked(verb, path, headers, await reader.readexactly(size), reader, writer)


class Heard:
    """A receiver that keeps frames by stream and can be waited for."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, bytes]] = []
        self.oversizes: list[tuple[int, int, bytes]] = []
        self.ends = 0
        self._changed = asyncio.Event()

    def received(self, stream: int, line: bytes | Frame) -> None:
        if not isinstance(line, bytes):
            line = line.raw
        assert b"\n" not in line
        self.lines.append((stream, line))
        self._changed.set()

    def oversized(self, stream: int, size: int, head: bytes) -> None:
        self.oversizes.append((stream, size, head))
        self._changed.set()

    def ended(self) -> None:
        self.ends += 1
        self._changed.set()

    def frames(self, stream: int | None = None) -> list[dict[str, Any]]:
        return [json.loads(line) for number, line in self.lines if stream in (None, number)]

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(BOUND):
            while not true():
                self._changed.clear()
                await self._changed.wait()

    async def of(self, stream: int, count: int = 1) -> list[dict[str, Any]]:
        """Wait for the first frames of a stream."""
        await self.until(lambda: len(self.frames(stream)) >= count)
        return self.frames(stream)


@dataclass
class ConnectedServer:
    """A scripted server, a link to it, and what the link has reported."""

    server: Scripted
    remote: RemoteConnection
    heard: Heard
    notes: list[Note]

    def request(self, stream: int, method: str = "tools/call", *, id: object = None, **params: Any) -> None:
        """A legacy request. Its id is the stream's number by default."""
        self.remote.send(
            stream,
            json.dumps(
                {"jsonrpc": "2.0", "id": stream if id is None else id, "method": method, "params": params}
            ).encode(),
        )

    def modern(
        self,
        stream: int,
        method: str = "tools/call",
        *,
        id: object = None,
        meta: dict[str, Any] | None = None,
        **params: Any,
    ) -> None:
        """A request with the modern envelope."""
        self.request(stream, method, id=id, **params, _meta=META | (meta or {}))

    def notify(self, method: str, **params: Any) -> None:
        self.remote.send(0, json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode())

    async def begin(self) -> None:
        """Do the handshake, up to the server's 202."""
        self.request(1, "initialize", protocolVersion=REVISION)
        await self.heard.of(1)
        self.notify("notifications/initialized")
        await self.server.until(1, "POST notifications/initialized")

    def said(self) -> list[str]:
        return [note.event for note in self.notes]


@asynccontextmanager
async def connected_server(**settings: Any) -> AsyncIterator[ConnectedServer]:
    """A server with these handlers, and a link to it."""
    scripted, heard, notes = Scripted(), Heard(), list[Note]()
    writers: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        await scripted.serve(reader, writer)

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 20)
    scripted.port = listening.sockets[0].getsockname()[1]
    async with pool() as http:
        remote = RemoteConnection(scripted.url, heard, http=http, note=notes.append, **settings)
        try:
            yield ConnectedServer(scripted, remote, heard, notes)
        finally:
            await remote.aclose()
            listening.close()
            for writer in writers:
                writer.close()
