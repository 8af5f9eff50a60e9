"""The setup action's second step: it validates the policies, runs their tests, and annotates their lines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

import pytest
import yaml

from tests.acceptance.ci.conftest import HOSTILE
from tests.acceptance.ci.github import Job, Scope
from tests.fakes.system_programs import locked
from tests.paths import ROOT

pytestmark = pytest.mark.timeout(900)  # installs take long on a busy machine

GOOD: Final = "version: 1\nrules:\n  - {name: all, match: {kind: sampling}, effect: deny}\n"
PASSES: Final = "cases:\n  - {name: denied, sampling: Hi, expect: {effect: deny}}\n"
FAILS: Final = "cases:\n  - {name: answered, sampling: Hi, expect: {effect: answer}}\n"


def step(job: Job, policy: str, junit: str = "") -> bool:
    """Whether the step failed, in the environment of the tests in place of the one that the first step makes."""
    found = yaml.safe_load((ROOT / "action/setup/action.yml").read_text("utf-8"))["runs"]["steps"][-1]
    scope = Scope({"policy": policy, "junit": junit})
    scope.outputs["install"] = {"samplegate": locked("samplegate")}
    return job.run([found], scope).failed


def write(job: Job, **files: str) -> None:
    for name, text in files.items():
        (job.workspace / f"{name}.yaml").write_text(text)


def test_policies_are_one_a_line_and_their_results_are_written(job: Job) -> None:
    write(job, a=GOOD, a_test=PASSES, b=GOOD, b_test=PASSES)
    assert not step(job, "\n  a.yaml\r\n\nb.yaml  ", "out/results.xml"), job.log
    assert 2 == len(list(ET.parse(job.workspace / "out/results.xml").iter("testcase")))
    assert [] == [each for each in job.commands if each.name == "error"]


def test_without_a_policy_nothing_happens(job: Job) -> None:
    assert not step(job, "", "out.xml")
    assert not step(job, " \n \n", "out.xml")
    assert ("", []) == (job.log, list(job.workspace.iterdir()))


def test_a_problem_is_annotated_and_the_tests_run_all_the_same(job: Job) -> None:
    write(job, a=GOOD.replace("deny", "denny"), a_test=PASSES, b=GOOD, b_test=FAILS)
    assert step(job, "a.yaml\nb.yaml", "results.xml")
    (found,) = [each for each in job.commands if each.name == "error" and each.properties.get("file") == "a.yaml"]
    assert "3" == found.properties["line"]
    failed = [case for case in ET.parse(job.workspace / "results.xml").iter("testcase") if len(case)]
    assert len(failed) >= 2, job.log


def test_a_failing_case_fails_the_step(job: Job) -> None:
    write(job, a=GOOD, a_test=FAILS)
    assert step(job, "a.yaml")


def test_hostile_paths_of_policies_are_harmless(job: Job) -> None:
    text, before = "\n".join(HOSTILE), dict(job.environment)
    assert step(job, text, "results.xml")
    lines = [line for line in re.split(r"[\r\n]+", text) if line.strip()]
    assert {"error"} == {each.name for each in job.commands}, job.log
    assert all("file" not in each.properties or each.properties["file"] in lines for each in job.commands)
    assert (before, [], []) == (job.environment, job.path, list(job.folder.rglob("pwned")))


@pytest.mark.parametrize("text", HOSTILE[::3], ids=range(0, len(HOSTILE), 3))
def test_a_hostile_path_of_the_results_is_a_path(job: Job, text: str) -> None:
    write(job, a=GOOD, a_test=PASSES)
    before = dict(job.environment)
    assert not step(job, "a.yaml", text), job.log
    assert (job.workspace / text).is_file()
    assert ([], before, []) == (job.commands, job.environment, list(Path(job.folder).rglob("pwned")))
