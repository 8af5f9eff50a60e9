"""The guard behind a real HTTP server, with real clients and with raw bytes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest
import uvicorn

from samplegate.config.identities import CallerSettings, JwtSettings
from tests.fakes.guarded import GuardedApp
from tests.fakes.issuer import Endpoint, key_set, mint, public
from tests.unit.auth.test_guard import CI, GATE, STATIC

pytestmark = pytest.mark.anyio

PATH = "/servers/docs/mcp"


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def serving(guarded: GuardedApp, host: str = "127.0.0.1") -> AsyncIterator[str]:
    """The URL of a guard that serves on a free port."""
    listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    server = _Server(uvicorn.Config(guarded.guard, log_config=None, lifespan="off"))
    task = asyncio.ensure_future(server.serve(sockets=[listener]))
    shown = f"[{host}]" if ":" in host else host
    try:
        yield f"http://{shown}:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await asyncio.wait_for(task, 10)
        await guarded.guard.aclose()


async def raw(url: str, request: bytes) -> bytes:
    """The status code of the response to raw bytes."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    try:
        writer.write(request)
        return (await asyncio.wait_for(reader.readline(), 10)).split()[1]
    finally:
        writer.close()
        await writer.wait_closed()


async def test_real_clients_get_through_with_a_good_token_only() -> None:
    async with Endpoint().serving() as endpoint:
        endpoint.answers["/keys"] = 200, key_set(public("k", "ES256"))
        jwt = JwtSettings("https://login.example.com", jwks_url=f"{endpoint.url}/keys")
        guarded = GuardedApp(CallerSettings(STATIC.tokens, None, jwt, GATE))
        async with serving(guarded) as url, aiohttp.ClientSession() as http:
            for token, status, caller in (
                (CI, 200, ["ci"]),
                (mint(aud=GATE), 200, ["jwt:alice"]),
                ("x" * 64, 401, []),
                (mint(aud="x"), 401, []),
            ):
                guarded.scopes.clear()
                async with http.post(url + PATH, headers={"Authorization": f"Bearer {token}"}, data=b"{}") as answer:
                    assert (status, caller) == (
                        answer.status,
                        [scope["samplegate.caller"].name for scope in guarded.scopes],
                    )
            async with http.get(f"{url}/.well-known/oauth-protected-resource{PATH}") as answer:
                assert f"{GATE}{PATH}" == (await answer.json())["resource"]


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
async def test_a_listener_on_ipv6_is_reached_by_its_address() -> None:
    guarded = GuardedApp(listen="[::1]:8080")
    async with serving(guarded, "::1") as url, aiohttp.ClientSession() as http:
        async with http.post(url + PATH) as answer:
            assert 200 == answer.status
        async with http.post(url + PATH, headers={"Host": "evil.example.com"}) as answer:
            assert 421 == answer.status


async def test_what_comes_as_raw_bytes_is_seen_as_it_is() -> None:
    async with serving(GuardedApp()) as url:
        for lines, status in (
            (b"Host: localhost", b"200"),
            (b"Host: localhost\r\nOrigin: http://evil.example.com", b"403"),
            (b"Host: localhost\r\nHost: evil.example.com", b"400"),
            (b"Host: evil.example.com", b"421"),
            (b"Accept: */*", b"421"),
            (b"Host:", b"421"),
            (b"Host: localhost\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b", b"400"),
            (b"Host: localhost\r\nAuthorization: Bearer " + b"a" * 60_000, b"200"),
        ):
            asked = b"GET " + PATH.encode() + b" HTTP/1.1\r\n" + lines + b"\r\nConnection: close\r\n\r\n"
            assert status == await raw(url, asked), lines[:80]
        # a disguised path is checked as the path that the router sees
        for path, statuses in (
            ("/servers/%64ocs/mcp", [b"200"]),
            ("/servers/docs/mcp?x=/servers/db/mcp", [b"200"]),
            ("/servers/docs/../db/mcp", [b"403", b"404"]),
            ("/servers/db%2f..%2fdocs/mcp", [b"403", b"404"]),
            ("/servers/%2e%2e/mcp", [b"403", b"404"]),
            ("/servers/db/mcp", [b"403", b"404"]),
        ):
            asked = b"GET " + path.encode() + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            assert await raw(url, asked) in statuses, path
