"""`samplegate report --run`: the verdict, its exit code, and the files for CI systems."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from samplegate.audit.runs import GateFile, new_state
from samplegate.audit.verdict import RunCounts
from samplegate.ci.run_id import CI_VARIABLES, VARIABLE
from samplegate.cli import run_report
from samplegate.cli.progress import Progress
from tests.fakes.github_runner import commands
from tests.fakes.shell import Ended, Run

NOW = 1_795_003_200.0
HOSTILE = "::error::x\n::set-output name=a::b\r##[add-mask]x</testsuite>]]>&<b>`|`\x1b[2J\u202e"
POLICY = "version: 1\nrules:\n  - name: models\n    effect: allow\n  - name: nobody\n    effect: deny\n"


@pytest.fixture(autouse=True)
def _no_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (VARIABLE, "SAMPLEGATE_STATE", "GITHUB_WORKSPACE", *(names[0] for names in CI_VARIABLES)):
        monkeypatch.delenv(name, raising=False)


def record(number: int, **changes: Any) -> dict[str, Any]:
    line = {
        "decision_id": f"d{number}",
        "time": "2026-11-18T12:00:00.000Z",
        "run": "7-1",
        "server": "docs",
        "caller": "local",
        "era": "legacy",
        "revision": "2025-11-25",
        "door": "push",
        "kind": "sampling",
        "calls": [{"method": "tools/call", "tool": "look"}],
        "effect": "allow",
        "rule": "models",
        "reason": "rule",
        "duration_ms": 12.5,
        "outcome": "answered",
        "policy_hash": "p",
    }
    return line | changes


DENIED = {"kind": "elicitation", "effect": "deny", "rule": "nobody", "outcome": "denied", "detail": "no forms"}


class Made:
    """A state folder with the gates of a run and their log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "policy.yaml").write_text(POLICY)

    def log(self, *records: dict[str, Any]) -> None:
        file = self.folder / "state" / "decisions" / "docs-2026-11-18.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a") as opened:
            opened.writelines(json.dumps(one, separators=(",", ":")) + "\n" for one in records)

    def gate(
        self, server: str = "docs", *, requests: int = 0, log: str | None = "decisions", **changes: Any
    ) -> GateFile:
        state = new_state(
            "7-1",
            command="run",
            server=server,
            wrapped="",
            policy=self.folder / "policy.yaml",
            decision_log=None if log is None else str(self.folder / "state" / log),
            now=NOW,
        )
        gate = GateFile.create(self.folder / "state", state)
        gate.update(**{"counts": RunCounts(requests=requests), "recorded": requests, "served": True, **changes})
        return gate

    def ended(self, server: str = "docs", **changes: Any) -> None:
        self.gate(server, **changes).close(NOW + 1, 0)


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


Report = Callable[..., Ended]


@pytest.fixture
def report(run: Run, tmp_path: Path) -> Report:
    return lambda *options: run("report", "--state", str(tmp_path / "state"), "--run", "7-1", *options)


def test_a_run_without_a_failure_passes(made: Made, report: Report) -> None:
    made.log(record(1), record(2, run="8-1", **DENIED))
    made.ended(requests=1)
    ended = report("--expect-gates", "1")
    assert (0, "run 7-1: passed: 1 request in 1 gate\n  docs: 1 request, exit code 0\n", "") == (
        ended.code,
        ended.out,
        ended.err,
    )


def test_a_denied_request_fails_it_and_is_named(made: Made, report: Report) -> None:
    made.log(record(1), record(2, **DENIED))
    made.ended(requests=2)
    ended = report()
    assert (1, "") == (ended.code, ended.err)
    assert (
        "run 7-1: failed: denied (1)\n  docs: 2 requests, exit code 0\n  [denied] docs: elicitation during look:"
        " denied (rule, rule 'nobody'): no forms [decision d2]\n"
    ) == ended.out


def test_the_gate_of_a_call_without_an_answer_is_named(made: Made, report: Report) -> None:
    made.log(record(1))
    made.ended(requests=1)
    made.ended("slow", recorded=0, counts=RunCounts(unanswered=1))
    ended = report()
    first, *gates = ended.out.splitlines()
    assert (1, "run 7-1: failed: unanswered (1)") == (ended.code, first)
    assert ["  docs: 1 request, exit code 0", "  slow: 0 requests, 1 not answered, exit code 0"] == sorted(gates)


@pytest.mark.parametrize(("words", "code"), [("limit", 0), ("none", 0), ("limit,denied", 1), ("no_requests", 0)])
def test_only_the_words_fail_it(made: Made, report: Report, words: str, code: int) -> None:
    made.log(record(1, **DENIED))
    made.ended(requests=1)
    assert code == report("--fail-on", words).code


