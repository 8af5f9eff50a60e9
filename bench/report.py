"""Rows of the table from the figures, each with its goal and whether it is met. This is not a test: a busy machine may
miss a goal that a quiet machine meets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TextIO

from bench.decisions import GOAL, Speed
from bench.faults import Faults
from bench.large import Beside, Large
from bench.latency import Latency
from bench.ledger import FEW, Ledger
from bench.memory import Memory
from bench.overhttp.calls import Found
from bench.overhttp.reloads import Reloads
from bench.overhttp.rounds import Rounds
from bench.overhttp.sessions import Idle, Sessions
from bench.row import Row, beside_base, us
from bench.sampling import Sampling
from bench.shared.hot_account import HotAccount
from bench.shared.reviews import SharedReviews
from bench.shared.samples import SharedSamples
from bench.traces import Pair, Traces
from bench.variants import Name
from bench.workers import AT_ONCE, Workers
from tests.fakes.hostile_traffic import Stall

P99_GOAL: Final = 1.5
"""A multiple of the floor's added p99."""
WORKERS_GOAL: Final = 1.6
"""The rate of two workers divided by that of one, on a machine that has cores for them."""
WORKERS_CORES: Final = 4
LEDGER_GOAL: Final = 2.0  # ratio: the duration of a reservation must not grow with the number of accounts


@dataclass(slots=True)
class Figures:
    """All figures. Those that could not be measured are empty or None."""

    machine: str
    latency: dict[Name, Latency] = field(default_factory=dict)
    startup: dict[Name, float] = field(default_factory=dict)
    large: dict[Name, Large] = field(default_factory=dict)
    beside: dict[Name, Beside] = field(default_factory=dict)
    gate_memory: Memory | None = None
    python_memory: Memory | None = None
    worker_memory: Memory | None = None
    """Memory of the gate with its worker."""
    decisions: list[Speed] = field(default_factory=list)
    ledger: list[Ledger] = field(default_factory=list)
    sampling: list[Sampling] = field(default_factory=list)
    workers: list[Workers] = field(default_factory=list)
    traces: Traces | None = None
    calls: Found | None = None
    """Over HTTP."""
    sessions: list[Sessions] = field(default_factory=list)
    idle: Idle | None = None
    rounds: Rounds | None = None
    reloads: Reloads | None = None
    five: list[dict[str, int]] = field(default_factory=list)
    """Counts for rounds of five calls at once, without and with a standalone stream."""
    stalls: list[Stall] = field(default_factory=list)
    """Stalls of the event loop, one for each hostile frame."""
    hot_accounts: list[HotAccount] = field(default_factory=list)
    shared_samples: list[SharedSamples] = field(default_factory=list)
    shared_reviews: list[SharedReviews] = field(default_factory=list)
    load: float | None = None
    """Load average of the machine over the last 15 minutes."""


class Table:
    """The table, as in bench/README.md, printed row by row as each is measured. With ``out`` None, nothing is
    printed."""

    def __init__(self, machine: str, out: TextIO | None) -> None:
        self.rows: list[Row] = []
        self._out = out
        self._print(f"Measured on {machine}.", "", "| what | the gate | beside | goal | |", "|---|---|---|---|---|")

    def add(self, rows: Iterable[Row]) -> None:
        """Add rows and print them."""
        for row in rows:
            self.rows.append(row)
            verdict = "" if row.met is None else "met" if row.met else "missed"
            self._print(f"| {row.what} | {row.measured} | {row.beside} | {row.goal} | {verdict} |")

    def end(self, load: float | None) -> None:
        """Print the last line: the machine's load average during the run."""
        if load is not None:
            self._print("", f"Load average over the last quarter of an hour: {load:.1f}.")

    def _print(self, *lines: str) -> None:
        if self._out is not None:
            print(*lines, sep="\n", file=self._out, flush=True)


