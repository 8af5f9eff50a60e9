"""A scrape's answer on 127.0.0.1, for `run --metrics-port`: one page, in the event loop, for counters are not locked. Not the daemon's listener.

It speaks as little HTTP as a scrape needs: one request a connection, whose head is bounded in size and time, and no body.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from samplegate.ports import Log, Unavailable

HOST: Final = "127.0.0.1"
MAX_HEAD: Final = 16_384  # bytes
PATIENCE: Final = 5.0  # seconds for the head, and again for the answer to be taken
AT_A_TIME: Final = 16  # connections: a scrape is one
OWN: Final = ("127.0.0.1", "localhost")


class MetricsServer:
    """A listener; made by ``open``. Other users of the machine can read what it shows, as they can with any listener on loopback."""

    def __init__(self, page: Callable[[str], tuple[bytes, str]], log: Log) -> None:
        self._page = page
        self._log = log
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(cls, page: Callable[[str], tuple[bytes, str]], port: int, log: Log) -> MetricsServer:
        """Listen; 0 is any free port. ``page``: an Accept header -> a text and its content type. Raises Unavailable."""
        found = cls(page, log)
        if not 0 <= port <= 65535:  # uvloop would never end after such a try
            raise Unavailable(f"metrics port: {port} is no port; give --metrics-port one up to 65535, or 0 for any")
        try:
            found._server = await asyncio.start_server(found._connected, HOST, port, limit=MAX_HEAD, backlog=AT_A_TIME)
        except OSError as problem:
            what = (os.strerror(problem.errno) if problem.errno else str(problem)).lower()
            raise Unavailable(f"metrics port: {HOST}:{port} cannot be listened on: {what}; give another --metrics-port, or 0 for any") from problem
        return found

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.sockets[0].getsockname()[1]) if self._server is not None and self._server.sockets else 0

    async def aclose(self) -> None:
        """Stop listening and drop who is connected."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= AT_A_TIME:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request. Whatever goes wrong with it is its client's trouble alone."""
        try:
            async with asyncio.timeout(PATIENCE):
                head = await reader.readuntil(b"\r\n\r\n")
            writer.write(self._answer(head))
            async with asyncio.timeout(PATIENCE):
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            with suppress(Exception):
                writer.transport.abort()

    def _answer(self, head: bytes) -> bytes:
        request, *lines = head.decode("latin-1").split("\r\n")
        method, _, rest = request.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines if line)]
        if any(value.rpartition(":")[0] not in OWN and value not in OWN for name, value in headers if name == "host"):
            return _response("403 Forbidden", b"host: not a name of this listener; use 127.0.0.1\n", method)
        if path not in ("/metrics", "/"):
            return _response("404 Not Found", b"nothing is here; there is /metrics\n", method)
        if method not in ("GET", "HEAD"):
            return _response("405 Method Not Allowed", b"/metrics takes GET, HEAD\n", method, more="allow: GET, HEAD\r\n")
        try:
            body, content_type = self._page(",".join(value for name, value in headers if name == "accept"))
        except Exception:
            self._log.error("metrics.failed", exc_info=True)
            return _response("500 Internal Server Error", b"/metrics: a fault in the gate; the log has it\n", method)
        return _response("200 OK", body, method, content_type)


def _response(status: str, body: bytes, method: str, content_type: str = "text/plain; charset=utf-8", more: str = "") -> bytes:
    fields = f"content-type: {content_type}\r\ncontent-length: {len(body)}\r\ncache-control: no-store\r\nconnection: close\r\n{more}"
    head = f"HTTP/1.1 {status}\r\n{fields}\r\n"
    return head.encode("latin-1") + (b"" if method == "HEAD" else body)
