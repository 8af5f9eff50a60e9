"""Where outgoing messages may go: a host's addresses, each checked before anything is connected. Not the sending (``webhooks.py``).

A webhook's URL is the operator's, what its name resolves to is not: it may lead to this machine, to a neighbour or to a cloud's metadata. So names
are looked up here, once a message, and the connection goes to what was looked up and checked: a name that changes its mind (DNS rebinding) leads
nowhere. Literal addresses are checked alike, also the odd ones (``127.1``, ``0x7f000001``), since the system's own look-up reads them.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeAlias

import msgspec

IP: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Lookup: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""A host and a port -> its addresses as texts. Raises OSError."""

# Not public either, though `ipaddress` of Python 3.11 or of a later version calls some of their addresses global: protocol assignments, the relays of
# 6to4, Teredo (2001::/32 is in the first of IPv6) and 6to4, which lead to any IPv4 address, and documentation.
_NOT_PUBLIC: Final[tuple[Network, ...]] = tuple(map(ipaddress.ip_network, "192.0.0.0/24 192.88.99.0/24 2001::/23 2002::/16 3fff::/20".split()))
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
    """Whether a connection may be made. Plain http only into listed networks: out there anybody on the way reads and changes it."""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return _within(address, networks) or (not plain and is_public(address))


def _within(address: IP, networks: Iterable[Network]) -> bool:
    return any(address in network for network in networks if network.version == address.version)


async def checked(host: str, port: int, networks: Sequence[Network], *, plain: bool, lookup: Lookup | None = None) -> tuple[str, ...] | Forbidden:
    """The addresses of a host that may be connected to, in the system's order. Raises OSError where the name has none."""
    found = await (lookup or system_lookup)(host, port)
    addresses = [read for text in found if (read := _read(text)) is not None]
    allowed = dict.fromkeys(str(address) for address in addresses if may_go(address, networks, plain=plain))
    if allowed:
        return tuple(allowed)[:MOST_ADDRESSES]
    if not addresses:
        return Forbidden("it has no address")
    public = plain and any(is_public(address) for address in addresses)
    what = "is reached by plain http outside of webhook_networks" if public else "is no public address and in no network of webhook_networks"
    return Forbidden(f"{addresses[0]} {what}")


def _read(text: str) -> IP | None:
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
