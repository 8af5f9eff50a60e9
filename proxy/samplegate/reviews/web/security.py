"""Request security for the reviewers' listener: Host and Origin checks, body and login limits, security headers.

It is plain ASGI around the application: it counts a body's bytes as they arrive, whatever Content-Length is, and
streams pass through unbuffered. It also turns exceptions into responses. ``FailedLoginLimiter`` limits unknown tokens
per address and overall; it stores no token.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, MutableMapping
from http import HTTPStatus
from ipaddress import IPv6Address
from math import ceil
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from samplegate.errors import Unavailable
from samplegate.request_headers import RequestHeaders, host_name, is_local_name
from samplegate.reviews.web.context import Web, problem
from samplegate.urls import PORTS, address_of, split

# addresses to remember; the least recently seen is dropped first, and the overall limit still applies to it
MAX_ADDRESSES: Final = 4096


class Pace(msgspec.Struct, frozen=True):
    """A limit: ``burst`` failures at once, then ``rate`` per second."""

    burst: float
    rate: float


class FailedLoginLimiter:
    """A rate limiter for failed logins: token buckets per address and overall. Its clock is in seconds.

    A clock that is set back refills no bucket.
    """

    def __init__(self, each: Pace, all: Pace, clock: Callable[[], float]) -> None:
        self._each = each
        self._all = all
        self._clock = clock
        self._spent_by: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._spent = (0.0, clock())

    def wait(self, address: str) -> int:
        """Seconds until this address may send another wrong token, 0 for now."""
        now = self._clock()
        mine = _left(self._spent_by.get(address, (0.0, now)), self._each, now)
        theirs = _left(self._spent, self._all, now)
        return max(_wait(mine, self._each), _wait(theirs, self._all))

    def attempt(self, address: str) -> int:
        """Count a wrong token unless this address must wait. Returns the seconds that it must wait."""
        wait = self.wait(address)
        if not wait:
            self.record(address)
        return wait

    def record(self, address: str) -> None:
        """Count a wrong token."""
        now = self._clock()
        self._spent = (_left(self._spent, self._all, now) + 1, now)
        self._spent_by[address] = (_left(self._spent_by.pop(address, (0.0, now)), self._each, now) + 1, now)
        if len(self._spent_by) > MAX_ADDRESSES:
            self._spent_by.popitem(last=False)


class SharedLoginLimiter:
    """The limit on failed logins at a door (the page or the API) of all processes that share the store. Failures that
    this process's own limit refuses do not reach the store."""

    def __init__(self, web: Web, door: str, each: Pace, all: Pace) -> None:
        self._web, self._door, self._each, self._all = web, door, each, all
        self._local = FailedLoginLimiter(each, all, web.wall)

    async def attempt(self, address: str) -> int:
        """Count a wrong token unless this address must wait. Returns the seconds that it must wait."""
        wait = self._local.attempt(address)
        if wait:
            return wait
        buckets = {
            f"{self._door} {address}": (self._each.burst, self._each.rate),
            f"{self._door}, all": (self._all.burst, self._all.rate),
        }
        try:
            return ceil(await self._web.store.write(lambda store: store.failed_sign_in(buckets)))
        except Unavailable:
            return 0  # this process has counted it


def _left(spent: tuple[float, float], pace: Pace, now: float) -> float:
    """The failures that still count against the limit."""
    count, since = spent
    return max(0.0, count - max(0.0, now - since) * pace.rate)


def _wait(spent: float, pace: Pace) -> int:
    over = spent + 1 - pace.burst
    return 0 if over <= 0 else ceil(over / pace.rate)


MAX_VERDICT: Final = 1024 * 1024  # bytes of a verdict for the API; long edited messages have about 100 KiB
# bytes of a verdict from the page: a form encodes some characters in three bytes, and those of some alphabets in nine
MAX_FORM: Final = 4 * MAX_VERDICT
MAX_BODY: Final = 64 * 1024  # bytes of any other body: a token and a few fields
BODY_TIME: Final = 30.0  # seconds from a request's head to the end of its body

