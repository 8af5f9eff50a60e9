"""A webhook's endpoint: its URL and signing keys, and the addresses that a connection to it may have.

Secrets and URLs are read from files and variables for each message.

The operator chooses a webhook's URL, but not the addresses of its name: they may belong to this machine, its network or
a cloud's metadata service. So the name is resolved once per message, and the connection goes only to resolved and
checked addresses, against DNS rebinding. Literal addresses are checked, too, also unusual notations (``127.1``,
``0x7f000001``), because the system's resolver accepts them.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from samplegate.policy.schema import Webhook
from samplegate.reviews.notify.formats import key_of

IP: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Lookup: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Resolves a host and a port to addresses. Raises OSError."""

# Networks that are not public, though `ipaddress` of Python 3.11 or later calls some of their addresses global:
# protocol assignments; the relays of 6to4; Teredo (2001::/32, within the first IPv6 network) and 6to4, which lead to
# any IPv4 address; documentation.
_NOT_PUBLIC: Final[tuple[Network, ...]] = tuple(
    map(ipaddress.ip_network, "192.0.0.0/24 192.88.99.0/24 2001::/23 2002::/16 3fff::/20".split())
)
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052: the last 32 bits are an IPv4 address
MAX_ADDRESSES: Final = 8  # addresses of one name that are tried


class Forbidden(msgspec.Struct, frozen=True):
    """A host without a permitted address. ``why`` is for the log: an address, or what is missing."""

    why: str


def networks_of(texts: Iterable[str]) -> tuple[Network, ...]:
    """The networks of a setting. Raises ValueError for other texts; host bits are ignored."""
    return tuple(ipaddress.ip_network(text, strict=False) for text in texts)


def is_public(address: IP) -> bool:
    """Whether an address is globally reachable, in whichever notation."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        if address in _NAT64:
            return is_public(ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF))
        if address.is_site_local:
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved or _within(address, _NOT_PUBLIC))


def is_permitted(address: IP, networks: Sequence[Network], *, plain: bool) -> bool:
    """Whether a connection is permitted.

    Plain HTTP is permitted only into listed networks, because anyone on a public path can read and change it.
    """
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return _within(address, networks) or (not plain and is_public(address))


def _within(address: IP, networks: Iterable[Network]) -> bool:
    return any(address in network for network in networks if network.version == address.version)


async def permitted_addresses(
    host: str, port: int, networks: Sequence[Network], *, plain: bool, lookup: Lookup | None = None
) -> tuple[str, ...] | Forbidden:
    """The permitted addresses of a host, in the system's order. Raises OSError if the name has none."""
    found = await (lookup or system_lookup)(host, port)
    addresses = [read for text in found if (read := _ip(text)) is not None]
    allowed = dict.fromkeys(str(address) for address in addresses if is_permitted(address, networks, plain=plain))
    if allowed:
        return tuple(allowed)[:MAX_ADDRESSES]
    if not addresses:
        return Forbidden("the host has no address")
    public = plain and any(is_public(address) for address in addresses)
    what = (
        "is reached over plain http but is not in webhook_networks"
        if public
        else "is neither a public address nor in webhook_networks"
    )
    return Forbidden(f"{addresses[0]} {what}")


def _ip(text: str) -> IP | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


async def system_lookup(host: str, port: int) -> Sequence[str]:
    """The addresses from the system's resolver, which runs in a thread. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


def literal_addresses(host: str) -> tuple[str, ...]:
    """The address that a host literal means, in any notation that the system reads; empty for a name. Offline."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return ()
    return tuple(str(entry[4][0]) for entry in found)


MAX_BYTES: Final = 16 * 1024  # a key has 24 to 64 bytes, a URL a few hundred


class WebhookNotReady(msgspec.Struct, frozen=True):
    """The reason that a message cannot be built: ``what`` names the file or variable, never its content."""

    what: str


class SecretSources(msgspec.Struct, frozen=True):
    """The folder and the environment that the policy's files and variables are read from."""

    folder: Path
    environment: Mapping[str, str]

    def read(self, name: str, file: str | None, variable: str | None) -> str | WebhookNotReady | None:
        """The stripped text of the file or variable; None if neither is given. ``name``: the key in the policy."""
        if file is not None:
            return self._file(f"{name}_file {file}", self.folder / file)
        if variable is not None:
            found = self.environment.get(variable, "").strip()
            return found or WebhookNotReady(f"{name}_env {variable} is not set or empty")
        return None

    def _file(self, what: str, path: Path) -> str | WebhookNotReady:
        try:
            with path.open("rb") as opened:
                raw = opened.read(MAX_BYTES + 1)
        except (OSError, ValueError) as problem:
            return WebhookNotReady(
                f"{what} cannot be read: {getattr(problem, 'strerror', None) or type(problem).__name__}"
            )
        if len(raw) > MAX_BYTES:
            return WebhookNotReady(f"{what} is larger than {MAX_BYTES} bytes")
        try:
            return raw.decode().strip() or WebhookNotReady(f"{what} is empty")
        except UnicodeDecodeError:
            return WebhookNotReady(f"{what} is not UTF-8")


def url_of(webhook: Webhook, sources: SecretSources) -> str | WebhookNotReady:
    """The webhook's URL, from the policy, a file or a variable."""
    found = webhook.url or sources.read("url", webhook.url_file, webhook.url_env)
    if found is None:
        return WebhookNotReady("the webhook has no url")
    if isinstance(found, str) and (not found.isascii() or not found.isprintable() or " " in found):
        return WebhookNotReady("the webhook's url contains line breaks, spaces or non-ASCII characters")
    return found


def keys_of(webhook: Webhook, sources: SecretSources) -> tuple[bytes, ...] | WebhookNotReady:
    """The signing keys, the newest first.

    Every key in the policy must be readable, because the receiver may know only the unreadable one.
    """
    keys: list[bytes] = []
    for name, file, variable in (
        ("secret", webhook.secret_file, webhook.secret_env),
        ("old_secret", webhook.old_secret_file, webhook.old_secret_env),
    ):
        found = sources.read(name, file, variable)
        if isinstance(found, WebhookNotReady):
            return found
        if found is None:
            continue
        key = key_of(found)
        if key is None:
            return WebhookNotReady(f"{name} is not valid base64, with or without the prefix whsec_")
        keys.append(key)
    return tuple(keys) or WebhookNotReady("the webhook has no secret_file or secret_env")
