"""Figures -> rows of the table: each with its goal and whether it is met. Not a test: a busy machine may miss what a quiet one meets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.large import Beside, Large
from bench.latency import Latency
from bench.memory import Memory
from bench.variants import Name


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
    decision_us: float | None = None
    large_mib: int = 10


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. ``met`` is None for a row without a goal."""

    what: str
    measured: str
    beside: str
    goal: str = ""
    met: bool | None = None


def rows(figures: Figures) -> list[Row]:
    """The table's rows in their order: calls first, then start, decision, memory and large frames."""
    return [
        *_latency(figures.latency),
        *_startup(figures.startup),
        *_decision(figures.decision_us),
        *_memory(figures.gate_memory, figures.python_memory),
        *_large(figures.large, figures.large_mib),
        *_beside(figures.beside),
    ]


def markdown(figures: Figures) -> str:
    """The table as the README shows it."""
    lines = [f"Measured on {figures.machine}.", "", "| what | the gate | beside | goal | |", "|---|---|---|---|---|"]
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


def _decision(took: float | None) -> Sequence[Row]:
    return [] if took is None else [Row("a decision over 100 rules", f"{took:.0f} us", "", "at most 100 us", took <= 100)]


def _memory(gate: Memory | None, python: Memory | None) -> Sequence[Row]:
    if gate is None or python is None:
        return []
    more = gate.rss - python.rss
    measured = f"+{more:.1f} MiB RSS, +{gate.pss - python.pss:.1f} MiB PSS, {gate.processes} process{'es' if gate.processes > 1 else ''}"
    beside = f"`python -c pass` {python.rss:.1f} MiB RSS, {python.pss:.1f} MiB PSS"
    return [Row("memory of `run`, no model called yet", measured, beside, "at most +45 MiB", more <= 45)]


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
