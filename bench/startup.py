"""Benchmark of the start: the time from starting a variant to its first answered `initialize`, interleaved."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from statistics import median

from bench.client import connected
from bench.faults import Faults
from bench.variants import Name, Variant


def measure(variants: Sequence[Variant], rounds: Mapping[Name, int], faults: Faults) -> dict[Name, float]:
    """Milliseconds, the median of ``rounds`` starts, after one more start that fills the disk cache. A failed peer has
    no figure."""
    times: dict[Name, list[float]] = {variant.name: [] for variant in variants}
    for number in range(max(rounds.values()) + 1):
        for variant in variants:
            if number <= rounds[variant.name] and variant.name not in faults.why:
                with faults.guard(variant.name):
                    took = _start(variant.command)
                    times[variant.name] += [took] if number else []
    return {name: median(found) for name, found in times.items() if name not in faults.why}


def _start(command: Sequence[str]) -> float:
    started = time.perf_counter()
    with connected(command) as connection:
        connection.initialize()
        return (time.perf_counter() - started) * 1000
