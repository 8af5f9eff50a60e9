"""One conversation of the daemon: the streams of one client, or of one caller's requests, and one server.

A server is a child process (``Process``) or at a URL (``RemoteServer``). A conversation lives until its client, its
server or the daemon ends it. Requests that still wait for the server then get an error. No frame is read here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import anyio
import anyio.abc

from samplegate.config.servers import ServerSettings, headers_of
from samplegate.errors import Log
from samplegate.protocol.frames import Frame
from samplegate.protocol.identity import Identity
from samplegate.protocol.rounds import Note
from samplegate.runtime.flow import STANDALONE, HttpClientWriter, HttpServerWriter, Sink, shared_process_writer
from samplegate.runtime.relay import Relay
from samplegate.runtime.session_wiring import SessionWiring, realm_of
from samplegate.transport.http_client.health import Health
from samplegate.transport.stdio import CannotStart
from samplegate.transport.subprocess import start_child, stderr_log

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp


Ended = Callable[[], Awaitable[object]]
"""Waits for the server's own end."""


class Opens(Protocol):
    """Opens the server's side for a relay, and yields a wait for the server's end. Raises CannotStart."""

    @property
    def realm(self) -> str:
        """Distinguishes the server from other unnamed servers."""
        ...

    @property
    def streams(self) -> bool:
        """Whether the server answers each request on a stream of its own."""
        ...

    def problem(self) -> str | None:
        """Why the server did not take the latest request, if that is known."""
        ...

    def open(self, relay: Relay) -> AbstractAsyncContextManager[Ended]: ...


class Process:
    """A stdio server: one process for each conversation.

    ``environment`` is called at each start, because a reload may withhold more variables.
    """

    streams = False

    def __init__(
        self, server: ServerSettings, environment: Callable[[], Mapping[str, str]], max_frame: int, log: Log
    ) -> None:
        self._server = server
        self._environment = environment
        self._log = log
        self._max_frame = max_frame
        self.realm = realm_of(server.name, server.argv, None)

    def problem(self) -> str | None:
        """A process has none: its end is known."""
        return None

    @asynccontextmanager
    async def open(self, relay: Relay) -> AsyncIterator[Ended]:
        """Start the process; on exit, end it and all processes that it has started."""
        server = self._server
        environment = {**self._environment(), **server.env}
        child = await start_child(
            server.argv,
            relay.server,
            env=environment,
            cwd=server.cwd,
            max_line=self._max_frame,
            on_stderr=stderr_log(self._log, self._server.name),
            together=True,
        )
        relay.connect_server(shared_process_writer(child.link))
        try:
            yield child.exited
        finally:
            await child.stop()


class RemoteServer:
    """A server over HTTP: one connection for each conversation, over a shared pool. All conversations share its
    credentials."""

    streams = True

    def __init__(
        self, server: ServerSettings, http: aiohttp.ClientSession, max_frame: int, *, state: Path, log: Log
    ) -> None:
        from samplegate.oauth.credentials import credentials_for

        assert server.url is not None
        self._server = server
        self._http = http
        self._max_frame = max_frame
        headers = [*server.headers, *server.headers_from]
        self._credentials = credentials_for(
            server.name,
            server.url,
            server.oauth,
            headers=headers,
            state=state,
            log=log,
            in_file=not server.from_options,
        )
        self.realm = realm_of(server.name, (), server.url)
        self._health = Health()

    def problem(self) -> str | None:
        """Why the server did not take the latest request of any conversation."""
        return self._health.shown_problem()

    @asynccontextmanager
    async def open(self, relay: Relay) -> AsyncIterator[Ended]:
        """Prepare the connection; nothing is sent before the first frame."""
        from samplegate.transport.http_client.connection import RemoteConnection

        server = self._server
        assert server.url is not None
        try:
            headers = headers_of(server)
        except ValueError as problem:
            raise CannotStart(
                f"server {server.name}", "", str(problem), "create the file, or set another one in headers_from"
            ) from None
        link = RemoteConnection(
            server.url,
            relay.streams,
            http=self._http,
            headers=headers,
            credentials=self._credentials,
            health=self._health,
            max_frame=self._max_frame,
            note=relay.note,
        )
        relay.connect_server(HttpServerWriter(link))
        try:
            yield relay.server_gone.wait
        finally:
            await link.aclose()


# seconds for the last lines of a process that has ended: a process that it left behind may keep its output open
TAIL: Final = 0.3


