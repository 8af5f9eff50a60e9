"""Host and Origin checks (R96): under which host names and from which pages the daemon can be reached."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from starlette.requests import Request

from samplegate.auth.origins import host_policy
from samplegate.config.identities import CallerSettings
from samplegate.config.serve_settings import ServeSettings
from samplegate.config.values import Address

pytestmark = pytest.mark.anyio
SHAPE = re.compile(r"(?:\[[0-9a-f:.]+\]|[a-z0-9.-]+)(:[0-9]{1,5})?", re.IGNORECASE)

LOCAL = ServeSettings(policy=Path("p"))
PUBLIC = ServeSettings(
    policy=Path("p"),
    listen="0.0.0.0:8080",
    callers=CallerSettings(tokens_file=Path("t"), resource="https://gate.example.com/mcp"),
)
NAMED = ServeSettings(
    policy=Path("p"),
    listen="0.0.0.0:8080",
    callers=CallerSettings(tokens_file=Path("t")),
    allowed_hosts=("Gate.example.com", "gate.internal:*"),
    allowed_origins=("https://App.example.com/", "https://dev.example.com:*"),
)
IPV6 = ServeSettings(policy=Path("p"), listen="[::1]:8080")


def status(settings: ServeSettings, host: str | None, origin: str | None = None) -> int:
    refusal = host_policy(settings).refusal(host, origin)
    return 200 if refusal is None else refusal.status


@pytest.mark.parametrize(
    ("settings", "host", "expected"),
    [
        (LOCAL, "127.0.0.1:8080", 200),
        (LOCAL, "localhost", 200),
        (LOCAL, "LocalHost:9", 200),
        (LOCAL, "[::1]:8080", 200),
        (IPV6, "[::1]:8080", 200),
        (IPV6, "[::1]", 200),
        (IPV6, "::1", 421),
        (LOCAL, "evil.example.com", 421),
        (LOCAL, "localhost.evil.example.com:8080", 421),
        (LOCAL, "localhost:8080@evil.example.com", 421),
        (LOCAL, "localhost:", 421),
        (LOCAL, "localhost:99999999", 421),
        (LOCAL, "127.0.0.1:8080, evil.example.com", 421),
        (LOCAL, "", 421),
        (LOCAL, None, 421),
        (PUBLIC, "anything.example.com", 200),
        (PUBLIC, "10.0.0.1:8080", 200),
        (PUBLIC, "a ", 421),
        (PUBLIC, None, 421),
        (NAMED, "gate.EXAMPLE.com", 200),
        (NAMED, "gate.example.com:8080", 421),
        (NAMED, "gate.internal:1", 200),
        (NAMED, "127.0.0.1:8080", 421),
    ],
)
def test_only_hosts_that_are_named_are_taken(settings: ServeSettings, host: str | None, expected: int) -> None:
    assert expected == status(settings, host)


@pytest.mark.parametrize(
    ("settings", "origin", "expected"),
    [
        (LOCAL, None, 200),
        (LOCAL, "http://localhost:6274", 200),
        (LOCAL, "https://127.0.0.1", 200),
        (LOCAL, "http://[::1]:3000", 200),
        (LOCAL, "http://evil.example.com", 403),
        (LOCAL, "http://localhost.evil.example.com", 403),
        (LOCAL, "http://localhost:1@evil.example.com", 403),
        (LOCAL, "null", 403),
        (LOCAL, "", 403),
        (LOCAL, "http://localhost:1 http://evil.example.com", 403),
        (PUBLIC, "https://gate.example.com", 200),
        (PUBLIC, "http://gate.example.com", 403),
        (PUBLIC, "http://localhost:6274", 403),
        (NAMED, "https://app.example.com", 200),
        (NAMED, "https://app.example.com:444", 403),
        (NAMED, "https://dev.example.com:444", 200),
    ],
)
def test_only_origins_that_are_named_are_taken(settings: ServeSettings, origin: str | None, expected: int) -> None:
    host = "gate.internal:1" if settings is NAMED else "127.0.0.1:8080"
    assert expected == status(settings, host, origin)


def test_the_sandboxs_origin_is_taken_only_where_it_is_named() -> None:
    assert 200 == status(ServeSettings(policy=Path("p"), allowed_origins=("null",)), "localhost", "null")


HOSTS = (
    "",
    "localhost",
    "LOCALHOST",
    "localhost:80",
    "localhost:",
    "localhost:x",
    "localhost.",
    "127.0.0.1:1",
    "[::1]",
    "[::1]:8",
    "gate.example.com",
    "gate.example.com:8080",
    "gate.internal",
    "gate.internal:7",
    "gate.internal.evil.example:7",
    "evil.example",
    "*",
    "any",
    "gate.internal:*",
)
ORIGINS = (
    None,
    "null",
    "http://localhost",
    "http://localhost:3000",
    "https://[::1]:3000",
    "https://gate.example.com",
    "https://gate.example.com:443",
    "https://app.example.com",
    "https://APP.example.com",
    "https://app.example.com/",
    "https://dev.example.com",
    "https://dev.example.com:5",
    "https://dev.example.com:5.evil.example",
    "http://evil.example",
    "https://evil.example:80",
)


@pytest.mark.parametrize("settings", [LOCAL, PUBLIC, NAMED, IPV6], ids=["local", "public", "named", "ipv6"])
async def test_what_the_sdk_refuses_is_refused(settings: ServeSettings) -> None:
    """Compares with the SDK's own check where the settings list hosts and origins. Ours also refuses malformed
    values."""
    hosts, origins = listed(settings)
    check = TransportSecurityMiddleware(TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=origins))
    for host, origin in itertools.product(HOSTS, ORIGINS):
        headers = [(b"host", b"any" if hosts == ["any"] else host.lower().encode())] + (
            [] if origin is None else [(b"origin", origin.lower().encode())]
        )
        theirs = await check.validate_request(Request({"type": "http", "method": "GET", "headers": headers}))
        ours = host_policy(settings).refusal(host, origin)
        if SHAPE.fullmatch(host) and not (origin or "").endswith(("/", ".example:7", "evil.example")):
            assert (None if theirs is None else (theirs.status_code, theirs.body)) == (
                None if ours is None else (ours.status, ours.body)
            ), (
                host,
                origin,
            )
        else:
            assert theirs is None or ours is not None, (host, origin)


def listed(settings: ServeSettings) -> tuple[list[str], list[str]]:
    """The policy that these settings should give."""
    if settings is NAMED:
        return ["gate.example.com", "gate.internal:*"], ["https://app.example.com", "https://dev.example.com:*"]
    if settings is PUBLIC:
        return ["any"], ["https://gate.example.com"]
    own = [name + port for name in ("localhost", "127.0.0.1", "[::1]") for port in ("", ":*")]
    return own, [f"{scheme}://{name}" for scheme in ("http", "https") for name in own]


@pytest.mark.parametrize(
    ("bound", "host", "expected"),
    [
        (Address("0.0.0.0", 8080), "gate.example.com", 200),
        (Address("127.0.0.1", 8080), "gate.example.com", 421),
        (Address("127.0.0.1", 8080), "127.0.0.1:8080", 200),
        (Address("127.8.8.8", 8080), "127.8.8.8:8080", 200),
    ],
)
@pytest.mark.parametrize("settings", [LOCAL, PUBLIC], ids=["local", "public"])
def test_what_is_really_listened_on_says_which_hosts_are_taken(
    settings: ServeSettings, bound: Address, host: str, expected: int
) -> None:
    refusal = host_policy(settings, bound).refusal(host, None)
    assert (expected if settings is PUBLIC or bound.is_loopback else 421) == (
        200 if refusal is None else refusal.status
    )
