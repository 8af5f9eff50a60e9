from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.reviews.notify.endpoint import (
    Forbidden,
    is_permitted,
    is_public,
    literal_addresses,
    networks_of,
    permitted_addresses,
    system_lookup,
)

pytestmark = pytest.mark.anyio

PUBLIC: Final = [
    "8.8.8.8",
    "93.184.216.34",
    "2606:4700::6810:84e5",
    "2a00:1450:4001:830::200e",
    "64:ff9b::808:808",
    "::ffff:8.8.8.8",
]
INSIDE: Final = {
    "loopback": ["127.0.0.1", "127.255.255.254", "::1"],
    "private": ["10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "fd00::1", "fc00::1", "fec0::1"],
    "link-local": ["169.254.169.254", "fe80::1", "fe80::1%1"],
    "carrier-grade NAT": ["100.64.0.1", "100.127.255.255"],
    "multicast": ["224.0.0.1", "239.255.255.255", "ff02::1"],
    "unspecified": ["0.0.0.0", "0.1.2.3", "::"],
    "reserved": [
        "240.0.0.1",
        "255.255.255.255",
        "192.0.0.8",
        "192.0.2.1",
        "198.18.0.1",
        "198.51.100.1",
        "203.0.113.1",
        "2001:db8::1",
        "3fff::1",
    ],
    "IPv4-mapped": ["::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254"],
    "IPv4-compatible": ["::127.0.0.1", "::a9fe:a9fe"],
    "6to4": ["2002:7f00:1::", "2002:a9fe:a9fe::1", "2002:808:808::1"],
    "NAT64": ["64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b::a00:1", "64:ff9b:1::808:808"],
    "Teredo": ["2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001::1"],
    "SRv6, discard": ["5f00::1", "100::1"],
}


def ip(text: str) -> Any:
    return ipaddress.ip_address(text)


@pytest.mark.parametrize("text", PUBLIC)
def test_a_public_address_may_be_gone_to(text: str) -> None:
    assert is_public(ip(text))
    assert is_permitted(ip(text), (), plain=False)


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in INSIDE.items() for text in texts])
def test_no_address_inside_may_be_gone_to_unless_it_is_listed(kind: str, text: str) -> None:
    assert not is_public(ip(text)), kind
    assert not is_permitted(ip(text), (), plain=False)
    assert is_permitted(ip(text), networks_of(["0.0.0.0/0", "::/0"]), plain=True)


@given(st.ip_addresses(v=4))
def test_what_python_knows_as_private_is_never_public(address: ipaddress.IPv4Address) -> None:
    if not address.is_global or address.is_multicast:
        assert not is_public(address)
    assert (
        is_public(address)
        == is_public(ipaddress.IPv6Address(f"::ffff:{address}"))
        == is_public(ipaddress.IPv6Address(f"64:ff9b::{address}"))
    )


REGISTERED: Final = (
    "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24"
    " 192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4 ::/3 2001::/23"
    " 2001:db8::/32 2002::/16 3fff::/20 4000::/2 8000::/1"
)
"""What is not public of IANA's registries of special-purpose addresses, and all IPv6 outside of 2000::/3, of which
alone addresses are handed out."""


@pytest.mark.parametrize("text", REGISTERED.split())
def test_no_address_of_a_registered_network_is_public(text: str) -> None:
    network = ipaddress.ip_network(text)
    size = network.num_addresses
    for step in (0, 1, 8, 9, 10, 170, size // 3, size // 2, size - 2, size - 1):
        address = network[min(step, size - 1)]
        if address in ipaddress.ip_network("64:ff9b::/96") or getattr(address, "ipv4_mapped", None):
            continue
        assert not is_public(address), address


@pytest.mark.parametrize("text", REGISTERED.split())
def test_the_addresses_beside_a_registered_network_are_as_the_table_says(text: str) -> None:
    """At the edges of each registered network, exactly the addresses in the table are refused."""
    network = ipaddress.ip_network(text)
    table = [each for each in map(ipaddress.ip_network, REGISTERED.split()) if each.version == network.version]
    most = 2 ** (32 if network.version == 4 else 128) - 1
    for number in (int(network[0]) - 1, int(network[-1]) + 1):
        if 0 <= number <= most:
            address = ipaddress.IPv4Address(number) if network.version == 4 else ipaddress.IPv6Address(number)
            assert is_public(address) == (not any(address in each for each in table)), address


def test_a_mapped_address_is_that_of_the_listed_network() -> None:
    assert is_permitted(ip("::ffff:10.1.2.3"), networks_of(["10.1.0.0/16"]), plain=False)
    assert not is_permitted(ip("::ffff:10.2.2.3"), networks_of(["10.1.0.0/16"]), plain=False)


def test_plain_http_goes_into_listed_networks_only() -> None:
    assert not is_permitted(ip("8.8.8.8"), (), plain=True)
    assert is_permitted(ip("8.8.8.8"), networks_of(["8.8.8.8/32"]), plain=True)


def test_networks_are_read_with_and_without_host_bits() -> None:
    assert ["10.1.0.0/16", "fd00::/8", "127.0.0.1/32"] == [
        str(network) for network in networks_of(["10.1.2.3/16", "fd00::1/8", "127.0.0.1"])
    ]
    with pytest.raises(ValueError, match="does not appear"):
        networks_of(["10.1"])


def found(*addresses: str) -> Any:
    async def lookup(_host: str, _port: int) -> Sequence[str]:
        return addresses

    return lookup


async def test_only_the_allowed_ones_of_a_name_s_addresses_are_left() -> None:
    lookup = found("10.0.0.1", "8.8.8.8", "127.0.0.1", "8.8.8.8", "not an address")
    assert ("8.8.8.8",) == await permitted_addresses("hooks.example", 443, (), plain=False, lookup=lookup)
    assert ("10.0.0.1", "8.8.8.8") == await permitted_addresses(
        "hooks.example", 443, networks_of(["10.0.0.0/8"]), plain=False, lookup=lookup
    )


@pytest.mark.parametrize(
    ("addresses", "plain", "why"),
    [
        (("169.254.169.254",), False, "169.254.169.254 is neither a public address nor in webhook_networks"),
        (("8.8.8.8",), True, "8.8.8.8 is reached over plain http but is not in webhook_networks"),
        (("10.0.0.1",), True, "10.0.0.1 is neither a public address nor in webhook_networks"),
        ((), False, "the host has no address"),
    ],
)
async def test_why_a_name_is_forbidden_is_said(addresses: tuple[str, ...], plain: bool, why: str) -> None:
    assert Forbidden(why) == await permitted_addresses("hooks.example", 443, (), plain=plain, lookup=found(*addresses))


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0177.0.0.1",
        "017700000001",
        "::1",
        "::ffff:127.0.0.1",
    ],
)
async def test_literal_addresses_are_checked_in_every_notation(host: str) -> None:
    assert isinstance(await permitted_addresses(host, 443, (), plain=False), Forbidden)
    assert literal_addresses(host)


@pytest.mark.parametrize("host", ["hooks.example", "localhost", "1.2.3.4.example", ""])
def test_a_name_is_no_literal_address(host: str) -> None:
    assert () == literal_addresses(host)


async def test_the_system_s_look_up_knows_this_machine() -> None:
    assert any(ipaddress.ip_address(text).is_loopback for text in await system_lookup("localhost", 443))
