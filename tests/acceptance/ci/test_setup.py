"""The setup action: it installs from a wheel or an index of the user's into an environment of its own, and no input is
read as code or adds a line to the runner's files."""

from __future__ import annotations

import shutil
from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile

import pytest

from samplegate import __version__
from tests.acceptance.ci.conftest import HOSTILE, OFFLINE
from tests.acceptance.ci.github import Job
from tests.paths import ROOT

pytestmark = pytest.mark.timeout(900)  # installs take long on a busy machine

NOT_FOUND = "no-such-python"  # ends a setup whose other inputs are accepted, before it installs


def errors(job: Job) -> list[str]:
    return [each.text for each in job.commands if each.name == "error"]


def nothing_was_set(job: Job) -> bool:
    return [] == job.path and not {"SAMPLEGATE_RUN", "SAMPLEGATE_STATE", "X"} & set(job.environment)


def test_a_wheel_is_installed_in_an_empty_home(job: Job, wheel: Path, python: Path) -> None:
    shutil.copy(wheel, job.workspace)
    failed, outputs = job.action("action/setup", wheel=wheel.name, python=str(python))
    assert not failed, job.log
    home = job.temp / "samplegate"
    assert {"state": f"{home}/state", "run": "1234-1-agent", "samplegate": f"{home}/bin/samplegate"} == outputs
    assert (f"{home}/state", "1234-1-agent") == (
        job.environment["SAMPLEGATE_STATE"],
        job.environment["SAMPLEGATE_RUN"],
    )
    assert ["samplegate"] == [path.name for folder in job.path for path in Path(folder).iterdir()]
    assert [] == [path for path in job.workspace.iterdir() if path.name != wheel.name]
    # the next step finds it on the PATH, and it is the wheel's code, not the tree's
    failed, _ = job.script("cd /; exec samplegate --version", {})
    assert not failed, job.log
    assert f"samplegate {__version__}" == job.log.split("\n")[-2]
    assert 1 == len(list((home / "venv").glob("lib/python3.*/site-packages/samplegate/__init__.py")))
    assert [] == errors(job)


def test_an_index_of_the_users_is_the_only_source_of_samplegate(tmp_path: Path, wheel: Path, python: Path) -> None:
    page = tmp_path / "simple" / "samplegate"
    page.mkdir(parents=True)
    shutil.copy(wheel, page)
    (page / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
    other = tmp_path / "other" / "samplegate-99-py3-none-any.whl"  # what somebody else has under the name
    other.parent.mkdir()
    other.write_bytes(b"")
    index = (tmp_path / "simple").as_uri()
    job = Job(tmp_path / "job", ROOT, PIP_FIND_LINKS=str(other.parent))
    failed, outputs = job.action(
        "action/setup", **{"index-url": index, "version": wheel.name.split("-")[1]}, python=str(python)
    )
    assert not failed, job.log
    assert Path(outputs["samplegate"]).exists()
    # and a version that only others have is not found
    failed, outputs = job.action("action/setup", **{"index-url": index, "version": "99"}, python=str(python))
    assert failed
    assert {""} == set(outputs.values())


def test_a_lock_file_is_enforced(tmp_path: Path, wheel: Path, python: Path) -> None:
    package = tmp_path / "nothing-1-py3-none-any.whl"
    with ZipFile(package, "w") as file:
        file.writestr("nothing-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: nothing\nVersion: 1\n")
        file.writestr("nothing-1.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        file.writestr("nothing-1.dist-info/RECORD", "")
    job = Job(tmp_path / "job", ROOT, **OFFLINE, PIP_FIND_LINKS=str(tmp_path))
    shutil.copy(wheel, job.workspace)
    lock = (ROOT / "requirements.lock").read_text("utf-8")
    given = {"wheel": wheel.name, "python": str(python), "requirements": "deps.lock"}
    for digest, message in (("", "Hashes are required"), (f" --hash=sha256:{'0' * 64}", "DO NOT MATCH THE HASHES")):
        (job.workspace / "deps.lock").write_text(f"{lock}nothing==1{digest}\n")
        assert (True, {""}) == ((ended := job.action("action/setup", **given))[0], {*ended[1].values()})
        assert message in job.log
        assert nothing_was_set(job)
    (job.workspace / "deps.lock").write_text(
        f"{lock}nothing==1 --hash=sha256:{sha256(package.read_bytes()).hexdigest()}\n"
    )
    failed, _ = job.action("action/setup", **given)
    assert not failed, job.log


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "no package on the public index"),
        ({"version": "1.0"}, "no package on the public index"),
        ({"index-url": "https://example.com/simple"}, "no package on the public index"),
        ({"wheel": "samplegate-1-py3-none-any.whl", "version": "1"}, "not both"),
        ({"wheel": "samplegate-1-py3-none-any.whl"}, "wheel: no such file in the workspace: samplegate-1-"),
        ({"wheel": "other-1-py3-none-any.whl"}, "wheel: not a wheel of samplegate: other-1-"),
        ({"index-url": "https://example.com/simple", "version": "1,>=0"}, "version: not an exact version: 1,>=0"),
        ({"index-url": "https://example.com/simple", "version": "1", "requirements": "x.lock"}, "requirements: no "),
        ({"run": "a/b"}, "run: not an ID: a/b"),
        ({"index-url": "https://example.com/simple", "version": "1", "python": NOT_FOUND}, "python: not Python 3.11"),
    ],
)
def test_a_wrong_input_is_an_annotation_before_anything_is_installed(
    job: Job, given: dict[str, str], message: str
) -> None:
    failed, _ = job.action("action/setup", **given)
    assert failed
    assert 1 == len(errors(job)), job.log
    assert message in errors(job)[0]
    assert [] == list(job.temp.iterdir())
    assert nothing_was_set(job)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("name", ["wheel", "index-url", "version", "requirements", "python", "state", "run"])
def test_a_hostile_input_of_setup_is_harmless(job: Job, name: str, text: str) -> None:
    given = {"index-url": "https://example.com/simple", "version": "1", "python": NOT_FOUND}
    if name == "wheel":
        given = {"python": NOT_FOUND}
    failed, _ = job.action("action/setup", **given | {name: text})
    assert failed
    assert [] == list(job.workspace.iterdir())
    assert nothing_was_set(job)
    assert ["error"] == [each.name for each in job.commands], job.log
    assert "samplegate setup" == job.commands[0].properties["title"]