def test_what_cannot_be_told_never_passes(made: Made, report: Report) -> None:
    ended = report()
    assert (2, True) == (
        ended.code,
        f"no gate of this run has used the state folder {made.folder / 'state'}" in ended.err,
    )
    made.ended(requests=1)
    ended = report()
    assert (2, True) == (ended.code, "/state/decisions: cannot be read: no such file or directory" in ended.err)
    made.log(record(1))
    assert 0 == report().code
    ended = report("--expect-gates", "2")
    assert (2, True) == (ended.code, "run 7-1: 1 of 2 expected servers have answered" in ended.err)


def test_a_log_that_became_a_pipe_is_not_read(made: Made, report: Report) -> None:
    log = made.folder / "log.jsonl"
    os.mkfifo(log)  # nobody writes into it, so reading it would never end
    made.ended(requests=1, log=str(log))
    ended = report()
    assert (2, True) == (ended.code, f"{log}: it is no longer a regular file" in ended.err)


def test_half_a_line_is_missed(made: Made, report: Report) -> None:
    made.log(record(1), record(2))
    file = next((made.folder / "state" / "decisions").glob("*.jsonl"))
    file.write_bytes(file.read_bytes()[:-40])
    made.ended(requests=2)
    ended = report()
    assert (2, True, True) == (
        ended.code,
        "docs-2026-11-18.jsonl:2: is not JSON" in ended.err,
        "the decision logs have 1 of the 2 lines that the gates wrote" in ended.err,
    )


def test_a_gate_that_still_runs_is_unknown(made: Made, report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_report, "ENDING", 0.0)
    gate = made.gate()
    ended = report()
    assert (2, True) == (ended.code, "gate 'docs' still runs (process " in ended.err)
    gate.close(NOW, 0)


def test_a_gate_that_was_killed_passes_only_if_nothing_was_open(made: Made, report: Report) -> None:
    made.log(record(1))
    kill(made.gate(requests=1))
    ended = report()
    assert (0, True) == (ended.code, "  gate 'docs' was killed; no request was open\n" in ended.out)
    kill(made.gate("two", open=1))
    assert (1, True) == ((ended := report()).code, "failed: unanswered (1)" in ended.out)


def kill(gate: GateFile) -> None:
    os.close(gate._fd)


@pytest.mark.parametrize("name", [VARIABLE, "CI_JOB_ID"])
def test_the_environment_names_the_run(made: Made, run: Run, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    made.log(record(1))
    made.ended(requests=1)
    monkeypatch.setenv(name, "7-1")
    monkeypatch.setenv("SAMPLEGATE_STATE", str(made.folder / "state"))
    assert 0 == run("report", "--run").code


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--run"], "--run: no run is known; pass its ID, or set SAMPLEGATE_RUN"),
        (["--run", "a/b"], "--run: 'a/b' is not an ID of a run; use at most 128 letters"),
        (["--run", "::error::\n" + "x" * 500], "--run: '::error::\\n" + "x" * 50 + "…' is not an ID of a run"),
        (["--run", "7-1", "--since", "2026-11-01"], "--since: a run has all of its records"),
        (["--run", "7-1", "--json", "--annotations", "github"], "--json: annotations would be between the lines of"),
        (["--junit", "x"], "--junit needs --run"),
        (["--fail-on", "denied"], "--fail-on needs --run"),
        (["--annotations", "github"], "--annotations needs --run"),
    ],
)
def test_wrong_usage_is_told(run: Run, options: list[str], problem: str) -> None:
    ended = run("report", *options)
    assert (2, True) == (ended.code, problem in ended.err)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--fail-on", "oops"], "argument --fail-on: 'oops' is not one of denied, unanswered,"),
        (["--fail-on", ","], "argument --fail-on: the list is empty; name some of denied,"),
        (["--expect-gates", "0"], "argument --expect-gates: '0' is not a whole number from 1 to 1000"),
        (["--annotations", "gitlab"], "argument --annotations: invalid choice: 'gitlab'"),
    ],
)
def test_a_wrong_value_is_told(
    report: Report, capsys: pytest.CaptureFixture[str], options: list[str], problem: str
) -> None:
    with pytest.raises(SystemExit) as left:
        report(*options)
    assert (2, True) == (left.value.code, problem in capsys.readouterr().err)


