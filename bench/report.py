"""Figures -> rows of the table: each with its goal and whether it is met. Not a test: a busy machine may miss what a quiet one meets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from bench.decisions import GOAL, Speed
from bench.large import Beside, Large
from bench.latency import Latency
from bench.ledger import FEW, Ledger
from bench.memory import Memory
from bench.overhttp import table
from bench.overhttp.measuring import OverHttp
from bench.row import Row, us
from bench.sampling import Sampling
from bench.variants import Name

LEDGER_GOAL: Final = 2.0  # times: what a reservation takes must not grow with the accounts


@dataclass(slots=True)
class Figures:
    """Everything that was measured; what could not be is empty or None."""

    machine: str
    latency: dict[Name, Latency]
    startup: dict[Name, float]
    large: dict[Name, Large]
    beside: dict[Name, Beside] = field(default_factory=dict)
    gate_memory: Memory | None = None
    python_memory: Memory | None = None
    worker_memory: Memory | None = None
    """Of the gate with its worker."""
    decisions: list[Speed] = field(default_factory=list)
    ledger: list[Ledger] = field(default_factory=list)
    sampling: list[Sampling] = field(default_factory=list)
    large_mib: int = 10
    over_http: OverHttp | None = None
    load: float | None = None
    """Of the machine over the last quarter of an hour."""


def rows(figures: Figures) -> list[Row]:
    """The table's rows in their order: calls first, over stdio and HTTP, then start, decisions, limits, samples, memory and large frames."""
    return [
        *(_latency(figures.latency) if figures.latency else []),
        *(_startup(figures.startup) if figures.startup else []),
        *(table.rows(figures.over_http) if figures.over_http is not None else []),
        *map(_decision, figures.decisions),
        *map(_ledger, figures.ledger),
        *map(_sampling, figures.sampling),
        *_memory(figures.gate_memory, figures.python_memory),
        *_with_worker(figures.worker_memory, figures.gate_memory, figures.python_memory),
        *(_large(figures.large, figures.large_mib) if figures.large else []),
        *_beside(figures.beside),
    ]


def markdown(figures: Figures) -> str:
    """The table as the README shows it."""
    load = "" if figures.load is None else f", load average {figures.load:.1f}"
    lines = [f"Measured on {figures.machine}{load}.", "", "| what | the gate | beside | goal | |", "|---|---|---|---|---|"]
    for row in rows(figures):
        verdict = "" if row.met is None else "met" if row.met else "missed"
        lines.append(f"| {row.what} | {row.measured} | {row.beside} | {row.goal} | {verdict} |")
    return "\n".join(lines)


def _latency(found: dict[Name, Latency]) -> Sequence[Row]:
    gate, floor, bare, peer = found["gate"], found["floor"], found["bare"], found.get("peer")
    ratio = gate.added_p50 / floor.added_p50
    found_rows = [
        Row(
            "a call passed through, p50",
            f"+{gate.added_p50:.0f} us ({ratio:.2f} x the floor)",
            f"floor +{floor.added_p50:.0f} us; bare server {bare.p50:.0f} us",
            "at most 2.5 x the floor",
            ratio <= 2.5,
        ),
        Row("the same, p99", f"+{gate.added_p99:.0f} us", f"floor +{floor.added_p99:.0f} us; bare server {bare.p99:.0f} us"),
    ]
    if peer is not None:
        times = peer.added_p50 / gate.added_p50
        beside = f"fastmcp proxy +{peer.added_p50:.0f} us, p99 +{peer.added_p99:.0f} us"
        found_rows.append(Row("the same, against the peer, p50", f"{times:.1f} x less", beside, "at least 10 x less", times >= 10))
    return found_rows


def _startup(found: dict[Name, float]) -> Sequence[Row]:
    added = {name: took - found["bare"] for name, took in found.items()}
    beside = "; ".join(f"{name} +{took:.0f} ms" for name, took in added.items() if name not in ("bare", "gate"))
    beside += f"; bare server {found['bare']:.0f} ms"
    return [Row("start to the first answered `initialize`", f"+{added['gate']:.0f} ms", beside, "at most +350 ms", added["gate"] <= 350)]


