"""Connection limits of an HTTP listener around uvicorn: open connections, size and time of headers, and stalled
clients.

Each connection has its own parser, which reads all bytes before uvicorn does:

- uvicorn never sees a request to change the protocol, because it would lose the body and parse it as the next request.
  So headers are buffered until they are complete, and ``Upgrade`` is passed on under another name. HTTP lets a server
  ignore it, and clients of h2c offer it with ordinary requests.
- Headers that follow another request in the same packet are passed on as they arrive, so that the earlier request does
  not wait. Such headers must not ask for another protocol.
- CONNECT is refused.
- Trailers have the same limit as headers and are dropped, because all decisions by headers come before them.
- A refusal is written only if it cannot be mistaken for the answer to another request.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Literal, cast

import httptools  # type: ignore[import-untyped]
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from samplegate.transport.http_server.http import HttpBounds, Receive, Scope, Send
from samplegate.transport.http_server.stream import CONNECTION

_LINGER: Final = 1.0  # seconds for a refused client to read the refusal, which an immediate close could lose
_SEPARATE_FROM: Final = 64 * 1024  # bytes from which a copy costs more than a second write
_upgrade: Final = re.compile(rb"(?i)\nupgrade(?=:)")


def _plain(status: bytes, text: bytes, more: bytes = b"") -> bytes:
    return b"HTTP/1.1 %s\r\ncontent-type: text/plain\r\n%sconnection: close\r\ncontent-length: %d\r\n\r\n%s" % (
        status,
        more,
        len(text),
        text,
    )


_BAD: Final = _plain(b"400 Bad Request", b"Invalid HTTP request received.")
_LARGE: Final = _plain(b"431 Request Header Fields Too Large", b"the request headers are too large")
_BUSY: Final = _plain(b"503 Service Unavailable", b"too many open connections; retry later", b"retry-after: 5\r\n")


class Connections:
    """The open connections of one listener.

    ``protocol`` and ``app`` are for ``uvicorn.Config``. ``refused`` is called for each connection over the limit.
    """

    def __init__(
        self, app: Callable[[Scope, Receive, Send], Any], bounds: HttpBounds, *, refused: Callable[[], object] = bool
    ) -> None:
        self._app = app
        self.bounds = bounds
        self._refused = refused
        self.open: set[Connection] = set()
        self._away: set[Connection] = set()
        """Connections over the limit that are still being refused."""
        self._timer: asyncio.TimerHandle | None = None

    def protocol(self, *, app_state: dict[str, Any], **its: Any) -> Connection:
        """A new connection around uvicorn's protocol."""
        connection = Connection(self)
        connection.inner = HttpToolsProtocol(app_state={**app_state, CONNECTION: connection}, **its)
        return connection

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application, with the request's connection in its scope. It updates the connection's request
        counts."""
        connection: Connection = scope["state"].pop(CONNECTION)
        scope[CONNECTION] = connection
        scope["headers"] = scope["headers"][: connection.heads.popleft()]
        connection.writer.used = False
        try:
            await self._app(scope, receive, send)
        finally:
            connection.unfinished -= 1
            connection.writer.flush()

    def enter(self, connection: Connection) -> bool:
        """Count a new connection. False if it is over the limit; it then gets 503 for any request."""
        if len(self.open) < self.bounds.connections:
            self.open.add(connection)
            self._check_later()
            return True
        self._away.add(connection)
        self._refused()
        connection.transport.write(_BUSY)
        if len(self._away) > self.bounds.lingering:
            connection.transport.close()
        else:
            asyncio.get_running_loop().call_later(_LINGER, connection.cut)
            connection.transport.write_eof()
        return False

    def leave(self, connection: Connection) -> bool:
        """A connection has ended. False if it was over the limit."""
        taken = connection in self.open
        self.open.discard(connection)
        self._away.discard(connection)
        return taken

    def _check_later(self) -> None:
        if self._timer is None and self.open:
            bounds = self.bounds
            self._timer = asyncio.get_running_loop().call_later(
                min(bounds.head_time, bounds.body_time, bounds.stalled) / 4, self._check
            )

    def _check(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for connection in list(self.open):
            connection.check(now)
        self._check_later()


class BatchedTransport:
    """A transport for uvicorn that sends a response's headers and body together.

    uvicorn writes them separately, and two packets would cost both ends more than everything else here. Headers without
    a length, such as a stream's, are sent at the end of the turn if nothing follows. A response does not wait for the
    application to return: the client gets its answer while the call is counted and logged.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""
        """Headers that wait for the body."""
        self.used = False
        """True if uvicorn has written anything since this was last reset."""
        self.is_closing = transport.is_closing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self.used:
            self.used = True
            self._head += data
            if b"\r\ncontent-length: " not in data:
                self._loop.call_soon(self.flush)
            return
        if len(data) >= _SEPARATE_FROM:
            self.flush()
        elif self._head:
            data, self._head = self._head + data, b""
        if not self.is_closing():
            self._transport.write(data)

    def flush(self) -> None:
        """Send the waiting headers."""
        head, self._head = self._head, b""
        if head and not self.is_closing():
            self._transport.write(head)

    def close(self) -> None:
        self.flush()
        self._transport.close()


