"""Benchmark of many legacy sessions: the memory of each while idle, their calls when many call at once, and calls of
others while they are idle.

A stdio server costs one process for each session. That memory is the server's, so the gate's own share is also measured
in front of an HTTP server.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
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
CALLERS: Final = 16
"""Sessions that call while others are idle."""
FURTHER: Final = 20
"""Sessions that are opened one by one while others are idle."""
FILES_EACH: Final = 2
"""Open files of the gate for a session: the client's connection, and one to the server."""
FILES_MORE: Final = 500
"""Open files of any of the processes besides."""
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


@dataclass(frozen=True, slots=True)
class Latency:
    """Microseconds of a call."""

    p50: float
    p99: float


@dataclass(frozen=True, slots=True)
class Idle:
    """``own`` is KiB per session (PSS); None if it cannot be read. The calls are those of CALLERS other sessions, one
    at a time and all at once, at this gate and at one without idle sessions."""

    open: int
    own: float | None
    one: Latency
    one_alone: Latency
    many: Latency
    many_alone: Latency
    errors: int
    opening: float
    """Milliseconds for opening a further session; the median."""
    opening_alone: float


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


def measure_idle(sessions: int, laps: int, calls: int) -> Idle:
    """Open ``sessions`` sessions at one of two gates with an HTTP server behind. Then other sessions make ``calls``
    calls in each lap, which alternates between the gates. Raises RuntimeError if the system permits too few open
    files."""
    mine, others = cores()
    with ExitStack() as stack:
        stack.enter_context(open_files(FILES_EACH * sessions + FILES_MORE))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "settings.yaml").write_text(SETTINGS, encoding="utf-8")
        server = programs.server()
        at = stack.enter_context(started(server.command, server.path, others)).at
        found = []
        for name in ("idle", "alone"):
            gate = programs.gate(name, folder / name, "--settings", str(folder / "settings.yaml"), "--url", at)
            found.append(stack.enter_context(started(gate.command, gate.path, mine)))
        stack.enter_context(pinned(others))
        return run(_idle(found[0], found[1], sessions, laps, calls))


async def _idle(running: Running, alone: Running, sessions: int, laps: int, calls: int) -> Idle:
    try:
        callers = [await _open(gate.at, CALLERS) for gate in (running, alone)]
        before = _memory(running)
        idle = await _open(running.at, sessions)
        after = _memory(running)
        errors = 0
        times: dict[tuple[int, int], list[float]] = {(gate, many): [] for gate in (0, 1) for many in (1, CALLERS)}
        for number in range(laps + 1):
            for gate, many in times if number % 2 else reversed(times):
                took, wrong, _ = await _calling(callers[gate][:many], calls // many)
                errors += wrong
                times[gate, many] += took if number else []  # the first lap warms up
        further = [await _opened(gate.at) for _ in range(FURTHER) for gate in (running, alone)]
    except (WrongAnswer, OSError, TimeoutError) as problem:
        raise RuntimeError(f"{sessions} idle sessions: {problem!r}; {running.problem()}") from problem
    for client in (*idle, *callers[0], *callers[1], *(client for client, _ in further)):
        client.close()
    opening, opening_alone = (median(took for _, took in further[gate::2]) for gate in (0, 1))
    own = None if before is None or after is None else (after[0] - before[0]) * 1024 / sessions
    one, all, one_alone, all_alone = (Latency(median(each), quantiles(each, n=100)[98]) for each in times.values())
    return Idle(sessions, own, one, one_alone, all, all_alone, errors, opening, opening_alone)


async def _opened(at: str) -> tuple[Client, float]:
    """A further session, and the milliseconds for opening it."""
    began = time.perf_counter_ns()
    client = await load.client(at, "legacy", 1)
    return client, (time.perf_counter_ns() - began) / 1e6


@contextmanager
def open_files(wanted: int) -> Iterator[None]:
    """Permit this process, and those that it starts meanwhile, to open so many files. Raises RuntimeError."""
    import resource  # Windows has none

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise RuntimeError(
            f"this needs {wanted:,} open files, and the system permits {hard:,}; raise the hard limit (ulimit -Hn)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft if soft == resource.RLIM_INFINITY else max(soft, wanted), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


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
