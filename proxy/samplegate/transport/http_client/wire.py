"""HTTP requests to one remote server: credentials, bounds, same-origin redirects, reading of bodies, and errors.

A body is read no faster than it is consumed, and no further than its bound. An error is one sentence for the caller,
without the server's URL, headers or text.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import aiohttp
import msgspec
import yarl
from aiohttp.abc import AbstractStreamWriter
from multidict import CIMultiDict

from samplegate import __version__
from samplegate.errors import Unavailable
from samplegate.protocol import frames, rawjson
from samplegate.protocol.rawjson import MAX_TOLERATED, Malformed
from samplegate.protocol.results import INTERNAL
from samplegate.transport.http_client.health import Health
from samplegate.transport.sse import Oversized, Parser, ServerSentEvent

_STATUS: Final = {
    400: "it rejected the request",
    401: "it rejected the gate's credentials",
    403: "it denied the gate access",
    404: "not found; check the URL",
    405: "method not allowed at this URL",
    406: "it offers no response type that MCP allows",
    413: "the request is too large",
    415: "it does not accept JSON",
    429: "rate limit exceeded",
    431: "the request's headers are too large",
    502: "the proxy in front of it cannot reach it",
    503: "it is unavailable",
    504: "the proxy in front of it timed out",
}


class HttpFault(Exception):
    """Failure of a request to a remote server.

    ``data`` is the machine-readable part of the error: ``httpStatus``, or ``transport`` with a keyword.
    """

    def __init__(self, reason: str, **data: Any) -> None:
        super().__init__(reason)
        self.reason = reason
        self.data = data


class SessionGone(HttpFault):
    """The server no longer knows our session (R94)."""

    def __init__(self) -> None:
        super().__init__("HTTP 404: the session is unknown or has expired", httpStatus=404)


def status_fault(status: int) -> HttpFault:
    """The fault for an HTTP status without an MCP answer."""
    why = _STATUS.get(status) or (
        "it redirected the request" if 300 <= status < 400 else "it failed" if status >= 500 else "unexpected status"
    )
    return HttpFault(f"HTTP {status}: {why}", httpStatus=status)


def error_fault(error: BaseException) -> HttpFault:
    """The fault for an exception of the HTTP client."""
    match error:
        case HttpFault():
            return error
        case aiohttp.ClientConnectorDNSError():
            return HttpFault("its host name cannot be resolved", transport="unreachable")
        case aiohttp.ClientConnectorCertificateError():
            return HttpFault("its TLS certificate is not valid", transport="tls")
        case aiohttp.ClientSSLError() | aiohttp.ServerFingerprintMismatch():
            return HttpFault("the TLS handshake failed", transport="tls")
        case aiohttp.ClientConnectorError():
            return HttpFault(f"it cannot be reached{_errno_text(error)}", transport="unreachable")
        case TimeoutError():
            return HttpFault("the connection attempt timed out", transport="unreachable")
        case aiohttp.ClientPayloadError():
            return HttpFault("its response was cut off", transport="broken")
        case aiohttp.ClientResponseError():
            return HttpFault("its response is not valid HTTP, or its headers are too large", transport="broken")
        case _:
            return HttpFault("it closed the connection before it answered", transport="broken")


def _errno_text(error: OSError) -> str:
    """The system's text for the error number. The exception's own text may contain an address."""
    return f": {os.strerror(error.errno).lower()}" if error.errno is not None and error.errno > 0 else ""


def fault_answer(id: frames.FrameId, fault: HttpFault) -> bytes:
    """The fault as a JSON-RPC error for the request."""
    return frames.error(
        id,
        INTERNAL,
        f"the request to the remote server failed: {fault.reason}",
        rawjson.dump(fault.data) if fault.data else None,
    )


MAX_ERROR: Final = 1024 * 1024  # largest body in bytes that is read of an HTTP error
JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"


class ReadPause:
    """Backpressure: a switch that pauses the reading of responses."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()

    def pause(self) -> None:
        """Stop reading. The frames of a completed read are still delivered."""
        self._open.clear()

    def resume(self) -> None:
        """Resume reading."""
        self._open.set()

    async def clear(self) -> None:
        """Wait until reading is not paused."""
        if not self._open.is_set():
            await self._open.wait()


def kind_of(response: aiohttp.ClientResponse) -> str:
    """The content type in lower case, without parameters; empty if absent. Raises HttpFault for a compressed body."""
    if response.headers.get("Content-Encoding", "identity").strip().lower() not in ("identity", ""):
        raise HttpFault("its response is compressed, but the gate did not request compression")
    return response.headers.get("Content-Type", "").partition(";")[0].strip().lower()


