"""One HTTP POST to a reviewer's webhook, bounded in every way, as a value: what came of it. It decides no retry and reads no verdict.

No redirect is followed (it could lead anywhere), no cookie is kept, nothing is unpacked, each message has a connection of its own to an address that
was checked. A proxy of the environment is used for https only: the certificate still has to be that of the URL's host, so that a name which the proxy
resolves to somewhere else gets nothing to read, which plain http could not promise. The proxy itself has to be at an address that may be gone to.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import socket
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Final

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from samplegate.core.parsing import strictjson
from samplegate.core.review.backoff import asked
from samplegate.review.addresses import Forbidden, Lookup, Network, checked, literal
from samplegate.review.answers import Again, Answered, Delivered, Gone, Refused, Said


class Bounds(msgspec.Struct, frozen=True):
    """What one try may take."""

    connect: float = 5.0
    """Seconds until there is a connection, TLS included."""
    total: float = 15.0
    """Seconds for all of it: the look-up, the connection, the answer's last byte."""
    body: int = 1024 * 1024
    """Bytes of an answer that are read."""


class Way(msgspec.Struct, frozen=True):
    """How the net may be used."""

    networks: Sequence[Network] = ()
    environment: Mapping[str, str] = {}
    """For ``https_proxy``, ``all_proxy`` and ``no_proxy``, in small letters or capitals."""
    bounds: Bounds = Bounds()
    lookup: Lookup | None = None
    """None: the system's."""
    tls: ssl.SSLContext | None = None
    """None: the system's certificates."""


class Message(msgspec.Struct, frozen=True):
    """What is sent where."""

    url: str
    headers: Mapping[str, str]
    body: bytes


MAX_HEADER: Final = 8 * 1024  # bytes of one line of an answer's head
_AGAIN: Final = frozenset({408, 425, 429})
_media: Final = re.compile(r"none|[a-z0-9][a-z0-9.+-]{0,49}/[a-z0-9][a-z0-9.+-]{0,99}")


async def send(message: Message, way: Way, *, now: float) -> Said:
    """Try once. ``now``: unix seconds, for Retry-After. Never raises but for cancellation."""
    try:
        async with asyncio.timeout(way.bounds.total):
            return await _send(message, way, now)
    except TimeoutError:
        return Again("no answer in time")
    except aiohttp.ClientConnectorCertificateError:
        return Again("its certificate does not hold")
    except (aiohttp.ClientSSLError, ssl.SSLError):
        return Again("no TLS with it")
    except socket.gaierror:
        return Again("its name has no address")
    except (aiohttp.InvalidURL, ValueError):
        return Refused("its URL cannot be used")
    except (aiohttp.ClientError, OSError) as problem:
        return Again(_kind(problem))


def _kind(problem: Exception) -> str:
    """A fault without the peer's words: aiohttp's messages quote what came."""
    cause = problem.os_error if isinstance(problem, aiohttp.ClientConnectorError) else problem
    return "the connection was refused" if isinstance(cause, ConnectionRefusedError) else f"the connection failed: {type(cause).__name__}"


async def _send(message: Message, way: Way, now: float) -> Said:
    url = URL(message.url)
    if url.scheme not in ("http", "https") or not url.host or url.user is not None:
        return Refused("its URL cannot be used")
    proxy = proxy_of(url, way.environment)
    end = url if proxy is None else proxy
    if proxy is not None and isinstance(found := await _literal(url, way), Forbidden):
        return Refused(found.why)
    addresses = await checked(end.host or "", end.port or 443, way.networks, plain=url.scheme == "http", lookup=way.lookup)
    if isinstance(addresses, Forbidden):
        return Refused(addresses.why)
    return await _post(message, _Path(url, proxy, addresses), way, now)


async def _literal(url: URL, way: Way) -> tuple[str, ...] | Forbidden:
    """A URL's host that is an address is checked here even where the proxy connects to it."""
    found = literal(url.host or "")

    async def itself(_host: str, _port: int) -> Sequence[str]:
        return found

    return await checked(url.host or "", url.port or 443, way.networks, plain=False, lookup=itself) if found else ()


def proxy_of(url: URL, environment: Mapping[str, str]) -> URL | None:
    """The environment's proxy for this URL, None where there is none or it is not used."""
    if url.scheme != "https":
        return None
    found = {name: environment.get(name) or environment.get(name.upper()) or "" for name in ("https_proxy", "all_proxy", "no_proxy")}
    proxy = found["https_proxy"] or found["all_proxy"]
    if not proxy or _bypassed(url.host or "", found["no_proxy"]):
        return None
    return URL(proxy if "://" in proxy else f"http://{proxy}")


def _bypassed(host: str, no_proxy: str) -> bool:
    """Whether a host is in a list of names and ends of names, with or without a dot before them; ``*`` is every host."""
    names = [name.strip().lower().partition(":")[0].lstrip(".") for name in no_proxy.split(",")]
    return any(name == "*" or host.lower() == name or host.lower().endswith(f".{name}") for name in names if name)


def _basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


class _Checked(AbstractResolver):
    """Gives out what was checked, whatever it is asked."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[ResolveResult]:
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
        resolver=_Checked(addresses), use_dns_cache=False, force_close=True, ssl=tls or True, family=socket.AF_UNSPEC, socket_factory=only_checked
    )


class _Path(msgspec.Struct, frozen=True):
    """How one message goes: to ``url``, by way of ``proxy`` if there is one, over one of ``addresses``."""

    url: URL
    proxy: URL | None
    addresses: Sequence[str]


async def _post(message: Message, path: _Path, way: Way, now: float) -> Said:
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
            proxy_headers=None if proxy is None or proxy.user is None else {"Proxy-Authorization": _basic(proxy.user, proxy.password or "")},
        ) as answer,
    ):
        return await _read(answer, way.bounds, now)


async def _read(answer: aiohttp.ClientResponse, bounds: Bounds, now: float) -> Said:
    status = answer.status
    if status == 410:
        return Gone("410")
    if status >= 500 or status in _AGAIN:
        return Again(str(status), asked(answer.headers.get("Retry-After"), now))
    if not 200 <= status < 300:
        return Refused(f"{status}, a redirect, which is not followed" if status in range(300, 400) else str(status))
    body = bytearray()
    async for piece in answer.content.iter_chunked(16 * 1024):
        body += piece
        if len(body) > bounds.body:
            odd = None if status == 202 else _media_type(answer)
            return Delivered(f"{status}, with more than {bounds.body} bytes, which are not read", odd=odd)
    if holds_verdict(bytes(body)):
        return Answered(bytes(body), str(status))
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
    """Whether an answer means to give a verdict; one that two parsers could read differently does, and is then refused by whoever reads it."""
    try:
        found = strictjson.decode(body)
    except strictjson.Fault:
        return body.lstrip().startswith(b"{") and json.dumps("verdict").encode() in body
    return isinstance(found, dict) and found.get("verdict") is not None
