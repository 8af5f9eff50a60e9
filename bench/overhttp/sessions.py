"""Benchmark of many legacy sessions: the memory of each while idle, and their calls when many call at once.

A stdio server costs one process for each session. That memory is the server's, so the gate's own share is also measured
in front of an HTTP server.
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
from bench.overhttp.wire import WrongAnswer, check
from bench.variants import SERVER

Behind: TypeAlias = Literal["HTTP", "stdio"]
SETTINGS: Final = "max_sessions: 20000\nmax_sessions_per_caller: 20000\nmax_connections: 20000\nmax_children: 1000\n"
AT_ONCE: Final = 16
"""Sessions that are opened at a time."""
FIRST: Final = 10
"""Sessions before the first look at the memory, so that code loaded once is not counted."""


@dataclass(frozen=True, slots=True)
class Sessions:
    """``own`` and ``children`` are KiB per session, of the gate and of the servers it started (PSS); None if they
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
    """Open ``sessions`` sessions. Then ``calling`` of them make ``each`` calls, all at once."""
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
        before = _memory(running)
        clients += await _open(running.at, sessions)
        after = _memory(running)
        times, errors, seconds = await _calling(clients[-calling:], each)
    except (WrongAnswer, OSError, TimeoutError) as problem:
        raise RuntimeError(f"{behind} behind: {problem!r}; {running.problem()}") from problem
    own = children = None
    if before is not None and after is not None:
        own, children = ((last - first) * 1024 / sessions for first, last in zip(before, after, strict=True))
    for client in clients:
        client.close()
    p99 = quantiles(times, n=100)[98]
    return Sessions(behind, sessions, own, children, calling, len(times) / seconds, median(times), p99, errors)


async def _open(at: str, many: int) -> list[Client]:
    """Open sessions, each on its own connection."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one() -> Client:
        async with room:
            return await load.client(at, "legacy", 1)

    return list(await asyncio.gather(*(one() for _ in range(many))))


def _memory(running: Running) -> tuple[float, float] | None:
    """MiB of the gate, and of the processes it has started."""
    if not memory.can_be_read():
        return None
    gc.collect()
    gate, *children = usage.below(running.process.pid)
    return memory.process_memory(gate).pss, sum(memory.process_memory(child).pss for child in children)


async def _calling(clients: Sequence[Client], each: int) -> tuple[list[float], int, float]:
    """Microseconds of each correctly answered call, the number of other calls, and the seconds for all."""
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
            except (WrongAnswer, OSError, TimeoutError):
                errors += 1

    started_at = time.perf_counter()
    await asyncio.gather(*(one(client) for client in clients))
    return times, errors, time.perf_counter() - started_at
