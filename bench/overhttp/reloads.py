"""Benchmark of reloads: the policy file is replaced repeatedly while 32 connections call. No call may fail, and each
reload must take effect."""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.overhttp import programs
from bench.overhttp.calls import MANY, run
from bench.overhttp.load import Client, client
from bench.overhttp.started import Running, cores, pinned, started
from bench.overhttp.wire import Era, WrongAnswer, check
from bench.variants import SERVER

PATIENCE: Final = 60.0  # seconds for one reload
_taken: Final = re.compile(r"reload\.taken")


@dataclass(frozen=True, slots=True)
class Reloads:
    """``failed`` are calls without a correct answer. ``taken`` are reloads that the daemon reports as done."""

    reloads: int
    taken: int
    calls: int
    failed: int
    slowest: float
    """Milliseconds of the slowest call."""


def measure(reloads: int) -> Reloads:
    """Replace the policy ``reloads`` times in sequence. Half of the connections use each era."""
    mine, others = cores()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        policy = folder / "policy.yaml"
        policy.write_bytes(programs.POLICY.read_bytes())
        gate = programs.gate("gate", folder / "state", "--", *SERVER, policy=policy)
        running = stack.enter_context(started(gate.command, gate.path, mine))
        stack.enter_context(pinned(others))
        return run(_measured(running, policy, reloads))


async def _measured(running: Running, policy: Path, reloads: int) -> Reloads:
    done = asyncio.Event()
    eras: tuple[Era, ...] = ("legacy", "modern")
    clients = [await client(running.at, era, MANY // 2) for era in eras]
    load = [asyncio.create_task(_called(one, which, done)) for one in clients for which in range(MANY // 2)]
    with suppress(TimeoutError):  # the figures then show fewer reloads
        for number in range(reloads):
            _replace(policy, number)
            await _until_taken(running, number + 1)
    done.set()
    found = await asyncio.gather(*load)
    for one in clients:
        one.close()
    taken = len(_taken.findall(running.stderr_text()))
    return Reloads(
        reloads,
        taken,
        sum(calls for calls, _, _ in found),
        sum(failed for _, failed, _ in found),
        max(slow for _, _, slow in found),
    )


def _replace(policy: Path, number: int) -> None:
    """Replace the file as editors and deployments do: another file is renamed to its name."""
    other = policy.with_suffix(".new")
    other.write_bytes(programs.POLICY.read_bytes() + b"# version %d\n" % number)
    other.replace(policy)


async def _until_taken(running: Running, number: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while len(_taken.findall(running.stderr_text())) < number:  # noqa: ASYNC110  another process's words
            await asyncio.sleep(0.05)


async def _called(client: Client, which: int, done: asyncio.Event) -> tuple[int, int, float]:
    """Number of calls, number of failed calls, and milliseconds of the slowest."""
    calls = failed = 0
    slowest = 0.0
    while not done.is_set():
        id, whole = client.calls.next()
        began = time.perf_counter()
        calls += 1
        try:
            check(*await client.connections[which].ask(whole), id)
        except (WrongAnswer, OSError, TimeoutError):
            failed += 1
        slowest = max(slowest, (time.perf_counter() - began) * 1000)
    return calls, failed, slowest
