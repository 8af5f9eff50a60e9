"""Host and Origin headers that the clients' listener accepts (R96), against DNS rebinding by web pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import urlsplit

from samplegate.auth.http import AuthReply
from samplegate.config.serve_settings import ServeSettings
from samplegate.config.values import Address

ANY: Final = "*"
"""In place of hosts: any Host header."""

_host: Final = re.compile(r"(?:\[[0-9a-f:.]{2,45}\]|[a-z0-9._-]{1,253})(?::[0-9]{1,5})?")
_origin: Final = re.compile(rf"null|[a-z][a-z0-9+.-]{{0,30}}://{_host.pattern}")
_LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")


class _Listed:
    """Values that are accepted; of one that ends with ``:*``, any port."""

    def __init__(self, values: Iterable[str]) -> None:
        values = frozenset(values)
        self._whole = values
        self._begins = tuple(each[:-1] for each in values if each.endswith(":*"))

    def has(self, value: str) -> bool:
        return value in self._whole or value.startswith(self._begins)


class HostPolicy:
    """The hosts and origins of one version of the settings, in lower case; one that ends with ``:*`` accepts any
    port."""

    def __init__(self, hosts: Sequence[str], origins: Sequence[str]) -> None:
        self._any = ANY in hosts
        self._hosts = _Listed(host.lower() for host in hosts)
        self._origins = _Listed(origin.lower().rstrip("/") for origin in origins)

    def refusal(self, host: str | None, origin: str | None) -> AuthReply | None:
        """The refusal of a request, None if it is accepted: 421 for its Host, 403 for its Origin. It does not repeat
        the header."""
        host, origin = (host or "").lower(), None if origin is None else origin.lower()
        if _host.fullmatch(host) is None or not (self._any or self._hosts.has(host)):
            return AuthReply(421, (), b"Invalid Host header")
        if origin is not None and (_origin.fullmatch(origin) is None or not self._origins.has(origin)):
            return AuthReply(403, (), b"Invalid Origin header")
        return None


def host_policy(settings: ServeSettings, bound: Address | None = None) -> HostPolicy:
    """What the settings say; without a word this machine's names where only it reaches us, and elsewhere any host, as
    callers need a token there.

    ``bound`` is what is really listened on, which a reload of the settings does not move; None where that is what they
    say.
    """
    at = bound or settings.listens_at
    known = [each.host for each in (at, settings.listens_at) if each.is_loopback]
    own = (
        [*_LOOPBACK, *(f"[{host}]" if ":" in host else host for host in known)]
        if at.is_loopback or not settings.callers.required
        else []
    )
    hosts = settings.allowed_hosts or ([name + port for name in own for port in ("", ":*")] if own else [ANY])
    return HostPolicy(hosts, settings.allowed_origins or [*_origins(own), *_public(settings.callers.resource)])


def _origins(hosts: Sequence[str]) -> list[str]:
    return [f"{scheme}://{host}{port}" for scheme in ("http", "https") for host in hosts for port in ("", ":*")]


def _public(resource: str | None) -> list[str]:
    """The origin of the address at which clients reach us."""
    if resource is None:
        return []
    parts = urlsplit(resource)
    return [f"{parts.scheme}://{parts.netloc}"]
