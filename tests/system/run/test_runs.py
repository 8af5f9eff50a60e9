"""Gates of a run as processes: the run ID in records and files, a budget for the run, kills, and `--fail-on`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from samplegate.audit.runs import read_gates
from samplegate.audit.verdict import FoundGate
from tests.fakes.run_process import Running, call, opening, running
from tests.paths import PROGRAMS

SERVER = (sys.executable, str(PROGRAMS / "bare_server.py"))
PARAMS = {"messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}], "maxTokens": 10}
FORM = {"message": "sure?", "requestedSchema": {"type": "object", "properties": {}}}
POLICY = """
version: 1
models: [{name: trial, model: scripted, cases: cases.yaml}]
limits: {two: {requests: 2, per: run}}
rules:
  - {name: models, match: {kind: sampling}, effect: allow, with: {models: [trial]}, limits: [two], on_limit: deny}
  - {name: nobody, match: {kind: elicitation}, effect: deny, as: decline}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "cases.yaml").write_text("cases: [{answer: hi}]\n")
    return tmp_path


def sample(gate: Running, id: int) -> dict[str, Any]:
    """Let the server ask a model, and return what it got."""
    gate.write(call(id, "t", ask={"method": "sampling/createMessage", "params": PARAMS}))
    return answer(gate, id)


def answer(gate: Running, id: int) -> dict[str, Any]:
    while (frame := gate.read()).get("id") != id:
        pass
    found: dict[str, Any] = frame["result"]["structuredContent"]
    return found


def gates(folder: Path, run: str, seconds: float = 20.0) -> list[FoundGate]:
    found, problems = read_gates(folder / "state", run, seconds=seconds)
    assert [] == problems
    return found


