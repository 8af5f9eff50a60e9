"""A barrier that holds servers in the middle of their calls until the test lets them continue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.fakes.daemon import BOUND


class Door:
    """A server waits here if its call has the argument ``door=door.at``. Made by ``door``."""

    def __init__(self) -> None:
        self.at: tuple[str, int] = ("", 0)
        self._waiting: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
        self._held: list[asyncio.StreamWriter] = []

    async def reached(self, count: int = 1) -> None:
        """Wait until ``count`` more calls are held."""
        async with asyncio.timeout(BOUND):
            for _ in range(count):
                self._held.append(await self._waiting.get())

    def open(self) -> None:
        """Let all held calls continue."""
        for writer in self._held:
            writer.close()

    async def _come(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._waiting.put_nowait(writer)


@asynccontextmanager
async def door() -> AsyncIterator[Door]:
    """A closed door."""
    made = Door()
    listening = await asyncio.start_server(made._come, "127.0.0.1", 0)
    made.at = listening.sockets[0].getsockname()[:2]
    try:
        yield made
    finally:
        made.open()
        listening.close()
