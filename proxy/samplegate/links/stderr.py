"""The stderr of a server's process, line by line and as fast as we want to read it. Not what becomes of the lines.

A server may write as much as it likes: what is read in one turn is bounded, and so is how often, so that a flood slows
the server and not the gate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import IO, Any, Final, cast

LONGEST: Final = 1000  # characters of a line; a longer one is cut
MOST: Final = 50  # lines told of one read; the others are counted. Even
PAUSE: Final = 0.05  # seconds between two reads
# seconds for what a process wrote right before its end; one that it left behind may hold its stderr open
LAST: Final = 0.2

Tell = Callable[[str, int], None]
"""Takes a line, and how many before it were left out."""


class Stderr(asyncio.Protocol):
    """Reads one pipe. Made by ``reading``; ``aclose`` ends it."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._rest = b""
        self._cut = False
        self._transport: asyncio.ReadTransport | None = None
        self._over = asyncio.Event()
        self._opening: asyncio.Future[Any] | None = None

    @classmethod
    def reading(cls, pipe: IO[bytes], tell: Tell) -> Stderr:
        """Begin to read a pipe, which is ours from here on."""
        made = cls(tell)
        made._opening = asyncio.ensure_future(asyncio.get_running_loop().connect_read_pipe(lambda: made, pipe))
        return made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.ReadTransport", transport)  # uvloop's is none by its class

    def data_received(self, data: bytes) -> None:
        *lines, rest = (self._rest + data).split(b"\n")
        if self._cut:  # the beginning of this line was told
            self._cut, lines, rest = not lines, lines[1:], rest if lines else b""
        if len(rest) > 4 * LONGEST:
            lines, rest, self._cut = [*lines, rest], b"", True
        self._rest = rest
        self._take(lines)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
            asyncio.get_running_loop().call_later(PAUSE, self._go_on)

    def connection_lost(self, exc: Exception | None) -> None:
        self._take([self._rest])
        self._rest = b""
        self._over.set()

    async def aclose(self) -> None:
        """Read what is there, for a moment, and close the pipe."""
        try:
            async with asyncio.timeout(LAST):
                if self._opening is not None:
                    await self._opening
                await self._over.wait()
        except TimeoutError:
            pass
        finally:
            if self._transport is not None:
                self._transport.close()

    def _go_on(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _take(self, lines: list[bytes]) -> None:
        """Tell the lines that say something; of too many, the first and the last, in which a fault most likely is."""
        full = [line for line in lines if line.strip()]
        left_out = max(0, len(full) - MOST)
        for line in full[: MOST // 2] if left_out else full:
            self._tell(_text(line), 0)
        if left_out:
            first, *others = full[-(MOST // 2) :]
            self._tell(_text(first), left_out)
            for line in others:
                self._tell(_text(line), 0)


def _text(line: bytes) -> str:
    text = line[: 4 * LONGEST].decode("utf-8", "replace").strip()
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
