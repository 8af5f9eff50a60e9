"""Host and Origin (R96): who reaches the daemon by which name, and from which page."""

from __future__ import annotations

from pathlib import Path

import pytest

from samplegate.callers.sites import sites_of
from samplegate.settings.addresses import Address
from samplegate.settings.identities import CallerSettings
from samplegate.settings.serving import ServeSettings

pytestmark = pytest.mark.anyio

LOCAL = ServeSettings(policy=Path("p"))
PUBLIC = ServeSettings(policy=Path("p"), listen="0.0.0.0:8080", callers=CallerSettings(required=True, resource="https://gate.example.com/mcp"))
NAMED = ServeSettings(
    policy=Path("p"),
    listen="0.0.0.0:8080",
    callers=CallerSettings(required=True),
    allowed_hosts=("Gate.example.com", "gate.internal:*"),
    allowed_origins=("https://App.example.com/", "https://dev.example.com:*"),
)
IPV6 = ServeSettings(policy=Path("p"), listen="[::1]:8080")


async def status(settings: ServeSettings, host: bytes | None, origin: bytes | None = None) -> int:
    sites = sites_of(settings)
    first, again = await sites.refusal(host, origin), await sites.refusal(host, origin)
    assert (first is None) == (again is None)
    return 200 if first is None else first.status_code


@pytest.mark.parametrize(
    ("settings", "host", "expected"),
    [
        (LOCAL, b"127.0.0.1:8080", 200),
        (LOCAL, b"localhost", 200),
        (LOCAL, b"LocalHost:9", 200),
        (LOCAL, b"[::1]:8080", 200),
        (IPV6, b"[::1]:8080", 200),
        (IPV6, b"[::1]", 200),
        (IPV6, b"::1", 421),
        (LOCAL, b"evil.example.com", 421),
        (LOCAL, b"localhost.evil.example.com:8080", 421),
        (LOCAL, b"localhost:8080@evil.example.com", 421),
        (LOCAL, b"localhost:", 421),
        (LOCAL, b"localhost:99999999", 421),
        (LOCAL, b"127.0.0.1:8080, evil.example.com", 421),
        (LOCAL, b"", 421),
        (LOCAL, None, 421),
        (PUBLIC, b"anything.example.com", 200),
        (PUBLIC, b"10.0.0.1:8080", 200),
        (PUBLIC, b"a b", 421),
        (PUBLIC, None, 421),
        (NAMED, b"gate.EXAMPLE.com", 200),
        (NAMED, b"gate.example.com:8080", 421),
        (NAMED, b"gate.internal:1", 200),
        (NAMED, b"127.0.0.1:8080", 421),
    ],
)
async def test_only_hosts_that_are_named_are_taken(settings: ServeSettings, host: bytes | None, expected: int) -> None:
    assert expected == await status(settings, host)


@pytest.mark.parametrize(
    ("settings", "origin", "expected"),
    [
        (LOCAL, None, 200),
        (LOCAL, b"http://localhost:6274", 200),
        (LOCAL, b"https://127.0.0.1", 200),
        (LOCAL, b"http://[::1]:3000", 200),
        (LOCAL, b"http://evil.example.com", 403),
        (LOCAL, b"http://localhost.evil.example.com", 403),
        (LOCAL, b"http://localhost:1@evil.example.com", 403),
        (LOCAL, b"null", 403),
        (LOCAL, b"", 403),
        (LOCAL, b"http://localhost:1 http://evil.example.com", 403),
        (PUBLIC, b"https://gate.example.com", 200),
        (PUBLIC, b"http://gate.example.com", 403),
        (PUBLIC, b"http://localhost:6274", 403),
        (NAMED, b"https://app.example.com", 200),
        (NAMED, b"https://app.example.com:444", 403),
        (NAMED, b"https://dev.example.com:444", 200),
    ],
)
async def test_only_origins_that_are_named_are_taken(settings: ServeSettings, origin: bytes | None, expected: int) -> None:
    host = b"gate.internal:1" if settings is NAMED else b"127.0.0.1:8080"
    assert expected == await status(settings, host, origin)


async def test_the_sandboxs_origin_is_taken_only_where_it_is_named() -> None:
    assert 200 == await status(ServeSettings(policy=Path("p"), allowed_origins=("null",)), b"localhost", b"null")


async def test_what_was_sent_is_not_on_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    assert 421 == await status(LOCAL, b"evil.example.com")
    assert 403 == await status(LOCAL, b"localhost", b"http://evil.example.com")
    assert ("", "") == capfd.readouterr()


async def test_what_is_remembered_is_bounded() -> None:
    sites = sites_of(LOCAL)
    for port in range(1_000):
        assert await sites.refusal(b"localhost:%d" % port, None) is None
    assert await sites.refusal(b"localhost:999", None) is None
    assert await sites.refusal(b"evil:999", None) is not None


@pytest.mark.parametrize(
    ("bound", "host", "expected"),
    [
        (Address("0.0.0.0", 8080), b"gate.example.com", 200),
        (Address("127.0.0.1", 8080), b"gate.example.com", 421),
        (Address("127.0.0.1", 8080), b"127.0.0.1:8080", 200),
        (Address("127.8.8.8", 8080), b"127.8.8.8:8080", 200),
    ],
)
@pytest.mark.parametrize("settings", [LOCAL, PUBLIC], ids=["local", "public"])
async def test_what_is_really_listened_on_says_which_hosts_are_taken(settings: ServeSettings, bound: Address, host: bytes, expected: int) -> None:
    refusal = await sites_of(settings, bound).refusal(host, None)
    assert (expected if settings is PUBLIC or bound.is_loopback else 421) == (200 if refusal is None else refusal.status_code)
