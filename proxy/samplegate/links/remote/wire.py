"""One HTTP request to one remote server: its own credentials, its bounds, and no way to another origin. Not a reader of answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import aiohttp
import yarl
from aiohttp.abc import AbstractStreamWriter
from multidict import CIMultiDict

from samplegate import __version__
from samplegate.links.remote.faults import Fault

CONNECT: Final = 10.0  # seconds for a connection, the wait for a place in the pool included
MAX_HOPS: Final = 3
MAX_HEADERS: Final = 48 * 1024  # bytes of our own headers: what servers take ends at 8 to 64 KiB, and theirs is the word
_SLICE: Final = 256 * 1024
_TIMES: Final = aiohttp.ClientTimeout(total=None, connect=CONNECT, sock_connect=CONNECT)
_SAME: Final = frozenset({307, 308})
"""Redirects that repeat the request as it is."""
_RESERVED: Final = frozenset(
    "accept accept-encoding connection content-length content-type cookie host last-event-id mcp-method mcp-name mcp-protocol-version "
    "mcp-session-id te trailer transfer-encoding upgrade".split()
)
BOTH: Final = "application/json, text/event-stream"
STREAM: Final = "text/event-stream"


class Body(aiohttp.Payload):
    """A frame as a request's body, which tells when the system has taken it all."""

    _autoclose = True

    def __init__(self, line: bytes, written: Callable[[], None]) -> None:
        super().__init__(line, content_type="application/json")
        self._line = line
        self._size = len(line)
        self._written = written

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The frame as text; nothing here asks for it."""
        return self._line.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write it all."""
        await self.write_with_length(writer, None)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Write it in slices, each when the one before has been taken."""
        if len(self._line) <= _SLICE:
            await writer.write(self._line)
        else:
            view = memoryview(self._line)
            for at in range(0, len(view), _SLICE):
                await writer.write(view[at : at + _SLICE])
        self._written()


class Wire:
    """The way to one server."""

    def __init__(self, url: str, http: aiohttp.ClientSession, headers: Mapping[str, str]) -> None:
        self._url = yarl.URL(url)
        self._http = http
        self._base: CIMultiDict[str] = CIMultiDict({"User-Agent": f"samplegate/{__version__}"})
        for name, value in headers.items():
            if name.lower() not in _RESERVED and not name.lower().startswith("mcp-param-"):
                self._base[name] = value
        self._base["Accept-Encoding"] = "identity"

    @property
    def origin(self) -> str:
        """Scheme, host and port: what of the address may be said."""
        return str(self._url.origin())

    async def post(self, own: Mapping[str, str], line: bytes, written: Callable[[], None] | None = None) -> aiohttp.ClientResponse:
        """POST a frame; the response's head has come when this returns, and whoever called closes it. Raises Fault and what aiohttp raises."""
        if sum(len(name) + len(value) for name, value in own.items()) > MAX_HEADERS:
            raise Fault(f"the request's headers would be larger than {MAX_HEADERS} bytes")
        headers = {"Accept": BOTH, "Content-Type": "application/json", **own}
        return await self._open("POST", headers, lambda: Body(line, written or _nothing))

    async def get(self, own: Mapping[str, str]) -> aiohttp.ClientResponse:
        """GET the standalone stream, or one that has broken off. As ``post``."""
        return await self._open("GET", {"Accept": STREAM, "Cache-Control": "no-store", **own}, _no_body)

    async def delete(self, own: Mapping[str, str]) -> None:
        """DELETE a session; what the server says to that is of no use to anybody."""
        (await self._open("DELETE", own, _no_body)).close()

    async def _open(self, method: str, own: Mapping[str, str], body: Callable[[], Body | None]) -> aiohttp.ClientResponse:
        headers, url = self._base.copy(), self._url
        headers.update(own)
        hops = 0
        while True:
            response = await self._http.request(method, url, data=body(), headers=headers, allow_redirects=False, timeout=_TIMES)
            if response.status not in _SAME:
                return response
            response.close()
            hops += 1
            if hops > MAX_HOPS:
                raise Fault(f"HTTP {response.status}: it redirects more than {MAX_HOPS} times", httpStatus=response.status)
            url = self._next(response, url)

    def _next(self, response: aiohttp.ClientResponse, url: yarl.URL) -> yarl.URL:
        """Where a redirect leads, within the server's own origin: our credentials go nowhere else."""
        try:
            target = url.join(yarl.URL(response.headers["Location"]))
            same = target.origin() == self._url.origin() and target.user is None
        except (KeyError, ValueError):
            raise Fault(f"HTTP {response.status}: it redirects to nowhere", httpStatus=response.status) from None
        if not same:
            raise Fault(f"HTTP {response.status}: it redirects to another origin", httpStatus=response.status)
        return target


def _no_body() -> None:
    return None


def _nothing() -> None:
    """Nobody waits for it to be written."""
