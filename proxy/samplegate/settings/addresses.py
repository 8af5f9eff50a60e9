"""Addresses to listen on, as `HOST:PORT`. Pure: no name is looked up here, and nothing is opened."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import Final

import msgspec

from samplegate.core.policyfile.tree import quoted
from samplegate.urls import is_loopback

_address: Final = re.compile(r"(\[[0-9A-Fa-f:.%\w]+\]|[^\[\]:/\s]*):([0-9]{1,5})\Z")
_name: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?\Z")
_host: Final = r"(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9_]([A-Za-z0-9._-]{0,251}[A-Za-z0-9_])?)(?::(?:\*|[0-9]{1,5}))?"
_taken_host: Final = re.compile(rf"\*|{_host}")
_taken_origin: Final = re.compile(rf"null|[A-Za-z][A-Za-z0-9+.-]{{0,30}}://{_host}/?")


class Address(msgspec.Struct, frozen=True):
    """Where a listener is bound. ``host`` without brackets, also of IPv6; port 0 is any free one."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        return is_loopback(self.host)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address(text: str) -> Address:
    """The address of a text. Raises ValueError with what is wrong and what to do."""
    found = _address.match(text)
    if found is None:
        raise ValueError(f"{quoted(text)} is no address; write HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080")
    host, port = found[1], int(found[2])
    if not host:
        raise ValueError(f"{quoted(text)} names no host; write 127.0.0.1:{port} for this machine only, or 0.0.0.0:{port} for every interface")
    if port > 65_535:
        raise ValueError(f"{quoted(text)} has no port from 0 to 65535")
    if host.startswith("["):
        return Address(_ipv6(host[1:-1], text), port)
    if _name.match(host) is None:
        raise ValueError(f"{quoted(text)} names no host; write a name or an address before the colon, IPv6 in brackets")
    return Address(host, port)


def _ipv6(host: str, text: str) -> str:
    try:
        return str(ipaddress.IPv6Address(host))
    except ValueError:
        raise ValueError(f"{quoted(text)} has no IPv6 address in its brackets; write it like [::1]:8080") from None


def why_no_address(text: str) -> str | None:
    """What is wrong with the text of an address, None if it is one."""
    try:
        address(text)
    except ValueError as problem:
        return str(problem)
    return None


def why_no_hosts(values: Sequence[str]) -> str | None:
    """The first of several texts that no Host header can be, None if all can."""
    wrong = next((value for value in values if _taken_host.fullmatch(value) is None), None)
    return None if wrong is None else f"{quoted(wrong)} is no Host header; write NAME, NAME:PORT, NAME:* for any port, or * for any"


def why_no_origins(values: Sequence[str]) -> str | None:
    """The same for Origin headers; any origin would be every page that a caller looks at, so there is no word for it."""
    wrong = next((value for value in values if _taken_origin.fullmatch(value) is None), None)
    return (
        None if wrong is None else f"{quoted(wrong)} is no Origin header; write https://NAME, https://NAME:PORT, https://NAME:* for any port, or null"
    )