def _decision(speed: Speed) -> Row:
    what = f"a decision over {speed.rules:,} rule{'' if speed.rules == 1 else 's'}"
    measured = f"{us(speed.p50)}, p99 {us(speed.p99)}, {speed.a_second:,.0f} a second"
    if speed.rules != 100:
        return Row(what, measured, "")
    return Row(what, measured, "", f"at most {GOAL:.0f} us", speed.p50 <= GOAL)


def _ledger(found: Ledger) -> Row:
    what = f"a reservation and its settlement among {found.accounts:,} accounts, in {'memory' if found.place == 'memory' else 'the state'}"
    measured = f"{us(found.many)} ({found.ratio:.2f} x), {found.bytes_each:,.0f} bytes an account"
    return Row(what, measured, f"among {FEW} accounts {us(found.few)}", f"at most {LEDGER_GOAL:.0f} x", found.ratio <= LEDGER_GOAL)


def _sampling(found: Sampling) -> Row:
    what = f"samples through gate and worker, {found.at_once} at a time"
    measured = f"{found.gate:.0f} a second ({found.ratio:.2f} x litellm)"
    return Row(what, measured, f"litellm called directly {found.direct:.0f} a second, without a stream {found.direct_whole:.0f}")


def _memory(gate: Memory | None, python: Memory | None) -> Sequence[Row]:
    if gate is None or python is None:
        return []
    more = gate.rss - python.rss
    measured = f"+{more:.1f} MiB RSS, +{gate.pss - python.pss:.1f} MiB PSS, {gate.processes} process{'es' if gate.processes > 1 else ''}"
    beside = f"`python -c pass` {python.rss:.1f} MiB RSS, {python.pss:.1f} MiB PSS"
    return [Row("memory of `run`, no model called yet", measured, beside, "at most +45 MiB", more <= 45)]


def _with_worker(worker: Memory | None, gate: Memory | None, python: Memory | None) -> Sequence[Row]:
    if worker is None or gate is None or python is None:
        return []
    measured = f"+{worker.rss - python.rss:.0f} MiB RSS, +{worker.pss - python.pss:.0f} MiB PSS, {worker.processes} processes"
    beside = f"without its worker +{gate.rss - python.rss:.0f} MiB RSS, +{gate.pss - python.pss:.0f} MiB PSS"
    return [Row("the same with the models' worker", measured, beside)]


def _large(found: dict[Name, Large], mib: int) -> Sequence[Row]:
    gate, floor = found["gate"], found["floor"]
    ratio = gate.both / floor.both
    measured = f"{gate.both:.0f} ms ({ratio:.2f} x the floor), +{gate.added:.0f} ms"
    beside = f"floor {floor.both:.0f} ms, +{floor.added:.0f} ms; bare server {found['bare'].both:.0f} ms"
    if "peer" in found:
        beside += f"; fastmcp proxy {found['peer'].both:.0f} ms"
    return [Row(f"a call with {mib} MiB up and {mib} MiB down", measured, beside, "at most 2 x the floor", ratio <= 2)]


def _beside(found: dict[Name, Beside]) -> Sequence[Row]:
    if "gate" not in found or "floor" not in found:
        return []
    gate, floor = found["gate"], found["floor"]
    measured = f"p50 {gate.alone_p50:.0f} -> {gate.beside_p50:.0f} us, p99 {gate.alone_p99:.0f} -> {gate.beside_p99:.0f} us"
    beside = f"floor p50 {floor.alone_p50:.0f} -> {floor.beside_p50:.0f} us, p99 {floor.alone_p99:.0f} -> {floor.beside_p99:.0f} us"
    waits = gate.beside_p99 - gate.alone_p99
    return [Row("another session's call while such frames pass", measured, beside, "does not wait for one", waits < 10_000)]
