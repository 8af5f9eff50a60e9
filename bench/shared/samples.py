"""Benchmark of a sample whose limits and record are in PostgreSQL, beside limits in SQLite and no limits.

All gates are `samplegate run` with the built-in model, and their laps alternate.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Final, Literal, TypeAlias

from bench.client import Connection, connected
from bench.sampling import SERVER
from tests.fakes.postgresql import postgresql, url

POLICY: Final = """\
version: 1
models: [{name: small, model: scripted, cases: cases.yaml, price: {input: 0.1, output: 0.4}}]
limits: {daily: {usd: 1000, per: day, tz: UTC}}
rules:
  - {name: samples, match: {kind: sampling}, effect: allow, with: {max_tokens: 500}, limits: [daily]}
"""
CASES: Final = "cases: [{answer: done, input_tokens: 120, output_tokens: 4}]\n"
Place: TypeAlias = Literal["no limits", "SQLite", "log in a file", "PostgreSQL"]
"""Where the limit is. ``log in a file``: the limit is in PostgreSQL, but the decision log is not."""
PLACES: Final[tuple[Place, ...]] = ("no limits", "SQLite", "log in a file", "PostgreSQL")
WARM_UP: Final = 100


@dataclass(frozen=True, slots=True)
class Took:
    """Microseconds of a sample, medians of the laps. ``added_*`` is the difference to the gate without limits in the
    same lap."""

    p50: float
    p99: float
    added_p50: float
    added_p99: float


@dataclass(frozen=True, slots=True)
class SharedSamples:
    """Figures of each place, with ``at_once`` samples at a time."""

    at_once: int
    took: dict[Place, Took]


def measure(laps: int, samples: int, at_once: Sequence[int] = (1, 16)) -> list[SharedSamples]:
    """Run laps of ``samples``, round-robin over the places. Raises FileNotFoundError without PostgreSQL."""
    with ExitStack() as stack:
        database = url(stack.enter_context(postgresql()))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        gates = []
        for place in PLACES:
            gate = stack.enter_context(connected(_command(folder / place.replace(" ", "-"), place, database)))
            gate.initialize()
            gate.samples(WARM_UP, max(at_once))
            gates.append((place, gate))
        return [_measured(gates, laps, samples, number) for number in at_once]


def _measured(gates: Sequence[tuple[Place, Connection]], laps: int, samples: int, at_once: int) -> SharedSamples:
    runs: dict[Place, list[tuple[float, float]]] = {place: [] for place, _ in gates}
    for number in range(laps):
        first = number % len(gates)
        for place, gate in [*gates[first:], *gates[:first]]:
            times = gate.samples(samples, at_once)
            runs[place].append((median(times) / 1000, quantiles(times, n=100)[98] / 1000))
    return SharedSamples(at_once, {place: _took(laps, runs["no limits"]) for place, laps in runs.items()})


def _took(laps: Sequence[tuple[float, float]], alone: Sequence[tuple[float, float]]) -> Took:
    pairs = list(zip(laps, alone, strict=True))
    return Took(
        p50=median(p50 for p50, _ in laps),
        p99=median(p99 for _, p99 in laps),
        added_p50=median(mine[0] - its[0] for mine, its in pairs),
        added_p99=median(mine[1] - its[1] for mine, its in pairs),
    )


def _command(folder: Path, place: Place, database: str) -> tuple[str, ...]:
    """A gate with its files in ``folder``. Each gate has its own state folder."""
    folder.mkdir()
    policy = POLICY if place != "no limits" else POLICY.replace(", limits: [daily]", "")
    (folder / "policy.yaml").write_text(policy, encoding="utf-8")
    (folder / "cases.yaml").write_text(CASES, encoding="utf-8")
    log = "database" if place == "PostgreSQL" else str(folder / "decisions.jsonl")
    shared = ("--database", database) if place in ("log in a file", "PostgreSQL") else ()
    options = ("--policy", str(folder / "policy.yaml"), "--state", str(folder / "state"), "--decision-log", log)
    return (sys.executable, "-m", "samplegate", "run", *options, *shared, "--", *SERVER)
