"""`samplegate demo` as a user starts it, with real processes and the real gate, and its messages if a step fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from samplegate.cli.main import main as command_line
from samplegate.demo import main
from samplegate.demo.client import CallReport
from tests.paths import ROOT

PACKAGED = ROOT / "proxy" / "samplegate" / "demo"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "proxy"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", ["demo.yaml", "demo_cases.yaml"])
def test_the_policy_in_the_package_is_the_shipped_one(name: str) -> None:
    assert (ROOT / "policies" / name).read_bytes() == (PACKAGED / name).read_bytes(), (
        f"copy policies/{name} to proxy/samplegate/demo/"
    )


@pytest.mark.timeout(120)
def test_the_demo_answers_everything_in_both_eras(folder: Path) -> None:
    environment = os.environ | {"TMPDIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-m", "samplegate", "demo"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=110,
        check=False,
    )
    assert (0, "") == (done.returncode, done.stderr)
    for told in (
        "With the gate, protocol version 2025-11-25",
        "With the gate, protocol version 2026-07-28",
        "a model may classify the risk",
        '"mcpServers"',
        "failed: ",
    ):
        assert told in done.stdout
    logs = sorted(folder.glob("samplegate-demo-*/decisions-*.jsonl"))
    assert ["decisions-legacy.jsonl", "decisions-modern.jsonl"] == [log.name for log in logs]
    assert [["allow", "answer", "allow"]] * 2 == [
        [json.loads(line)["effect"] for line in log.read_text("utf-8").splitlines()] for log in logs
    ]


@pytest.mark.timeout(120)
def test_a_policy_that_refuses_makes_the_demo_fail_and_say_why(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refusing = folder / "refusing.yaml"
    refusing.write_text("version: 1\nrules:\n  - {name: nothing, match: {kind: elicitation}, effect: deny}\n", "utf-8")
    monkeypatch.setattr(main, "POLICY", refusing)
    assert main.FAILED == command_line(["demo", "--era", "legacy"])
    said = capsys.readouterr().err
    assert "samplegate demo: legacy: the tool call failed: " in said
    assert "database: it contains ada, boris" in said


def test_a_log_that_is_not_there_is_a_problem_and_no_crash(tmp_path: Path) -> None:
    records, problems = main.read_log(tmp_path / "none.jsonl")
    assert [] == records
    assert problems[0].startswith("decision log: cannot be read: ")


def test_what_a_request_said_is_told_where_the_log_keeps_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    record = {
        "kind": "sampling",
        "calls": [{"method": "tools/call", "tool": "purge"}],
        "effect": "allow",
        "rule": "a model may",
        "outcome": "answered",
        "model": "scripted",
        "duration_ms": 1.4,
        "result": {"role": "assistant", "content": {"type": "text", "text": "medium"}, "model": "scripted"},
        "request": {"messages": [{"role": "user", "content": {"type": "text", "text": "Classify this"}}]},
    }
    seen = CallReport("2025-11-25", {"deleted": 4})
    shown = main.DemoPass("legacy", tmp_path / "a.db", tmp_path / "a.jsonl", tmp_path / "a.txt", seen, [record])
    main._print_pass(shown)
    said = capsys.readouterr().out
    assert "1. sampling/createMessage during purge: Classify this" in said
    assert "-> medium" in said
    assert "allow by rule 'a model may'; answered by scripted in 1 ms" in said
