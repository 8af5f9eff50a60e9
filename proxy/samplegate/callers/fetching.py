"""Where an issuer's keys come from: a file, a URL, or the URL that the issuer's metadata names. Bounded in size and time. Not how long they hold."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import aiohttp
import msgspec

from samplegate.callers.jwks import MAX_BYTES, KeySet, parse
from samplegate.ports import Unavailable
from samplegate.settings.identities import JwtSettings
from samplegate.urls import url_error

SECONDS: Final = 5.0
"""What one answer may take, from the name's look-up to its last byte."""

Source: TypeAlias = Callable[[], Awaitable[KeySet]]
"""Gets the keys anew. Raises Unavailable."""


class _Missing(Unavailable):
    """There is nothing at a URL."""


class _Metadata(msgspec.Struct):
    issuer: str
    jwks_uri: str


def source_of(settings: JwtSettings, *, seconds: float = SECONDS) -> Source:
    """Where the keys of this issuer are. ``seconds`` bounds each answer."""
    if settings.jwks_file is not None:
        return lambda file=settings.jwks_file: _of_file(file)  # type: ignore[misc]
    return lambda: _of_issuer(settings, seconds)


async def _of_file(file: Path) -> KeySet:
    try:
        return parse(await asyncio.to_thread(_read, file))
    except OSError as problem:
        raise Unavailable(f"{file}: cannot be read: {problem.strerror}") from None
    except ValueError as problem:
        raise Unavailable(f"{file}: {problem}") from None


def _read(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(MAX_BYTES + 1)


async def _of_issuer(settings: JwtSettings, seconds: float) -> KeySet:
    timeout = aiohttp.ClientTimeout(total=seconds)
    proxied = (settings.jwks_url or settings.issuer).startswith("https:")  # plain http is this machine's own, which no proxy reaches
    async with aiohttp.ClientSession(timeout=timeout, trust_env=proxied, cookie_jar=aiohttp.DummyCookieJar()) as http:
        url = settings.jwks_url or await _jwks_url(http, settings.issuer)
        text = await _get(http, url)
    try:
        return parse(text)
    except ValueError as problem:
        raise Unavailable(f"{_shown(url)}: {problem}") from None


async def _jwks_url(http: aiohttp.ClientSession, issuer: str) -> str:
    """Where the issuer's metadata says that its keys are: OpenID's place first, then that of RFC 8414."""
    openid, oauth = metadata_urls(issuer)
    try:
        text = await _get(http, openid)
    except _Missing:
        text = await _get(http, oauth)
    try:
        found = msgspec.json.decode(text, type=_Metadata)
    except (msgspec.DecodeError, RecursionError):
        raise Unavailable(f"{_shown(issuer)}: its metadata names no issuer and jwks_uri; give jwks_url") from None
    if found.issuer != issuer:
        raise Unavailable(f"{_shown(issuer)}: its metadata is another issuer's; write the issuer as it writes itself")
    why = url_error(found.jwks_uri, query=True, secure=True)
    if why is not None:
        raise Unavailable(f"{_shown(issuer)}: its jwks_uri {why}")
    return found.jwks_uri


def metadata_urls(issuer: str) -> tuple[str, str]:
    """The places of an issuer's metadata (OpenID Connect Discovery 4, RFC 8414 3), the more usual first."""
    parts = urlsplit(issuer)
    host, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    return f"{host}{path}/.well-known/openid-configuration", f"{host}/.well-known/oauth-authorization-server{path}"


async def _get(http: aiohttp.ClientSession, url: str) -> bytes:
    """A body of at most MAX_BYTES, unpacked. A redirect is not followed: it could lead anywhere. Raises Unavailable."""
    try:
        async with http.get(url, allow_redirects=False, headers={"Accept": "application/json"}) as answer:
            if answer.status != 200:
                raise (_Missing if answer.status in (404, 410) else Unavailable)(
                    f"{_shown(url)}: answered {answer.status}; give jwks_url or jwks_file"
                )
            body = bytearray()
            async for piece in answer.content.iter_chunked(16 * 1024):
                body += piece
                if len(body) > MAX_BYTES:
                    raise Unavailable(f"{_shown(url)}: answered with more than {MAX_BYTES} bytes")
            return bytes(body)
    except TimeoutError:
        raise Unavailable(f"{_shown(url)}: did not answer in time") from None
    except (aiohttp.ClientError, OSError, ValueError) as problem:
        raise Unavailable(f"{_shown(url)}: cannot be asked: {type(problem).__name__}") from None


def _shown(url: str) -> str:
    """A URL as it stands in messages: without its query."""
    return url.partition("?")[0]