PAGE_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'"
)
"""For pages: only our own files, nothing inline, no other target for forms."""
API_POLICY: Final = "default-src 'none'; frame-ancestors 'none'"
_HEADERS: Final = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with no-referrer, browsers would send `Origin: null` with our own forms
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=(), payment=()",
    "cache-control": "no-store",
}
_CLOSE: Final = {"connection": "close"}  # otherwise the rest of the body would be read as the next request
_DETAILS: Final = {
    404: "not found; open /reviews for the page or /v1/openapi.json for the API",
    405: "this path does not support this method",
}


class BodyTooLarge(Exception):
    """A body has more bytes than permitted."""


class BodyTooSlow(Exception):
    """A body did not arrive in time."""


class PageGuard:
    """The outermost middleware: checks requests, limits bodies, adds headers and handles exceptions."""

    def __init__(self, app: ASGIApp, web: Web, *, body_time: float = BODY_TIME) -> None:
        self._app = app
        self._web = web
        self._body_time = body_time

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        sent = _Sent(scope, send)
        refused = self._refused(scope)
        if refused is not None:
            await refused(scope, receive, sent)
            return
        try:
            await self._app(scope, _bounded(receive, bound_of(scope["path"]), self._body_time), sent)
        except Exception as problem:
            answer = self._answer_to(problem, scope)
            if not sent.began:
                await answer(scope, receive, sent)

    def _answer_to(self, problem: Exception, scope: Scope) -> Response:
        """The response to an exception: its reason if it is expected, else a fixed sentence and a full log entry."""
        match problem:
            case HTTPException():
                return error_response(
                    scope,
                    problem.status_code,
                    _DETAILS.get(problem.status_code, problem.detail),
                    dict(problem.headers or {}),
                )
            case BodyTooLarge():
                return too_large(scope)
            case BodyTooSlow():
                return error_response(scope, 408, "body: not complete in time; send it without delay", _CLOSE)
            case ClientDisconnect():
                return error_response(scope, 400, "body: incomplete; send all of it", _CLOSE)
            case Unavailable():
                self._web.log.error("web.unavailable", path=path_for_log(scope["path"]), why=str(problem))
                return error_response(scope, 503, "the review store is unavailable; try again", {"retry-after": "5"})
        self._web.log.error(
            "web.failed", method=scope["method"][:16], path=path_for_log(scope["path"]), exc_info=problem
        )
        return error_response(scope, 500, "internal error in the gate; see the log")

    def _refused(self, scope: Scope) -> Response | None:
        headers = headers_of(scope)
        if is_forged_host(headers, self._web):
            return error_response(
                scope,
                403,
                "host: not a name of this listener; use an IP address, localhost or the host of reviews_url",
            )
        if is_cross_origin(headers, self._web):
            return error_response(
                scope, 403, "origin: the request comes from another site; open the reviews page directly"
            )
        announced, most = headers.length(), bound_of(scope["path"])
        if announced is None:
            return error_response(scope, 400, "content-length: not a number of bytes; send a valid one")
        return too_large(scope) if announced > most else None


