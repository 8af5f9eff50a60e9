"""Hostile frames through a real ``samplegate serve``, and what they do to its event loop and its memory.

    async with traffic(folder) as at: ...
    async for stall in stalls(folder, frames): ...

A server over stdio stands behind the gate and answers shortly (``programs/terse.py``), the clients write HTTP bodies as
they are.
"""

from __future__ import annotations

import asyncio
import io
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp

from tests.fakes.daemon import ACCEPT, VERSION, Gate, serving
from tests.fakes.hostile_frames import ANSWERS, CALLS, MODERN_CALLS, NOTICES, SIZE, SIZES, Make, modern_call
from tests.paths import PROGRAMS

PATH: Final = "/servers/terse/mcp"
POLICY: Final = "version: 1\nrules: [{name: all, effect: forward}]\n"
PATIENCE: Final = 300.0
"""Seconds for one frame; it takes one or two."""
SMALL: Final = 64 * 1024
"""Bytes of a small frame."""
MOST_GROWTH: Final = 20.0
"""MiB by which memory may exceed what it was before."""
MOST_STALL: Final = 250.0
"""Milliseconds of CPU time of the event loop's thread between two turns."""
LEGACY: Final = {"mcp-protocol-version": "2025-11-25"}
MODERN: Final = {"mcp-protocol-version": VERSION, "mcp-method": "tools/call"}
HELLO: Final = (
    b'{"jsonrpc":"2.0","id":0,"method":"initialize",'
    b'"params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}'
)
_plain: Final = modern_call(lambda size: b'"' + b"x" * size + b'"')


def resident(pid: int) -> float:
    """Resident memory of a process in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))) / 1024


@dataclass
class At:
    """A gate and the sessions that its clients have opened."""

    gate: Gate
    http: aiohttp.ClientSession
    sessions: list[Mapping[str, str]]

    async def post(self, body: bytes, headers: Mapping[str, str]) -> int:
        """Send a frame, read the answer to its end and return the status."""
        async with self.http.post(
            self.gate.url + PATH, data=io.BytesIO(body), headers={**ACCEPT, **headers}
        ) as response:
            async for _ in response.content.iter_any():
                pass
            return response.status

    async def open(self) -> None:
        """Open one more legacy session, which has its own server process."""
        async with self.http.post(self.gate.url + PATH, data=HELLO, headers=ACCEPT) as response:
            assert 200 == response.status, await response.text()
            self.sessions.append({**LEGACY, "mcp-session-id": response.headers["mcp-session-id"]})
        assert 202 == await self.post(b'{"jsonrpc":"2.0","method":"notifications/initialized"}', self.sessions[-1])

    async def modern(self, make: Make, size: int, tool: str = "echo") -> int:
        """Send a frame of 2026-07-28."""
        return await self.post(make(7, size), {**MODERN, "mcp-name": tool})

    async def legacy(self, make: Make, size: int, number: int = 7) -> int:
        """Send a frame in one of the sessions, in turn."""
        return await self.post(make(number, size), self.sessions[number % len(self.sessions)])

    def resident(self) -> float:
        """Resident memory of the gate's process alone, in MiB."""
        return resident(self.gate.process.pid)

    async def settled(self, most: float, seconds: float = 20.0) -> float:
        """Wait some seconds for the resident memory to fall to ``most``, and return it. Memory of a frame is freed
        after its answer is sent."""
        async with asyncio.timeout(seconds + PATIENCE):
            for _ in range(int(seconds / 0.2)):
                if self.resident() <= most:
                    break
                await asyncio.sleep(0.2)
        return self.resident()


