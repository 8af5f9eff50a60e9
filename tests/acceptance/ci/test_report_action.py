"""The report action: how it calls `samplegate report`, which a script records here, and what it makes of the exit
code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.ci.conftest import HOSTILE, OFFLINE
from tests.acceptance.ci.github import Job
from tests.paths import ROOT

pytestmark = pytest.mark.timeout(900)  # installs take long on a busy machine

RECORDER = """#!/bin/sh
printf '%s\\0' "$@" >"$RUNNER_TEMP/words"
printf %s "${SAMPLEGATE_STATE-}" >"$RUNNER_TEMP/state"
exit "${EXIT:-0}"
"""


def recording(folder: Path, **environment: str) -> Job:
    """A job with a `samplegate` that records how it is called."""
    job = Job(folder, ROOT, **OFFLINE, **environment)
    (folder / "bin").mkdir()
    (folder / "bin" / "samplegate").write_text(RECORDER)
    (folder / "bin" / "samplegate").chmod(0o755)
    job.path.append(str(folder / "bin"))
    return job


def words(job: Job) -> list[str]:
    return (job.temp / "words").read_text("utf-8").split("\0")[:-1]


def test_it_reports_the_run_of_the_setup_action_by_default(tmp_path: Path) -> None:
    job = recording(tmp_path, SAMPLEGATE_RUN="r1", SAMPLEGATE_STATE="/state")
    failed, outputs = job.action("action/report")
    folder = job.temp / "samplegate"
    assert (False, {"verdict": "pass", "junit": f"{folder}/report.xml", "json": f"{folder}/report.json"}) == (
        failed,
        outputs,
    )
    assert [
        "report",
        "--run=r1",
        "--fail-on=denied,unanswered",
        "--annotations=github",
        f"--junit={folder}/report.xml",
        f"--json={folder}/report.json",
        f"--summary={tmp_path}/files/STEP_SUMMARY",
    ] == words(job)
    assert "/state" == (job.temp / "state").read_text()


def test_inputs_replace_every_default(tmp_path: Path) -> None:
    job = recording(tmp_path, SAMPLEGATE_RUN="r1", SAMPLEGATE_STATE="/state")
    given = {"run": "r2", "state": "there", "fail-on": "limit", "expect-gates": "2", "junit": "out/a.xml"}
    failed, outputs = job.action("action/report", **given, json="/tmp/../b.json", summary="false")
    assert (False, {"verdict": "pass", "junit": f"{job.workspace}/out/a.xml", "json": "/tmp/../b.json"}) == (
        failed,
        outputs,
    )
    expected = ["--run=r2", "--fail-on=limit", "--annotations=github", f"--junit={job.workspace}/out/a.xml"]
    assert ["report", *expected, "--json=/tmp/../b.json", "--expect-gates=2"] == words(job)
    assert f"{job.workspace}/there" == (job.temp / "state").read_text()
    assert (job.workspace / "out").is_dir()


@pytest.mark.parametrize(("code", "verdict"), [("0", "pass"), ("1", "fail"), ("2", "unknown"), ("137", "unknown")])
def test_the_exit_code_is_the_verdict_and_the_outputs_are_set_in_any_case(
    tmp_path: Path, code: str, verdict: str
) -> None:
    job = recording(tmp_path, EXIT=code)
    failed, outputs = job.action("action/report")
    assert (code != "0", verdict) == (failed, outputs["verdict"])
    assert {"verdict", "junit", "json"} == {name for name, value in outputs.items() if value}


def test_results_of_an_earlier_report_do_not_remain(tmp_path: Path) -> None:
    job = recording(tmp_path, EXIT="2")
    (job.workspace / "a.xml").write_text("<testsuites/>")
    job.action("action/report", junit="a.xml")
    assert not (job.workspace / "a.xml").exists()


def test_without_the_setup_action_the_verdict_is_unknown(job: Job) -> None:
    failed, outputs = job.action("action/report")
    assert (True, {"verdict": "unknown", "junit": "", "json": ""}) == (failed, outputs)
    assert ["samplegate: not found; the setup action must run, and succeed, before this one"] == [
        each.text for each in job.commands
    ]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("name", ["run", "state", "fail-on", "expect-gates", "junit", "json", "summary"])
def test_a_hostile_input_of_the_report_is_one_argument_or_refused(tmp_path: Path, name: str, text: str) -> None:
    job = recording(tmp_path)
    before = dict(job.environment)
    failed, outputs = job.action("action/report", **{name: text})
    if failed:
        assert "unknown" == outputs["verdict"]
        assert ["error"] == [each.name for each in job.commands], job.log
        assert not (job.temp / "words").exists()
    else:
        assert [] == job.commands, job.log
        given = (job.temp / "state").read_text("utf-8") if name == "state" else "\0".join(words(job))
        assert text in given
    assert before == job.environment
    assert [] == list(tmp_path.rglob("pwned"))
