"""Benchmark of passed-through calls over HTTP, in short interleaved laps with all programs alive, so that a disturbance
affects each of them.

The programs share one core, on which only the program of the current lap is busy. The client, and the HTTP server
behind, use the other core.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeVar

from bench.faults import short
from bench.overhttp import programs, usage
from bench.overhttp.load import Client, Lap, client, lap
from bench.overhttp.programs import FLOOR, Program
from bench.overhttp.started import Running, cores, pinned, started
from bench.overhttp.wire import ERAS, Era, WrongAnswer
from bench.variants import SERVER

MANY: Final = 32
"""Keep-alive connections of the one client that measures calls per second."""
STDIO: Final = "gate, stdio behind"
HTTP: Final = "gate, HTTP behind"
BASE: Final = {STDIO: "base, stdio behind", HTTP: "base, HTTP behind"}
"""The earlier version of the gate, by the name of the program that it is compared with."""
FORWARDING: Final = "forwarding"
SLOWEST: Final = 0.5
"""Maximum seconds for half a lap: a slow peer makes fewer calls."""
FAILURES: Final = (WrongAnswer, OSError, TimeoutError)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Size:
    """Number of laps, and of calls in a lap: ``calls`` one after the other, ``many`` concurrently."""

    laps: int
    calls: int
    many: int


@dataclass(frozen=True, slots=True)
class Call:
    """Figures of one program in one era, as medians of the laps: microseconds, calls per second, and microseconds of
    CPU per call over all its processes."""

    name: str
    era: Era
    p50: float
    p99: float
    rate: float
    cpu: float | None


@dataclass(slots=True)
class Found:
    """All figures. ``refused`` are peers that cannot serve a protocol version; ``failed`` are peers that failed during
    their laps. Each has its reason."""

    calls: list[Call]
    refused: list[tuple[str, Era, str]]
    one_core: bool
    failed: list[tuple[str, Era, str]] = field(default_factory=list)


@dataclass(slots=True)
class _Runner:
    """A program in one era, with its laps."""

    program: Program
    era: Era
    running: Running
    client: Client
    others: bool
    """True for a program that may fail: neither the present gate nor its floor."""
    calls: int
    at_once: int
    """``calls`` is for the sequential half of a lap, ``at_once`` for the concurrent half."""
    one: list[Lap]
    many: list[Lap]
    cpu: list[float]


def measure(
    size: Size, peers: Sequence[Program], python: Sequence[str] = (sys.executable,), base: Sequence[str] | None = None
) -> Found:
    """Measure all programs in both eras. A peer that cannot serve or that fails is left out; any other failure is
    raised.

    ``python`` and ``base`` are the interpreters of the gate and of an earlier version.
    """
    mine, others = cores()
    with ExitStack() as stack:
        state = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = programs.server()
        behind = stack.enter_context(started(server.command, server.path, others)).at
        ours = [
            programs.bare(),
            programs.forwarding(behind.removesuffix("/mcp") + "/bare"),
            programs.gate(STDIO, state / "stdio", "--", *SERVER, python=python),
            programs.gate(HTTP, state / "http", "--url", behind, python=python),
        ]
        if base is not None:
            peers = [
                programs.gate(BASE[STDIO], state / "base-stdio", "--", *SERVER, python=base),
                programs.gate(BASE[HTTP], state / "base-http", "--url", behind, python=base),
                *peers,
            ]
        found = Found([], [], mine is not None)
        alive = [(program, stack.enter_context(started(program.command, program.path, mine))) for program in ours]
        for program in peers:
            try:
                alive.append((program, stack.enter_context(started(program.command, program.path, mine))))
            except (RuntimeError, OSError) as problem:
                found.refused.extend((program.name, era, short(problem)) for era in ERAS)
        stack.enter_context(pinned(others))
        run(_measured(found, alive, {program.name for program in peers}, size))
    return found


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run on uvloop if it is installed, because the client's own time must be small."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)


async def _measured(found: Found, alive: Sequence[tuple[Program, Running]], peers: set[str], size: Size) -> None:
    runners = [
        runner
        for era in ERAS
        for program, running in alive
        if not (program.plain and era != "legacy")
        and (runner := await _started_runner(found, program, running, era, size, is_peer=program.name in peers))
        is not None
    ]
    for number in range(size.laps):
        for runner in runners[number % len(runners) :] + runners[: number % len(runners)]:
            if not await _lap(runner, found):
                runners = [other for other in runners if other is not runner]
    found.calls = [_call(runner) for runner in runners]
    for runner in runners:
        runner.client.close()


async def _started_runner(
    found: Found, program: Program, running: Running, era: Era, size: Size, *, is_peer: bool
) -> _Runner | None:
    """Connect and warm up."""
    ready: Client | None = None
    try:
        ready = await client(running.at, era, MANY, plain=program.plain)
        one = await lap(ready, 1, size.calls // 2 + 2)
        many = await lap(ready, MANY, size.many // 2)
    except FAILURES as problem:
        if ready is not None:
            ready.close()
        if not is_peer:
            raise RuntimeError(f"{program.name}, {era}: {problem}; {running.problem()}") from problem
        print(f"bench: {program.name} cannot serve a {era} client: {short(problem)}", file=sys.stderr)
        found.refused.append((program.name, era, short(problem)))
        return None
    calls = min(size.calls, max(2, int(SLOWEST * 1e6 / one.p50)))
    at_once = min(size.many, max(MANY, int(SLOWEST * many.rate)))
    return _Runner(program, era, running, ready, is_peer, calls, at_once, [], [], [])


async def _lap(runner: _Runner, found: Found) -> bool:
    """Run one lap. Returns False if the program has failed. A peer may close an idle connection at any moment, so its
    lap is tried once more over new connections."""
    try:
        await _measure_lap(runner)
    except FAILURES as problem:
        if not runner.others:
            raise RuntimeError(
                f"{runner.program.name}, {runner.era}: {problem}; {runner.running.problem()}"
            ) from problem
        runner.client.close()
        try:
            runner.client = await client(runner.running.at, runner.era, MANY, plain=runner.program.plain)
            await _measure_lap(runner)
        except FAILURES as again:
            print(f"bench: {runner.program.name} failed a {runner.era} client: {short(again)}", file=sys.stderr)
            found.failed.append((runner.program.name, runner.era, short(again)))
            runner.client.close()
            return False
    return True


async def _measure_lap(runner: _Runner) -> None:
    one = await lap(runner.client, 1, runner.calls)
    before = usage.cpu(runner.running.process.pid)
    many = await lap(runner.client, MANY, runner.at_once)
    after = usage.cpu(runner.running.process.pid)
    runner.one.append(one)
    runner.many.append(many)
    if before is not None and after is not None:
        runner.cpu.append((after - before) / runner.at_once)


def _call(runner: _Runner) -> Call:
    return Call(
        runner.program.name,
        runner.era,
        p50=median(one.p50 for one in runner.one),
        p99=median(one.p99 for one in runner.one),
        rate=median(many.rate for many in runner.many),
        cpu=median(runner.cpu) if runner.cpu else None,
    )


def find_call(found: Found, name: str, era: Era) -> Call | None:
    """The figures of one program in one era. The floor and the forwarding endpoint have no eras."""
    wanted = "legacy" if name in (FLOOR, FORWARDING) else era
    return next((call for call in found.calls if (call.name, call.era) == (name, wanted)), None)
