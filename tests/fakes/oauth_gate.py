"""A login at the world's authorization server, and a connection to its MCP server with the gate's credentials, both in
the process of the test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

import aiohttp

from samplegate.config.oauth import OAuthSettings
from samplegate.oauth.credentials import OAuthCredentials
from samplegate.oauth.login import log_in
from samplegate.oauth.login_file import Login
from samplegate.transport.http_client.connection import RemoteConnection, pool
from tests.fakes.guarded import Journal
from tests.fakes.oauth_world import World
from tests.fakes.scripted_http_server import Heard

SERVER: Final = "docs"
WAIT: Final = 20.0  # seconds


async def logged_in(
    world: World, state: Path, settings: OAuthSettings | None = None, *, waits: float = WAIT, goes: bool = True
) -> Login:
    """Log in, with the user at once at the printed URL (``goes``). Raises Unavailable."""
    visits: list[asyncio.Future[None]] = []

    async def visit(url: str) -> None:
        async with aiohttp.ClientSession() as http, http.get(url) as page:
            await page.read()

    try:
        return await log_in(
            SERVER,
            world.url,
            settings or OAuthSettings(),
            headers={},
            state=state,
            show=lambda url: visits.append(asyncio.ensure_future(visit(url))) if goes else None,
            port=0,
            waits=waits,
        )
    finally:
        for each in visits:
            each.cancel()


def login_file(state: Path) -> Path:
    """The file of the login."""
    return state / "oauth" / f"{SERVER}.json"


class GateLink:
    """A gate's connection to the MCP server."""

    def __init__(self, remote: RemoteConnection, heard: Heard, log: Journal) -> None:
        self.remote = remote
        self.heard = heard
        self.log = log
        self._streams = count(1)

    async def ask(self, method: str = "tools/call", name: str = "work") -> dict[str, Any]:
        """The answer to one request: its result, or the error with its text in ``message``."""
        stream = next(self._streams)
        params = {"name": name} if method == "tools/call" else {}
        frame = {"jsonrpc": "2.0", "id": stream, "method": method, "params": params}
        self.remote.send(stream, json.dumps(frame).encode())
        [answer] = await self.heard.of(stream)
        found: dict[str, Any] = answer.get("result") or answer["error"]
        return found


@asynccontextmanager
async def gate_link(world: World, state: Path, settings: OAuthSettings | None = None) -> AsyncIterator[GateLink]:
    """A connection with the credentials of this state folder."""
    heard, log = Heard(), Journal()
    credentials = OAuthCredentials(SERVER, world.url, settings, state=state, log=log)
    async with pool() as http:
        remote = RemoteConnection(world.url, heard, http=http, credentials=credentials, note=lambda _note: None)
        try:
            yield GateLink(remote, heard, log)
        finally:
            await remote.aclose()
