"""One conversation of the daemon: many streams of one client, or of one caller's requests, and one server behind. It
reads no frame.

It lives until its client or its server ends it, or the daemon does; whoever still waits for the server then has an
error first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

import anyio
import anyio.abc

from samplegate.config.servers import ServerSettings, headers_of
from samplegate.errors import Log
from samplegate.protocol.frames import Frame
from samplegate.protocol.rounds import Note
from samplegate.runtime.flow import STANDALONE, HttpClientWriter, HttpServerWriter, Sink, piped
from samplegate.runtime.relay import Relay
from samplegate.runtime.session_wiring import SessionWiring, realm_of
from samplegate.transport.stdio import CannotStart
from samplegate.transport.subprocess import start_child

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp


# How a server's side of one conversation is opened and ended: a child process, or streams over HTTP. It reads no
# frame.

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
            server.argv,
            relay.server,
            env=environment,
            cwd=server.cwd,
            max_line=self._max_frame,
            said=self._said,
            together=True,
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


class RemoteServer:
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
        from samplegate.transport.http_client.connection import RemoteConnection as Link

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
        relay.connect_server(HttpServerWriter(link))
        try:
            yield relay.server_gone.wait
        finally:
            await link.aclose()


# seconds for the last lines of a process that has ended; one that it left behind may hold its output open
TAIL: Final = 0.3


class ServerConversation:
    """What the HTTP front calls: see ``links.front.http.Conversation``."""

    def __init__(
        self, wires: SessionWiring, behind: Opens, timeouts: Callable[[Relay], Coroutine[Any, Any, None]] | None = None
    ) -> None:
        self.wires = wires
        self.failed: CannotStart | None = None
        """Why it could not be started."""
        self.exit: object = None
        """What the server's process left with, minus the number of a signal; None where it has not ended by itself."""
        self._behind = behind
        self._timeouts = timeouts
        self._relay = wires.relay
        self._streams = HttpClientWriter(self._lost, self._unreached)
        self._numbers = 0
        self.used = self._relay.clock()
        """When a stream was opened or closed last."""
        self._started = False
        self._died = False
        self._ending = anyio.Event()
        self._over = anyio.Event()
        self._calls: list[Callable[[], None]] = []
        self._relay.connect_client(self._streams)

    @property
    def streams(self) -> int:
        """How many are entered, those of a legacy session that stand always among them."""
        return len(self._streams.sinks)

    @property
    def busy_streams(self) -> int:
        """How many have requests under way."""
        return sum(1 for stream in self.wires.state.inflight.streams if stream >= 0)

    @property
    def asked_to_end(self) -> bool:
        """Whether it was we who ended it, and the server lived until then."""
        return self._ending.is_set() and not self._died

    @property
    def over(self) -> bool:
        """Whether nothing more can be said in it."""
        return self._ending.is_set() or self._over.is_set() or self._relay.server_gone.is_set()

    def open_stream(self, stream: Sink, *, standalone: bool = False, caller: str | None = None, trace: str = "") -> int:
        """Enter a stream; its number."""
        number = STANDALONE
        if not standalone:
            self._numbers += 1
            number = self._numbers
        if caller is not None:
            self.wires.state.callers[number] = caller
        if trace:
            self.wires.state.traces[number] = trace
        self.used = self._relay.clock()
        self._streams.sinks[number] = stream  # also where it is over: whoever writes on it is told so
        return number

    def received(self, stream: int, line: bytes | Frame) -> None:
        """One frame of the client's came."""
        if self.over:
            self._relay.refuse(stream, line.raw if isinstance(line, Frame) else line, "the server has ended")
        else:
            self._relay.take("client", stream, line)

    def close_stream(self, stream: int) -> None:
        """The client's end of a stream is gone; what is owed to a legacy client is still taken by its sink (T35)."""
        self.used = self._relay.clock()
        self._relay.stream_closed(stream)
        if stream not in self.wires.state.inflight.streams:
            self._streams.sinks.pop(stream, None)
            self.wires.state.callers.pop(stream, None)
            self.wires.state.traces.pop(stream, None)

    def undelivered(self, id: str | int) -> None:
        """No stream of the client took a request in time."""
        if not self.over:
            self._relay.undelivered(id)

    def on_end(self, call: Callable[[], None]) -> None:
        """Have ``call`` called once when it is over."""
        if self._over.is_set():
            call()
        else:
            self._calls.append(call)

    async def aclose(self, why: str | None = None) -> None:
        """End it, and wait until the server's side is closed. ``why``: the error's text for those who still wait for an
        answer."""
        if why is not None:
            self._relay.session.state.ended_because = why
        self._died = self._died or self._relay.server_gone.is_set()
        self._ending.set()
        await self._over.wait()

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """The whole of it. ``task_status`` is told once the server's side is open, or that it cannot be (``failed``).

        Never raises: a fault of ours ends this conversation, and no other.
        """
        try:
            await self._relay.run(lambda: self._converse(task_status))
        except Exception:
            self._relay.note(Note("conversation.failed", {"server": self.wires.server, "exc_info": True}))
            self.failed = self.failed or CannotStart(
                f"server {self.wires.server}", "", "met a fault of the gate", "see the log"
            )
            self._end()
        finally:
            self.wires.leave()
            self._over.set()
            self._streams.close()
            for call in self._calls:
                call()
        if not self._started:
            task_status.started()

    async def _converse(self, task_status: anyio.abc.TaskStatus[None]) -> None:
        try:
            async with self._behind.open(self._relay) as ended:
                self._started = True
                task_status.started()
                if self._timeouts is not None:
                    self._relay.start(self._timeouts, self._relay)
                await self._first(ended)
                self._end()
        except CannotStart as problem:
            self.failed = problem

    async def _first(self, ended: Callable[[], Awaitable[object]]) -> None:
        """Until the server's end and its last lines, or the end of its output, or our own."""

        async def process() -> None:
            self.exit = await ended()
            with anyio.move_on_after(TAIL):
                await self._relay.server_gone.wait()
            group.cancel_scope.cancel()

        async def one(event: anyio.Event) -> None:
            await event.wait()
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(process)
            group.start_soon(one, self._relay.server_gone)
            group.start_soon(one, self._ending)

    def _end(self) -> None:
        """Rounds are withdrawn; whoever waits for the server is told that it has ended."""
        if not self._relay.server_gone.is_set():
            self._relay.ended("server")
        self._streams.close()

    def _unreached(self, id: str | int) -> None:
        """There is no stream at all. The relay is in the middle of sending, so it learns of this in the next turn."""
        asyncio.get_running_loop().call_soon(self.undelivered, id)

    def _lost(self, stream: int, last: bool) -> None:
        """What came for a stream that is gone."""
        self._relay.note(
            Note("answer.undelivered" if last else "frame.undelivered", {"server": self.wires.server}, warn=False)
        )
