"""Benchmark of sampling: samples per second through the gate and its worker, beside litellm called directly in one
process; same endpoint and calls, in laps."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from bench import direct, endpoint, memory
from bench.client import connected
from bench.memory import Memory

SERVER: Final = (sys.executable, str(Path(__file__).resolve().parent / "sampling_server.py"))
POLICY: Final = """\
version: 1
models:
  - {{name: instant, model: openai/instant, api_base: "{url}", price: {{input: 0.1, output: 0.4}}}}
rules:
  - {{name: samples, match: {{kind: sampling}}, effect: allow, with: {{max_tokens: 500}}}}
client: {{peer_timeout: none}}
servers: {{default: {{peer_timeout: none}}}}
"""
WARM_UP: Final = 20


@dataclass(frozen=True, slots=True)
class Sampling:
    """Samples per second; the median of the laps. ``ratio`` is the gate's rate divided by the direct rate in the same
    lap."""

    at_once: int
    gate: float
    direct: float
    direct_whole: float
    """Samples per second of litellm without a stream: faster, but it shows no progress."""
    ratio: float


def measure(laps: int, calls: int, at_once: Sequence[int] = (1, 16)) -> tuple[list[Sampling], Memory | None]:
    """Run laps that alternate between the gate and litellm, with and without a stream. Also returns the memory of the
    gate with its worker."""
    with ExitStack() as stack:
        url = stack.enter_context(endpoint.running()).url
        alone = stack.enter_context(direct.running(url))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        gate = stack.enter_context(connected(gate_command(url, folder)))
        gate.initialize()

        def lap(count: int, many: int) -> tuple[float, float, float]:
            seconds = gate.sample(count, many) / 1e9, alone.lap(count, many, "stream"), alone.lap(count, many, "whole")
            return count / seconds[0], count / seconds[1], count / seconds[2]

        lap(WARM_UP, max(at_once))
        held = memory.tree_memory(gate.process.pid, SERVER) if memory.can_be_read() else None
        return [_sampling(many, [lap(calls, many) for _ in range(laps)]) for many in at_once], held


def _sampling(at_once: int, runs: Sequence[tuple[float, float, float]]) -> Sampling:
    gate, stream, whole = (median(column) for column in zip(*runs, strict=True))
    return Sampling(at_once, gate, stream, whole, median(mine / its for mine, its, _ in runs))


def gate_command(url: str, folder: Path, *options: str) -> tuple[str, ...]:
    """The command of a gate that asks the endpoint, with its files in ``folder``. It has a decision log, because a
    sample is recorded before it is released."""
    policy = folder / "policy.yaml"
    policy.write_text(POLICY.format(url=url), encoding="utf-8")
    files = ("--policy", str(policy), "--decision-log", str(folder / "decisions.jsonl"))
    return (sys.executable, "-m", "samplegate", "run", *files, *options, "--", *SERVER)
