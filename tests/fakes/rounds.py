"""Rounds of five calls at once in one legacy HTTP session: two that sample, a form, an echo and a slow one. Counts what
is lost.

The daemon, the HTTP connections and the stdio server are real. To run it alone:
``python -m tests.fakes.rounds --rounds 2000 --loop uvloop --standalone``. It exits with 1 if anything was lost.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.fakes.daemon import ACCEPT, HUMAN, Gate, serving
from tests.paths import PROGRAMS, PROXY

SERVER: Final = [sys.executable, str(PROGRAMS / "concurrent_server.py")]
TOOLS: Final = ("sample", "echo", "sample", "form", "slow")
ASKING: Final = 3
"""How many of them ask the client."""
PATIENCE: Final = 30.0
"""Seconds for a round: far more than a busy machine needs, so a call without an answer by then is lost."""
POLICY: Final = {"version": 1, "rules": [{"name": "client", "effect": "forward"}]}
PATH: Final = "/servers/five/mcp"
REVISION: Final = "2025-11-25"
SOURCE: Final = PROXY


@dataclass
class Tally:
    """The results of the rounds."""

    rounds: int = 0
    answered: int = 0
    lost: int = 0
    """Calls without an answer."""
    refused: int = 0
    """Calls whose request to the client was answered by the gate, or with an error."""
    twice: int = 0
    """Requests that reached the client more than once."""
    requests: int = 0
    """Requests that reached the client."""

    @property
    def good(self) -> bool:
        """Whether every call was answered, and each request reached the client exactly once."""
        wanted = (self.rounds * len(TOOLS), 0, 0, 0, self.rounds * ASKING)
        return wanted == (self.answered, self.lost, self.refused, self.twice, self.requests)


@dataclass
class Client:
    """A legacy client that writes its own HTTP requests, and answers requests on any stream."""

    http: aiohttp.ClientSession
    url: str
    patience: float = PATIENCE
    tally: Tally = field(default_factory=Tally)
    headers: dict[str, str] = field(default_factory=dict)
    told: list[dict[str, Any]] = field(default_factory=list)
    """The server's notifications."""
    _asked: Counter[str] = field(default_factory=Counter)
    _replies: set[asyncio.Task[None]] = field(default_factory=set)

    async def open(self) -> None:
        """Open a session."""
        hello = {
            "protocolVersion": REVISION,
            "capabilities": {"sampling": {}, "elicitation": {}},
            "clientInfo": {"name": "c", "version": "1"},
        }
        async with self._post({"id": "hello", "method": "initialize", "params": hello}) as response:
            assert response.status == 200, await response.text()
            self.headers = {"mcp-session-id": response.headers["mcp-session-id"], "mcp-protocol-version": REVISION}
            await response.read()
        async with self._post({"method": "notifications/initialized"}) as response:
            assert response.status == 202

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Keep a standalone stream open. It must not end by itself."""
        async with self.http.get(self.url, headers={"accept": "text/event-stream", **self.headers}) as response:
            assert response.status == 200
            reading = asyncio.ensure_future(self._read(response))
            try:
                yield
                assert not reading.done(), "the standalone stream ended"
            finally:
                reading.cancel()
                await asyncio.wait([reading])

    async def _read(self, response: aiohttp.ClientResponse) -> None:
        async for _ in self._heard(response):
            pass

    async def call(self, id: str, tool: str) -> str:
        """The text of a call's answer. It is empty if the POST was rejected, or if its stream ended without an
        answer."""
        async with self._post(
            {"id": id, "method": "tools/call", "params": {"name": tool, "arguments": {}}}
        ) as response:
            if response.status != 200:
                return ""
            if response.content_type == "application/json":
                return _text(await response.json())
            async for said in self._heard(response):
                if said.get("id") == id:
                    return _text(said)
        return ""

    async def round(self, number: int) -> None:
        """Make five calls at once."""
        calls = [asyncio.ensure_future(self.call(f"{number}-{place}", tool)) for place, tool in enumerate(TOOLS)]
        done, late = await asyncio.wait(calls, timeout=self.patience)
        texts = [call.result() for call in done]
        for call in late:
            call.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await call
        self.tally.rounds += 1
        self.tally.answered += sum(1 for text in texts if text)
        self.tally.lost += len(late) + sum(1 for text in texts if not text)
        self.tally.refused += texts.count("refused")

    async def _heard(self, response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
        """The answers on a stream. The server's requests are answered concurrently, as a client does."""
        async for line in _lines(response):
            if line.startswith(b"data:") and line[5:].strip():
                said: dict[str, Any] = json.loads(line[5:])
                if "method" not in said:
                    yield said
                elif "id" in said:
                    self._reply_to(said)
                else:
                    self.told.append(said)

    def _reply_to(self, asked: Mapping[str, Any]) -> None:
        self._asked[asked["id"]] += 1
        self.tally.requests += 1
        self.tally.twice += self._asked[asked["id"]] > 1
        task = asyncio.ensure_future(self._reply(asked))
        self._replies.add(task)
        task.add_done_callback(self._replies.discard)

    async def _reply(self, asked: Mapping[str, Any]) -> None:
        result = (
            {"action": "accept", "content": {"confirm": True}} if asked["method"] == "elicitation/create" else HUMAN
        )
        async with self._post({"id": asked["id"], "result": result}) as response:
            assert response.status == 202

    def _post(self, frame: Mapping[str, Any]) -> Any:
        return self.http.post(
            self.url, data=json.dumps({"jsonrpc": "2.0", **frame}), headers={**ACCEPT, **self.headers}
        )


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The lines of a stream, of any length, as they arrive."""
    begun: list[bytes] = []
    async for piece in response.content.iter_any():
        *ended, rest = piece.split(b"\n")
        for line in ended:
            yield b"".join([*begun, line])
            begun = []
        begun.append(rest)


def _text(answer: Mapping[str, Any]) -> str:
    return str(answer["result"]["content"][0]["text"]) if "result" in answer else "refused"


@asynccontextmanager
async def daemon(folder: Path, server: Sequence[str] = SERVER, *, loop: str = "uvloop") -> AsyncIterator[Gate]:
    """A gate on an event loop that forwards everything to its client, with one server."""
    (folder / "policy.json").write_text(json.dumps(POLICY))
    (folder / "settings.json").write_text(
        json.dumps({"servers": {"five": {"command": server[0], "args": server[1:]}}, "policy": "policy.json"})
    )
    env = {} if loop == "uvloop" else {"PYTHONPATH": f"{_without_uvloop(folder)}:{SOURCE}"}
    async with serving(folder, "--settings", "settings.json", env=env, admin=False) as gate:
        yield gate


def _without_uvloop(folder: Path) -> Path:
    """A folder with a module that prevents the import of uvloop."""
    blocked = folder / "blocked"
    blocked.mkdir()
    (blocked / "uvloop.py").write_text("raise ImportError\n")
    return blocked


async def run(gate: Gate, rounds: int, *, standalone: bool, patience: float = PATIENCE, report: int = 0) -> Tally:
    """Run this many rounds of one client. ``report``: rounds between two lines on stderr, 0 for none."""
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=PATIENCE)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as http:
        client = Client(http, gate.url + PATH, patience)
        await client.open()
        async with client.listening() if standalone else contextlib.nullcontext():
            for number in range(rounds):
                await client.round(number)
                if report and (number + 1) % report == 0:
                    print(client.tally, file=sys.stderr)
    return client.tally


async def measure(
    rounds: int, *, standalone: bool, loop: str = "uvloop", patience: float = PATIENCE, report: int = 0
) -> Tally:
    """Run the rounds with a daemon of their own."""
    with tempfile.TemporaryDirectory() as folder:
        async with daemon(Path(folder), loop=loop) as gate:
            return await run(gate, rounds, standalone=standalone, patience=patience, report=report)


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--loop", choices=["uvloop", "asyncio"], default="uvloop", help="the daemon's event loop")
    parser.add_argument("--standalone", action="store_true", help="the client has a standalone stream")
    parser.add_argument(
        "--patience", type=float, default=PATIENCE, help="seconds after which a call without an answer is lost"
    )
    chosen = parser.parse_args()
    tally = asyncio.run(
        measure(chosen.rounds, standalone=chosen.standalone, loop=chosen.loop, patience=chosen.patience, report=100)
    )
    print(tally)
    return 0 if tally.good else 1


if __name__ == "__main__":
    sys.exit(main())
