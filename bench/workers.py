"""Benchmark of model workers: samples per second through a gate with one worker and with two, and the CPU time of a
sample in each process; same endpoint and calls, in laps."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from bench import endpoint, memory, sampling
from bench.client import Connection, connected
from bench.overhttp import usage

COUNTS: Final = (1, 2)
AT_ONCE: Final = 16
START: Final = 60.0
"""Seconds for the start of the workers."""


@dataclass(frozen=True, slots=True)
class Workers:
    """Samples per second, and the milliseconds of CPU time that each process uses for a sample of the gate; medians of
    the laps. ``ratio`` is the rate divided by that of one worker in the same lap."""

    count: int
    rate: float
    ratio: float
    gate: float
    workers: tuple[float, ...]
    """A part of the samples goes to each."""
    rest: float
    """The server that asks, and the endpoint."""


@dataclass(frozen=True, slots=True)
class _Gate:
    connection: Connection
    processes: tuple[int, ...]
    """The gate and its workers."""
    others: tuple[int, ...]
    """The server, and the shell that ends it if the gate is killed."""

    def lap(self, count: int, endpoint: int) -> tuple[float, list[float]]:
        """Samples per second, and milliseconds of CPU time for a sample: of the gate, of each worker, of the rest."""
        watched = (*self.processes, *self.others, endpoint)
        before = [usage.own(pid) for pid in watched]
        seconds = self.connection.sample(count, AT_ONCE) / 1e9
        used = [(usage.own(pid) - start) / 1000 / count for pid, start in zip(watched, before, strict=True)]
        mine = len(self.processes)
        return count / seconds, [*used[:mine], sum(used[mine:])]


def measure(laps: int, calls: int) -> list[Workers]:
    """Run laps that alternate between gates with different numbers of workers. Empty without /proc."""
    if not memory.can_be_read():
        return []
    with ExitStack() as stack:
        model = stack.enter_context(endpoint.running())
        gates = [stack.enter_context(_gate(model.url, count)) for count in COUNTS]
        runs = [[gate.lap(calls, model.pid) for gate in gates] for _ in range(laps)]
    return [_figures(count, [(lap[index], lap[0][0]) for lap in runs]) for index, count in enumerate(COUNTS)]


def _figures(count: int, laps: Sequence[tuple[tuple[float, list[float]], float]]) -> Workers:
    gate, *workers, rest = (median(column) for column in zip(*(used for (_, used), _ in laps), strict=True))
    rate, ratio = median(rate for (rate, _), _ in laps), median(rate / one for (rate, _), one in laps)
    return Workers(count, rate, ratio, gate, tuple(workers), rest)


@contextmanager
def _gate(url: str, count: int) -> Iterator[_Gate]:
    """A gate whose workers have all answered samples."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = folder / "samplegate.yaml"
        settings.write_text(f"model_workers: {count}\nstate: {folder / 'state'}\n", encoding="utf-8")
        with connected(sampling.gate_command(url, folder, "--settings", str(settings))) as connection:
            connection.initialize()
            deadline = time.monotonic() + START
            while len(_ready(settings)) < count:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the gate did not start {count} workers within {START:.0f} s")
                connection.sample(sampling.WARM_UP, AT_ONCE)
            connection.sample(5 * sampling.WARM_UP, AT_ONCE)
            pid, workers = connection.process.pid, _ready(settings)
            others = [other for other in usage.below(pid) if other not in (pid, *workers)]
            yield _Gate(connection, (pid, *workers), tuple(others))


def _ready(settings: Path) -> list[int]:
    """The process IDs of the gate's workers that are ready."""
    command = [sys.executable, "-m", "samplegate", "status", "--settings", str(settings), "--json"]
    found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return [worker["pid"] for gate in found["gates"] for worker in gate["workers"] if worker["state"] == "ready"]
