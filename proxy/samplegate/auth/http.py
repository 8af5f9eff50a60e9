"""Authorization over HTTP: refusals (RFC 6750), CORS, and protected-resource metadata (RFC 9728, RFC 8707)."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import msgspec

from samplegate.config.identities import CallerSettings

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
_JSON: Final = (b"content-type", b"application/json")
_names: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~, -]{1,1000}")
_EXPOSED: Final = b"Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, Retry-After"


class AuthReply(msgspec.Struct, frozen=True):
    """A complete response."""

    status: int
    headers: Headers
    body: bytes = b""


def refusal(status: int, error: str, description: str, extra: Headers = ()) -> AuthReply:
    """A refusal in OAuth's format. ``description`` tells the user what to do."""
    return AuthReply(status, (_JSON, *extra), msgspec.json.encode({"error": error, "error_description": description}))


def challenge(
    metadata: str | None, scopes: Sequence[str], error: str | None = None, description: str = ""
) -> tuple[bytes, bytes]:
    """The WWW-Authenticate header: the scopes, and the location of the metadata.

    A request without a token gets no error code (RFC 6750 3).
    """
    parameters = [
        ("error", error),
        ("error_description", description),
        ("scope", " ".join(scopes)),
        ("resource_metadata", metadata),
    ]
    parts = [f'{name}="{value}"' for name, value in parameters if value]
    return b"www-authenticate", ("Bearer " + ", ".join(parts)).rstrip().encode("latin-1", "replace")


def preflight(origin: bytes, wanted: Sequence[str]) -> AuthReply:
    """The response to a CORS preflight (Fetch): the page may send requests with the headers that it asks for."""
    headers = [(b"access-control-allow-methods", b"GET, POST, DELETE"), (b"access-control-max-age", b"600")]
    if wanted and _names.fullmatch(wanted[-1]):
        headers.append((b"access-control-allow-headers", wanted[-1].encode()))
    return AuthReply(204, [*headers, *_cors_headers(origin)])


def with_cors(origin: bytes, send: Send) -> Send:
    """A ``send`` that adds the CORS headers with which the page of ``origin`` may read the response."""

    async def shared(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *_cors_headers(origin)]}
        await send(message)

    return shared


def _cors_headers(origin: bytes) -> Headers:
    return (
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", _EXPOSED),
        (b"vary", b"Origin"),
    )


async def deliver(send: Send, reply: AuthReply) -> None:
    """Send a response."""
    length = [] if reply.status == 204 else [(b"content-length", b"%d" % len(reply.body))]
    await send({"type": "http.response.start", "status": reply.status, "headers": [*reply.headers, *length]})
    await send({"type": "http.response.body", "body": reply.body})


class Resources:
    """The protected resources of one version of the settings. ``exists`` is true for the path of a server."""

    def __init__(self, settings: CallerSettings, exists: Callable[[str], bool]) -> None:
        self._settings = settings
        self._exists = exists
        self._base = settings.resource
        self._prefix = urlsplit(settings.resource or "").path

    def audiences(self, path: str) -> frozenset[str]:
        """The accepted audiences of a token at ``path``: the whole daemon, or this server."""
        return frozenset() if self._base is None else frozenset({self._base, self._base + path.rstrip("/")})

    def metadata_url(self, path: str) -> str | None:
        """The URL of the metadata for the resource at ``path``; None without a public URL or an issuer."""
        if self._base is None or self._settings.jwt is None:
            return None
        from mcp.server.auth.routes import build_resource_metadata_url
        from pydantic import AnyHttpUrl

        return str(build_resource_metadata_url(AnyHttpUrl(self._base + (path if self._exists(path) else "")))).rstrip(
            "/"
        )

    def metadata(self, path: str) -> App | None:
        """The application that serves the metadata at ``path``; None if there is none."""
        if self._base is None or self._settings.jwt is None or not path.startswith(WELL_KNOWN):
            return None
        below = path.removeprefix(WELL_KNOWN).removeprefix(self._prefix).rstrip("/")
        if below and not self._exists(below):
            return None
        from mcp.server.auth.handlers.metadata import ProtectedResourceMetadataHandler
        from mcp.server.auth.routes import cors_middleware
        from mcp.shared.auth import ProtectedResourceMetadata

        found = ProtectedResourceMetadata.model_validate(
            {
                "resource": self._base + below,
                "authorization_servers": [self._settings.jwt.issuer],
                "scopes_supported": list(self._settings.jwt.scopes) or None,
            }
        )
        answer: App = cors_middleware(ProtectedResourceMetadataHandler(found).handle, ["GET", "OPTIONS"])
        return answer
