"""The GitLab component: what GitLab refuses before it creates a pipeline, and what the job refuses before it installs
anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.acceptance.ci import gitlab
from tests.acceptance.ci.conftest import HOSTILE, OFFLINE
from tests.paths import ROOT

pytestmark = pytest.mark.timeout(900)  # installs take long on a busy machine

COMPONENT: Final = ROOT / "templates" / "samplegate.yml"
GIVEN: Final[dict[str, Any]] = {"image": "python:3.13", "script": ["true"], "python": "no-such-python"}
TEXTS: Final = "job stage image wheel index-url version requirements python fail-on expect-gates".split()
INDEX: Final = {"index-url": "https://example.com/simple", "version": "1"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "no package on the public index"),
        ({"index-url": "https://example.com/simple"}, "no package on the public index"),
        ({"wheel": "samplegate-1-py3-none-any.whl", "version": "1"}, "not both"),
        ({"wheel": "samplegate-1-py3-none-any.whl"}, "wheel: no such file in the repository: samplegate-1-"),
        ({"wheel": "other-1-py3-none-any.whl"}, "wheel: not a wheel of samplegate: other-1-"),
        ({"index-url": "https://example.com/simple", "version": "1"}, "python: not Python 3.11"),
    ],
)
def test_a_wrong_input_ends_the_job_before_anything_is_installed(
    tmp_path: Path, given: dict[str, str], message: str
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    ended = gitlab.run(gitlab.jobs(COMPONENT, **GIVEN | given)["samplegate"], project, **OFFLINE)
    assert 2 == ended.code
    assert message in ended.log
    assert [] == list((project / ".samplegate" / "bin").iterdir())


@pytest.mark.parametrize("given", [{}, {"image": "a"}, {"image": "a", "script": "true"}, GIVEN | {"other": "a"}])
def test_gitlab_refuses_missing_and_unknown_inputs_and_those_of_another_type(given: dict[str, Any]) -> None:
    with pytest.raises(gitlab.Refused):
        gitlab.jobs(COMPONENT, **given)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("name", TEXTS)
def test_a_hostile_input_of_the_component_changes_one_value_or_is_refused(tmp_path: Path, name: str, text: str) -> None:
    given = GIVEN | {name: text}
    try:
        jobs = gitlab.jobs(COMPONENT, **given)
    except gitlab.Refused:
        return
    assert [text if name == "job" else "samplegate"] == list(jobs)
    (job,), (like,) = jobs.values(), gitlab.jobs(COMPONENT, **GIVEN).values()
    assert {key for key in job if job[key] != like[key]} <= {"stage", "image", "variables"}
    assert 1 >= sum(job["variables"][key] != like["variables"][key] for key in like["variables"])
    project = tmp_path / "project"
    project.mkdir()
    assert 2 == gitlab.run(job, project, **OFFLINE).code
    assert [] == list(tmp_path.rglob("pwned"))


@pytest.mark.parametrize("name", ["script", "policies"])
def test_arrays_reach_the_job_as_they_are(name: str) -> None:
    values = [*HOSTILE, "a: b", "- c", "# d", "'", '"', "\\", "  e", "$CI_JOB_TOKEN", "$[[ inputs.image ]]", "é\u2028"]
    job = gitlab.jobs(COMPONENT, **GIVEN | {name: values})["samplegate"]
    like = gitlab.jobs(COMPONENT, **GIVEN)["samplegate"]
    variable = f"INPUT_{name.upper()}"
    assert {variable} == {key for key in like["variables"] if job["variables"][key] != like["variables"][key]}
    assert values == json.loads(job["variables"][variable]["value"])
    assert like["script"] == job["script"]
