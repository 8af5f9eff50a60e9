"""Webhooks: one message with its secrets (read from files and variables at each send), its format, the permitted
addresses, the POST and its answer.

Redirects are refused, and answers are bounded in size and time. The operator chooses a webhook's URL, but not the
addresses of its name: they may belong to this machine, its network or a cloud's metadata. So the name is resolved once
for each message, and the connection goes only to addresses that were resolved and checked, against DNS rebinding.
Literal addresses are checked alike, also the odd ones (``127.1``, ``0x7f000001``), since the system's own look-up reads
them.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import json
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from samplegate import __version__
from samplegate.policy.schema import Webhook
from samplegate.protocol import strictjson
from samplegate.reviews.notify import formats
from samplegate.reviews.notify.formats import Format, ReviewView, headers, key_of
from samplegate.reviews.review import Delivery, Review

IP: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Lookup: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""A host and a port -> its addresses as texts. Raises OSError."""

# Not public either, though `ipaddress` of Python 3.11 or of a later version calls some of their addresses global:
# protocol assignments, the relays of 6to4, Teredo (2001::/32 is in the first of IPv6) and 6to4, which lead to any IPv4
# address, and documentation.
_NOT_PUBLIC: Final[tuple[Network, ...]] = tuple(
    map(ipaddress.ip_network, "192.0.0.0/24 192.88.99.0/24 2001::/23 2002::/16 3fff::/20".split())
)
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052: the last 32 bits are an IPv4 address
MOST_ADDRESSES: Final = 8  # of one name that are tried


class Forbidden(msgspec.Struct, frozen=True):
    """No address of a host may be connected to. ``why`` is for the log: an address, or what the name lacks."""

    why: str


def networks_of(texts: Iterable[str]) -> tuple[Network, ...]:
    """The networks of a setting. Raises ValueError for a text that is none; host bits are cut off."""
    return tuple(ipaddress.ip_network(text, strict=False) for text in texts)


def is_public(address: IP) -> bool:
    """Whether it is everybody's way to one place out there, whatever form it is written in."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        if address in _NAT64:
            return is_public(ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF))
        if address.is_site_local:
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved or _within(address, _NOT_PUBLIC))


def may_go(address: IP, networks: Sequence[Network], *, plain: bool) -> bool:
    """Whether a connection may be made. Plain http only into listed networks: out there anybody on the way reads and
    changes it."""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return _within(address, networks) or (not plain and is_public(address))


def _within(address: IP, networks: Iterable[Network]) -> bool:
    return any(address in network for network in networks if network.version == address.version)


async def checked(
    host: str, port: int, networks: Sequence[Network], *, plain: bool, lookup: Lookup | None = None
) -> tuple[str, ...] | Forbidden:
    """The addresses of a host that may be connected to, in the system's order. Raises OSError where the name has
    none."""
    found = await (lookup or system_lookup)(host, port)
    addresses = [read for text in found if (read := _ip(text)) is not None]
    allowed = dict.fromkeys(str(address) for address in addresses if may_go(address, networks, plain=plain))
    if allowed:
        return tuple(allowed)[:MOST_ADDRESSES]
    if not addresses:
        return Forbidden("it has no address")
    public = plain and any(is_public(address) for address in addresses)
    what = (
        "is reached by plain http outside of webhook_networks"
        if public
        else "is no public address and in no network of webhook_networks"
    )
    return Forbidden(f"{addresses[0]} {what}")


def _ip(text: str) -> IP | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


async def system_lookup(host: str, port: int) -> Sequence[str]:
    """What the system's resolver says, in a thread. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