def records(folder: Path) -> list[dict[str, Any]]:
    files = sorted((folder / "state" / "decisions").glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_two_gates_of_a_run_share_its_budget_and_the_next_run_has_its_own(folder: Path) -> None:
    options = ("--state", "state")
    with (
        running(folder, "--server", "a", *options, command=SERVER, environment={"SAMPLEGATE_RUN": "7-1"}) as one,
        running(folder, "--server", "b", *options, "--run", "7-1", command=SERVER) as two,
        running(folder, *options, command=SERVER, environment={"GITHUB_RUN_ID": "8", "GITHUB_JOB": "t"}) as other,
    ):
        for gate in (one, two, other):
            gate.write(*opening())
        got = [sample(gate, 1) for gate in (one, two, one, two, other)]
        ends = [gate.end()[0] for gate in (one, two, other)]
    assert [True, True, False, False, True] == ["result" in one for one in got]
    assert [0, 0, 0] == ends
    found = gates(folder, "7-1")
    assert {("a", 2, 1, 1), ("b", 2, 1, 1)} == {
        (gate.state.server, (counts := gate.state.counts).requests, counts.denied, counts.limit) for gate in found
    }
    assert [("default", 1)] == [(gate.state.server, gate.state.counts.requests) for gate in gates(folder, "8-t")]
    assert ["7-1"] * 4 + ["8-t"] == sorted(record["run"] for record in records(folder))
    assert [(False, 0, 0)] * 2 == [(gate.runs, gate.state.open, gate.state.exit_code) for gate in found]


def test_a_gate_that_is_killed_shows_what_was_open(folder: Path) -> None:
    (folder / "cases.yaml").write_text("cases: [{answer: hi, delay: 50s}]\n")
    with running(folder, "--state", "state", "--run", "7", command=SERVER) as gate:
        gate.write(*opening(), call(1, "t", ask={"method": "elicitation/create", "params": FORM}))
        assert "decline" == answer(gate, 1)["result"]["action"]
        gate.write(call(2, "t", ask={"method": "sampling/createMessage", "params": PARAMS}))
        until = time.monotonic() + 40
        while gates(folder, "7", 0.0)[0].state.open == 0 and time.monotonic() < until:
            time.sleep(0.02)
        gate.process.kill()
        gate.process.wait()
    (found,) = gates(folder, "7")
    assert (False, None, 1, 1, 1) == (
        found.runs,
        found.state.ended,
        found.state.open,
        found.state.counts.requests,
        found.state.counts.denied,
    )


def test_a_killed_gate_that_was_idle_has_nothing_open(folder: Path) -> None:
    with running(folder, "--state", "state", "--run", "7", command=SERVER) as gate:
        gate.write(*opening())
        assert "result" in sample(gate, 1)
        gate.process.kill()
        gate.process.wait()
    (found,) = gates(folder, "7")
    assert (None, 0, 1) == (found.state.ended, found.state.open, found.state.counts.requests)


def test_the_signals_that_follow_the_first_one_do_not_cut_the_end_short(folder: Path) -> None:
    """Claude Code sends SIGINT and 100 ms later SIGTERM. Its server needs longer than that to end."""
    outlives = {"OUTLIVE": "1"}
    with running(folder, "--state", "state", "--run", "7", command=SERVER, environment=outlives) as gate:
        gate.write(*opening())
        assert "result" in sample(gate, 1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            gate.process.send_signal(number)
            time.sleep(0.1)
        code, _, said = gate.end()
    assert (128 + signal.SIGINT, True) == (code, "1 request: 1 answered" in said)
    assert [code] == [gate.state.exit_code for gate in gates(folder, "7")]


@pytest.mark.parametrize(
    ("options", "code", "line"),
    [
        (["--fail-on", "denied"], 3, "elicitation during t: denied (rule, rule 'nobody')"),
        (["--strict"], 3, "elicitation during t: denied (rule, rule 'nobody')"),
        (["--fail-on", "unanswered,limit"], 0, ""),
        (["--fail-on", "no_requests"], 0, ""),
        ([], 0, ""),
    ],
)
def test_the_exit_code_follows_the_words(folder: Path, options: list[str], code: int, line: str) -> None:
    with running(folder, "--state", "state", "--run", "7", *options, command=SERVER) as gate:
        gate.write(*opening(), call(1, "t", ask={"method": "elicitation/create", "params": FORM}))
        answer(gate, 1)
        ended, _, said = gate.end()
    assert (code, True) == (ended, line in said)
    assert code == gates(folder, "7")[0].state.exit_code


def test_a_run_without_requests_can_fail(folder: Path) -> None:
    with running(folder, "--state", "state", "--run", "7", "--fail-on", "no_requests", command=SERVER) as gate:
        gate.write(*opening())
        gate.read()
        ended, _, said = gate.end()
    assert (3, True) == (ended, "no_requests: no server made a request" in said)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ([], "limits: limit two: it counts per run, but this process has no run ID; set SAMPLEGATE_RUN or --run"),
        (["--run", "a b"], "--run: 'a b' is not an ID of a run; use at most 128 letters"),
        (["--run", "../x"], "--run: '../x' is not an ID of a run; use at most 128 letters"),
    ],
)
def test_a_run_that_is_not_known_or_no_id_is_refused(folder: Path, options: list[str], problem: str) -> None:
    with running(folder, "--state", "state", *options, command=SERVER) as gate:
        ended, _, said = gate.end()
    assert (2, True) == (ended, problem in said)


def test_a_gate_that_cannot_start_says_so_in_its_file(folder: Path) -> None:
    (folder / "policy.yaml").write_text("version: 1\nrules: oops\n")
    with running(folder, "--state", "state", "--run", "7", command=SERVER) as gate:
        assert 2 == gate.end()[0]
    (folder / "policy.yaml").write_text(POLICY)
    with running(folder, "--state", "state", "--run", "7", command=["no-such-program"]) as gate:
        assert 2 == gate.end()[0]
    assert [(False, 2)] * 2 == [(gate.state.started_up, gate.state.exit_code) for gate in gates(folder, "7")]


def test_the_settings_file_and_the_env_file_may_name_the_run(folder: Path) -> None:
    (folder / "settings.yaml").write_text("run: from-settings\nstate: state\n")
    (folder / "env").write_text("SAMPLEGATE_RUN=from-env-file\n")
    for options in (["--settings", "settings.yaml"], ["--env-file", "env", "--state", "state"]):
        with running(folder, *options, command=SERVER) as gate:
            assert 0 == gate.end()[0]
    assert ["from-env-file", "from-settings"] == sorted(path.name for path in (folder / "state" / "runs").iterdir())


