"""Hosts that are certainly not in a public network, so that their webhooks may be called without TLS. The other checks
are in bad_policies/webhooks.yaml."""

from __future__ import annotations

import pytest

from samplegate.policy.file.reviewer_checks import is_inside


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "notifier",
        "127.0.0.1",
        "10.1.2.3",
        "192.168.0.1",
        "172.16.0.1",
        "::1",
        "fe80::1%eth0",
        "fd00::1",
        "a.internal",
        "B.LOCAL.",
    ],
)
def test_private_hosts_are_inside(host: str) -> None:
    assert is_inside(host)


@pytest.mark.parametrize(
    "host",
    [
        "a.example.com",
        "93.184.216.34",
        "2606:4700::1111",
        "internal.example.com",
        "local.net",
        "10.1.2.3.example",
        "1.1.1.1.",
    ],
)
def test_public_hosts_are_not(host: str) -> None:
    assert not is_inside(host)
