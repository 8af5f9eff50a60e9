"""One of our server's connections without a socket: a transport that keeps what is written, and a loop whose clock a test turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from samplegate.links.front.bounds import Bounds
from samplegate.links.front.connection import Connection, bounded
from samplegate.links.front.endpoint import App

KEEP_ALIVE = 75


class Transport(asyncio.Transport):
    """``unsent``: bytes that its client has not taken."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.writes: list[bytes] = []
        self.unsent = 0
        self.closed = self.aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed, "nothing is written after the end"
        self.writes.append(bytes(data))

    def is_closing(self) -> bool:
        return self.closed or self.aborted

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    @property
    def out(self) -> bytes:
        return b"".join(self.writes)


@dataclass
class Timer:
    """One call at a time of the clock."""

    at: float
    call: Callable[[], object]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class Clock:
    """As much of a loop as a connection and a wait need. Tasks are the real loop's."""

    now: float = 100.0
    timers: list[Timer] = field(default_factory=list)
    made: int = 0

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, call: Callable[..., object], *args: object) -> Timer:
        self.made += 1
        self.timers.append(Timer(self.now + seconds, lambda: call(*args)))
        return self.timers[-1]

    def call_soon(self, call: Callable[..., object], *args: object, context: object = None) -> None:
        call(*args)

    def get_debug(self) -> bool:
        return False

    def create_task(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(coroutine)

    @property
    def running(self) -> list[Timer]:
        return [timer for timer in self.timers if not timer.cancelled]

    def turn(self, seconds: float) -> None:
        """Let so much time pass."""
        end = self.now + seconds
        while due := [timer for timer in self.running if timer.at <= end]:
            timer = min(due, key=lambda timer: timer.at)
            self.timers.remove(timer)
            self.now = max(self.now, timer.at)
            timer.call()
        self.now = end


class Wire:
    """A connection to an application."""

    def __init__(self, app: App, bounds: Bounds | None = None) -> None:
        self.clock, self.transport, self.state = Clock(), Transport(), ServerState()
        settings: dict[str, Any] = {
            "interface": "asgi3",
            "ws": "none",
            "lifespan": "off",
            "log_config": None,
            "access_log": False,
            "proxy_headers": False,
        }
        config = uvicorn.Config(app, timeout_keep_alive=KEEP_ALIVE, **settings)
        config.load()
        kind: type[Connection] = bounded(bounds or Bounds())
        self.connection = kind(config, self.state, {}, self.clock)  # type: ignore[arg-type]
        self.connection.connection_made(self.transport)

    def come(self, *data: bytes) -> None:
        for piece in data:
            self.connection.data_received(piece)

    async def settled(self) -> None:
        """Until no request is in hand any more."""
        async with asyncio.timeout(10):
            while self.state.tasks:
                await asyncio.wait(set(self.state.tasks))