def test_a_daemon_of_a_run_has_a_file(folder: Path) -> None:
    words = [sys.executable, "-m", "samplegate", "serve", "--policy", "policy.yaml", "--listen", "127.0.0.1:0"]
    words += ["--state", "state", "--run", "7", "--", *SERVER]
    with subprocess.Popen(words, cwd=folder, stderr=subprocess.PIPE, text=True) as daemon:
        try:
            assert daemon.stderr is not None
            assert any("listener.opened" in line for line in daemon.stderr)
            assert [("serve", True)] == [(gate.state.command, gate.runs) for gate in gates(folder, "7")]
            daemon.terminate()
            daemon.communicate(timeout=50)
        finally:
            daemon.kill()
    assert [(False, 0)] == [(gate.runs, gate.state.exit_code) for gate in gates(folder, "7")]


def judged(folder: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """`samplegate report --run 7`: its exit code and JSON."""
    words = [sys.executable, "-m", "samplegate", "report", "--run", "7", "--state", "state", "--json", *options]
    ended = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=50, check=False)
    return ended.returncode, json.loads(ended.stdout)


@pytest.mark.parametrize(
    ("server", "options"),
    [
        (SERVER, ()),  # it exits during the call
        ((sys.executable, "-c", "import sys; sys.stdin.readline(); sys.exit(1)"), ()),
        ((sys.executable, "-c", "import time; time.sleep(60)"), ("--start-timeout", "1")),
    ],
)
def test_a_call_that_no_server_answered_is_in_the_verdict(
    folder: Path, server: tuple[str, ...], options: tuple[str, ...]
) -> None:
    with running(folder, "--state", "state", "--run", "7", *options, command=server) as gate:
        gate.write(*opening(), call(1, "t", exit=1))
        gate.end()
    code, found = judged(folder)
    assert (1, ["unanswered"]) == (code, found["met"]), found


def test_calls_to_a_url_that_nobody_listens_at_are_in_the_verdict(folder: Path) -> None:
    url = "http://127.0.0.1:9/mcp"
    with running(folder, "--state", "state", "--run", "7", "--url", url, "--strict", command=[]) as gate:
        gate.write(*opening())
        assert 3 == gate.end()[0]
    assert 1 == judged(folder)[0]


def test_a_gate_that_is_killed_before_its_server_answered_is_unknown_and_not_expected(folder: Path) -> None:
    silent = (sys.executable, "-c", "import time; time.sleep(60)")
    with running(folder, "--state", "state", "--run", "7", command=silent) as gate:
        gate.write(*opening())
        until = time.monotonic() + 40
        while not list((folder / "state").glob("runs/7/*.json")) and time.monotonic() < until:
            time.sleep(0.02)
        gate.process.kill()
        gate.process.wait()
    code, found = judged(folder)
    assert (2, True) == (code, "ended before its server had answered any request" in found["problems"][0])
    with running(folder, "--state", "state", "--run", "7", "--server", "b", command=SERVER) as gate:
        gate.write(*opening())
        assert "result" in sample(gate, 1)
        gate.end()
    assert "1 of 2 expected servers" in judged(folder, "--expect-gates", "2")[1]["problems"][0]


def test_a_wrong_command_line_leaves_a_file_too(folder: Path) -> None:
    known = {"SAMPLEGATE_RUN": "7", "SAMPLEGATE_STATE": str(folder / "state")}
    for options in (["--no-such-flag"], ["--start-timeout", "soon"]):
        with running(folder, *options, command=SERVER, environment=known) as gate:
            assert 2 == gate.end()[0]
    assert [False, False] == [gate.state.started_up for gate in gates(folder, "7")]
    assert 2 == judged(folder)[0]


def test_a_banner_is_not_dropped_and_a_gates_own_words_fail_the_run(folder: Path) -> None:
    with running(folder, "--state", "state", "--run", "7", "--fail-on", "no_requests", command=SERVER) as gate:
        gate.write(*opening())
        gate.read()
        assert 3 == gate.end()[0]
    code, found = judged(folder, "--fail-on", "dropped")
    assert (1, [], ["gate 'default' failed: no server made a request"]) == (code, found["met"], found["failed_gates"])
