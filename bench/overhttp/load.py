"""Laps over HTTP: sequential calls on one connection, or concurrent calls on many, in callbacks of the event loop.
Every answer is checked."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Final

from bench.overhttp.wire import (
    INITIALIZE,
    INITIALIZED,
    LEGACY,
    Calls,
    Connection,
    Era,
    WrongAnswer,
    check,
    connect,
    header,
    request,
)

PATIENCE: Final = 60.0  # seconds for a lap; after that, a program hangs


@dataclass(frozen=True, slots=True)
class Lap:
    """Microseconds of a call, and calls per second."""

    p50: float
    p99: float
    rate: float


@dataclass(slots=True)
class Client:
    """A client of one address. In the legacy era, all its connections share one session."""

    at: str
    calls: Calls
    connections: list[Connection]

    async def ready(self, connections: int) -> list[Connection]:
        """The given number of open connections. Servers close connections that were idle for some seconds during other
        programs' laps."""
        for number in range(connections):
            if not self.connections[number].open:
                self.connections[number] = await connect(self.at)
        return self.connections[:connections]

    def close(self) -> None:
        """Close the connections; the session ends with the server."""
        for connection in self.connections:
            connection.close()


async def client(at: str, era: Era, connections: int, *, plain: bool = False) -> Client:
    """Connect a client. ``plain`` means an endpoint without a protocol."""
    opened = [await connect(at) for _ in range(connections)]
    ready = Client(at, Calls(at, era), opened)
    if era == "legacy" and not plain:
        try:
            ready.calls = Calls(at, era, await begin(opened[0], at))
        except BaseException:
            ready.close()
            raise
    return ready


async def begin(connection: Connection, at: str, capabilities: str = "{}") -> str | None:
    """Begin a legacy session. Returns its id, or None if the server has no sessions."""
    head, body = await connection.ask(request(at, INITIALIZE % capabilities))
    check(head, body, b"1", b'"protocolVersion"')
    session = header(head, b"mcp-session-id")
    own = {"mcp-protocol-version": LEGACY} | ({"mcp-session-id": session} if session is not None else {})
    head, body = await connection.ask(request(at, INITIALIZED, own))
    if head[9:12] != b"202":
        raise WrongAnswer(f"notifications/initialized: {head[:100]!r}")
    return session


async def lap(client: Client, connections: int, calls: int) -> Lap:
    """Make ``calls`` calls over ``connections`` connections. Raises Wrong for the first incorrect answer."""
    ready = await client.ready(connections)
    times: list[int] = []
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    left = calls
    clock = time.perf_counter_ns

    def failed(problem: Exception) -> None:
        if not done.done():
            done.set_exception(problem)

    def drive(connection: Connection) -> None:
        nonlocal left
        if left <= 0 or done.done():
            return
        left -= 1
        id, whole = client.calls.next()

        def take(head: bytes, body: bytes) -> None:
            times.append(clock() - began)
            try:
                check(head, body, id)
            except WrongAnswer as problem:
                failed(problem)
                return
            if len(times) == calls and not done.done():
                done.set_result(None)
            drive(connection)

        began = clock()
        connection.post(whole, take, failed)

    started = clock()
    for connection in ready:
        drive(connection)
    async with asyncio.timeout(PATIENCE):
        await done
    return Lap(median(times) / 1000, quantiles(times, n=100)[98] / 1000, calls / (clock() - started) * 1e9)