def literal(host: str) -> tuple[str, ...]:
    """The address that a host is by itself, in any notation that the system reads; empty for a name. Asks nobody."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return ()
    return tuple(str(entry[4][0]) for entry in found)


FIRST: Final = 2.0  # seconds: a person waits at the other end
LONGEST: Final = 300.0  # seconds: the longest wait for a message after an endpoint has been repaired
MOST_ASKED: Final = 3_600.0  # seconds: what a peer may ask for; the review's own end may come first

_seconds: Final = re.compile(r"[0-9]{1,9}\Z")


def retry_wait(tries: int, chance: float) -> float:
    """Seconds until the next try after ``tries`` failures (from 1), between half and whole of a doubling time.
    ``chance``: from 0 to below 1.

    Spread, so that what failed together does not come back together.
    """
    whole = min(LONGEST, FIRST * 2.0 ** min(max(tries, 1) - 1, 32))
    return whole * (0.5 + chance / 2)


def retry_after(text: str | None, now: float) -> float | None:
    """Seconds that a Retry-After header asks for (RFC 9110 10.2.3: seconds or a date), at most MOST_ASKED; None: it
    says nothing that can be read."""
    if text is None:
        return None
    text = text.strip()
    if _seconds.match(text):
        return min(float(text), MOST_ASKED)
    try:
        until = parsedate_to_datetime(text[:64]).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return min(max(until - now, 0.0), MOST_ASKED)


MAX_BYTES: Final = 16 * 1024  # a key has 24 to 64 bytes, an address some hundred


class WebhookNotReady(msgspec.Struct, frozen=True):
    """Why nothing is sent: ``what`` names the file or variable, never what is in it."""

    what: str


class SecretSources(msgspec.Struct, frozen=True):
    """Where files and variables of the policy are."""

    folder: Path
    environment: Mapping[str, str]

    def read(self, name: str, file: str | None, variable: str | None) -> str | WebhookNotReady | None:
        """The text in the file or variable, bare of blanks around it; None where neither is named. ``name``: its key in
        the policy."""
        if file is not None:
            return self._file(f"{name}_file {file}", self.folder / file)
        if variable is not None:
            found = self.environment.get(variable, "").strip()
            return found or WebhookNotReady(f"{name}_env {variable} is not set or empty")
        return None

    def _file(self, what: str, path: Path) -> str | WebhookNotReady:
        try:
            with path.open("rb") as opened:
                raw = opened.read(MAX_BYTES + 1)
        except (OSError, ValueError) as problem:
            return WebhookNotReady(
                f"{what} cannot be read: {getattr(problem, 'strerror', None) or type(problem).__name__}"
            )
        if len(raw) > MAX_BYTES:
            return WebhookNotReady(f"{what} is larger than {MAX_BYTES} bytes")
        try:
            return raw.decode().strip() or WebhookNotReady(f"{what} is empty")
        except UnicodeDecodeError:
            return WebhookNotReady(f"{what} is not UTF-8")


def url_of(webhook: Webhook, place: SecretSources) -> str | WebhookNotReady:
    """Where it is told."""
    found = webhook.url or place.read("url", webhook.url_file, webhook.url_env)
    if found is None:
        return WebhookNotReady("there is no url")
    if isinstance(found, str) and (not found.isascii() or not found.isprintable() or " " in found):
        return WebhookNotReady("its url holds more than one line, blanks or characters that are not ASCII")
    return found


def keys_of(webhook: Webhook, place: SecretSources) -> tuple[bytes, ...] | WebhookNotReady:
    """The keys that sign, the newest first. All that the policy names must be there: else a receiver might know none of
    them."""
    keys: list[bytes] = []
    for name, file, variable in (
        ("secret", webhook.secret_file, webhook.secret_env),
        ("old_secret", webhook.old_secret_file, webhook.old_secret_env),
    ):
        found = place.read(name, file, variable)
        if isinstance(found, WebhookNotReady):
            return found
        if found is None:
            continue
        key = key_of(found)
        if key is None:
            return WebhookNotReady(f"{name} is no base64 behind whsec_")
        keys.append(key)
    return tuple(keys) or WebhookNotReady("there is no secret_file or secret_env")


BODIES: Final[Mapping[Format, Callable[[Delivery, Review, ReviewView], bytes]]] = {
    "standard": formats.standard,
    "slack": formats.for_slack,
}
ANSWERING: Final[frozenset[Format]] = frozenset({"standard"})
"""Formats whose receivers may answer with a verdict. Whoever reads a chat's message is none."""


def message(
    delivery: Delivery, review: Review, webhook: Webhook, *, view: ReviewView, place: SecretSources
) -> WebhookMessage | WebhookNotReady:
    """What is posted where. Without a readable key nothing is: a receiver that takes unsigned messages would take
    anybody's."""
    url = url_of(webhook, place)
    if isinstance(url, WebhookNotReady):
        return url
    body = BODIES[webhook.format](delivery, review, view)
    signed: Mapping[str, str] = {}
    if webhook.format == "standard":
        keys = keys_of(webhook, place)
        if isinstance(keys, WebhookNotReady):
            return keys
        signed = headers(keys, id=delivery.id, at=view.now, body=body)
    return WebhookMessage(
        url, {"Content-Type": "application/json", "User-Agent": f"samplegate/{__version__}", **signed}, body
    )


