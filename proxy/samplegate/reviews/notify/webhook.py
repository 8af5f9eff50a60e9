"""Webhook delivery: retries, the POST and its response.

Redirects are refused, and responses are limited in size and time. The connection goes only to addresses that
`endpoint` permits.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeAlias

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from samplegate import __version__
from samplegate.policy.schema import Webhook
from samplegate.protocol import strictjson
from samplegate.reviews.notify import formats, template
from samplegate.reviews.notify.endpoint import (
    Forbidden,
    Lookup,
    Network,
    SecretSources,
    WebhookNotReady,
    keys_of,
    literal_addresses,
    permitted_addresses,
    url_of,
)
from samplegate.reviews.notify.formats import Format, ReviewView, headers
from samplegate.reviews.review import Delivery, Review

FIRST_RETRY: Final = 2.0  # seconds, because a reviewer is waiting
MAX_RETRY: Final = 300.0  # seconds: the longest wait for a message after an endpoint has been repaired
MAX_RETRY_AFTER: Final = 3_600.0  # seconds: the longest delay that a peer may request; the review may end earlier

_seconds: Final = re.compile(r"[0-9]{1,9}\Z")


def retry_wait(tries: int, chance: float) -> float:
    """Seconds until the next attempt after ``tries`` failures (from 1): exponential backoff with jitter.

    The result is between half and all of a doubling time of at most ``MAX_RETRY``. ``chance``: from 0 to below 1. The
    jitter spreads messages that failed together.
    """
    whole = min(MAX_RETRY, FIRST_RETRY * 2.0 ** min(max(tries, 1) - 1, 32))
    return whole * (0.5 + chance / 2)


def retry_after(text: str | None, now: float) -> float | None:
    """The seconds in a Retry-After header (RFC 9110 10.2.3: seconds or a date), at most MAX_RETRY_AFTER.

    None if the header is missing or unreadable.
    """
    if text is None:
        return None
    text = text.strip()
    if _seconds.match(text):
        return min(float(text), MAX_RETRY_AFTER)
    try:
        until = parsedate_to_datetime(text[:64]).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return min(max(until - now, 0.0), MAX_RETRY_AFTER)


BODIES: Final[Mapping[Format, Callable[[Delivery, Review, ReviewView], bytes]]] = {
    "standard": formats.standard,
    "slack": formats.for_slack,
}
"""The bodies of all formats but ``json``, whose body is in the policy."""
UNWANTED: Final = "not notified of this event"
ANSWERING: Final[frozenset[Format]] = frozenset({"standard"})
"""Formats whose responses may contain a verdict. A chat's response does not come from a reviewer."""


def message(
    delivery: Delivery, review: Review, webhook: Webhook, *, view: ReviewView, sources: SecretSources
) -> WebhookMessage | WebhookNotReady | None:
    """The message to post; None if the webhook wants none of this event.

    Without a readable key nothing is sent, because a receiver that accepts unsigned messages would accept anyone's.
    """
    url = url_of(webhook, sources)
    if isinstance(url, WebhookNotReady):
        return url
    if webhook.format == "json":
        return _own_message(delivery, review, webhook, url, view=view, sources=sources)
    body = BODIES[webhook.format](delivery, review, view)
    signed: Mapping[str, str] = {}
    if webhook.format == "standard":
        keys = keys_of(webhook, sources)
        if isinstance(keys, WebhookNotReady):
            return keys
        signed = headers(keys, id=delivery.id, at=view.now, body=body)
    return WebhookMessage(
        url, {"Content-Type": "application/json", "User-Agent": f"samplegate/{__version__}", **signed}, body
    )


def _own_message(
    delivery: Delivery, review: Review, webhook: Webhook, url: str, *, view: ReviewView, sources: SecretSources
) -> WebhookMessage | WebhookNotReady | None:
    """A message with the body of the policy."""
    body = webhook.body if delivery.event == "review.opened" else webhook.ended_body
    if body is None:
        return None
    secret = sources.read("secret", webhook.secret_file, webhook.secret_env)
    authorization = sources.read("authorization", webhook.authorization_file, webhook.authorization_env)
    for found in (secret, authorization):
        if isinstance(found, WebhookNotReady):
            return found
    if isinstance(authorization, str) and not (authorization.isascii() and authorization.isprintable()):
        return WebhookNotReady("authorization contains line breaks or non-ASCII characters")
    own = {"Authorization": authorization} if isinstance(authorization, str) else {}
    text = secret if isinstance(secret, str) else ""
    sent = {"Content-Type": "application/json", "User-Agent": f"samplegate/{__version__}", **own}
    return WebhookMessage(url, sent, template.filled(body, delivery, review, view, text))


class VerdictReceived(msgspec.Struct, frozen=True):
    """Delivered, with a verdict in the response, still to be parsed."""

    raw: bytes
    said: str


