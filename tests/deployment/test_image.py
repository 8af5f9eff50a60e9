"""The container file: a linter finds no problem, and the files that it copies exist and build a complete wheel. No
image is built."""

from __future__ import annotations

import re
import shutil
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

import pytest

from tests.fakes.system_programs import DEPLOY, locked, run
from tests.paths import ROOT

FILE: Final = DEPLOY / "Dockerfile"
LINES: Final = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", FILE.read_text("utf-8"), flags=re.MULTILINE)).splitlines()
LAST: Final = LINES[max(i for i, line in enumerate(LINES) if line.startswith("FROM ")) :]
"""The stage that becomes the image."""
IGNORED: Final = [
    line for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line and not line.startswith("#")
]


def of(instruction: str, lines: list[str]) -> list[str]:
    return [line.partition(" ")[2].strip() for line in lines if line.startswith(f"{instruction} ")]


def copied() -> list[str]:
    """The files that the build takes from the folder."""
    found = [words.split()[:-1] for words in of("COPY", LINES) if not words.startswith("--from=")]
    return [name for names in found for name in names]


def goes_in(name: str) -> bool:
    """Whether .dockerignore includes a top-level path. The last matching line decides."""
    says = [line for line in IGNORED if fnmatch(name, line.removeprefix("!"))]
    return bool(says) and says[-1].startswith("!")


def test_the_linter_finds_nothing() -> None:
    assert (0, "") == run(locked("hadolint"), "--no-color", FILE)


def test_nothing_goes_in_but_what_is_copied() -> None:
    assert [] == [name for name in copied() if not goes_in(name)]
    assert sorted(copied()) == sorted(line.removeprefix("!") for line in IGNORED if line.startswith("!"))
    assert [] == [name for name in (".git", ".env", ".venv", "deploy", "tests", "secrets") if goes_in(name)]


def test_everything_that_is_installed_has_a_hash_or_is_ours() -> None:
    installs = [words for words in of("RUN", LINES) if "install" in words and "pip" in words]
    assert 3 == len(installs)
    assert [] == [
        words for words in installs if "--require-hashes" not in words and "--no-deps --no-index" not in words
    ]


def test_the_image_is_nobodys_root_and_ends_by_sigterm() -> None:
    assert (["10001:10001"], ["SIGTERM"]) == (of("USER", LAST), of("STOPSIGNAL", LAST))


def test_the_base_image_is_the_tests_python_by_digest_and_a_build_can_name_another() -> None:
    (argument,) = of("ARG", LINES[: LINES.index("FROM ${PYTHON_IMAGE} AS base") + 1])
    assert re.fullmatch(r"PYTHON_IMAGE=python:3\.11\.\d+-slim-bookworm@sha256:[0-9a-f]{64}", argument)
    assert ["${PYTHON_IMAGE} AS base"] == [name for name in of("FROM", LINES) if not name.startswith("base")]


def test_no_name_of_a_registry_and_no_secret_stands_there() -> None:
    assert [] == re.findall(r"(?i)\b[\w-]+\.(?:io|com|org|dev)/", FILE.read_text("utf-8"))
    assert [] == re.findall(r"(?im)^(?:ENV|ARG).*(?:token|key|password|secret)", FILE.read_text("utf-8"))


@pytest.mark.timeout(120)
def test_what_is_copied_makes_a_wheel_of_the_whole_package(tmp_path: Path) -> None:
    for path in (path for name in copied() for path in ROOT.glob(name)):
        target = tmp_path / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if path.is_dir() else shutil.copy)(path, target)
    build = "import hatchling.build as b; print(b.build_wheel('.'))"
    code, said = run("/bin/sh", "-c", f'cd "$0" && exec {sys.executable} -c "{build}"', tmp_path, seconds=100)
    assert 0 == code, said
    listed = run(sys.executable, "-m", "zipfile", "-l", tmp_path / said.split()[-1])[1]
    assert [] == [
        path.name
        for path in (ROOT / "proxy/samplegate").rglob("*.py")
        if path.relative_to(ROOT / "proxy").as_posix() not in listed
    ]
    assert [] == [name for name in ("demo/demo.yaml", "web/openapi.yaml") if name not in listed]