class VerdictReceived(msgspec.Struct, frozen=True):
    """Told, and there is a verdict in the answer: not read yet."""

    raw: bytes
    said: str


class Delivered(msgspec.Struct, frozen=True):
    """Told; a verdict may come later by another door.

    ``odd``: the answer is neither JSON nor empty, as that of a sign-in page that stands before the receiver; this is
    its media type, "none" without.
    """

    said: str
    odd: str | None = None


class RetryLater(msgspec.Struct, frozen=True):
    """Not told: the other end could not, or was not reached. ``after``: seconds that it asks to be left alone; None: it
    says nothing."""

    said: str
    after: float | None = None


class DeliveryRefused(msgspec.Struct, frozen=True):
    """Not told, and unlikely to be before somebody mends the configuration; tried again all the same."""

    said: str


class EndpointGone(msgspec.Struct, frozen=True):
    """Not told: the other end wants nothing more, ever (410)."""

    said: str


Said: TypeAlias = VerdictReceived | Delivered | RetryLater | DeliveryRefused | EndpointGone
"""``said`` is a status or a kind of fault, never content."""


class WebhookBounds(msgspec.Struct, frozen=True):
    """What one try may take."""

    connect: float = 5.0
    """Seconds until there is a connection, TLS included."""
    total: float = 15.0
    """Seconds for all of it: the look-up, the connection, the answer's last byte."""
    body: int = 1024 * 1024
    """Bytes of an answer that are read."""


class NetworkAccess(msgspec.Struct, frozen=True):
    """How the net may be used."""

    networks: Sequence[Network] = ()
    environment: Mapping[str, str] = {}
    """For ``https_proxy``, ``all_proxy`` and ``no_proxy``, in small letters or capitals."""
    bounds: WebhookBounds = WebhookBounds()
    lookup: Lookup | None = None
    """None: the system's."""
    tls: ssl.SSLContext | None = None
    """None: the system's certificates."""


class WebhookMessage(msgspec.Struct, frozen=True):
    """What is sent where."""

    url: str
    headers: Mapping[str, str]
    body: bytes


MAX_HEADER: Final = 8 * 1024  # bytes of one line of an answer's head
_AGAIN: Final = frozenset({408, 425, 429})
_media: Final = re.compile(r"none|[a-z0-9][a-z0-9.+-]{0,49}/[a-z0-9][a-z0-9.+-]{0,99}")


async def send(message: WebhookMessage, way: NetworkAccess, *, now: float) -> Said:
    """Try once. ``now``: unix seconds, for Retry-After. Never raises but for cancellation."""
    try:
        async with asyncio.timeout(way.bounds.total):
            return await _send(message, way, now)
    except TimeoutError:
        return RetryLater("no answer in time")
    except aiohttp.ClientConnectorCertificateError:
        return RetryLater("its certificate does not hold")
    except (aiohttp.ClientSSLError, ssl.SSLError):
        return RetryLater("no TLS with it")
    except socket.gaierror:
        return RetryLater("its name has no address")
    except (aiohttp.InvalidURL, ValueError):
        return DeliveryRefused("its URL cannot be used")
    except (aiohttp.ClientError, OSError) as problem:
        return RetryLater(_kind(problem))


def _kind(problem: Exception) -> str:
    """A fault without the peer's words: aiohttp's messages quote what came."""
    cause = problem.os_error if isinstance(problem, aiohttp.ClientConnectorError) else problem
    return (
        "the connection was refused"
        if isinstance(cause, ConnectionRefusedError)
        else f"the connection failed: {type(cause).__name__}"
    )


