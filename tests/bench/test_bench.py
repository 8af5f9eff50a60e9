"""That the benchmark measures something: its cheap parts, with a relay's least work. Never how fast anything is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import large, latency, memory, report, startup
from bench.large import Beside, Large
from bench.latency import Latency
from bench.memory import Memory
from bench.report import Figures
from bench.variants import SERVER, Variant, variants

FLOOR = [variant for variant in variants((), None) if variant.name in ("bare", "floor")]


def test_calls_pass_through_the_floor() -> None:
    found = latency.measure(FLOOR, laps=2, calls=5)
    assert {"bare", "floor"} == set(found)
    assert 0 == found["bare"].added_p50
    assert 0 < found["floor"].p50


def test_starts_are_timed() -> None:
    assert all(took > 0 for took in startup.measure(FLOOR, {"bare": 1, "floor": 1, "gate": 0, "peer": 0}).values())


def test_large_frames_pass_both_ways() -> None:
    found = large.measure(FLOOR, rounds=1, size=1 << 20)
    assert 0 < found["floor"].both


def test_small_calls_go_on_beside_large_frames() -> None:
    found = large.beside(FLOOR[1], rounds=1, calls=5, size=1 << 20)
    assert 0 < found.beside_p50


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_server_is_no_part_of_a_variants_memory() -> None:
    alone, floor, python = memory.measure(SERVER), memory.measure(FLOOR[1].command), memory.bare_python()
    assert Memory(0, 0, 0) == alone
    assert floor is not None
    assert python is not None
    assert floor.processes == 1
    assert python.rss > 0


def test_a_variant_that_ends_early_is_named() -> None:
    with pytest.raises(RuntimeError, match="ended before it answered"):
        startup.measure([Variant("bare", (sys.executable, "-c", "pass"))], {"bare": 1, "floor": 0, "gate": 0, "peer": 0})


def figures() -> Figures:
    return Figures(
        machine="2 cores",
        latency={
            "bare": Latency(40, 80, 0, 0),
            "floor": Latency(60, 120, 20, 40),
            "gate": Latency(100, 300, 60, 220),
            "peer": Latency(2000, 4000, 1960, 3920),
        },
        startup={"bare": 50.0, "floor": 70.0, "gate": 300.0, "peer": 2000.0},
        large={"bare": Large(70, 0), "floor": Large(90, 20), "gate": Large(150, 80)},
        beside={"floor": Beside(60, 120, 70, 150), "gate": Beside(100, 300, 110, 400)},
        gate_memory=Memory(60, 50, 2),
        python_memory=Memory(8.5, 4),
        decision_us=40.0,
    )


def test_each_goal_is_met_or_missed() -> None:
    verdicts = {row.what: row.met for row in report.rows(figures())}
    assert {
        "a call passed through, p50": False,
        "the same, p99": None,
        "the same, against the peer, p50": True,
        "start to the first answered `initialize`": True,
        "a decision over 100 rules": True,
        "memory of `run`, no model called yet": False,
        "a call with 10 MiB up and 10 MiB down": True,
        "another session's call while such frames pass": True,
    } == verdicts


def test_the_table_says_the_machine_and_the_verdicts() -> None:
    table = report.markdown(figures())
    assert table.startswith("Measured on 2 cores.")
    assert "| a call passed through, p50 | +60 us (3.00 x the floor) | floor +20 us; bare server 40 us | at most 2.5 x the floor | missed |" in table


def test_what_was_not_measured_has_no_row() -> None:
    without = figures()
    without.gate_memory = without.decision_us = None
    without.latency.pop("peer")
    assert not [row for row in report.rows(without) if "memory" in row.what or "decision" in row.what or "peer" in row.what]


@pytest.mark.timeout(180)
def test_a_quick_run_measures_the_gate() -> None:
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "bench/run.py", "--quick", "--no-peer", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False, cwd=root)
    assert 0 == done.returncode, done.stderr
    assert {"bare", "floor", "gate"} == set(json.loads(done.stdout)["figures"]["latency"])
