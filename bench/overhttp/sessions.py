"""Many legacy sessions: what each holds in memory while it is idle, and how they do when many of them call at once.

A stdio server costs a process for each session, which is the server's; so the gate's own share is looked at in front of
one over HTTP too.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Final, Literal, TypeAlias

from bench import memory
from bench.overhttp import load, programs, usage
from bench.overhttp.calls import run
from bench.overhttp.load import Client
from bench.overhttp.started import Running, cores, pinned, started
from bench.overhttp.wire import Wrong, check
from bench.variants import SERVER

Behind: TypeAlias = Literal["HTTP", "stdio"]
SETTINGS: Final = "max_sessions: 20000\nmax_sessions_per_caller: 20000\nmax_connections: 20000\nmax_children: 1000\n"
AT_ONCE: Final = 16
"""Sessions that are begun at a time."""
FIRST: Final = 10
"""Sessions before the memory is looked at first: what is loaded once is not theirs."""


@dataclass(frozen=True, slots=True)
class Sessions:
    """``own`` and ``children``: KiB for one session, of the gate and of the servers it started (PSS); None where that
    cannot be read."""

    behind: Behind
    open: int
    own: float | None
    children: float | None
    calling: int
    rate: float
    p50: float
    p99: float
    """Microseconds."""
    errors: int


def measure(behind: Behind, sessions: int, calling: int, each: int) -> Sessions:
    """So many sessions; then so many of them call so often ``each``, all at once."""
    mine, others = cores()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "settings.yaml").write_text(SETTINGS, encoding="utf-8")
        server = programs.server()
        tail: Sequence[str] = ("--", *SERVER)
        if behind == "HTTP":
            tail = ("--url", stack.enter_context(started(server.command, server.path, others)).at)
        gate = programs.gate("gate", folder / "state", "--settings", str(folder / "settings.yaml"), *tail)
        running = stack.enter_context(started(gate.command, gate.path, mine))
        stack.enter_context(pinned(others))
        return run(_measured(running, behind, sessions, calling, each))


async def _measured(running: Running, behind: Behind, sessions: int, calling: int, each: int) -> Sessions:
    try:
        clients = await _open(running.at, FIRST)
        before = _held(running)
        clients += await _open(running.at, sessions)
        after = _held(running)
        times, errors, seconds = await _calling(clients[-calling:], each)
    except (Wrong, OSError, TimeoutError) as problem:
        raise RuntimeError(f"{behind} behind: {problem!r}; {running.problem()}") from problem
    own = children = None
    if before is not None and after is not None:
        own, children = ((last - first) * 1024 / sessions for first, last in zip(before, after, strict=True))
    for client in clients:
        client.close()
    p99 = quantiles(times, n=100)[98]
    return Sessions(behind, sessions, own, children, calling, len(times) / seconds, median(times), p99, errors)


async def _open(at: str, many: int) -> list[Client]:
    """So many sessions, each on a connection of its own."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one() -> Client:
        async with room:
            return await load.client(at, "legacy", 1)

    return list(await asyncio.gather(*(one() for _ in range(many))))


def _held(running: Running) -> tuple[float, float] | None:
    """MiB of the gate, and of what it has started."""
    if not memory.can_be_read():
        return None
    gc.collect()
    gate, *children = usage.below(running.process.pid)
    return memory.one(gate).pss, sum(memory.one(child).pss for child in children)


async def _calling(clients: Sequence[Client], each: int) -> tuple[list[float], int, float]:
    """Microseconds of each call that was answered right, how many were not, and the seconds that all took."""
    times: list[float] = []
    errors = 0
    for client in clients:
        await client.ready(1)

    async def one(client: Client) -> None:
        nonlocal errors
        for _ in range(each):
            id, whole = client.calls.next()
            began = time.perf_counter_ns()
            try:
                check(*await client.connections[0].ask(whole), id)
                times.append((time.perf_counter_ns() - began) / 1000)
            except (Wrong, OSError, TimeoutError):
                errors += 1

    started_at = time.perf_counter()
    await asyncio.gather(*(one(client) for client in clients))
    return times, errors, time.perf_counter() - started_at
