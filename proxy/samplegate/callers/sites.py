"""Which Host and Origin headers are taken (R96): against web pages that reach the daemon through a name of their own. Not who calls.

The SDK's check does it, on headers of the shape that a browser sends; what it has let through once is remembered, since it takes some microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from mcp.server import transport_security
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from starlette.requests import Request
from starlette.responses import Response

from samplegate.settings.addresses import Address
from samplegate.settings.serving import ServeSettings

ANY: Final = "*"
"""In place of hosts: whatever stands there."""

_REMEMBERED: Final = 256
_host: Final = re.compile(r"(?:\[[0-9a-f:.]{2,45}\]|[a-z0-9._-]{1,253})(?::[0-9]{1,5})?", re.IGNORECASE)
_origin: Final = re.compile(rf"null|[a-z][a-z0-9+.-]{{0,30}}://{_host.pattern}", re.IGNORECASE)
_LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")

transport_security.logger.addFilter(lambda _: False)  # it writes what callers send; ours says that one was refused, and is bounded


class Sites:
    """The hosts and origins of one version of the settings."""

    def __init__(self, hosts: Sequence[str], origins: Sequence[str]) -> None:
        self._any = ANY in hosts
        self._check = TransportSecurityMiddleware(
            TransportSecuritySettings(
                allowed_hosts=["any"] if self._any else [host.lower() for host in hosts],
                allowed_origins=[origin.lower().rstrip("/") for origin in origins],
            )
        )
        self._good: set[tuple[bytes | None, bytes | None]] = set()

    def known(self, host: bytes | None, origin: bytes | None) -> bool:
        """Whether a request like this was taken before; what is not known is still to be asked about."""
        return (host, origin) in self._good

    async def refusal(self, host: bytes | None, origin: bytes | None) -> Response | None:
        """Why a request is not taken, None if it is: 421 for its Host, 403 for its Origin, as the SDK answers."""
        if self.known(host, origin):
            return None
        refusal = await self._asked(host, origin)
        if refusal is None and len(self._good) < _REMEMBERED:
            self._good.add((host, origin))
        return refusal

    async def _asked(self, host: bytes | None, origin: bytes | None) -> Response | None:
        if host is None or _host.fullmatch(host.decode("latin-1")) is None:
            return Response("Invalid Host header", status_code=421)
        if origin is not None and _origin.fullmatch(origin.decode("latin-1")) is None:
            return Response("Invalid Origin header", status_code=403)
        headers = [(b"host", b"any" if self._any else host.lower())] + ([] if origin is None else [(b"origin", origin.lower())])
        return await self._check.validate_request(Request({"type": "http", "method": "GET", "headers": headers}))


def sites_of(settings: ServeSettings, bound: Address | None = None) -> Sites:
    """What the settings say; without a word this machine's names where only it reaches us, and elsewhere any host, as callers need a token there.

    ``bound`` is what is really listened on, which a reload of the settings does not move; None where that is what they say.
    """
    at = bound or settings.listens_at
    known = [each.host for each in (at, settings.listens_at) if each.is_loopback]
    own = [*_LOOPBACK, *(f"[{host}]" if ":" in host else host for host in known)] if at.is_loopback or not settings.callers.required else []
    hosts = settings.allowed_hosts or ([name + port for name in own for port in ("", ":*")] if own else [ANY])
    return Sites(hosts, settings.allowed_origins or [*_origins(own), *_public(settings.callers.resource)])


def _origins(hosts: Sequence[str]) -> list[str]:
    return [f"{scheme}://{host}{port}" for scheme in ("http", "https") for host in hosts for port in ("", ":*")]


def _public(resource: str | None) -> list[str]:
    """The origin of the address at which clients reach us."""
    if resource is None:
        return []
    parts = urlsplit(resource)
    return [f"{parts.scheme}://{parts.netloc}"]