class Delivered(msgspec.Struct, frozen=True):
    """Delivered; a verdict may come later through another door.

    ``odd``: the media type ("none" if missing) of a response that is neither JSON nor empty nor "ok". A sign-in page in
    front of the receiver responds like this.
    """

    said: str
    odd: str | None = None


class RetryLater(msgspec.Struct, frozen=True):
    """Not delivered: the endpoint failed or was unreachable.

    ``after``: the delay that it requested, in seconds; None: none.
    """

    said: str
    after: float | None = None


class DeliveryRefused(msgspec.Struct, frozen=True):
    """Not delivered, probably until the configuration is corrected; retried nevertheless."""

    said: str


class EndpointGone(msgspec.Struct, frozen=True):
    """Not delivered: the endpoint wants no more messages (410)."""

    said: str


DeliveryResult: TypeAlias = VerdictReceived | Delivered | RetryLater | DeliveryRefused | EndpointGone
"""``said`` is a status or a kind of fault, never content."""


class WebhookBounds(msgspec.Struct, frozen=True):
    """The limits of one attempt."""

    connect: float = 5.0
    """Seconds until the connection is established, TLS included."""
    total: float = 15.0
    """Seconds from the DNS lookup to the last byte of the response."""
    body: int = 1024 * 1024
    """Maximum bytes of a response body."""


class NetworkAccess(msgspec.Struct, frozen=True):
    """Permitted networks, proxies, limits, DNS and TLS for webhooks."""

    networks: Sequence[Network] = ()
    environment: Mapping[str, str] = {}
    """For ``https_proxy``, ``all_proxy`` and ``no_proxy``, in lower or upper case."""
    bounds: WebhookBounds = WebhookBounds()
    lookup: Lookup | None = None
    """None: the system's resolver."""
    tls: ssl.SSLContext | None = None
    """None: the system's certificates."""


class WebhookMessage(msgspec.Struct, frozen=True):
    """An HTTP request to a webhook."""

    url: str
    headers: Mapping[str, str]
    body: bytes


MAX_HEADER: Final = 8 * 1024  # bytes of one line of a response's head
_RETRIABLE: Final = frozenset({408, 425, 429})
_media: Final = re.compile(r"none|[a-z0-9][a-z0-9.+-]{0,49}/[a-z0-9][a-z0-9.+-]{0,99}")


async def send(message: WebhookMessage, network: NetworkAccess, *, now: float) -> DeliveryResult:
    """Make one attempt. ``now``: Unix seconds, for Retry-After. Raises nothing but CancelledError."""
    try:
        async with asyncio.timeout(network.bounds.total):
            return await _send(message, network, now)
    except TimeoutError:
        return RetryLater("timed out")
    except aiohttp.ClientConnectorCertificateError:
        return RetryLater("invalid TLS certificate")
    except (aiohttp.ClientSSLError, ssl.SSLError):
        return RetryLater("TLS connection failed")
    except socket.gaierror:
        return RetryLater("host name not found")
    except (aiohttp.InvalidURL, ValueError):
        return DeliveryRefused("invalid URL")
    except (aiohttp.ClientError, OSError) as problem:
        return RetryLater(_kind(problem))


def _kind(problem: Exception) -> str:
    """A fault without the peer's words, because aiohttp's messages quote the response."""
    cause = problem.os_error if isinstance(problem, aiohttp.ClientConnectorError) else problem
    return (
        "connection refused"
        if isinstance(cause, ConnectionRefusedError)
        else f"connection failed: {type(cause).__name__}"
    )


async def _send(message: WebhookMessage, network: NetworkAccess, now: float) -> DeliveryResult:
    url = URL(message.url)
    if url.scheme not in ("http", "https") or not url.host or url.user is not None:
        return DeliveryRefused("invalid URL")
    proxy = proxy_of(url, network.environment)
    end = url if proxy is None else proxy
    if proxy is not None and isinstance(found := await _permitted_literal(url, network), Forbidden):
        return DeliveryRefused(found.why)
    addresses = await permitted_addresses(
        end.host or "", end.port or 443, network.networks, plain=url.scheme == "http", lookup=network.lookup
    )
    if isinstance(addresses, Forbidden):
        return DeliveryRefused(addresses.why)
    return await _post(message, _Route(url, proxy, addresses), network, now)


async def _permitted_literal(url: URL, network: NetworkAccess) -> tuple[str, ...] | Forbidden:
    """Check a URL's literal address here even if the proxy connects to it."""
    found = literal_addresses(url.host or "")

    async def itself(_host: str, _port: int) -> Sequence[str]:
        return found

    return (
        await permitted_addresses(url.host or "", url.port or 443, network.networks, plain=False, lookup=itself)
        if found
        else ()
    )