class _Sent:
    """Adds the security headers to a response, and removes the body of a response to HEAD."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._head = scope["method"] == "HEAD"
        self._policy = API_POLICY if is_api(scope) else PAGE_POLICY
        self._send = send
        self.began = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.began = True
            headers = MutableHeaders(raw=list(message.get("headers", ())))
            for name, value in {**_HEADERS, "content-security-policy": self._policy}.items():
                headers.setdefault(name, value)
            message = {**message, "headers": headers.raw}
        elif self._head and message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await self._send(message)


def is_api(scope: MutableMapping[str, Any]) -> bool:
    """Whether the request is for the API, which responds with JSON."""
    return str(scope["path"]).startswith("/v1/") or scope["path"] == "/v1"


def error_response(
    scope: MutableMapping[str, Any], status: int, detail: str, headers: Mapping[str, str] | None = None
) -> Response:
    """A response without a handler: problem details for the API, a line of text for the page."""
    if is_api(scope):
        return problem(status, detail, headers=headers)
    return PlainTextResponse(f"{HTTPStatus(status).phrase}: {detail}\n", status, headers)


def too_large(scope: MutableMapping[str, Any]) -> Response:
    """413, without waiting for the rest of the body."""
    return error_response(scope, 413, f"body: larger than {bound_of(scope['path'])} bytes; send less", _CLOSE)


def bound_of(path: str) -> int:
    """The maximum size of a body, in bytes."""
    if path.startswith("/reviews/") and path.endswith("/ui/proposal"):
        return MAX_VERDICT
    if not path.endswith("/verdict"):
        return MAX_BODY
    return MAX_FORM if path.startswith("/reviews/") else MAX_VERDICT


def path_for_log(path: str) -> str:
    """A path for the log, short and ASCII, because clients choose it."""
    return path[:100].encode("ascii", "backslashreplace").decode()


def _bounded(receive: Receive, most: int, seconds: float) -> Receive:
    """Receives the body with limits on its bytes and its time.

    The wait for the disconnect after the body is not limited.
    """
    until: float | None = asyncio.get_running_loop().time() + seconds
    taken = 0

    async def receiving() -> Message:
        nonlocal taken, until
        try:
            async with asyncio.timeout_at(until):
                message = await receive()
        except TimeoutError:
            raise BodyTooSlow from None
        if message["type"] == "http.request":
            taken += len(message.get("body", b""))
            if taken > most:
                raise BodyTooLarge
            if not message.get("more_body", False):
                until = None
        return message

    return receiving


def headers_of(scope: MutableMapping[str, Any]) -> RequestHeaders:
    """The headers of a request."""
    return RequestHeaders(scope["headers"])


def is_forged_host(headers: RequestHeaders, web: Web) -> bool:
    """Whether the Host is not one of the listener's names, as in DNS rebinding (R96).

    An IP address as Host is accepted. So is a missing Host, because every browser sends one.
    """
    host = headers.single(b"host")
    if host is None:
        return headers.has(b"host")
    name = host_name(host)
    if is_local_name(name) or name == urlsplit(web.url).hostname:
        return False
    return not any(taken == "*" or taken.lower() in (host.lower(), name, f"{name}:*") for taken in web.hosts)


def is_cross_origin(headers: RequestHeaders, web: Web) -> bool:
    """Whether a page of another origin sent the request.

    A request without Origin does not come from a script or a form of another page.
    """
    if not headers.has(b"origin"):
        return False
    origin = _origin(headers.single(b"origin") or "")
    if origin is None:
        return True
    if origin == _origin(web.url):
        return False
    # The request used another of the listener's names, perhaps behind a proxy that terminates TLS, so only the Host
    # counts. Under the name in `url` the scheme must match too, because an attacker on the path could serve a page over
    # plain http.
    host = (headers.single(b"host") or "").lower()
    return host == urlsplit(web.url).netloc.lower() or origin != _origin(f"{origin[0]}://{host}")


def is_cross_site(headers: RequestHeaders) -> bool:
    """Whether the browser reports (Sec-Fetch-Site) that another site or no page sent the request.

    Old browsers and other programs report nothing, and pass.
    """
    return headers.all(b"sec-fetch-site") not in ([], ["same-origin"])


def is_own_page(headers: RequestHeaders, web: Web) -> bool:
    """Whether the browser reports that one of our own pages sent the request.

    Every browser sends at least one of Origin and Sec-Fetch-Site with a posted form.
    """
    return (
        not is_cross_origin(headers, web)
        and not is_cross_site(headers)
        and (headers.has(b"origin") or headers.has(b"sec-fetch-site"))
    )


def sender(scope: MutableMapping[str, Any]) -> str:
    """The address that failures are counted by: for IPv6 the /64 network, because a host has 2**64 addresses."""
    client = scope.get("client")
    address = address_of(client[0] if client else "")
    if isinstance(address, IPv6Address):
        return str(IPv6Address(int(address) >> 64 << 64))
    return "" if address is None else str(address)


def _origin(text: str) -> tuple[str, str, int] | None:
    """An origin's scheme, host and port; None for other texts, including ``null``."""
    parts = split(text.lower())
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        return None
    return parts.scheme, parts.hostname, parts.port or PORTS[parts.scheme]
