"""Allowed Host and Origin headers of the clients' listener (R96), against DNS rebinding by web pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import urlsplit

from samplegate.auth.http import AuthReply
from samplegate.config.serve_settings import ServeSettings
from samplegate.config.values import Address

ANY: Final = "*"
"""Entry of the allowed hosts that accepts any Host header."""

_host: Final = re.compile(r"(?:\[[0-9a-f:.]{2,45}\]|[a-z0-9._-]{1,253})(?::[0-9]{1,5})?")
_origin: Final = re.compile(rf"null|[a-z][a-z0-9+.-]{{0,30}}://{_host.pattern}")
_LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")


class _Listed:
    """Allowed values; an entry that ends with ``:*`` allows any port."""

    def __init__(self, values: Iterable[str]) -> None:
        values = frozenset(values)
        self._whole = values
        self._begins = tuple(each[:-1] for each in values if each.endswith(":*"))

    def has(self, value: str) -> bool:
        return value in self._whole or value.startswith(self._begins)


class HostPolicy:
    """The allowed hosts and origins of one version of the settings, compared in lower case.

    An entry that ends with ``:*`` allows any port.
    """

    def __init__(self, hosts: Sequence[str], origins: Sequence[str]) -> None:
        self._any = ANY in hosts
        self._hosts = _Listed(host.lower() for host in hosts)
        self._origins = _Listed(origin.lower().rstrip("/") for origin in origins)

    def refusal(self, host: str | None, origin: str | None) -> AuthReply | None:
        """The refusal of a request, or None: 421 for its Host, 403 for its Origin. The text does not repeat the
        header."""
        host, origin = (host or "").lower(), None if origin is None else origin.lower()
        if _host.fullmatch(host) is None or not (self._any or self._hosts.has(host)):
            return AuthReply(421, (), b"Invalid Host header")
        if origin is not None and (_origin.fullmatch(origin) is None or not self._origins.has(origin)):
            return AuthReply(403, (), b"Invalid Origin header")
        return None


def host_policy(settings: ServeSettings, bound: Address | None = None) -> HostPolicy:
    """The configured hosts and origins, or defaults.

    The default hosts are this machine's names if only this machine can connect or no token is required. Otherwise any
    host is allowed, because callers need a token. ``bound`` is the actual listen address, which a reload does not
    change; None if it is the configured one.
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
    """The origin of the public URL."""
    if resource is None:
        return []
    parts = urlsplit(resource)
    return [f"{parts.scheme}://{parts.netloc}"]
