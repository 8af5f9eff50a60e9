"""`python -m bench [--quick] [--json] [--no-peer] [--only stdio|http|shared] [--step WORDS] [--base REF]`: measures the
gate and prints each row at once.

A full run takes about twenty minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass

from bench import (
    base,
    decisions,
    large,
    latency,
    ledger,
    machine,
    memory,
    peer,
    report,
    row,
    sampling,
    startup,
    traces,
    workers,
)
from bench.faults import Faults, short
from bench.overhttp import calls as passed
from bench.overhttp import measuring, programs, reloads, rounds, sessions, table
from bench.report import Figures, Table
from bench.row import Row
from bench.shared import hot_account
from bench.shared import reviews as shared_reviews
from bench.shared import samples as shared_samples
from bench.shared import table as shared_table
from bench.variants import Name, gate_command, variants
from tests.fakes import hostile_traffic
from tests.fakes import rounds as five


@dataclass(frozen=True, slots=True)
class Size:
    """Number of laps, calls and samples in a run."""

    laps: int
    calls: int
    starts: dict[Name, int]
    large_rounds: int
    large_size: int
    beside_rounds: int
    decision_laps: int
    ledger_laps: int
    draws: dict[ledger.Place, int]
    accounts: int
    sampling_laps: int
    worker_laps: int
    samples: int
    trace_laps: int
    trace_samples: int


@dataclass(frozen=True, slots=True)
class SharedSize:
    """Numbers of gates and accounts of the hot account, with the seconds of each method; laps of samples; and
    reviews."""

    gates: tuple[int, ...]
    accounts: tuple[int, ...]
    seconds: float
    laps: int
    samples: int
    reviews: int


FULL = Size(
    laps=40,
    calls=200,
    starts={"bare": 15, "floor": 15, "gate": 15, "base": 15, "peer": 5},
    large_rounds=9,
    large_size=large.SIZE,
    beside_rounds=10,
    decision_laps=20,
    ledger_laps=20,
    draws={"memory": 2_000, "SQLite": 200},
    accounts=ledger.MANY,
    sampling_laps=5,
    worker_laps=15,
    samples=80,
    trace_laps=20,
    trace_samples=400,
)
FULL_SHARED = SharedSize(gates=(1, 5, 20), accounts=(1, 1_000), seconds=6.0, laps=20, samples=200, reviews=30)
QUICK = Size(
    laps=3,
    calls=30,
    starts={"bare": 2, "floor": 2, "gate": 2, "base": 2, "peer": 1},
    large_rounds=1,
    large_size=1 << 20,
    beside_rounds=2,
    decision_laps=1,
    ledger_laps=2,
    draws={"memory": 50, "SQLite": 10},
    accounts=1_000,
    sampling_laps=1,
    worker_laps=1,
    samples=16,
    trace_laps=1,
    trace_samples=20,
)
QUICK_SHARED = SharedSize(gates=(1, 2), accounts=(1,), seconds=0.5, laps=1, samples=20, reviews=2)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the selected benchmarks. Returns 1 if a measurement failed; missed goals do not count as failures."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test: the figures mean little")
    parser.add_argument("--json", action="store_true", help="print the figures and the rows as JSON")
    parser.add_argument("--no-peer", action="store_true", help="skip the peers, and do not install them")
    parser.add_argument("--only", choices=("stdio", "http", "shared"), help="run only this part")
    parser.add_argument("--step", metavar="WORDS", default="", help="run only the steps with these words in their name")
    parser.add_argument(
        "--base", metavar="REF", help="a commit or tag whose version is built and measured in turn with this one"
    )
    args = parser.parse_args(arguments)
    try:
        pair = None if args.base is None else (base.present(), base.earlier(args.base))
    except RuntimeError as problem:
        parser.error(str(problem))
    table = Table(machine.describe(), None if args.json else sys.stdout)
    bench = Bench(table, peers=not args.no_peer, pair=pair, only=args.step)
    if args.only in (None, "stdio"):
        bench.stdio(QUICK if args.quick else FULL)
        bench.samples(QUICK if args.quick else FULL)
    if args.only in (None, "http"):
        bench.http(measuring.QUICK if args.quick else measuring.FULL)
    if args.only in (None, "shared"):
        bench.shared(QUICK_SHARED if args.quick else FULL_SHARED)
    if not bench.steps:
        parser.error(f"--step {args.step}: no step has these words in its name")
    bench.figures.load = machine.load()
    if args.json:
        print(json.dumps({"figures": asdict(bench.figures), "rows": [asdict(row) for row in table.rows]}, indent=2))
    table.end(bench.figures.load)
    return 1 if bench.failed else 0


class Bench:
    """The measurements in order. A failed one becomes a row with its reason, and the run continues."""

    def __init__(
        self,
        table: Table,
        *,
        peers: bool,
        pair: tuple[Sequence[str], Sequence[str]] | None = None,
        only: str = "",
    ) -> None:
        """``pair``: the interpreters of this version and of an earlier one, in environments built alike. With None,
        only this version is measured. ``only``: words in the name of each step that is run."""
        self.figures = Figures(machine.describe())
        self.failed = False
        self.steps = 0
        self._only = only
        self._table = table
        self._peers = peers
        self._gate: Sequence[str] = (sys.executable,) if pair is None else pair[0]
        self._base: Sequence[str] | None = None if pair is None else pair[1]

    def step(self, what: str, measure: Callable[[], Iterable[Row]]) -> None:
        """Run one measurement and add its rows to the table, unless another step is wanted."""
        if self._only not in what:
            return
        self.steps += 1
        print(f"bench: {what}", file=sys.stderr)
        try:
            self._table.add(measure())
        except Exception as problem:
            traceback.print_exc()
            self.failed = True
            self._table.add([row.failed(what, short(problem))])

    def stdio(self, size: Size) -> None:
        """The benchmarks over stdio, and those without a transport."""
        base = None if self._base is None else gate_command(self._base)
        found = variants(gate_command(self._gate), peer.python() if self._peers else None, base)
        by_name = {variant.name: variant for variant in found}
        figures = self.figures

        def calls() -> Iterable[Row]:
            faults = Faults()
            figures.latency = latency.measure(found, size.laps, size.calls, faults)
            return report.latency(figures.latency, faults)

        def starts() -> Iterable[Row]:
            faults = Faults()
            figures.startup = startup.measure(found, size.starts, faults)
            return report.startup(figures.startup, faults)

        def held() -> Iterable[Row]:
            figures.python_memory = memory.bare_python()
            figures.gate_memory = memory.measure(by_name["gate"].command)
            return report.memory(figures.gate_memory, figures.python_memory)

        def frames() -> Iterable[Row]:
            faults = Faults()
            figures.large = large.measure(found, size.large_rounds, faults, size.large_size)
            return report.large(figures.large, size.large_size >> 20, faults)

        def beside() -> Iterable[Row]:
            figures.beside = {
                name: large.beside(by_name[name], size.beside_rounds, 2000, size.large_size)
                for name in ("floor", "gate")
            }
            return report.beside(figures.beside)

        def decided() -> Iterable[Row]:
            for rules in decisions.SIZES:
                figures.decisions.append(decisions.measure(rules, size.decision_laps))
                yield report.decision(figures.decisions[-1])

        def limited() -> Iterable[Row]:
            figures.ledger = ledger.measure(size.ledger_laps, size.draws, size.accounts)
            return map(report.ledger, figures.ledger)

        self.step(f"calls over stdio: {size.laps} laps of {size.calls}", calls)
        self.step("start-up", starts)
        self.step("memory", held)
        self.step("large frames", frames)
        self.step("small calls beside large frames", beside)
        self.step("decisions", decided)
        self.step("limits", limited)

    def samples(self, size: Size) -> None:
        """The benchmarks of samples over stdio."""
        figures = self.figures

        def sampled() -> Iterable[Row]:
            figures.sampling, figures.worker_memory = sampling.measure(size.sampling_laps, size.samples)
            with_worker = report.with_worker(figures.worker_memory, figures.gate_memory, figures.python_memory)
            return [*map(report.sampling, figures.sampling), *with_worker]

        def called() -> Iterable[Row]:
            figures.workers = workers.measure(size.worker_laps, size.samples)
            return report.workers(figures.workers, os.cpu_count())

        def traced() -> Iterable[Row]:
            figures.traces = traces.measure(size.trace_laps, size.trace_samples, size.starts["gate"])
            return report.traces(figures.traces)

        self.step("samples", sampled)
        self.step("model workers", called)
        self.step("traces", traced)

    def http(self, size: measuring.Size) -> None:
        """The benchmarks over HTTP."""
        figures = self.figures

        def calls() -> Iterable[Row]:
            figures.calls = passed.measure(size.calls, programs.peers() if self._peers else [], self._gate, self._base)
            return table.calls(figures.calls)

        def many() -> Iterable[Row]:
            sizes: list[tuple[sessions.Behind, int, int]] = [
                ("HTTP", size.idle, size.calling),
                ("stdio", size.children, size.children),
            ]
            for behind, idle, calling in sizes:
                figures.sessions.append(sessions.measure(behind, idle, calling, size.each))
                yield from table.sessions(figures.sessions[-1])

        def held() -> Iterable[Row]:
            figures.idle = sessions.measure_idle(size.most_idle, size.idle_laps, size.idle_calls)
            return table.idle(figures.idle)

        def asked() -> Iterable[Row]:
            figures.rounds = rounds.measure(size.rounds)
            return [table.rounds(figures.rounds)]

        def reloaded() -> Iterable[Row]:
            figures.reloads = reloads.measure(size.reloads)
            return [table.reloads(figures.reloads)]

        self.step(f"calls over HTTP: {size.calls.laps} laps", calls)
        self.step("sessions", many)
        self.step(f"calls beside {size.most_idle:,} idle sessions", held)
        self.step(f"sampling: {size.rounds} rounds", asked)

        def five_at_once() -> Iterable[Row]:
            tallies = [asyncio.run(five.measure(size.five, standalone=standalone)) for standalone in (False, True)]
            figures.five = list(map(asdict, tallies))
            return [table.five(tallies)]

        def stalled() -> Iterable[Row]:
            frames = [(name, each) for name in hostile_traffic.NAMES[:: size.hostile] for each in size.hostile_sizes]
            figures.stalls = hostile_traffic.measured(frames)
            return [table.stalls(figures.stalls)]

        self.step("reloads under load", reloaded)
        self.step(f"five calls at once: {size.five} rounds", five_at_once)
        self.step("hostile frames", stalled)

    def shared(self, size: SharedSize) -> None:
        """The benchmarks of gates with one PostgreSQL database."""
        figures = self.figures

        def drawn() -> Iterable[Row]:
            for found in hot_account.measure(size.gates, size.accounts, size.seconds):
                figures.hot_accounts.append(found)
                yield from shared_table.hot_account(found)

        def sampled() -> Iterable[Row]:
            figures.shared_samples = shared_samples.measure(size.laps, size.samples)
            return [row for found in figures.shared_samples for row in shared_table.samples(found)]

        def reviewed() -> Iterable[Row]:
            figures.shared_reviews = shared_reviews.measure(size.reviews)
            return shared_table.reviews(figures.shared_reviews)

        self.step("one account and many gates", drawn)
        self.step("samples with a shared database", sampled)
        self.step(f"reviews across gates: {size.reviews}", reviewed)


if __name__ == "__main__":
    sys.exit(main())
