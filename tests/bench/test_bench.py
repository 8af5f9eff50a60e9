"""That the benchmark measures something: its cheap parts, with a relay's least work. Never how fast anything is."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from bench import base, decisions, endpoint, large, latency, ledger, memory, report, sampling, startup
from bench.__main__ import Bench
from bench.decisions import Speed
from bench.faults import Faults
from bench.large import Beside, Large
from bench.latency import Latency
from bench.ledger import Ledger
from bench.memory import Memory
from bench.report import Figures, Table
from bench.row import Row
from bench.sampling import Sampling
from bench.variants import SERVER, Variant, variants

FLOOR = [variant for variant in variants((), None) if variant.name in ("bare", "floor")]


def test_calls_pass_through_the_floor() -> None:
    found = latency.measure(FLOOR, laps=2, calls=5, faults=Faults())
    assert {"bare", "floor"} == set(found)
    assert 0 == found["bare"].added_p50
    assert 0 < found["floor"].p50


def test_starts_are_timed() -> None:
    assert all(
        took > 0 for took in startup.measure(FLOOR, {"bare": 1, "floor": 1, "gate": 0, "peer": 0}, Faults()).values()
    )


def test_large_frames_pass_both_ways() -> None:
    found = large.measure(FLOOR, rounds=1, faults=Faults(), size=1 << 20)
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


@pytest.mark.parametrize("rules", decisions.SIZES)
def test_decisions_are_timed_one_by_one(rules: int) -> None:
    found = decisions.measure(rules, laps=1, repeats=10)
    assert rules == len(decisions.policy(rules).rules)
    assert 0 < found.p50 <= found.p99
    assert 0 < found.a_second


def test_accounts_are_drawn_on_in_memory_and_in_a_file() -> None:
    found = ledger.measure(1, {"memory": 5, "SQLite": 5}, accounts=50)
    assert [("memory", 50), ("SQLite", 50)] == [(one.place, one.accounts) for one in found]
    assert all(one.few > 0 and one.many > 0 and one.bytes_each > 0 for one in found)


def answered(url: str, body: bytes) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(f"{url}/chat/completions", body), timeout=20) as response:
        found: bytes = response.read()
        return found


def test_the_endpoint_answers_whole_and_streamed_alike() -> None:
    with endpoint.running() as url:
        whole = json.loads(answered(url, b'{"model": "m"}'))
        lines = answered(url, b'{"model": "m", "stream": true}').split(b"\n\n")
    events = [json.loads(line.removeprefix(b"data: ")) for line in lines[:-2]]
    said = "".join(event["choices"][0]["delta"].get("content", "") for event in events if event["choices"])
    assert (b"data: [DONE]", whole["choices"][0]["message"]["content"]) == (lines[-2], said)
    assert whole["usage"] == events[-1]["usage"]


def test_a_lap_of_refused_samples_is_none() -> None:
    asking = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"sample","arguments":{"count":1,"at_once":1}}}\n'  # noqa: E501
    refusal = b'{"jsonrpc":"2.0","id":0,"error":{"code":-1,"message":"no"}}\n'
    done = subprocess.run(sampling.SERVER, input=asking + refusal, capture_output=True, timeout=20, check=False)
    assert 1 == done.returncode
    assert b"a sample was refused" in done.stderr


def test_a_variant_that_ends_early_is_named() -> None:
    with pytest.raises(RuntimeError, match="ended before it answered"):
        startup.measure(
            [Variant("bare", (sys.executable, "-c", "pass"))], {"bare": 1, "floor": 0, "gate": 0, "peer": 0}, Faults()
        )


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
    )


def rows(found: Figures, faults: Faults | None = None) -> list[Row]:
    faults = faults or Faults()
    return [
        *report.latency(found.latency, faults),
        *report.startup(found.startup, faults),
        *map(report.decision, found.decisions),
        *map(report.ledger, found.ledger),
        *map(report.sampling, found.sampling),
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
        "memory of `run`, no model called yet": False,
        "the same with the models' worker": None,
        "a call with 10 MiB up and 10 MiB down": True,
        "another session's call while such frames pass": True,
    } == verdicts


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
    without.decisions, without.ledger, without.sampling = [], [], []
    without.latency.pop("peer")
    absent = ("memory", "decision", "peer", "worker", "accounts", "samples", "HTTP", "earlier")
    assert not [row for row in rows(without) if any(word in row.what for word in absent)]


def test_a_version_that_git_does_not_know_is_named_with_the_remedy() -> None:
    with pytest.raises(RuntimeError, match=r"BASE=v9\.9\.9: git knows no such commit.*git fetch --tags"):
        base.earlier("v9.9.9")


# A peer that answers the handshake and 230 calls, and then ends, as one that crashes does.
LEAVES = """
import json, sys
for number, line in enumerate(sys.stdin):
    frame = json.loads(line)
    if number > 230:
        sys.exit("the peer has | crashed")
    if "id" in frame:
        print(json.dumps({"jsonrpc": "2.0", "id": frame["id"], "result": {}}), flush=True)
"""


def test_a_peer_that_fails_among_the_laps_is_a_cell_and_the_others_go_on() -> None:
    faults = Faults()
    found = latency.measure([*FLOOR, Variant("peer", (sys.executable, "-c", LEAVES))], laps=4, calls=20, faults=faults)
    assert {"bare", "floor"} == set(found)
    assert faults.why["peer"].endswith("the peer has / crashed")
    row = report.latency({**found, "gate": found["floor"]}, faults)[2]
    assert (None, "the same, against the peer, p50") == (row.met, row.what)
    assert "fastmcp proxy failed:" in row.beside
    assert "crashed" in row.beside


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


@pytest.mark.timeout(600)
def test_a_quick_run_measures_the_gate() -> None:
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "bench/run.py", "--quick", "--no-peer", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=590, check=False, cwd=root)
    assert 0 == done.returncode, done.stderr
    figures = json.loads(done.stdout)["figures"]
    assert {"bare", "floor", "gate"} == set(figures["latency"])
    assert [1, 16] == [one["at_once"] for one in figures["sampling"] if one["gate"] > 0]
    assert ["memory", "SQLite"] == [one["place"] for one in figures["ledger"]]
    assert {"floor", "forwarding", "gate, stdio behind", "gate, HTTP behind"} == {
        call["name"] for call in figures["calls"]["calls"]
    }
    assert [0, 0] == [one["errors"] for one in figures["sessions"]]
    assert (0, 0) == (figures["rounds"]["lost"], figures["reloads"]["failed"])
