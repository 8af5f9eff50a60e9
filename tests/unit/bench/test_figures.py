"""The benchmark's figures: how they are measured, judged and printed. Starts no program."""

from __future__ import annotations

import io
import sys

import pytest

from bench import base, decisions, ledger, report
from bench.__main__ import QUICK_SHARED, Bench, main
from bench.decisions import Speed
from bench.faults import Faults
from bench.large import Beside, Large
from bench.latency import Latency
from bench.ledger import Ledger
from bench.memory import Memory
from bench.report import Figures, Table
from bench.row import Row
from bench.sampling import Sampling
from bench.traces import Pair, Traces
from bench.workers import Workers
from tests.fakes import postgresql


@pytest.mark.parametrize("rules", decisions.SIZES[:2])
def test_decisions_are_timed_one_by_one(rules: int) -> None:
    found = decisions.measure(rules, laps=1, repeats=10)
    assert rules == len(decisions.policy(rules).rules)
    assert 0 < found.p50 <= found.p99
    assert 0 < found.a_second


def test_accounts_are_drawn_on_in_memory_and_in_a_file() -> None:
    found = ledger.measure(1, {"memory": 5, "SQLite": 5}, accounts=50)
    assert [("memory", 50), ("SQLite", 50)] == [(one.place, one.accounts) for one in found]
    assert all(one.few > 0 and one.many > 0 and one.bytes_each > 0 for one in found)


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
        worker_memory=Memory(260, 250, 3),
        decisions=[
            Speed(1, 2.42, 3.0, 400_000, 2.1),
            Speed(100, 40.0, 60.0, 25_000, 38.0),
            Speed(1000, 200.0, 300.0, 5_000, 190.0),
        ],
        ledger=[Ledger("memory", 100_000, 20.0, 22.0, 1.1, 380.0), Ledger("SQLite", 100_000, 200.0, 500.0, 2.5, 70.0)],
        sampling=[Sampling(16, 90.0, 100.0, 200.0, 0.91)],
        workers=[Workers(1, 90.0, 1.0, 1.3, (8.3,), 0.1), Workers(2, 153.0, 1.7, 1.4, (4.4, 4.2), 0.1)],
    )


def rows(found: Figures, faults: Faults | None = None, cores: int = 4) -> list[Row]:
    faults = faults or Faults()
    return [
        *report.latency(found.latency, faults),
        *report.startup(found.startup, faults),
        *map(report.decision, found.decisions),
        *map(report.ledger, found.ledger),
        *map(report.sampling, found.sampling),
        *report.workers(found.workers, cores),
        *report.memory(found.gate_memory, found.python_memory),
        *report.with_worker(found.worker_memory, found.gate_memory, found.python_memory),
        *report.large(found.large, 10, faults),
        *report.beside(found.beside),
    ]


def test_each_goal_is_met_or_missed() -> None:
    verdicts = {row.what: row.met for row in rows(figures())}
    assert {
        "a call passed through, p50": False,
        "the same, p99": False,
        "the same, against the peer, p50": True,
        "start to the first answered `initialize`": True,
        "a decision over 1 rule": None,
        "a decision over 100 rules": True,
        "a decision over 1,000 rules": None,
        "a reservation and its settlement among 100,000 accounts, in memory": True,
        "a reservation and its settlement among 100,000 accounts, in the state": False,
        "samples through gate and worker, 16 at a time": None,
        "samples with 1 model worker, 16 at a time": None,
        "samples with 2 model workers, 16 at a time": True,
        "memory of `run`, no model called yet": False,
        "the same with the models' worker": None,
        "a call with 10 MiB up and 10 MiB down": True,
        "another session's call while such frames pass": True,
    } == verdicts


def test_the_goal_of_two_workers_is_judged_only_where_there_are_cores_for_them() -> None:
    slow = figures()
    slow.workers[1] = Workers(2, 140.0, 1.55, 1.4, (4.4, 4.2), 0.1)

    def second(found: Figures, cores: int) -> Row:
        return report.workers(found.workers, cores)[1]

    assert [None, None] == [second(figures(), 2).met, second(slow, 2).met]
    assert [True, False] == [second(figures(), 4).met, second(slow, 4).met]
    row = second(slow, 4)
    assert "at least 1.6 x on 4 cores" == row.goal
    assert "140 a second (1.55 x one worker)" == row.measured
    assert "CPU time of a sample: gate 1.4 ms, workers 4.4 + 4.2 ms, server and endpoint 0.1 ms" == row.beside