class ServerConversation:
    """A conversation as the HTTP endpoint calls it (``transport.http_server.http.Conversation``)."""

    def __init__(
        self, wiring: SessionWiring, behind: Opens, timeouts: Callable[[Relay], Coroutine[Any, Any, None]] | None = None
    ) -> None:
        self.wiring = wiring
        self.failed: CannotStart | None = None
        """Why it could not be started."""
        self.exit: object = None
        """Exit code of the server's process, or the negative number of a signal; None unless the process ended by
        itself."""
        self._behind = behind
        self._timeouts = timeouts
        self._relay = wiring.relay
        self._streams = HttpClientWriter(self._lost, self._unreached)
        self._numbers = 0
        self.used = self._relay.clock()
        """When a stream was last opened or closed."""
        self._started = False
        self._died = False
        self._ending = anyio.Event()
        self._over = anyio.Event()
        self._calls: list[Callable[[], None]] = []
        self._relay.connect_client(self._streams)

    @property
    def streams(self) -> int:
        """Number of open streams, including the standalone streams of a legacy session."""
        return len(self._streams.sinks)

    @property
    def busy_streams(self) -> int:
        """Number of streams with requests under way."""
        return sum(1 for stream in self.wiring.state.inflight.streams if stream >= 0)

    @property
    def asked_to_end(self) -> bool:
        """Whether the gate ended the conversation while the server was still alive."""
        return self._ending.is_set() and not self._died

    @property
    def over(self) -> bool:
        """Whether the conversation is closed or closing."""
        return self._ending.is_set() or self._over.is_set() or self._relay.server_gone.is_set()

    def open_stream(
        self, stream: Sink, *, standalone: bool = False, identity: Identity | None = None, trace: str = ""
    ) -> int:
        """Register a stream and return its number."""
        number = STANDALONE
        if not standalone:
            self._numbers += 1
            number = self._numbers
        if identity is not None:
            self.wiring.state.note_identity(number, identity)
        if trace:
            self.wiring.state.traces[number] = trace
        self.used = self._relay.clock()
        self._streams.sinks[number] = stream  # even if the conversation is over: its next frame then gets an error
        return number

    def received(self, stream: int, line: bytes | Frame) -> None:
        """Handle one frame of the client."""
        if self.over:
            self._relay.refuse(stream, line.raw if isinstance(line, Frame) else line, "the server has stopped")
        else:
            self._relay.handle("client", stream, line)

    def close_stream(self, stream: int) -> None:
        """Handle the client's end of a stream. The sink stays while a legacy client is still owed an answer (T35)."""
        self.used = self._relay.clock()
        self._relay.stream_closed(stream)
        if stream not in self.wiring.state.inflight.streams:
            self._streams.sinks.pop(stream, None)
            self.wiring.state.identities.pop(stream, None)
            self.wiring.state.traces.pop(stream, None)

    def undelivered(self, id: str | int) -> None:
        """Handle a request to the client that no stream delivered in time."""
        if not self.over:
            self._relay.undelivered(id)

    def on_end(self, call: Callable[[], None]) -> None:
        """Call ``call`` once when the conversation is over."""
        if self._over.is_set():
            call()
        else:
            self._calls.append(call)

    async def aclose(self, why: str | None = None) -> None:
        """End the conversation and wait until the server's side is closed. ``why``: the error of requests still in
        flight."""
        if why is not None:
            self._relay.session.state.end_reason = why
        self._died = self._died or self._relay.server_gone.is_set()
        self._ending.set()
        await self._over.wait()

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run the conversation. ``task_status`` is set once the server's side is open, or cannot be opened
        (``failed``).

        Never raises: an error in the gate ends this conversation and no other.
        """
        try:
            await self._relay.run(lambda: self._converse(task_status))
        except Exception:
            self._relay.note(Note("conversation.failed", {"server": self.wiring.server, "exc_info": True}))
            self.failed = self.failed or CannotStart(
                f"server {self.wiring.server}", "", "internal error in the gate", "see the log"
            )
            self._end()
        finally:
            self.wiring.leave()
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
        """Wait for the first of: the server's exit and its last lines, the end of its output, or ``aclose``."""

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
        """Withdraw rounds, answer the requests that wait for the server with an error, and close the streams."""
        if not self._relay.server_gone.is_set():
            self._relay.ended("server")
        self._streams.close()

    def _unreached(self, id: str | int) -> None:
        """Handle a request to the client without any stream. The relay is still sending, so it is notified in the event
        loop's next turn."""
        asyncio.get_running_loop().call_soon(self.undelivered, id)

    def _lost(self, stream: int, last: bool) -> None:
        """Note a dropped frame for a closed stream."""
        self._relay.note(
            Note("answer.undelivered" if last else "frame.undelivered", {"server": self.wiring.server}, warn=False)
        )
