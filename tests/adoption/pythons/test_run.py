"""Which interpreters `make pythons` finds."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.adoption.pythons import run

OWN = ".".join(map(str, sys.version_info[:2]))


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", "utf-8")
    path.chmod(0o755)
    return path


def test_an_interpreter_is_found_on_the_path_and_among_the_versions_of_pyenv(tmp_path: Path) -> None:
    python = program(tmp_path / "bin" / "python3.12", "echo 3.12.7")
    pyenv = program(tmp_path / ".pyenv" / "versions" / "3.13.2" / "bin" / "python", "echo 3.13.2")
    environment = {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)}
    assert (python, "3.12.7") == run.interpreter("3.12", environment)
    assert (pyenv, "3.13.2") == run.interpreter("3.13", environment)
    assert run.interpreter("3.14", environment) is None


def test_a_broken_interpreter_and_one_of_another_version_are_passed_over(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "python3.12", "exit 127")
    other = program(tmp_path / "other", "echo 3.11.2")
    right = program(tmp_path / "right", "echo 3.12.9")
    environment = {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path), "PYTHONS": f"{other} {tmp_path}/none {right}"}
    assert (right, "3.12.9") == run.interpreter("3.12", environment)
    assert run.interpreter("3.12", {**environment, "PYTHONS": ""}) is None


def test_an_interpreter_must_be_able_to_make_environments() -> None:
    assert run.full_version(Path(sys.executable)).startswith(f"{OWN}.")
    assert "" == run.full_version(Path("no-such-python"))