def test_the_files_have_the_rows(made: Made, report: Report) -> None:
    made.log(record(1), record(2, **DENIED))
    made.ended(requests=2)
    assert 1 == report("--junit", "out/j.xml", "--summary", "s.md", "--json", "v.json").code
    found = json.loads((made.folder / "v.json").read_text())
    assert ("7-1", "fail", ["denied"], 2, 1) == (
        found["run"],
        found["verdict"],
        found["met"],
        found["counts"]["requests"],
        found["counts"]["denied"],
    )
    assert [("d2", ["denied"], "no forms"), ("d1", [], "")] == [
        (one["decision_id"], one["words"], one["detail"]) for one in found["requests"]
    ]
    suites = ET.fromstring((made.folder / "out" / "j.xml").read_bytes())
    assert [
        ("run 7-1", "the run can be judged", None),
        ("run 7-1", "denied", "a request was denied: 1"),
        ("run 7-1", "unanswered", None),
        ("docs", "elicitation during look: rule 'nobody'", "denied (rule): denied"),
        ("docs", "sampling during look: rule 'models'", None),
    ] == [
        (suite.get("name"), case.get("name"), None if (bad := case.find("failure")) is None else bad.get("message"))
        for suite in suites
        for case in suite
    ]
    summary = (made.folder / "s.md").read_text()
    assert "## samplegate: run `7-1` failed\n" in summary
    assert "| `docs` | elicitation | `look` | denied | `nobody` | `no forms` | `d2` |" in summary


def test_the_summary_is_appended_within_githubs_bound(made: Made, report: Report) -> None:
    made.log(record(1))
    made.ended(requests=1)
    (made.folder / "s.md").write_text("before\n")
    assert 0 == report("--summary", "s.md").code
    assert (made.folder / "s.md").read_text().startswith("before\n## samplegate")
    (made.folder / "s.md").write_text("x" * 899_900)
    assert 0 == report("--summary", "s.md").code
    assert 900_000 >= (made.folder / "s.md").stat().st_size


def test_a_file_that_cannot_be_written_never_passes(made: Made, report: Report) -> None:
    made.log(record(1))
    made.ended(requests=1)
    (made.folder / "file").write_text("")
    for flag in ("--junit", "--json", "--summary"):
        ended = report(flag, "file/x")
        assert (2, True) == (ended.code, f"{flag}: file/x cannot be written" in ended.err)


def test_long_logs_show_their_progress(made: Made, report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    monkeypatch.setattr(Progress, "step", lambda self: steps.append("step"))
    made.log(record(1), record(2, run="8-1"))
    made.ended(requests=1)
    report()
    assert 2 == len(steps), "records of other runs count, too"


def test_annotations_are_at_the_rules_lines(made: Made, report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    made.log(record(1), record(2, **DENIED))
    made.ended(requests=2)
    monkeypatch.setenv("GITHUB_WORKSPACE", str(made.folder))
    ended = report("--annotations", "github")
    assert [
        ("error", {"title": "samplegate: run 7-1"}, "failed: denied (1)"),
        (
            "error",
            {"file": "policy.yaml", "line": "5", "title": "samplegate: denied"},
            "[denied] docs: elicitation during look: denied (rule, rule 'nobody'): no forms [decision d2]",
        ),
    ] == [(one.name, one.properties, one.data) for one in commands(ended.out)]


def test_hostile_text_is_only_text(made: Made, report: Report) -> None:
    hostile = {"server": HOSTILE, "rule": HOSTILE, "detail": HOSTILE, "calls": [{"method": HOSTILE, "tool": HOSTILE}]}
    made.log(*(record(number, **(DENIED | hostile)) for number in range(3)))
    made.ended(HOSTILE, requests=3)
    ended = report("--annotations", "github", "--junit", "j.xml", "--summary", "s.md", "--json", "v.json")
    assert 1 == ended.code
    assert ["error"] * 4 == [one.name for one in commands(ended.out)]
    assert [] == commands(ended.err)
    assert not {"\x1b", "\u202e", "\r"} & set(ended.out + ended.err)
    assert 6 == len([*ET.fromstring((made.folder / "j.xml").read_bytes()).iter("testcase")])
    assert HOSTILE == json.loads((made.folder / "v.json").read_text())["requests"][0]["detail"]
    summary = (made.folder / "s.md").read_text()
    assert not any(line.startswith("::") for line in summary.splitlines())
    assert {8} == {len(line.replace(r"\|", "").split("|")) - 1 for line in summary.splitlines() if "d0" in line}


def test_a_database_and_other_logs_can_be_read(made: Made, report: Report) -> None:
    made.ended(requests=1, log=None)
    (made.folder / "other.jsonl").write_text(json.dumps(record(1, **DENIED), separators=(",", ":")) + "\n")
    assert [0, 1] == [report().code, report("--log", "other.jsonl").code]
