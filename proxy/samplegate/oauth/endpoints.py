"""Requests to authorization servers: which URLs are allowed, bounds of size and time, and redirects.

An error is one sentence, with the origin of a URL at most and without any text of the peer, except for OAuth's error
codes and, at a terminal, their descriptions.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import msgspec

from samplegate import __version__
from samplegate.printable import printable
from samplegate.urls import PORTS, is_loopback, url_error

MAX_BODY: Final = 1024 * 1024  # bytes
TIME: Final = 10.0  # seconds for one request, its redirects and its body
MAX_REDIRECTS: Final = 3
_FRAMING: Final = frozenset({"host", "content-length", "transfer-encoding", "content-encoding", "connection"})
_ERROR_CODE: Final = re.compile(r"[a-z0-9_.-]{1,64}\Z", re.IGNORECASE)
_KEEP_METHOD: Final = frozenset({307, 308})
_GET_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


class OAuthFault(Exception):
    """No token was obtained. The text is one sentence without secrets and without an end."""

    def __init__(
        self, reason: str, *, code: str | None = None, transient: bool = False, remedy: str | None = None
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code
        """OAuth's error code, such as ``invalid_grant``."""
        self.transient = transient
        """Whether a later attempt may succeed."""
        self.remedy = remedy
        """What to do, if that is not the same for all faults; empty if the reason says it."""