async def body(response: aiohttp.ClientResponse, most: int, flow: ReadPause) -> bytes:
    """The whole body. Raises HttpFault if it is larger than ``most`` bytes, and aiohttp's exceptions."""
    length = response.content_length
    if length is not None and length > most:
        raise HttpFault(f"its response has {length} bytes; the limit is {most}")
    chunks, size = [], 0
    while chunk := await response.content.readany():
        await flow.clear()
        chunks.append(chunk)
        size += len(chunk)
        if size > most:
            raise HttpFault(f"its response is larger than {most} bytes")
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def events(
    response: aiohttp.ClientResponse, most: int, flow: ReadPause, take: Callable[[ServerSentEvent | Oversized], None]
) -> None:
    """Call ``take`` with every event until the stream ends. Raises aiohttp's exceptions if it breaks."""
    parser = Parser(most)
    while chunk := await response.content.readany():
        await flow.clear()
        for event in parser.feed(chunk):
            take(event)


async def answer(response: aiohttp.ClientResponse, most: int) -> frames.Frame:
    """The answer to a request of our own; other frames on its stream are dropped. Raises HttpFault, Malformed and
    aiohttp's exceptions."""
    kind = kind_of(response)
    if response.status != 200 or kind not in (JSON, EVENTS):
        raise status_fault(response.status)
    if kind == JSON:
        return read(await body(response, most, ReadPause()))
    parser = Parser(most)
    while chunk := await response.content.readany():
        for event in parser.feed(chunk):
            if (
                isinstance(event, ServerSentEvent)
                and event.data
                and (frame := read(event.data)).kind in ("result", "error")
            ):
                return frame
    raise HttpFault("its stream ended without an answer", transport="broken")


def one_line(text: bytes) -> bytes:
    """JSON as a single line, as frames require. Raises Malformed if a line end is inside a string, because replacing it
    would change the text."""
    text = text.strip(b" \t\r\n")
    if b"\n" not in text and b"\r" not in text:
        return text
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        _tolerant(text)
    return text.replace(b"\r", b" ").replace(b"\n", b" ")


def _tolerant(text: bytes) -> None:
    try:
        if len(text) > MAX_TOLERATED:
            raise ValueError
        json.loads(text)
    except (ValueError, RecursionError):
        raise Malformed("it is not JSON") from None


def read(text: bytes) -> frames.Frame:
    """Parse a body or an event's data as a frame. Raises Malformed."""
    return frames.read(one_line(text))


CREDENTIAL_STATUSES: Final = frozenset({401, 403})
"""HTTP statuses about the gate's own credentials. The client does not get the server's text for these."""
_UNAVAILABLE: Final = CREDENTIAL_STATUSES | {404}
"""Statuses below 500 that a working server does not answer a valid request with."""
CHALLENGE: Final = "WWW-Authenticate"
CONNECT: Final = 10.0  # seconds to connect, including the wait for the pool
MAX_HOPS: Final = 3
# bytes of a request's protocol headers: servers accept 8 to 64 KiB in total, and their own limit decides
MAX_HEADERS: Final = 48 * 1024
_SLICE: Final = 256 * 1024
_TIMES: Final = aiohttp.ClientTimeout(total=None, connect=CONNECT, sock_connect=CONNECT)
_SAME: Final = frozenset({307, 308})
"""Redirects that keep the method and the body."""
_RESERVED: Final = frozenset(
    "accept accept-encoding connection content-length content-type cookie host last-event-id mcp-method mcp-name"
    " mcp-protocol-version mcp-session-id te trailer transfer-encoding upgrade".split()
)
BOTH: Final = "application/json, text/event-stream"
STREAM: Final = "text/event-stream"