class Connection(asyncio.Protocol):
    """One client connection: its limits, and its uvicorn protocol."""

    transport: asyncio.Transport
    writer: BatchedTransport
    inner: asyncio.Protocol
    """uvicorn's protocol."""

    def __init__(self, its: Connections) -> None:
        self._its = its
        self._parser: Any = _parser(self)
        self._state: Literal["idle", "head", "body"] = "idle"
        self._held = bytearray()
        """The incomplete headers that uvicorn has not got yet."""
        self._follows = False
        """True if the headers follow other data in the same packet. Then they are passed on at once, because that data
        must not wait for them."""
        self._size = 0
        """Bytes of the incomplete headers, or of other data since the last byte of a body: trailers and chunk
        framing."""
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._upgrade = False
        self._refusal = _BAD
        self.heads: deque[int] = deque()
        """The number of headers of each request that the application has not begun."""
        self.unfinished = 0
        """Number of requests that the application has not finished."""
        self.stalled = False
        """True if the connection was closed because its client read nothing."""
        self._asked = self._paused = False
        self._left = 0
        """Bytes that the client had not read at the last check."""
        self._moved = 0.0
        """Time when the client last read some bytes."""
        self._awaited: Literal["head", "body", "request"] | None = None
        """What the client must send next: the rest of the headers, the rest of a body that is already answered, or
        another request."""
        self._waiting = 0.0
        """Time since which the client must send it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        if self._its.enter(self):
            self.writer = BatchedTransport(transport, asyncio.get_running_loop())
            self.inner.connection_made(cast("asyncio.Transport", self.writer))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._its.leave(self):
            self.inner.connection_lost(exc)
        self._parser = None  # the parser and this object refer to each other
        self.inner = asyncio.Protocol()

    def eof_received(self) -> bool | None:
        return self.inner.eof_received()

    def pause_writing(self) -> None:
        self._paused = True
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self._paused = False
        self.inner.resume_writing()

    def data_received(self, data: bytes) -> None:
        if self not in self._its.open:
            self.transport.close()
            return
        self._size += len(data)
        if not self._held:
            self._follows = self._state != "idle"
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as found:
            self._without_upgrade(data, found.args[0])
        except httptools.HttpParserError:
            self._refuse(self._refusal)
        else:
            if self._size > self._its.bounds.head:
                self._refuse(_LARGE)
            elif self.unfinished > self._its.bounds.pipelined:
                self.writer.close()
            elif self._state == "head" and not self._follows:
                if not self._held:
                    self.inner.data_received(b"")  # stops uvicorn's timer for idle connections
                self._held += data
            else:
                self._pass_on(data)

    def _pass_on(self, data: bytes) -> None:
        if self._held:
            data = bytes(self._held) + data
            self._held.clear()
        self.inner.data_received(data)

    def _without_upgrade(self, data: bytes, end: int) -> None:
        """Parse headers again without their ``Upgrade``.

        They are refused if another request came before them in the same packet, because the two cannot be separated.
        """
        head = bytes(self._held) + data[:end]
        if self._follows or self._parser.get_method() == b"CONNECT":
            self._refuse(_BAD)
            return
        self._held.clear()
        self._parser, self._state, self._upgrade, self._size = _parser(self), "idle", False, 0
        self.data_received(_upgrade.sub(b"\nX-Ignored-Upgrade", head) + data[end:])

    def on_message_begin(self) -> None:
        self._state = "head"
        self._url = b""
        self._headers = []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        most = self._its.bounds.head
        if self._size > most and sum(len(name) + len(value) for name, value in self._headers) + len(self._url) > most:
            self._refusal = _LARGE
            raise ValueError("the request headers are too large")
        if self._parser.should_upgrade():
            self._upgrade = True
            return
        if not _is_plain(self._url, self._headers):
            raise ValueError("ambiguous request target")
        if not self.unfinished:
            self.writer.used = False
        self._state, self._size, self._awaited, self._asked = "body", 0, None, True
        self.unfinished += 1
        self.heads.append(len(self._headers))
        self._headers = []

    def on_body(self, body: bytes) -> None:
        self._size = 0

    def on_message_complete(self) -> None:
        if not self._upgrade:
            self._state, self._size, self._follows = "idle", 0, True

    def _refuse(self, answer: bytes) -> None:
        """Close the connection, with a response if the refused request is the only one without an answer."""
        if self.unfinished == 0 or (self.unfinished == 1 and self._state == "body" and not self.writer.used):
            self.transport.write(answer)
        self.writer.close()

    def check(self, now: float) -> None:
        """Close the connection if its client reads nothing, or does not send its next data, for too long."""
        bounds = self._its.bounds
        left = self.transport.get_write_buffer_size() if self._paused or self.transport.is_closing() else 0
        if not left or not self._left or left < self._left:
            self._moved = now
        self._left = left
        if left and now - self._moved >= bounds.stalled:
            self.stalled = True
            self.cut()
        awaited = self._expected()
        if awaited != self._awaited:
            self._awaited, self._waiting = awaited, now
        most = {"head": bounds.head_time, "body": bounds.body_time, "request": bounds.connection_idle}
        if awaited is not None and now - self._waiting >= most[awaited]:
            self.cut()

    def _expected(self) -> Literal["head", "body", "request"] | None:
        if self._state == "head":
            return "head"
        if self.unfinished:
            return None
        if self._state == "body":
            return "body"
        return "request" if self._asked and not self._size else "head"

    def unsent(self) -> int:
        """Bytes that the client has not read yet."""
        return 0 if self.transport.is_closing() else self.transport.get_write_buffer_size()

    def gone(self) -> bool:
        """True if the connection is closed or closing."""
        return self.transport.is_closing()

    def complete(self) -> bool:
        """True if the body of the newest request has arrived, so that reading it does not wait."""
        return self._state != "body"

    def cut(self) -> None:
        """Abort the connection with its unsent bytes."""
        self.transport.abort()


def _is_plain(url: bytes, headers: list[tuple[bytes, bytes]]) -> bool:
    """True if a request's target is spelled like our paths, and names no other host than the Host header.

    A proxy that routes by path or host must have read the same target. Our paths need no escapes.
    """
    if not url.startswith(b"/"):
        scheme, _, rest = url.partition(b"://")
        hosts = [value.lower() for name, value in headers if name.lower() == b"host"]
        if scheme.lower() not in (b"http", b"https") or [rest.partition(b"/")[0].lower()] != hosts:
            return False
    try:
        path = httptools.parse_url(url).path
    except httptools.HttpParserInvalidURLError:
        return False  # uvicorn would refuse it with a response that may be mistaken for an earlier request's
    return bool(path) and path.isascii() and b"%" not in path and b"#" not in url


def _parser(connection: Connection) -> Any:
    """A parser with the settings of uvicorn's own: data after the last request is ignored."""
    parser: Any = httptools.HttpRequestParser(connection)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser
