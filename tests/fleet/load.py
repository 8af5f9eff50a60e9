"""Clients that call without pause while something happens to the gates. Every call has an argument of its own."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.fakes.daemon import Client

DEADLINE: Final = 30.0
"""Seconds for one call: it takes milliseconds."""
ABLE: Final[dict[str, Any]] = {"elicitation": {"form": {}}}
GIVEN: Final = {"action": "accept", "content": {"confirm": True}}


@asynccontextmanager
async def client(url: str, server: str, token: str | None = None) -> AsyncIterator[Client]:
    """A client with a connection for each request."""
    connector = aiohttp.TCPConnector(force_close=True, limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=DEADLINE)) as http:
        yield Client(http, f"{url}/servers/{server}/mcp", ABLE, token)


async def outcome(answer: Awaitable[dict[str, Any]]) -> str:
    """``answered``, or what went wrong, in a word or two. A call that takes longer than the deadline is ``late``."""
    try:
        found = await answer
    except TimeoutError:
        return "late"
    except (aiohttp.ClientError, ValueError) as problem:  # ValueError: a page of the balancer instead of JSON
        return f"failed: {type(problem).__name__}"
    if "result" in found and not found["result"].get("isError"):
        return "answered"
    return f"error: {found.get('error', found)}"


async def finished(c: Client, asked: dict[str, Any], note: str) -> dict[str, Any]:
    """The end of a round: a modern client's retry with its answer."""
    more = {"requestState": asked["result"]["requestState"], "inputResponses": {"k": GIVEN}}
    return await c.modern("tools/call", 2, name="do", arguments={"note": note, "ask": True}, **more)


@dataclass
class Load:
    """The calls so far. ``outcomes`` has one for each note, in the order of their ends."""

    outcomes: dict[str, str] = field(default_factory=dict)
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _stopped: bool = False
    _numbers: count[int] = field(default_factory=count)

    def _ended(self, note: str, what: str) -> None:
        self.outcomes[note] = what
        self._news.set()

    async def calls(self, c: Client, who: str) -> None:
        """Call one after another."""
        while not self._stopped:
            note = f"{who}-{next(self._numbers)}"
            self._ended(note, await outcome(c.call("modern", 1, note=note)))

    async def rounds(self, c: Client, who: str, pause: Callable[[], Awaitable[object]]) -> None:
        """Call what asks the client, one after another. The client takes ``pause`` before it answers."""

        async def one(note: str) -> dict[str, Any]:
            asked = await c.call("modern", 1, note=note, ask=True)
            if "result" not in asked:
                return asked
            await pause()
            return await finished(c, asked, note)

        while not self._stopped:
            note = f"{who}-{next(self._numbers)}"
            self._ended(note, await outcome(one(note)))

    async def sessions(self, c: Client, who: str) -> None:
        """Call in a session. After a failure, begin a new session and repeat the call."""
        while not self._stopped:
            note = f"{who}-{next(self._numbers)}"
            for number in count():
                again = f"{note} try {number}"
                if "mcp-session-id" not in c.session:
                    opened = await outcome(c.begin())
                    if opened != "answered":
                        self._ended(f"{again} opens", opened)
                        c.session = {}
                        continue
                what = await outcome(c.call("legacy", number, note=again))
                self._ended(again, what)
                if what == "answered":
                    break
                c.session = {}

    async def more(self, calls: int) -> None:
        """Wait for this many more calls to be answered."""
        wanted = self.answered + calls
        async with asyncio.timeout(2 * DEADLINE):
            while self.answered < wanted:
                self._news.clear()
                await self._news.wait()

    @property
    def answered(self) -> int:
        return sum(what == "answered" for what in self.outcomes.values())

    @property
    def failures(self) -> dict[str, str]:
        return {note: what for note, what in self.outcomes.items() if what != "answered"}

    @asynccontextmanager
    async def running(self, *workers: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
        """Workers that run during the block, and complete their last calls after it."""
        tasks = [asyncio.ensure_future(worker()) for worker in workers]
        try:
            yield
            self._stopped = True
            async with asyncio.timeout(2 * DEADLINE):
                await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def notes(file: Path) -> Counter[str]:
    """How often each note reached a server."""
    return Counter(file.read_text("utf-8").splitlines())
