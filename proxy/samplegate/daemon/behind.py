"""How a server's side of one conversation is opened and ended: a child process, or streams over HTTP. It reads no
frame."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from samplegate.config.servers import ServerSettings, headers_of
from samplegate.gate.ports import Log
from samplegate.runtime.flow import ManyStreams, piped
from samplegate.runtime.relay import Relay
from samplegate.runtime.session_wiring import realm_of
from samplegate.transport.stdio import CannotStart
from samplegate.transport.subprocess import start_child

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp

Ended = Callable[[], Awaitable[object]]
"""Waits for the server's own end."""


class Opens(Protocol):
    """Opens the server's side for a relay; what it gives waits for the server's end. Raises CannotStart."""

    @property
    def realm(self) -> str:
        """What tells it apart where nobody named it."""
        ...

    @property
    def streams(self) -> bool:
        """Whether the server answers each request on a stream of its own."""
        ...

    def open(self, relay: Relay) -> AbstractAsyncContextManager[Ended]: ...


class Process:
    """A stdio server: a process for each conversation. ``environment`` is asked at each start, for a reload may
    withhold more of it."""

    streams = False

    def __init__(
        self, server: ServerSettings, environment: Callable[[], Mapping[str, str]], max_frame: int, log: Log
    ) -> None:
        self._server = server
        self._environment = environment
        self._log = log
        self._max_frame = max_frame
        self.realm = realm_of(server.name, server.argv, None)

    @asynccontextmanager
    async def open(self, relay: Relay) -> AsyncIterator[Ended]:
        """Start it; it and all it has started are ended behind."""
        server = self._server
        environment = {**self._environment(), **server.env}
        child = await start_child(
            server.argv, relay.server, env=environment, cwd=server.cwd, max_line=self._max_frame, said=self._said
        )
        relay.connect_server(piped(child.link))
        try:
            yield child.exited
        finally:
            await child.stop()

    def _said(self, line: str, left_out: int) -> None:
        """Log a line of the server's stderr, which is free text and never a frame."""
        self._log.info(
            "server.logged", server=self._server.name, line=line, **({"left_out": left_out} if left_out else {})
        )


class Remote:
    """A server over HTTP: a connection to it for each conversation, over one pool."""

    streams = True

    def __init__(self, server: ServerSettings, http: aiohttp.ClientSession, max_frame: int) -> None:
        self._server = server
        self._http = http
        self._max_frame = max_frame
        self.realm = realm_of(server.name, (), server.url)

    @asynccontextmanager
    async def open(self, relay: Relay) -> AsyncIterator[Ended]:
        """Nothing is sent before the first frame."""
        from samplegate.transport.http_client.connection import Remote as Link

        server = self._server
        assert server.url is not None
        try:
            headers = headers_of(server)
        except ValueError as problem:
            raise CannotStart(
                f"server {server.name}", "", str(problem), "write the file, or name another one under headers_from"
            ) from None
        link = Link(
            server.url, relay.streams, http=self._http, headers=headers, max_frame=self._max_frame, note=relay.note
        )
        relay.connect_server(ManyStreams(link))
        try:
            yield relay.server_gone.wait
        finally:
            await link.aclose()
