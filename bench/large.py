"""Benchmark of large frames: 10 MiB each way, and small calls of another session while such frames pass."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from bench.client import Connection, connected
from bench.faults import Faults
from bench.variants import Name, Variant

SIZE = 10 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Large:
    """Milliseconds of a call with 10 MiB of text in each direction, and the part that the variant adds to the bare
    server's."""

    both: float
    added: float


def measure(variants: Sequence[Variant], rounds: int, faults: Faults, size: int = SIZE) -> dict[Name, Large]:
    """Medians of ``rounds`` interleaved calls. ``bare`` must be among the variants; a failed peer has no figures."""
    text = b"x" * size
    with ExitStack() as stack:
        connections: dict[Name, Connection] = {}
        for variant in variants:
            with faults.guard(variant.name):
                connection = stack.enter_context(connected(variant.command))
                connection.initialize()
                connection.call(text, size)
                connections[variant.name] = connection
        times: dict[Name, list[float]] = {name: [] for name in connections}
        for _ in range(rounds):
            for name, connection in connections.items():
                if name not in faults.why:
                    with faults.guard(name):
                        times[name].append(connection.call(text, size) / 1e6)
    alive = {name: found for name, found in times.items() if name not in faults.why}
    added = {
        name: median(mine - its for mine, its in zip(found, times["bare"], strict=True))
        for name, found in alive.items()
    }
    return {name: Large(median(found), added[name]) for name, found in alive.items()}


@dataclass(frozen=True, slots=True)
class Beside:
    """Microseconds of a small call in one session: alone, and while large frames pass through another session of the
    same variant."""

    alone_p50: float
    alone_p99: float
    beside_p50: float
    beside_p99: float


def beside(variant: Variant, rounds: int, calls: int, size: int = SIZE) -> Beside:
    """Time small calls in one session: first ``calls`` of them alone, then for as long as ``rounds`` large calls take
    in another session."""
    with connected(variant.command) as small:
        small.initialize()
        _times(small, calls)
        alone = _times(small, calls)
        busy = _while_passing(small, variant.command, rounds, size)
    return Beside(median(alone), quantiles(alone, n=100)[98], median(busy), quantiles(busy, n=100)[98])


def _while_passing(small: Connection, command: Sequence[str], rounds: int, size: int) -> list[float]:
    """Times of small calls during large ones. The large calls run in another process, so that the two clients do not
    wait for each other's interpreter."""
    root = Path(__file__).resolve().parent.parent
    passing = [sys.executable, "-m", "bench.large", str(rounds), str(size), *command]
    with subprocess.Popen(
        passing, stdout=subprocess.PIPE, cwd=root, env=os.environ | {"PYTHONPATH": str(root)}
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        busy: list[float] = []
        while process.poll() is None:
            busy += _times(small, 20)
    if process.returncode:
        raise RuntimeError(f"{command!r} did not let the large frames through")
    return busy


def _pass(command: Sequence[str], rounds: int, size: int) -> None:
    text = b"x" * size
    with connected(command) as connection:
        connection.initialize()
        connection.call()
        print("passing", flush=True)
        for _ in range(rounds):
            connection.call(text, size)


def _times(connection: Connection, calls: int) -> list[float]:
    return [connection.call() / 1000 for _ in range(calls)]


if __name__ == "__main__":
    _pass(sys.argv[3:], int(sys.argv[1]), int(sys.argv[2]))
