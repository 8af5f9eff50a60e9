"""`python -m bench [--quick] [--json] [--no-peer] [--only stdio|http]`: measures, prints the table. A full run takes about ten minutes."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from bench import decisions, large, latency, ledger, machine, memory, peer, report, sampling, startup
from bench.overhttp import measuring, programs
from bench.report import Figures
from bench.variants import Name, Variant, gate_command, variants


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

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
    samples: int


FULL = Size(
    laps=40,
    calls=200,
    starts={"bare": 15, "floor": 15, "gate": 15, "peer": 5},
    large_rounds=9,
    large_size=large.SIZE,
    beside_rounds=10,
    decision_laps=20,
    ledger_laps=20,
    draws={"memory": 2_000, "SQLite": 200},
    accounts=ledger.MANY,
    sampling_laps=5,
    samples=80,
)
QUICK = Size(
    laps=3,
    calls=30,
    starts={"bare": 2, "floor": 2, "gate": 2, "peer": 1},
    large_rounds=1,
    large_size=1 << 20,
    beside_rounds=2,
    decision_laps=1,
    ledger_laps=2,
    draws={"memory": 50, "SQLite": 10},
    accounts=1_000,
    sampling_laps=1,
    samples=16,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for and print it; the figures judge, the exit code does not."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test: the figures mean little")
    parser.add_argument("--json", action="store_true", help="print the figures and the rows as JSON")
    parser.add_argument("--no-peer", action="store_true", help="leave the peers out, and do not install them")
    parser.add_argument("--only", choices=("stdio", "http"), help="leave the other half out")
    args = parser.parse_args(arguments)
    figures = Figures(machine.describe(), {}, {}, {})
    if args.only != "http":
        figures = measure(variants(gate_command(), None if args.no_peer else peer.python()), QUICK if args.quick else FULL)
    if args.only != "stdio":
        size = measuring.QUICK if args.quick else measuring.FULL
        figures.over_http = measuring.measure(size, [] if args.no_peer else programs.peers(), _say)
    figures.load = machine.load()
    if args.json:
        print(json.dumps({"figures": asdict(figures), "rows": [asdict(row) for row in report.rows(figures)]}, indent=2))
    else:
        print(report.markdown(figures))
    return 0


def measure(found: Sequence[Variant], size: Size) -> Figures:
    """Everything over stdio, one measurement after the other."""
    by_name = {variant.name: variant for variant in found}
    _say(f"latency: {size.laps} laps of {size.calls} calls")
    figures = Figures(machine.describe(), latency.measure(found, size.laps, size.calls), {}, {})
    _say("start-up")
    figures.startup = startup.measure(found, size.starts)
    _say("memory")
    figures.python_memory = memory.bare_python()
    figures.gate_memory = memory.measure(by_name["gate"].command)
    _say("large frames")
    figures.large = large.measure(found, size.large_rounds, size.large_size)
    figures.large_mib = size.large_size >> 20
    figures.beside = {name: large.beside(by_name[name], size.beside_rounds, 2000, size.large_size) for name in ("floor", "gate") if name in by_name}
    _say("decisions")
    figures.decisions = [decisions.measure(rules, size.decision_laps) for rules in decisions.SIZES]
    _say("limits")
    figures.ledger = ledger.measure(size.ledger_laps, size.draws, size.accounts)
    _say("samples")
    figures.sampling, figures.worker_memory = sampling.measure(size.sampling_laps, size.samples)
    return figures


def _say(what: str) -> None:
    print(f"bench: {what}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
