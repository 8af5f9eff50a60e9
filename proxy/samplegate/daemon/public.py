"""The servers of the daemon by name and by path: added, changed and removed without a touch to the others. It reads no frame.

A path finds a server of the settings, or nothing: nothing of a request ever chooses what is started.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
import anyio.abc
import msgspec

from samplegate.daemon.behind import Opens, Process, Remote
from samplegate.daemon.places import Places
from samplegate.daemon.reload import Change, Changes
from samplegate.daemon.server import Server
from samplegate.house import House
from samplegate.links.child_process import unresolved
from samplegate.links.front.endpoint import App, endpoint
from samplegate.links.front.http import Access, Receive, Scope, Send
from samplegate.links.front.sessions import Sessions
from samplegate.settings.servers import ServerSettings

if TYPE_CHECKING:
    import aiohttp

ALONE: Final = "/mcp"


def path_of(name: str) -> str:
    """Where a server is served."""
    return f"/servers/{name}/mcp"


class Place(msgspec.Struct, frozen=True, eq=False):
    """A server and its endpoint."""

    server: Server
    app: App


class Public:
    """All servers. ``http`` makes the pool that those over HTTP are reached with, once there is one."""

    def __init__(
        self,
        house: House,
        sessions: Sessions,
        *,
        group: anyio.abc.TaskGroup,
        http: Callable[[], aiohttp.ClientSession],
        tell: Callable[[Access], None],
        max_frame: int,
        most: int,
        idle: float,
    ) -> None:
        self.places = Places(most)
        self._house = house
        self._sessions = sessions
        self._group = group
        self._make_http = http
        self._http: aiohttp.ClientSession | None = None
        self._tell = tell
        self._max_frame = max_frame
        self._idle = idle
        self._environment: Mapping[str, str] = {}
        self._by_name: dict[str, Place] = {}
        self._by_path: dict[str, Place] = {}

    @property
    def servers(self) -> dict[str, Server]:
        """By name."""
        return {name: place.server for name, place in self._by_name.items()}

    def unresolved(self) -> dict[str, str]:
        """Why servers cannot be started now, by name: their programs are looked for at each call."""
        found = {name: server.settings for name, server in self.servers.items() if server.settings.url is None}
        problems = {name: unresolved(each.argv, env={**self._environment, **each.env}, cwd=each.cwd) for name, each in found.items()}
        return {name: str(problem) for name, problem in problems.items() if problem is not None}

    def at(self, path: str) -> ServerSettings | None:
        """The server at a path."""
        place = self._by_path.get(path)
        return None if place is None else place.server.settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, of a caller who may use the server at its path."""
        place = self._by_path.get(scope["path"])
        if place is None:  # removed while its caller was found out
            await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})
            return
        await place.app(scope, receive, send)

    def prepared(self, servers: Mapping[str, ServerSettings], environment: Mapping[str, str]) -> Change:
        """What serves these and no others: built, and not in force yet. ``environment`` is that of all processes that start from then on."""
        kept = {name: place for name, place in self._by_name.items() if servers.get(name) == place.server.settings}
        gone = [place.server for name, place in self._by_name.items() if name not in kept]
        changes = Changes(
            added=tuple(name for name in servers if name not in self._by_name),
            changed=tuple(server.name for server in gone if server.name in servers),
            removed=tuple(server.name for server in gone if server.name not in servers),
        )
        by_name = {name: kept.get(name) or self._made(settings) for name, settings in servers.items()}
        by_path = {path_of(name): place for name, place in by_name.items()}
        if len(servers) == 1:
            by_path[ALONE] = next(iter(by_name.values()))

        def put() -> None:
            self._by_name, self._by_path, self._environment = by_name, by_path, environment

        return Change(changes, put, partial(self._end, gone, changes.removed))

    async def _end(self, gone: Sequence[Server], removed: Sequence[str]) -> None:
        """End the conversations of servers that are gone; nobody else's are touched."""
        async with anyio.create_task_group() as group:
            for server in gone:
                group.start_soon(server.aclose)
        for name in removed:
            self._house.metrics.forget(server=name)

    def _made(self, settings: ServerSettings) -> Place:
        server = Server(
            settings,
            self._house,
            self._behind(settings),
            group=self._group,
            clock=time.monotonic,
            places=self.places,
            idle=self._idle,
        )
        return Place(server, endpoint(server, self._sessions, tell=self._tell))

    def _behind(self, settings: ServerSettings) -> Opens:
        if settings.url is None:
            return Process(settings, lambda: self._environment, self._max_frame, self._house.log)
        if self._http is None:
            self._http = self._make_http()
        return Remote(settings, self._http, self._max_frame)

    async def aclose(self) -> None:
        """End every conversation, then the pool."""
        async with anyio.create_task_group() as group:
            for server in self.servers.values():
                group.start_soon(server.aclose)
        if self._http is not None:
            await self._http.close()