@asynccontextmanager
async def traffic(
    folder: Path, sessions: int = 3, program: Sequence[str] = ("-m", "samplegate"), server: str = "terse.py"
) -> AsyncIterator[At]:
    """A gate with open legacy sessions. Each session of 2025-11-25 has its own server, and all 2026-07-28 requests
    share one."""
    (folder / "policy.yaml").write_text(POLICY)
    behind = {"command": sys.executable, "args": [str(PROGRAMS / server)]}
    settings = {
        "policy": "policy.yaml",
        "max_body_bytes": 2 * SIZE,
        "decision_log": "none",
        "servers": {"terse": behind},
    }
    (folder / "settings.yaml").write_text(json.dumps(settings))
    timeout = aiohttp.ClientTimeout(total=PATIENCE)
    async with (
        serving(folder, "--settings", "settings.yaml", program=program) as gate,
        aiohttp.ClientSession(timeout=timeout) as http,
    ):
        at = At(gate, http, [])
        for _ in range(sessions):
            await at.open()
        assert 200 == await at.modern(_plain, 10)
        yield at


async def load(at: At, frames: int, size: int, first: int = 0, streams: int = 4) -> dict[int, int]:
    """Send this many frames and count the answers by status. Every other frame is hostile, from the ``first`` hostile
    one on, and half of all are in each protocol version."""
    statuses: dict[int, int] = {}

    async def stream(number: int) -> None:
        hostile = list(zip(CALLS.values(), MODERN_CALLS.values(), strict=False))
        for each in range(number, frames, streams):
            legacy, modern = hostile[(first + each // 4) % len(hostile)] if each % 2 else (_legacy_plain, _plain)
            status = await (at.legacy(legacy, size, 10 + each) if each // 2 % 2 else at.modern(modern, size))
            statuses[status] = statuses.get(status, 0) + 1

    async with asyncio.TaskGroup() as group:
        for number in range(streams):
            group.create_task(stream(number))
    return statuses


def _legacy_plain(number: int, size: int) -> bytes:
    text = b"x" * size
    return b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":{"text":"%b"}}}' % (
        number,
        text,
    )


@dataclass(frozen=True, slots=True)
class Stall:
    """The longest time between two turns of the event loop while one frame passed, in milliseconds of its thread's CPU
    and of the wall."""

    name: str
    cpu: float
    wall: float
    size: int = SIZE


NAMES: Final = (*CALLS, *MODERN_CALLS, *ANSWERS, *NOTICES)
"""Of all frames."""
FRAMES: Final = tuple((name, size) for name in NAMES for size in SIZES)
"""All frames in each size."""


async def stalls(folder: Path, frames: Sequence[tuple[str, int]]) -> AsyncIterator[Stall]:
    """Send these frames to a gate of their own, one after another, and yield the stall that each caused."""
    notes = folder / "stalls"
    notes.touch()
    async with traffic(folder, sessions=1, program=(str(PROGRAMS / "watched.py"), str(notes))) as at:
        await load(at, 20, SMALL)
        for number, (name, size) in enumerate(frames):
            await asyncio.sleep(0.1)
            before = notes.stat().st_size
            await _pass(at, name, size, 1000 + number)
            await asyncio.sleep(0.1)
            with notes.open("rb") as file:
                file.seek(before)
                noted = [tuple(map(float, line.split())) for line in file.read().splitlines()]
            yield Stall(
                name,
                1000 * max((cpu for cpu, _ in noted), default=0.0),
                1000 * max((wall for _, wall in noted), default=0.0),
                size,
            )


def measured(frames: Sequence[tuple[str, int]]) -> list[Stall]:
    """The stalls, measured in an event loop and a folder of their own."""

    async def all_of(folder: Path) -> list[Stall]:
        return [stall async for stall in stalls(folder, frames)]

    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(all_of(Path(folder)))


async def _pass(at: At, name: str, size: int, number: int) -> None:
    if name in CALLS:
        await at.legacy(CALLS[name], size, number)
    elif name in MODERN_CALLS:
        await at.modern(MODERN_CALLS[name], size)
    else:
        ask = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"answer:%d:%b","arguments":{}}}' % (
            number,
            size,
            name.encode(),
        )
        await at.post(ask, at.sessions[0])
