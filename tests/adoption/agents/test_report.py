"""The verdict on an agent's run, with the agent's own way to end its gates: red if a request was denied, green if not.

The environment is that of a job on GitHub, which agents pass to their servers to a different extent. `LONG=1` repeats
each test 20 times.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

import pytest

from tests.adoption.agents.headless import AGENTS, Agent, Session
from tests.adoption.agents.two_servers import ALLOWED, DENIED, at_work

RUN: Final = "job-7"
JOB: Final = {
    "SAMPLEGATE_RUN": RUN,
    "CI": "true",
    "GITHUB_ACTIONS": "true",
    "GITHUB_SHA": "0" * 40,
    "GITHUB_RUN_ID": "1",
    "GITHUB_RUN_ATTEMPT": "1",
    "GITHUB_JOB": "agent",
}
TIMES: Final = 20 if os.environ.get("LONG") else 1

each_agent = pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
each_time = pytest.mark.parametrize("time", range(TIMES))


class Report:
    """`samplegate report` on the run: its exit code, its text, JSON and JUnit XML."""

    def __init__(self, folder: Path, *options: str) -> None:
        program = str(Path(sys.executable).with_name("samplegate"))
        words = [program, "report", "--run", RUN, "--state", "state", "--fail-on", "denied,unanswered", *options]
        words += ["--json", "report.json", "--junit", "junit.xml"]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=50)
        self.code, self.text = done.returncode, done.stdout + done.stderr
        self.json: dict[str, Any] = json.loads((folder / "report.json").read_text("utf-8"))
        self.junit = ET.parse(folder / "junit.xml").getroot()

    def rows(self) -> list[tuple[Any, ...]]:
        facts = ("server", "kind", "rule", "outcome", "words")
        return sorted(tuple(row[fact] for fact in facts) for row in self.json["requests"])

    def failed_cases(self) -> list[str]:
        return [str(case.get("name")) for case in self.junit.iter("testcase") if case.find("failure") is not None]


def report_right_after(session: Session, folder: Path, *options: str) -> Report:
    """The report of the next step of the job, which does not wait for the gates."""
    ended = session.end()
    report = Report(folder, *options)
    assert 0 == ended.code, ended.stderr
    return report


@each_time
@each_agent
def test_a_denied_request_makes_the_job_red(agent: Agent, time: int, tmp_path: Path) -> None:
    with at_work(agent, tmp_path, DENIED, environment=JOB) as session:
        report = report_right_after(session, tmp_path, "--expect-gates", "2")
    assert 1 == report.code, report.text
    assert ("fail", ["denied"]) == (report.json["verdict"], report.json["met"])
    assert [
        ("asks", "sampling", "secrets", "denied", ["denied"]),
        ("forms", "elicitation", "forms", "answered", []),
    ] == report.rows()
    assert ["denied", "sampling during classify: rule 'secrets'"] == report.failed_cases()


@each_time
@each_agent
def test_a_run_without_a_denied_request_is_green(agent: Agent, time: int, tmp_path: Path) -> None:
    with at_work(agent, tmp_path, ALLOWED, environment=JOB) as session:
        report = report_right_after(session, tmp_path, "--expect-gates", "2")
    assert 0 == report.code, report.text
    assert ("pass", []) == (report.json["verdict"], report.json["met"])
    assert [
        ("asks", "sampling", "models", "answered", []),
        ("forms", "elicitation", "forms", "answered", []),
    ] == report.rows()
    assert [] == report.failed_cases()


@each_agent
def test_a_run_with_fewer_gates_than_expected_is_red(agent: Agent, tmp_path: Path) -> None:
    with at_work(agent, tmp_path, ALLOWED, environment=JOB) as session:
        report = report_right_after(session, tmp_path, "--expect-gates", "3")
    assert (2, "unknown") == (report.code, report.json["verdict"]), report.text
    assert report.failed_cases()
