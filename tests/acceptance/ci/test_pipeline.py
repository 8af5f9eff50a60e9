"""Whole pipelines: the workflow of the README and the GitLab component, with a real client, two gated servers and the
installed wheel. A denied request, and a gate that never started, fail the job; nothing that a server writes changes a
result."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

import pytest
import yaml

from tests.acceptance.ci import gitlab
from tests.acceptance.ci.conftest import OFFLINE
from tests.acceptance.ci.github import Job
from tests.acceptance.ci.test_lint import COMPONENT, example
from tests.acceptance.sdk import peers
from tests.paths import PROGRAMS, ROOT

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

POLICY: Final = """\
version: 1
rules:
  - name: forms are filled in
    match: {kind: elicitation, mode: form}
    effect: answer
    content: {ok: true}
  - name: no sampling
    match: {kind: sampling}
    effect: deny
"""
TESTS: Final = """\
cases:
  - name: forms are filled in
    server: docs
    elicitation: {message: Sure?, fields: {ok: boolean}}
    expect: {effect: answer, rule: forms are filled in}
"""
HOSTILE: Final = "\n::error::x\r::error::x</testsuite>]]>##[error]y\u2028::error::z`|\n| a | b |\n# h"


def form(message: str = "Sure?") -> dict[str, Any]:
    properties = {"ok": {"type": "boolean", "title": message}}
    schema = {"type": "object", "properties": properties, "required": ["ok"]}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def sampling(message: str = "Hello") -> dict[str, Any]:
    messages = [{"role": "user", "content": {"type": "text", "text": message}}]
    return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": 10}}


def agent(tool: str = "do", **asked: Mapping[str, Any]) -> str:
    """A script in an agent's place: for each server by name, a client that starts it behind a gate and calls a tool,
    which sends the request. As with real agents, the exit code tells nothing."""
    client = peers.clients()["python2-legacy"]
    lines = []
    for server, request in asked.items():
        steps = [{"do": "call", "name": tool, "arguments": {"ask": request}}]
        words = [*client.words, json.dumps({"mode": client.mode, "steps": steps}), "samplegate", "run"]
        after = ["--policy", "policies/ci.yaml", "--server", server, "--"]
        behind = [sys.executable, str(PROGRAMS / "asking.py"), "legacy"]
        run = '--run "$SAMPLEGATE_RUN" --state "$SAMPLEGATE_STATE"'
        lines.append(f"{shlex.join(words)} {run} {shlex.join([*after, *behind])} >/dev/null 2>&1 </dev/null || true")
    return "\n".join([*lines, "exit 0", ""])


def project(folder: Path, wheel: Path) -> None:
    """A repository with a policy, its tests and the wheel."""
    (folder / "policies").mkdir(parents=True)
    (folder / "policies" / "ci.yaml").write_text(POLICY)
    (folder / "policies" / "ci_test.yaml").write_text(TESTS)
    (folder / "tools").mkdir()
    shutil.copy(wheel, folder / "tools")


def rows(path: str | Path) -> list[tuple[str, bool]]:
    """The requests in a JUnit file, by server, and whether each failed. The totals agree with the cases."""
    root = ET.parse(path).getroot()
    cases = [(suite.get("name", ""), len(case) > 0) for suite in root for case in suite.iter("testcase")]
    assert [str(len(cases)), str(sum(failed for _, failed in cases))] == [root.get("tests"), root.get("failures")]
    return sorted(case for case in cases if not case[0].startswith("run "))


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, wheel: Path, python: Path) -> Job:
    """A job after its setup. Each test reports a run of its own."""
    made = Job(tmp_path_factory.mktemp("job"), ROOT, **OFFLINE)
    project(made.workspace, wheel)
    failed, _ = made.action("action/setup", wheel=f"tools/{wheel.name}", python=str(python), policy="policies/ci.yaml")
    assert not failed, made.log
    return made


@pytest.fixture
def run(job: Job, request: pytest.FixtureRequest) -> Job:
    """The job, with a run of its own and nothing printed yet."""
    job.environment["SAMPLEGATE_RUN"] = re.sub(r"\W+", ".", request.node.name)[-60:]
    job.commands, job.log, job.summary = [], "", ""
    return job


def report(job: Job, **given: str) -> tuple[bool, str, list[tuple[str, bool]]]:
    """Whether the report failed its step, its verdict, and the requests in its JUnit file."""
    failed, outputs = job.action("action/report", **{name.replace("_", "-"): value for name, value in given.items()})
    found = json.loads(Path(outputs["json"]).read_text("utf-8"))
    assert (job.environment["SAMPLEGATE_RUN"], outputs["verdict"]) == (found["run"], found["verdict"])
    return failed, outputs["verdict"], rows(outputs["junit"])


def test_allowed_requests_pass(run: Job) -> None:
    run.script(agent(docs=form(), tickets=form()), {})
    assert (False, "pass", [("docs", False), ("tickets", False)]) == report(run, expect_gates="2"), run.log
    assert [] == run.commands
    assert "passed" in run.summary


def test_a_denied_request_fails_the_job_with_its_row(run: Job) -> None:
    run.script(agent(docs=form(), tickets=sampling()), {})
    assert (True, "fail", [("docs", False), ("tickets", True)]) == report(run, expect_gates="2"), run.log
    (found,) = [each for each in run.commands if "file" in each.properties]
    assert ("error", "policies/ci.yaml", "7") == (found.name, found.properties["file"], found.properties["line"])
    assert "| `tickets` | sampling | `do` | denied | `no sampling` |" in run.summary


def test_only_the_words_of_fail_on_fail_the_job(run: Job) -> None:
    run.script(agent(tickets=sampling()), {})
    assert (False, "pass") == report(run, fail_on="limit,dropped")[:2], run.log
    assert (True, "fail") == report(run, fail_on="limit,denied")[:2], run.log


def test_a_gate_that_never_started_fails_the_job(run: Job) -> None:
    run.script(agent(docs=form()), {})
    assert (True, "unknown", [("docs", False)]) == report(run, expect_gates="2"), run.log
    assert {"error"} == {each.name for each in run.commands}


def test_a_run_without_gates_fails_the_job(run: Job) -> None:
    assert (True, "unknown", []) == report(run), run.log
    assert {"error"} == {each.name for each in run.commands}


def test_nothing_that_a_server_writes_changes_the_report(run: Job) -> None:
    told: list[tuple[object, ...]] = []
    for tool, text in (("do", "Sure?"), (HOSTILE, HOSTILE)):
        run.environment["SAMPLEGATE_RUN"] = f"told.{len(told)}"
        run.commands, run.summary = [], ""
        run.script(agent(tool, docs=form(text), tickets=sampling(text)), {})
        verdict = report(run, expect_gates="2")
        places = [(each.name, each.properties.get("file"), each.properties.get("line")) for each in run.commands]
        told.append((verdict, places, len(run.summary.splitlines())))
    assert (True, "fail", [("docs", False), ("tickets", True)]) == told[0][0]
    assert told[0] == told[1], run.log
    assert "</testsuite>" in run.summary
    assert "::error::" not in re.sub("`[^\n]*`", "", run.summary)


@pytest.mark.parametrize(("asked", "failed"), [(form(), False), (sampling(), True)], ids=["allowed", "denied"])
def test_the_workflow_of_the_readme(
    tmp_path: Path, wheel: Path, python: Path, asked: Mapping[str, Any], failed: bool
) -> None:
    text = re.sub(r"samplegate-[\d.]+-py3-none-any\.whl", wheel.name, example("workflow"))
    steps = [step for step in yaml.safe_load(text)["jobs"]["agent"]["steps"] if "checkout" not in step.get("uses", "")]
    job = Job(tmp_path, ROOT, **OFFLINE, PATH=os.pathsep.join([str(python.parent), os.environ["PATH"]]))
    project(job.workspace, wheel)
    script = job.workspace / "ci" / "agent.sh"
    script.parent.mkdir()
    script.write_text(f"#!/usr/bin/env bash\n{agent(docs=form(), tickets=asked)}")
    script.chmod(0o755)
    assert failed == job.run(steps).failed, job.log
    assert failed == bool([each for each in job.commands if each.name == "error"])
    assert "samplegate: run `1234-1-agent`" in job.summary


def component(folder: Path, package: Path, python: Path, script: list[str], **given: Any) -> gitlab.Ended:
    """A job of the component in a project, which expects two gates."""
    project(folder, package)
    fixed = {"image": "python:3.13", "policies": ["policies/ci.yaml"], "expect-gates": "2", "python": str(python)}
    (job,) = gitlab.jobs(COMPONENT, script=script, **fixed, **given).values()
    environment = {"INDEX": folder.with_name("simple").as_uri(), "CI_JOB_TOKEN": "t"}
    ended = gitlab.run(job, folder, **environment, **({} if "index-url" in given else OFFLINE))
    assert [] == [name for name in job["artifacts"]["reports"]["junit"] if not (folder / name).exists()], ended.log
    assert [] == [name for name in job["artifacts"]["paths"] if not (folder / name).exists()], ended.log
    assert "*\n" == (folder / ".samplegate" / ".gitignore").read_text()
    return ended


def test_a_denied_request_fails_the_job_of_the_component(tmp_path: Path, wheel: Path, python: Path) -> None:
    folder = tmp_path / "project"
    lines = ["echo \"it's\" '$(date)' `echo run`", "echo $SAMPLEGATE_RUN", agent(docs=form(), tickets=sampling())]
    ended = component(folder, wheel, python, lines, wheel=f"tools/{wheel.name}")
    assert 1 == ended.code, ended.log
    assert "\nit's $(date) run\n77\n" in ended.log
    assert [("docs", False), ("tickets", True)] == rows(folder / ".samplegate" / "report.xml")


def test_the_report_follows_commands_that_fail(tmp_path: Path, wheel: Path, python: Path) -> None:
    page = tmp_path / "simple" / "samplegate"
    page.mkdir(parents=True)
    shutil.copy(wheel, page)
    (page / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
    lines = [agent(docs=form(), tickets=form()).replace("exit 0", "false"), "echo not reached"]
    given = {"index-url": "$INDEX", "version": wheel.name.split("-")[1]}
    ended = component(tmp_path / "project", wheel, python, lines, **given)
    assert 1 == ended.code, ended.log
    assert "the commands exited with 1" in ended.log
    assert "not reached" not in ended.log
    assert [("docs", False), ("tickets", False)] == rows(tmp_path / "project" / ".samplegate" / "report.xml")