def test_rows_are_printed_as_they_are_measured() -> None:
    out = io.StringIO()
    table = Table("2 cores", out)
    printed = []
    for row in rows(figures()):
        table.add([row])
        printed.append(out.getvalue())
    assert printed[0].startswith("Measured on 2 cores.")
    first = (
        "| a call passed through, p50 | +60 us (3.00 x the floor) | floor +20 us; bare server 40 us | at most 2.5 x the"
        " floor | missed |"
    )
    assert printed[0].endswith(first + "\n")
    assert "| a decision over 1 rule | 2.4 us, p99 3.0 us, 400,000 a second |  | no goal |  |" in printed[-1]
    for text in (
        (
            "among 100,000 accounts, in memory | 22 us (1.10 x), 380 bytes an account | among 10 accounts 20 us | at"
            " most 2 x | met |"
        ),
        "| 90 a second (0.91 x litellm) | litellm called directly 100 a second, without a stream 200 | no goal |  |",
        (
            "| the same with the models' worker | +252 MiB RSS, +246 MiB PSS, 3 processes | without its worker +52 MiB"
            " RSS, +46 MiB PSS | no goal |  |"
        ),
    ):
        assert text in printed[-1]


def test_an_earlier_version_has_a_row_beside_each_figure_of_a_call() -> None:
    found = figures()
    found.latency["base"], found.startup["base"], found.large["base"] = Latency(99, 200, 59, 120), 310.0, Large(120, 50)
    beside = {row.what: (row.measured, row.met) for row in rows(found) if "earlier version" in row.what}
    assert {
        "a call passed through, p50, beside the earlier version": ("1.01 x (100 us)", True),
        "a call passed through, p99, beside the earlier version": ("1.50 x (300 us)", False),
        "start to the first answered `initialize`, beside the earlier version": ("0.97 x (300 ms)", True),
        "a call with 10 MiB up and 10 MiB down, beside the earlier version": ("1.25 x (150 ms)", False),
    } == beside


def test_what_was_not_measured_has_no_row() -> None:
    without = figures()
    without.gate_memory = None
    without.decisions, without.ledger, without.sampling, without.workers = [], [], [], []
    without.latency.pop("peer")
    absent = ("memory", "decision", "peer", "worker", "accounts", "samples", "HTTP", "earlier")
    assert not [row for row in rows(without) if any(word in row.what for word in absent)]


def test_a_measurement_that_fails_is_a_row_and_the_next_one_follows(capsys: pytest.CaptureFixture[str]) -> None:
    bench = Bench(Table("2 cores", sys.stdout), peers=False)

    def broken() -> list[Row]:
        raise RuntimeError("no such | thing")

    bench.step("start-up", broken)
    bench.step("memory", lambda: [Row("memory", "1 MiB", "")])
    printed = capsys.readouterr().out.splitlines()
    assert ["| start-up | failed: no such / thing |  |  | missed |", "| memory | 1 MiB |  | no goal |  |"] == printed[
        -2:
    ]
    assert bench.failed


def test_a_step_can_be_run_alone(capsys: pytest.CaptureFixture[str]) -> None:
    bench = Bench(Table("2 cores", sys.stdout), peers=False, only="memory")
    bench.step("start-up", lambda: [Row("start-up", "1 ms", "")])
    bench.step("memory of the gate", lambda: [Row("memory", "1 MiB", "")])
    printed = capsys.readouterr().out.splitlines()
    assert ["|---|---|---|---|---|", "| memory | 1 MiB |  | no goal |  |"] == printed[-2:]


def test_a_step_that_does_not_exist_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--quick", "--no-peer", "--only", "shared", "--step", "nothing like it"])
    assert "--step nothing like it: no step has these words in its name" in capsys.readouterr().err


def test_without_postgresql_each_shared_step_is_a_row_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> None:
        raise FileNotFoundError("no PostgreSQL server; Debian: apt-get install postgresql")

    monkeypatch.setattr(postgresql, "programs", missing)
    bench = Bench(Table("2 cores", sys.stdout), peers=False)
    bench.shared(QUICK_SHARED)
    rows = capsys.readouterr().out.splitlines()[4:]
    reason = "failed: no PostgreSQL server; Debian: apt-get install postgresql"
    assert [
        f"| {what} | {reason} |  |  | missed |"
        for what in ("one account and many gates", "samples with a shared database", "reviews across gates: 2")
    ] == rows
    assert bench.failed


def test_traces_have_rows_beside_a_gate_without_them() -> None:
    found = report.traces(
        Traces(Pair(1000, 1490, 510), Pair(900, 1200, 290), Pair(300, 420, 110), Pair(41.4, 54, 12.6))
    )
    assert [
        ("with traces: a sample, 1 at a time", "+510 us (1490 us)", "without traces 1000 us"),
        ("with traces: CPU time of the gate for a sample", "+290 us (1200 us)", "without traces 900 us"),
        ("with traces: start to the first answered `initialize`", "+110 ms (420 ms)", "without traces 300 ms"),
        ("with traces: memory, RSS", "+12.6 MiB (54.0 MiB)", "without traces 41.4 MiB"),
    ] == [(row.what, row.measured, row.beside) for row in found]
    assert [] == report.traces(None)


def test_a_version_that_git_does_not_know_is_named_with_the_remedy() -> None:
    with pytest.raises(RuntimeError, match=r"BASE=v9\.9\.9: git knows no such commit.*git fetch --tags"):
        base.earlier("v9.9.9")