async def _send(message: WebhookMessage, way: NetworkAccess, now: float) -> Said:
    url = URL(message.url)
    if url.scheme not in ("http", "https") or not url.host or url.user is not None:
        return DeliveryRefused("its URL cannot be used")
    proxy = proxy_of(url, way.environment)
    end = url if proxy is None else proxy
    if proxy is not None and isinstance(found := await _literal(url, way), Forbidden):
        return DeliveryRefused(found.why)
    addresses = await checked(
        end.host or "", end.port or 443, way.networks, plain=url.scheme == "http", lookup=way.lookup
    )
    if isinstance(addresses, Forbidden):
        return DeliveryRefused(addresses.why)
    return await _post(message, _Path(url, proxy, addresses), way, now)


async def _literal(url: URL, way: NetworkAccess) -> tuple[str, ...] | Forbidden:
    """A URL's host that is an address is checked here even where the proxy connects to it."""
    found = literal(url.host or "")

    async def itself(_host: str, _port: int) -> Sequence[str]:
        return found

    return await checked(url.host or "", url.port or 443, way.networks, plain=False, lookup=itself) if found else ()


def proxy_of(url: URL, environment: Mapping[str, str]) -> URL | None:
    """The environment's proxy for this URL, None where there is none or it is not used."""
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
    """Whether a host is in a list of names and ends of names, with or without a dot before them; ``*`` is every
    host."""
    names = [name.strip().lower().partition(":")[0].lstrip(".") for name in no_proxy.split(",")]
    return any(name == "*" or host.lower() == name or host.lower().endswith(f".{name}") for name in names if name)


def _basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


class _Checked(AbstractResolver):
    """Gives out what was checked, whatever it is asked."""

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
        """The last gate: literal addresses never come by the resolver, and the client's ways may change."""
        if info[4][0] not in addresses:
            raise PermissionError("an address that was not checked")
        return socket.socket(info[0], info[1], info[2])

    return aiohttp.TCPConnector(
        resolver=_Checked(addresses),
        use_dns_cache=False,
        force_close=True,
        ssl=tls or True,
        family=socket.AF_UNSPEC,
        socket_factory=only_checked,
    )


class _Path(msgspec.Struct, frozen=True):
    """How one message goes: to ``url``, by way of ``proxy`` if there is one, over one of ``addresses``."""

    url: URL
    proxy: URL | None
    addresses: Sequence[str]


async def _post(message: WebhookMessage, path: _Path, way: NetworkAccess, now: float) -> Said:
    proxy = path.proxy
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=way.bounds.connect)
    async with (
        aiohttp.ClientSession(
            connector=_connector(path.addresses, way.tls),
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
        return await _read(answer, way.bounds, now)


async def _read(answer: aiohttp.ClientResponse, bounds: WebhookBounds, now: float) -> Said:
    status = answer.status
    if status == 410:
        return EndpointGone("410")
    if status >= 500 or status in _AGAIN:
        return RetryLater(str(status), retry_after(answer.headers.get("Retry-After"), now))
    if not 200 <= status < 300:
        return DeliveryRefused(
            f"{status}, a redirect, which is not followed" if status in range(300, 400) else str(status)
        )
    body = bytearray()
    async for piece in answer.content.iter_chunked(16 * 1024):
        body += piece
        if len(body) > bounds.body:
            odd = None if status == 202 else _media_type(answer)
            return Delivered(f"{status}, with more than {bounds.body} bytes, which are not read", odd=odd)
    if holds_verdict(bytes(body)):
        return VerdictReceived(bytes(body), str(status))
    return Delivered(str(status), odd=None if status == 202 or _acknowledges(bytes(body)) else _media_type(answer))


def _acknowledges(body: bytes) -> bool:
    """Whether it may be a receiver's answer: JSON, nothing, or the "ok" of chats."""
    if body.strip().lower() in (b"", b"ok"):
        return True
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return True


def _media_type(answer: aiohttp.ClientResponse) -> str:
    """As the peer names it, if that is a name."""
    found = answer.headers.get("Content-Type", "none").partition(";")[0].strip().lower()
    return found if _media.fullmatch(found) else "not a media type"


def holds_verdict(body: bytes) -> bool:
    """Whether an answer means to give a verdict; one that two parsers could read differently does, and is then refused
    by whoever reads it."""
    try:
        found = strictjson.decode(body)
    except strictjson.JsonFault:
        return body.lstrip().startswith(b"{") and json.dumps("verdict").encode() in body
    return isinstance(found, dict) and found.get("verdict") is not None