def latency(found: Mapping[Name, Latency], faults: Faults) -> list[Row]:
    """Rows of a call over stdio: the gate beside the floor, the peer and the earlier version."""
    gate, floor, bare, peer, base = found["gate"], found["floor"], found["bare"], found.get("peer"), found.get("base")
    p50, p99 = gate.added_p50 / floor.added_p50, gate.added_p99 / floor.added_p99
    rows = [
        Row(
            "a call passed through, p50",
            f"+{gate.added_p50:.0f} us ({p50:.2f} x the floor)",
            f"floor +{floor.added_p50:.0f} us; bare server {bare.p50:.0f} us",
            "at most 2.5 x the floor",
            p50 <= 2.5,
        ),
        Row(
            "the same, p99",
            f"+{gate.added_p99:.0f} us ({p99:.2f} x the floor)",
            f"floor +{floor.added_p99:.0f} us; bare server {bare.p99:.0f} us",
            f"at most {P99_GOAL} x the floor",
            p99 <= P99_GOAL,
        ),
    ]
    if peer is not None:
        times = peer.added_p50 / gate.added_p50
        beside = f"fastmcp proxy +{peer.added_p50:.0f} us, p99 +{peer.added_p99:.0f} us"
        rows.append(
            Row("the same, against the peer, p50", f"{times:.1f} x less", beside, "at least 10 x less", times >= 10)
        )
    elif "peer" in faults.why:
        rows.append(Row("the same, against the peer, p50", "", f"fastmcp proxy failed: {faults.why['peer']}"))
    if base is not None:
        rows.append(beside_base("a call passed through, p50", gate.p50, base.p50, "us"))
        rows.append(beside_base("a call passed through, p99", gate.p99, base.p99, "us"))
    return [*rows, *_failed_base("a call passed through", faults)]


def _failed_base(what: str, faults: Faults) -> Sequence[Row]:
    return (
        [Row(f"{what}, beside the earlier version", "", f"failed: {faults.why['base']}")]
        if "base" in faults.why
        else []
    )


def startup(found: Mapping[Name, float], faults: Faults) -> list[Row]:
    """Rows of the time from a start to the first answer."""
    added = {name: took - found["bare"] for name, took in found.items()}
    beside = [f"{name} +{took:.0f} ms" for name, took in added.items() if name in ("floor", "peer")]
    beside += [f"peer failed: {faults.why['peer']}"] if "peer" in faults.why else []
    what = "start to the first answered `initialize`"
    rows = [
        Row(
            what,
            f"+{added['gate']:.0f} ms",
            "; ".join([*beside, f"bare server {found['bare']:.0f} ms"]),
            "at most +350 ms",
            added["gate"] <= 350,
        )
    ]
    if "base" in found:
        rows.append(beside_base(what, found["gate"], found["base"], "ms"))
    return [*rows, *_failed_base(what, faults)]


def decision(speed: Speed) -> Row:
    """Row of a decision's duration."""
    what = f"a decision over {speed.rules:,} rule{'' if speed.rules == 1 else 's'}"
    measured = f"{us(speed.p50)}, p99 {us(speed.p99)}, {speed.a_second:,.0f} a second"
    if speed.rules != 100:
        return Row(what, measured, "")
    return Row(what, measured, "", f"at most {GOAL:.0f} us", speed.p50 <= GOAL)


def ledger(found: Ledger) -> Row:
    """Row of a reservation's duration."""
    what = (
        f"a reservation and its settlement among {found.accounts:,} accounts, in"
        f" {'memory' if found.place == 'memory' else 'the state'}"
    )
    measured = f"{us(found.many)} ({found.ratio:.2f} x), {found.bytes_each:,.0f} bytes an account"
    return Row(
        what,
        measured,
        f"among {FEW} accounts {us(found.few)}",
        f"at most {LEDGER_GOAL:.0f} x",
        found.ratio <= LEDGER_GOAL,
    )


def sampling(found: Sampling) -> Row:
    """Row of a sample's duration."""
    what = f"samples through gate and worker, {found.at_once} at a time"
    measured = f"{found.gate:.0f} a second ({found.ratio:.2f} x litellm)"
    return Row(
        what,
        measured,
        f"litellm called directly {found.direct:.0f} a second, without a stream {found.direct_whole:.0f}",
    )


def workers(found: Sequence[Workers], cores: int | None) -> Sequence[Row]:
    """Rows of the rate of several workers, and of the CPU time of a sample."""
    rows = []
    for one in found:
        s = "" if one.count == 1 else "s"
        what = f"samples with {one.count} model worker{s}, {AT_ONCE} at a time"
        each = " + ".join(f"{each:.1f}" for each in one.workers)
        cpu = (
            f"CPU time of a sample: gate {one.gate:.1f} ms, worker{s} {each} ms, server and endpoint {one.rest:.1f} ms"
        )
        if one.count == 1:
            rows.append(Row(what, f"{one.rate:.0f} a second", cpu))
        else:
            measured = f"{one.rate:.0f} a second ({one.ratio:.2f} x one worker)"
            met = one.ratio >= WORKERS_GOAL if (cores or 0) >= WORKERS_CORES else None
            rows.append(Row(what, measured, cpu, f"at least {WORKERS_GOAL} x on {WORKERS_CORES} cores", met))
    return rows