def proxy_of(url: URL, environment: Mapping[str, str]) -> URL | None:
    """The environment's proxy for this URL, None if there is none or it is bypassed."""
    if url.scheme != "https":
        return None
    found = {
        name: environment.get(name) or environment.get(name.upper()) or ""
        for name in ("https_proxy", "all_proxy", "no_proxy")
    }
    proxy = found["https_proxy"] or found["all_proxy"]
    if not proxy or _bypassed(url.host or "", found["no_proxy"]):
        return None
    return URL(proxy if "://" in proxy else f"http://{proxy}")


def _bypassed(host: str, no_proxy: str) -> bool:
    """Whether a host is in ``no_proxy``: names and suffixes, with or without a leading dot; ``*`` is every host."""
    names = [name.strip().lower().partition(":")[0].lstrip(".") for name in no_proxy.split(",")]
    return any(name == "*" or host.lower() == name or host.lower().endswith(f".{name}") for name in names if name)


def _basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


class _CheckedResolver(AbstractResolver):
    """A resolver that returns only the checked addresses."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        del family
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self._addresses
        ]

    async def close(self) -> None:
        """Nothing is open."""


def _connector(addresses: Sequence[str], tls: ssl.SSLContext | None) -> aiohttp.TCPConnector:
    def only_checked(info: tuple[Any, ...]) -> socket.socket:
        """Check once more, because literal addresses bypass the resolver, and aiohttp may change."""
        if info[4][0] not in addresses:
            raise PermissionError("the address was not checked")
        return socket.socket(info[0], info[1], info[2])

    return aiohttp.TCPConnector(
        resolver=_CheckedResolver(addresses),
        use_dns_cache=False,
        force_close=True,
        ssl=tls or True,
        family=socket.AF_UNSPEC,
        socket_factory=only_checked,
    )


class _Route(msgspec.Struct, frozen=True):
    """The route of a message: to ``url``, through ``proxy`` if set, over one of ``addresses``."""

    url: URL
    proxy: URL | None
    addresses: Sequence[str]


async def _post(message: WebhookMessage, path: _Route, network: NetworkAccess, now: float) -> DeliveryResult:
    proxy = path.proxy
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=network.bounds.connect)
    async with (
        aiohttp.ClientSession(
            connector=_connector(path.addresses, network.tls),
            timeout=timeout,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            max_line_size=MAX_HEADER,
            max_field_size=MAX_HEADER,
        ) as http,
        http.post(
            path.url,
            data=message.body,
            headers={**message.headers, "Accept": "application/json", "Accept-Encoding": "identity"},
            allow_redirects=False,
            proxy=None if proxy is None else proxy.with_user(None),
            proxy_headers=(
                None
                if proxy is None or proxy.user is None
                else {"Proxy-Authorization": _basic(proxy.user, proxy.password or "")}
            ),
        ) as answer,
    ):
        return await _read(answer, network.bounds, now)


async def _read(answer: aiohttp.ClientResponse, bounds: WebhookBounds, now: float) -> DeliveryResult:
    status = answer.status
    if status == 410:
        return EndpointGone("410")
    if status >= 500 or status in _RETRIABLE:
        return RetryLater(str(status), retry_after(answer.headers.get("Retry-After"), now))
    if not 200 <= status < 300:
        return DeliveryRefused(f"{status}, redirect not followed" if status in range(300, 400) else str(status))
    body = bytearray()
    async for piece in answer.content.iter_chunked(16 * 1024):
        body += piece
        if len(body) > bounds.body:
            odd = None if status == 202 else _media_type(answer)
            return Delivered(f"{status}, response of more than {bounds.body} bytes not read", odd=odd)
    if holds_verdict(bytes(body)):
        return VerdictReceived(bytes(body), str(status))
    return Delivered(str(status), odd=None if status == 202 or _acknowledges(bytes(body)) else _media_type(answer))


def _acknowledges(body: bytes) -> bool:
    """Whether the body may be a receiver's response: JSON, nothing, or the "ok" of chats."""
    if body.strip().lower() in (b"", b"ok"):
        return True
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return True


def _media_type(answer: aiohttp.ClientResponse) -> str:
    """The response's Content-Type, if it is well-formed."""
    found = answer.headers.get("Content-Type", "none").partition(";")[0].strip().lower()
    return found if _media.fullmatch(found) else "not a media type"


def holds_verdict(body: bytes) -> bool:
    """Whether a response is meant to contain a verdict.

    A body that is not strict JSON counts if it looks like one; its parser then refuses it.
    """
    try:
        found = strictjson.decode(body)
    except strictjson.JsonFault:
        return body.lstrip().startswith(b"{") and json.dumps("verdict").encode() in body
    return isinstance(found, dict) and found.get("verdict") is not None
