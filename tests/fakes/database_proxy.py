"""A TCP proxy in front of a PostgreSQL server, with the faults of a network: cuts, partitions without FIN, and commits
whose answer is lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, TypeAlias

Commits: TypeAlias = Literal["pass", "lost", "unsent"]


class DatabaseProxy:
    """The proxy runs in a thread of its own. All methods may be called from any thread."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._loop = asyncio.new_event_loop()
        self._moving = asyncio.Event()
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.delay = 0.0
        """Seconds that each piece from the client waits."""
        self.commits: Commits = "pass"
        """``lost``: the next COMMIT is sent, and its answer is cut off. ``unsent``: the next COMMIT is not sent. Either
        is for one COMMIT."""
        self.only = b""
        """If not empty, ``commits`` is for transactions that have sent this."""
        self.cut_after = -1
        """Bytes from the server after which its connection is cut, for one connection; -1: never."""
        self.stall_in: tuple[bytes, float] | None = None
        """Of the next piece from a client that contains these bytes only this share is passed on, and nothing after it;
        its connection stays open. The others go on."""
        self.stalled = 0
        """Connections so far that were stalled in this way."""
        self.refused = False
        """Whether new connections are closed at once."""
        self.accepted = 0
        """Connections so far."""
        self.lost = 0
        """Commits so far that were not confirmed."""

    def stall(self) -> None:
        """Pass nothing on, in either direction, without closing anything. New connections are accepted."""
        self._loop.call_soon_threadsafe(self._moving.clear)

    def resume(self) -> None:
        """Pass everything on again, with what has arrived meanwhile."""
        self._loop.call_soon_threadsafe(self._moving.set)

    def cut(self) -> None:
        """Close all connections."""
        self._loop.call_soon_threadsafe(self._close_all)

    def refuse(self, refused: bool) -> None:
        """Close all connections, and new ones as soon as they are made; or accept them again."""
        self.refused = refused
        self.cut()

    def _close_all(self) -> None:
        for writer in tuple(self._open):
            writer.transport.abort()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a client, in the loop."""
        task = self._loop.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, client_reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        if self.refused:
            client.transport.abort()
            return
        self.accepted += 1
        self._open.add(client)
        try:
            await self._moving.wait()
            server_reader, server = await asyncio.open_unix_connection(str(self._socket))
        except OSError:
            client.transport.abort()
            self._open.discard(client)
            return
        self._open.add(server)
        losing = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._up(client_reader, server, client, losing))
                tasks.create_task(self._down(server_reader, client, server, losing))
        except* OSError:
            pass
        finally:
            for writer in (client, server):
                writer.transport.abort()
                self._open.discard(writer)

    async def _up(
        self,
        reader: asyncio.StreamReader,
        server: asyncio.StreamWriter,
        client: asyncio.StreamWriter,
        losing: asyncio.Event,
    ) -> None:
        found = False
        while data := await reader.read(65536):
            found = found or self.only in data
            if self.delay:
                await asyncio.sleep(self.delay)
            await self._moving.wait()
            if b"COMMIT\0" in data and found and self.commits != "pass":
                how, self.commits = self.commits, "pass"
                self.lost += 1
                if how == "unsent":
                    raise ConnectionResetError
                losing.set()
            found = found and b"COMMIT\0" not in data
            if self.stall_in and self.stall_in[0] in data:
                share, self.stall_in = self.stall_in[1], None
                server.write(data[: int(len(data) * share)])
                self.stalled += 1
                await asyncio.Event().wait()
            server.write(data)
            await server.drain()
        raise ConnectionResetError

    async def _down(
        self,
        reader: asyncio.StreamReader,
        client: asyncio.StreamWriter,
        server: asyncio.StreamWriter,
        losing: asyncio.Event,
    ) -> None:
        left, self.cut_after = self.cut_after, -1
        while data := await reader.read(65536):
            await self._moving.wait()
            if losing.is_set():
                if b"COMMIT\0" in data:
                    raise ConnectionResetError
                continue
            if 0 <= left < len(data):
                client.write(data[:left])
                await client.drain()
                raise ConnectionResetError
            left -= len(data) if left >= 0 else 0
            client.write(data)
            await client.drain()
        raise ConnectionResetError


@contextmanager
def database_proxy(socket: Path) -> Iterator[DatabaseProxy]:
    """A running proxy in front of the server with this Unix socket."""
    proxy = DatabaseProxy(socket)
    ready = threading.Event()

    async def run() -> None:
        proxy._moving.set()
        listener = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
        proxy.port = listener.sockets[0].getsockname()[1]
        ready.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        listener.close()
        proxy._close_all()

    task = proxy._loop.create_task(run())

    def work() -> None:
        asyncio.set_event_loop(proxy._loop)
        proxy._loop.run_until_complete(task)
        left = asyncio.all_tasks(proxy._loop)
        for one in left:
            one.cancel()
        proxy._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        proxy._loop.close()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert ready.wait(20)
    try:
        yield proxy
    finally:
        proxy._loop.call_soon_threadsafe(task.cancel)
        thread.join(20)
