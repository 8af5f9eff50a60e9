"""HTTP/1.1 as bytes for the load client: requests differ only in their id, and answers are read only as far as a lap
needs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Literal, TypeAlias, cast

Era: TypeAlias = Literal["legacy", "modern"]
ERAS: Final[tuple[Era, ...]] = ("legacy", "modern")
LEGACY: Final = "2025-11-25"
MODERN: Final = "2026-07-28"
END: Final = b"\r\n\r\n"
FIRST_ID: Final = 10_000_000
"""The first id. All ids have eight digits, so that a request's length never changes."""
META: Final = (
    '"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":%s,'
    '"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"}}'
)
INITIALIZE: Final = (
    '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
    '"capabilities":%s,"clientInfo":{"name":"bench","version":"1"}}}'
)
INITIALIZED: Final = '{"jsonrpc":"2.0","method":"notifications/initialized"}'


def request(at: str, body: str, headers: dict[str, str] | None = None, method: str = "POST") -> bytes:
    """One request as bytes. ``at`` is an address such as ``http://127.0.0.1:8080/mcp``."""
    place, _, path = at.removeprefix("http://").partition("/")
    lines = [
        f"{method} /{path} HTTP/1.1",
        f"host: {place}",
        "accept: application/json, text/event-stream",
        "user-agent: bench",
    ]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    if method == "POST":
        lines += ["content-type: application/json", f"content-length: {len(body)}"]
    return "\r\n".join([*lines, "", body]).encode()


class Calls:
    """The tools/call requests of one client as bytes, each with its own id."""

    def __init__(
        self,
        at: str,
        era: Era,
        session: str | None = None,
        arguments: str = '{"reply":5,"text":"hello"}',
        id: int = FIRST_ID,
    ) -> None:
        modern = era == "modern"
        meta = "," + META % "{}" if modern else ""
        body = f'{{"jsonrpc":"2.0","id":{FIRST_ID},"method":"tools/call","params":{{"name":"echo","arguments":{arguments}{meta}}}}}'  # noqa: E501
        headers = {"mcp-protocol-version": MODERN if modern else LEGACY}
        headers |= {"mcp-method": "tools/call", "mcp-name": "echo"} if modern else {}
        headers |= {"mcp-session-id": session} if session is not None else {}
        self._before, _, self._after = request(at, body, headers).rpartition(b"%d" % FIRST_ID)
        self._id = id

    def next(self) -> tuple[bytes, bytes]:
        """The next request: its id and its bytes."""
        self._id += 1
        id = b"%d" % self._id
        return id, self._before + id + self._after


class WrongAnswer(Exception):
    """An incorrect answer."""


class Connection(asyncio.Protocol):
    """One keep-alive connection with one request at a time. It passes the whole answer to a callback."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._received = b""
        self._take: Callable[[bytes, bytes], None] | None = None
        self._failed: Callable[[Exception], None] = _raise

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's class is not a subclass

    def data_received(self, data: bytes) -> None:
        self._received = self._received + data if self._received else data
        end = self._received.find(END)
        if end < 0:
            return
        head = self._received[:end]
        body = _body(head.lower(), self._received, end + 4)
        if body is None:
            return
        self._received = b""
        take, self._take = self._take, None
        if take is not None:
            take(head, body)

    @property
    def open(self) -> bool:
        """Whether the connection can take a request."""
        return self.transport is not None and not self.transport.is_closing()

    def connection_lost(self, exc: Exception | None) -> None:
        take, self._take = self._take, None
        if take is not None:
            self._failed(
                WrongAnswer(f"the connection was lost before the answer: {exc}; received: {self._received[:300]!r}")
            )

    def post(self, whole: bytes, take: Callable[[bytes, bytes], None], failed: Callable[[Exception], None]) -> None:
        """Send a request; ``take`` is called with the answer's head and its body."""
        if self.transport is None or not self.open:
            failed(WrongAnswer("the connection was closed before the call"))
            return
        self._take, self._failed = take, failed
        self.transport.write(whole)

    async def ask(self, whole: bytes, seconds: float = 60.0) -> tuple[bytes, bytes]:
        """Send a request and wait for its answer."""
        answer: asyncio.Future[tuple[bytes, bytes]] = asyncio.get_running_loop().create_future()
        self.post(whole, lambda head, body: answer.set_result((head, body)), answer.set_exception)
        async with asyncio.timeout(seconds):
            return await answer

    def close(self) -> None:
        """Close the connection."""
        if self.transport is not None:
            self.transport.close()


def _raise(problem: Exception) -> None:
    raise problem


def _body(head: bytes, whole: bytes, start: int) -> bytes | None:
    """The body; None while it is incomplete."""
    at = head.find(b"\r\ncontent-length:")
    if at >= 0:
        size = int(head[at + 17 :].split(b"\r", 1)[0])
        return whole[start:] if len(whole) - start >= size else None
    if b"\r\ntransfer-encoding: chunked" in head:
        return whole[start:] if whole.endswith(b"0\r\n\r\n") else None
    return whole[start:] if head[9:12] in (b"202", b"204") else None


def header(head: bytes, name: bytes) -> str | None:
    """A header in an answer's head."""
    for line in head.split(b"\r\n")[1:]:
        if line[: len(name) + 1].lower() == name + b":":
            return line[len(name) + 1 :].strip().decode()
    return None


def check(head: bytes, body: bytes, id: bytes, expected: bytes = b'"text":') -> None:
    """Check that an answer is a result with this id that contains ``expected``. Raises Wrong."""
    if (
        head[9:12] != b"200"
        or (b'"id":' + id not in body and b'"id": ' + id not in body)
        or b'"result"' not in body
        or expected not in body
    ):
        raise WrongAnswer(f"{head[:60]!r} {body[:300]!r}")


async def connect(at: str) -> Connection:
    """Open a connection to an address."""
    place, _, _ = at.removeprefix("http://").partition("/")
    host, _, port = place.partition(":")
    _, connection = await asyncio.get_running_loop().create_connection(Connection, host, int(port))
    return connection