class Body(aiohttp.Payload):
    """A frame as a request body that reports when the system has accepted it all."""

    _autoclose = True

    def __init__(self, line: bytes, written: Callable[[], None]) -> None:
        super().__init__(line, content_type="application/json")
        self._line = line
        self._size = len(line)
        self._written = written

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The frame as text. aiohttp requires this method; nothing here calls it."""
        return self._line.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write the frame."""
        await self.write_with_length(writer, None)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Write the frame in slices, each after the previous one is accepted."""
        if len(self._line) <= _SLICE:
            await writer.write(self._line)
        else:
            view = memoryview(self._line)
            for at in range(0, len(view), _SLICE):
                await writer.write(view[at : at + _SLICE])
        self._written()


class Credentials(Protocol):
    """Headers that authenticate the requests to a server, and change while the gate runs."""

    async def headers(self) -> Mapping[str, str]:
        """The headers of the next request. Raises Unavailable."""
        ...

    async def renew(self, status: int, challenges: Sequence[str], sent: Mapping[str, str]) -> bool:
        """Whether a request is sent once more after HTTP 401 or 403: there are other headers than ``sent``.
        ``challenges`` are the values of WWW-Authenticate. Raises Unavailable."""
        ...

    async def settle(self) -> None:
        """Wait briefly for a renewal under way, before the process may end."""
        ...


class Wire:
    """The HTTP client of one remote server. ``credentials`` are added to ``headers``. ``health`` gets the problem of
    each POST."""

    def __init__(
        self,
        url: str,
        http: aiohttp.ClientSession,
        headers: Mapping[str, str],
        credentials: Credentials | None = None,
        health: Health | None = None,
    ) -> None:
        self._url = yarl.URL(url)
        self._health = health or Health()
        self._credentials = credentials
        self._http = http
        self._base: CIMultiDict[str] = CIMultiDict({"User-Agent": f"samplegate/{__version__}"})
        for name, value in headers.items():
            if name.lower() not in _RESERVED and not name.lower().startswith("mcp-param-"):
                self._base[name] = value
        self._base["Accept-Encoding"] = "identity"

    @property
    def origin(self) -> str:
        """Scheme, host and port: the part of the address that may be shown."""
        return str(self._url.origin())

    async def post(
        self, own: Mapping[str, str], line: bytes, written: Callable[[], None] | None = None
    ) -> aiohttp.ClientResponse:
        """POST a frame. Returns when the response's headers have arrived; the caller closes it. Raises HttpFault and
        aiohttp's exceptions."""
        if sum(len(name) + len(value) for name, value in own.items()) > MAX_HEADERS:
            raise HttpFault(f"the request's headers would be larger than {MAX_HEADERS} bytes")
        headers = {"Accept": BOTH, "Content-Type": "application/json", **own}
        try:
            response = await self._open("POST", headers, lambda: Body(line, written or _nothing))
        except (HttpFault, aiohttp.ClientError, OSError) as error:
            self._health.problem = error_fault(error).reason
            raise
        status = response.status
        is_fault = status in _UNAVAILABLE or status >= 500
        self._health.problem = status_fault(status).reason if is_fault else None
        return response

    async def get(self, own: Mapping[str, str]) -> aiohttp.ClientResponse:
        """GET the standalone stream, or the rest of a broken one. Returns and raises as ``post``."""
        return await self._open("GET", {"Accept": STREAM, "Cache-Control": "no-store", **own}, _no_body)

    async def delete(self, own: Mapping[str, str]) -> None:
        """DELETE a session. The server's reply is ignored."""
        (await self._open("DELETE", own, _no_body)).close()

    async def _open(
        self, method: str, own: Mapping[str, str], body: Callable[[], Body | None]
    ) -> aiohttp.ClientResponse:
        if self._credentials is None:
            return await self._follow(method, own, {}, body)
        try:
            sent = await self._credentials.headers()
        except Unavailable as problem:
            raise HttpFault(str(problem), transport="credentials") from None
        response = await self._follow(method, own, sent, body)
        if response.status not in CREDENTIAL_STATUSES:
            return response
        try:
            if not await self._credentials.renew(response.status, response.headers.getall(CHALLENGE, []), sent):
                return response
            fresh = await self._credentials.headers()
        except asyncio.CancelledError:
            response.close()
            raise
        except Unavailable as problem:
            response.close()
            raise HttpFault(f"HTTP {response.status}: {problem}", httpStatus=response.status) from None
        response.close()
        return await self._follow(method, own, fresh, body)

    async def _follow(
        self, method: str, own: Mapping[str, str], sent: Mapping[str, str], body: Callable[[], Body | None]
    ) -> aiohttp.ClientResponse:
        headers, url = self._base.copy(), self._url
        headers.update(sent)
        headers.update(own)
        hops = 0
        while True:
            response = await self._http.request(
                method, url, data=body(), headers=headers, allow_redirects=False, timeout=_TIMES
            )
            if response.status not in _SAME:
                return response
            response.close()
            hops += 1
            if hops > MAX_HOPS:
                raise HttpFault(
                    f"HTTP {response.status}: it redirected more than {MAX_HOPS} times", httpStatus=response.status
                )
            url = self._next(response, url)

    def _next(self, response: aiohttp.ClientResponse, url: yarl.URL) -> yarl.URL:
        """The target of a redirect, which must stay within the server's origin: our credentials go nowhere else."""
        try:
            target = url.join(yarl.URL(response.headers["Location"]))
            same = target.origin() == self._url.origin() and target.user is None
        except (KeyError, ValueError):
            raise HttpFault(
                f"HTTP {response.status}: its redirect has no valid Location header", httpStatus=response.status
            ) from None
        if not same:
            raise HttpFault(f"HTTP {response.status}: it redirected to another origin", httpStatus=response.status)
        return target


def _no_body() -> None:
    return None


def _nothing() -> None:
    """Default for ``written``."""