def origin_of(url: str) -> str:
    """Scheme, host and port: the part of a URL that is shown."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    port = "" if parts.port in (None, PORTS.get(parts.scheme)) else f":{parts.port}"
    return printable(f"{parts.scheme}://{host}{port}")[:200]


def same_origin(a: str, b: str) -> bool:
    """Whether two valid URLs have the same scheme, host and port."""
    return origin_of(a) == origin_of(b)


class Endpoints:
    """The HTTP client for the authorization server of one MCP server.

    It connects to https URLs only; to http URLs on this machine if the MCP server is on this machine, too. It uses no
    proxies of the environment, sends no cookies, and follows redirects only within an origin.
    """

    def __init__(self, server_url: str, http: httpx2.AsyncClient, *, shows_descriptions: bool = False) -> None:
        self.server_url = server_url
        self._http = http
        self._local = is_loopback(urlsplit(server_url).hostname or "")
        self.shows_descriptions = shows_descriptions
        self.notes: list[str] = []
        """Why metadata was not found, for the error if none is found."""

    def url_fault(self, url: str) -> str | None:
        """Why no request may be sent to this URL; None if one may."""
        why = url_error(url, query=True)
        if why is not None:
            return why
        parts = urlsplit(url)
        if parts.scheme == "https" or (self._local and is_loopback(parts.hostname or "")):
            return None
        return "is not https" if not is_loopback(parts.hostname or "") else "is on this machine, but the server is not"

    def check_url(self, url: str, what: str) -> None:
        """Raise OAuthFault if no request may be sent to this URL."""
        why = self.url_fault(url)
        if why is not None:
            raise OAuthFault(f"the {what} of the authorization server {why}: {origin_of_any(url)}")

    async def send(self, request: httpx2.Request, what: str) -> httpx2.Response:
        """Send a request and read its response, at most MAX_BODY bytes. A redirect to another origin is returned as it
        is. Raises OAuthFault."""
        return await self._bounded(request, what, reads=True)

    async def _bounded(self, request: httpx2.Request, what: str, *, reads: bool) -> httpx2.Response:
        where = origin_of_any(str(request.url))
        try:
            async with asyncio.timeout(TIME):
                return await self._send(request, what, reads=reads)
        except TimeoutError:
            raise OAuthFault(f"{where} did not answer the {what} within {TIME:g} s", transient=True) from None
        except httpx2.ConnectError as problem:
            if _is_certificate_error(problem):
                raise OAuthFault(f"the TLS certificate of {where} is not valid", transient=True) from None
            raise OAuthFault(f"{where} cannot be reached for the {what}", transient=True) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError):
            raise OAuthFault(f"{where} did not answer the {what} with valid HTTP", transient=True) from None

    async def send_head(self, request: httpx2.Request, what: str) -> httpx2.Response:
        """The same without reading the body, which may be a stream that does not end."""
        return await self._bounded(request, what, reads=False)

    async def _send(self, request: httpx2.Request, what: str, *, reads: bool) -> httpx2.Response:
        for _ in range(MAX_REDIRECTS + 1):
            self.check_url(str(request.url), what)
            response = await self._once(request, what, reads=reads)
            target = self._redirect_of(response)
            if target is None:
                return response
            request = httpx2.Request(request.method, target, headers=_plain(request.headers), content=request.content)
        raise OAuthFault(f"{origin_of_any(str(request.url))} redirected the {what} more than {MAX_REDIRECTS} times")

    async def _once(self, request: httpx2.Request, what: str, *, reads: bool) -> httpx2.Response:
        request.headers["Accept-Encoding"] = "identity"
        request.headers["User-Agent"] = f"samplegate/{__version__}"
        response = await self._http.send(request, stream=True, follow_redirects=False, auth=None)
        try:
            if not reads:
                return httpx2.Response(response.status_code, headers=_plain(response.headers), request=request)
            if response.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
                raise OAuthFault(f"{origin_of_any(str(request.url))} sent a compressed answer to the {what}")
            body = bytearray()
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > MAX_BODY:
                    raise OAuthFault(
                        f"the answer of {origin_of_any(str(request.url))} to the {what} is larger than {MAX_BODY} bytes"
                    )
        finally:
            await response.aclose()
        return httpx2.Response(
            response.status_code, headers=_plain(response.headers), content=bytes(body), request=request
        )

    def _redirect_of(self, response: httpx2.Response) -> str | None:
        """Where the request is sent next; None if the response is the answer."""
        follows = _GET_REDIRECTS if response.request.method == "GET" else _KEEP_METHOD
        location = response.headers.get("Location")
        if response.status_code not in follows or location is None:
            return None
        try:
            target = str(response.request.url.join(location))
            inside = self.url_fault(target) is None and same_origin(target, str(response.request.url))
        except (httpx2.InvalidURL, ValueError):
            return None
        return target if inside else None

    def refusal(self, response: httpx2.Response, what: str) -> OAuthFault:
        """The fault for an error response of an endpoint."""
        where, status = origin_of_any(str(response.request.url)), response.status_code
        if 300 <= status < 400:
            return OAuthFault(
                f"{where} redirected the {what} elsewhere (HTTP {status}), which the gate does not follow"
            )
        found = json_object(response.content) or {}
        code = found.get("error")
        if isinstance(code, str) and _ERROR_CODE.match(code):
            text = f"{where} refused the {what}: {code}"
            description = found.get("error_description")
            if self.shows_descriptions and isinstance(description, str) and description:
                text += f" ({printable(description[:300])})"
            return OAuthFault(text, code=code, transient=status >= 500 or status == 429)
        return OAuthFault(f"{where} answered the {what} with HTTP {status}", transient=status >= 500 or status == 429)


def origin_of_any(url: str) -> str:
    """The origin of a URL that may be invalid."""
    try:
        return origin_of(url)
    except ValueError:
        return "an invalid URL"


def _plain(headers: httpx2.Headers) -> list[tuple[str, str]]:
    """The headers that do not depend on how the body was sent."""
    return [(name, value) for name, value in headers.multi_items() if name.lower() not in _FRAMING]


def _is_certificate_error(problem: BaseException) -> bool:
    seen: BaseException | None = problem
    while seen is not None:
        if isinstance(seen, ssl.SSLError):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def json_object(text: bytes) -> dict[str, Any] | None:
    """The JSON object in a body; None if it is anything else."""
    try:
        found = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


@cache
def tls_context() -> ssl.SSLContext:
    """The context of all connections. Reading the certificates of the system takes up to 0.4 s."""
    return ssl.create_default_context()


@asynccontextmanager
async def http_client() -> AsyncIterator[httpx2.AsyncClient]:
    """A client without proxies, cookies of others, redirects and retries."""
    async with httpx2.AsyncClient(
        verify=tls_context(), trust_env=False, follow_redirects=False, timeout=httpx2.Timeout(TIME)
    ) as http:
        yield http