def traces(found: Traces | None) -> Sequence[Row]:
    """Rows of what traces add."""
    if found is None:
        return []
    return [
        _traced("a sample, 1 at a time", found.sample, "us"),
        _traced("CPU time of the gate for a sample", found.cpu, "us"),
        _traced("start to the first answered `initialize`", found.start, "ms"),
        _traced("memory, RSS", found.memory, "MiB"),
    ]


def _traced(what: str, pair: Pair, unit: str) -> Row:
    digits = 1 if unit == "MiB" else 0
    measured = f"{pair.added:+.{digits}f} {unit} ({pair.on:.{digits}f} {unit})"
    return Row(f"with traces: {what}", measured, f"without traces {pair.off:.{digits}f} {unit}")


def memory(gate: Memory | None, python: Memory | None) -> Sequence[Row]:
    """Row of the memory of `run`."""
    if gate is None or python is None:
        return []
    more = gate.rss - python.rss
    measured = (
        f"+{more:.1f} MiB RSS, +{gate.pss - python.pss:.1f} MiB PSS, {gate.processes}"
        f" process{'es' if gate.processes > 1 else ''}"
    )
    beside = f"`python -c pass` {python.rss:.1f} MiB RSS, {python.pss:.1f} MiB PSS"
    return [Row("memory of `run`, no model called yet", measured, beside, "at most +45 MiB", more <= 45)]


def with_worker(worker: Memory | None, gate: Memory | None, python: Memory | None) -> Sequence[Row]:
    """Row of the memory of `run` with its worker."""
    if worker is None or gate is None or python is None:
        return []
    measured = (
        f"+{worker.rss - python.rss:.0f} MiB RSS, +{worker.pss - python.pss:.0f} MiB PSS, {worker.processes} processes"
    )
    beside = f"without its worker +{gate.rss - python.rss:.0f} MiB RSS, +{gate.pss - python.pss:.0f} MiB PSS"
    return [Row("the same with the models' worker", measured, beside)]


def large(found: Mapping[Name, Large], mib: int, faults: Faults) -> Sequence[Row]:
    """Rows of a large frame's duration."""
    gate, floor = found["gate"], found["floor"]
    ratio = gate.both / floor.both
    measured = f"{gate.both:.0f} ms ({ratio:.2f} x the floor), +{gate.added:.0f} ms"
    beside = f"floor {floor.both:.0f} ms, +{floor.added:.0f} ms; bare server {found['bare'].both:.0f} ms"
    if "peer" in found:
        beside += f"; fastmcp proxy {found['peer'].both:.0f} ms"
    elif "peer" in faults.why:
        beside += f"; fastmcp proxy failed: {faults.why['peer']}"
    what = f"a call with {mib} MiB up and {mib} MiB down"
    rows = [Row(what, measured, beside, "at most 2 x the floor", ratio <= 2)]
    if "base" in found:
        rows.append(beside_base(what, gate.both, found["base"].both, "ms"))
    return [*rows, *_failed_base(what, faults)]


def beside(found: Mapping[Name, Beside]) -> Sequence[Row]:
    """Row of a small call's duration while large frames pass."""
    if "gate" not in found or "floor" not in found:
        return []
    gate, floor = found["gate"], found["floor"]
    measured = (
        f"p50 {gate.alone_p50:.0f} -> {gate.beside_p50:.0f} us, p99 {gate.alone_p99:.0f} -> {gate.beside_p99:.0f} us"
    )
    its = (
        f"floor p50 {floor.alone_p50:.0f} -> {floor.beside_p50:.0f} us, p99 {floor.alone_p99:.0f} ->"
        f" {floor.beside_p99:.0f} us"
    )
    waits = gate.beside_p99 - gate.alone_p99
    return [
        Row("another session's call while such frames pass", measured, its, "does not wait for one", waits < 10_000)
    ]
