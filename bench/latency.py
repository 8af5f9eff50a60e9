"""Benchmark of passed-through calls, in short interleaved laps with all processes alive, so that a disturbance of the
machine affects every variant."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median, quantiles

from bench.client import Connection, connected
from bench.faults import Faults
from bench.variants import Name, Variant

WARM_UP = 200


@dataclass(frozen=True, slots=True)
class Latency:
    """Microseconds. ``added_*`` is the difference to the bare server in the same lap; the figure is the median of the
    laps."""

    p50: float
    p99: float
    added_p50: float
    added_p99: float


def measure(variants: Sequence[Variant], laps: int, calls: int, faults: Faults) -> dict[Name, Latency]:
    """Run laps of ``calls`` calls, round-robin over the variants. ``bare`` must be among them; a failed peer has no
    figures."""
    with ExitStack() as stack:
        connections: dict[Name, Connection] = {}
        for variant in variants:
            with faults.guard(variant.name):
                connection = stack.enter_context(connected(variant.command))
                connection.initialize()
                _lap(connection, WARM_UP)
                connections[variant.name] = connection
        runs: dict[Name, list[tuple[float, float]]] = {name: [] for name in connections}
        order = list(connections.items())
        for number in range(laps):
            for name, connection in order[number % len(order) :] + order[: number % len(order)]:
                if name not in faults.why:
                    with faults.guard(name):
                        runs[name].append(_lap(connection, calls))
    return {name: _latency(runs[name], runs["bare"]) for name in runs if name not in faults.why}


def _lap(connection: Connection, calls: int) -> tuple[float, float]:
    """p50 and p99 of one lap, in microseconds."""
    times = [connection.call() / 1000 for _ in range(calls)]
    return median(times), quantiles(times, n=100)[98]


def _latency(laps: Sequence[tuple[float, float]], bare: Sequence[tuple[float, float]]) -> Latency:
    pairs = list(zip(laps, bare, strict=True))
    return Latency(
        p50=median(p50 for p50, _ in laps),
        p99=median(p99 for _, p99 in laps),
        added_p50=median(mine[0] - its[0] for mine, its in pairs),
        added_p99=median(mine[1] - its[1] for mine, its in pairs),
    )
