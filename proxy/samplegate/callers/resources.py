"""The daemon's endpoints as protected resources (RFC 9728, RFC 8707): their URLs, and the metadata that leads a client to the issuer. No check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from mcp.server.auth.handlers.metadata import ProtectedResourceMetadataHandler
from mcp.server.auth.routes import build_resource_metadata_url, cors_middleware
from mcp.shared.auth import ProtectedResourceMetadata
from pydantic import AnyHttpUrl

from samplegate.callers.replies import App
from samplegate.settings.identities import CallerSettings

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"


class Resources:
    """The resources of one version of the settings. ``exists`` says whether there is a server at a path."""

    def __init__(self, settings: CallerSettings, exists: Callable[[str], bool]) -> None:
        self._settings = settings
        self._exists = exists
        self._base = settings.resource
        self._prefix = urlsplit(settings.resource or "").path

    def audiences(self, path: str) -> frozenset[str]:
        """What a token may be for, to be used at ``path``: the daemon as a whole, or this server."""
        return frozenset() if self._base is None else frozenset({self._base, self._base + path.rstrip("/")})

    def metadata_url(self, path: str) -> str | None:
        """Where the metadata of the resource at ``path`` is; None where no issuer could be named."""
        if self._base is None or self._settings.jwt is None:
            return None
        return str(build_resource_metadata_url(AnyHttpUrl(self._base + (path if self._exists(path) else "")))).rstrip("/")

    def metadata(self, path: str) -> App | None:
        """What answers for the metadata at ``path``, None where there is none."""
        if self._base is None or self._settings.jwt is None or not path.startswith(WELL_KNOWN):
            return None
        below = path.removeprefix(WELL_KNOWN).removeprefix(self._prefix).rstrip("/")
        if below and not self._exists(below):
            return None
        found = ProtectedResourceMetadata.model_validate(
            {
                "resource": self._base + below,
                "authorization_servers": [self._settings.jwt.issuer],
                "scopes_supported": list(self._settings.jwt.scopes) or None,
            }
        )
        answer: App = cors_middleware(ProtectedResourceMetadataHandler(found).handle, ["GET", "OPTIONS"])
        return answer
