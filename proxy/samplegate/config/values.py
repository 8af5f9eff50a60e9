"""Pure. Values of settings: listen addresses, and checks that raise ValueError with the problem and its remedy.

The checks make no DNS lookups.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import IPv6Address, ip_network
from typing import Final
from urllib.parse import urlsplit

import msgspec

from samplegate.urls import is_loopback, url_error
from samplegate.yamlfile.tree import quoted

STORE: Final = "sqlite:"
"""The prefix of the only kind of store; another kind would have another prefix."""
_address: Final = re.compile(r"(\[[0-9A-Fa-f:.%\w]+\]|[^\[\]:/\s]*):([0-9]{1,5})\Z")
_name: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?\Z")
_host: Final = r"(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9_]([A-Za-z0-9._-]{0,251}[A-Za-z0-9_])?)(?::(?:\*|[0-9]{1,5}))?"
_accepted_host: Final = re.compile(rf"\*|{_host}")
# no wildcard for any origin, because that would admit every web page
_accepted_origin: Final = re.compile(rf"null|[A-Za-z][A-Za-z0-9+.-]{{0,30}}://{_host}/?")


class Address(msgspec.Struct, frozen=True):
    """A listen address. ``host`` has no brackets, even for IPv6; port 0 is any free port."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can connect."""
        return is_loopback(self.host)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address(text: str) -> Address:
    """Parse ``HOST:PORT``. Raises ValueError."""
    found = _address.match(text)
    if found is None:
        raise ValueError(f"{quoted(text)} is not an address; write HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080")
    host, port = found[1], int(found[2])
    if not host:
        raise ValueError(
            f"{quoted(text)} has no host; write 127.0.0.1:{port} for this machine only, or 0.0.0.0:{port} for all"
            " interfaces"
        )
    if port > 65_535:
        raise ValueError(f"{quoted(text)} has an invalid port; use 0 to 65535")
    if host.startswith("["):
        try:
            return Address(str(IPv6Address(host[1:-1])), port)
        except ValueError:
            raise ValueError(
                f"{quoted(text)} has an invalid IPv6 address in brackets; write it like [::1]:8080"
            ) from None
    if _name.match(host) is None:
        raise ValueError(
            f"{quoted(text)} has an invalid host; write a name or an address before the colon, IPv6 in brackets"
        )
    return Address(host, port)


def check_hosts(values: Sequence[str]) -> None:
    """Check that each value is a Host header or a pattern for several."""
    for value in values:
        if _accepted_host.fullmatch(value) is None:
            raise ValueError(
                f"{quoted(value)} is not a Host header; write NAME, NAME:PORT, NAME:* for any port, or * for any host"
            )


def check_origins(values: Sequence[str]) -> None:
    """Check that each value is an Origin header or a pattern for several."""
    for value in values:
        if _accepted_origin.fullmatch(value) is None:
            what = (
                "is not an Origin header; write https://NAME, https://NAME:PORT, https://NAME:* for any port, or null"
            )
            raise ValueError(f"{quoted(value)} {what}")


def check_store(text: str) -> None:
    """Check that the text names a database. Errors do not show it, because database URLs may contain passwords."""
    if not text.startswith(STORE):
        raise ValueError(f"is not a supported store; write {STORE}PATH")


def check_reviews_url(text: str) -> None:
    """Check that the text is the URL of the review page without its path /reviews."""
    why = url_error(text)
    if why is None and urlsplit(text).path:
        why = (
            "contains a path; write only scheme and host, such as https://reviews.example.com (the page is at /reviews)"
        )
    if why is not None:
        raise ValueError(why)


def check_networks(values: Sequence[str]) -> None:
    """Check that each value is an IP network."""
    for value in values:
        try:
            ip_network(value)
        except ValueError as problem:
            bits = "host bits" in str(problem)
            what = (
                "has host bits set; write the network address"
                if bits
                else "is not a network; use a value such as 10.1.0.0/16 or fd00::/8"
            )
            raise ValueError(f"{quoted(value)} {what}") from None
