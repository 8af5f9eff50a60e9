"""A wheel of the tree, and an interpreter whose environments see the locked dependencies: nothing is downloaded."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.acceptance.ci.github import Job
from tests.paths import ROOT

OFFLINE: Final[Mapping[str, str]] = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/dev/null"}

HOSTILE: Final = [
    "'; touch pwned; '",
    '"; touch pwned; "',
    "$(touch pwned)",
    "`touch pwned`",
    "a\nX=1",
    "a\r\nX=1",
    "a\rX=1",
    "EOF\nX<<EOF\n1\nEOF",
    "-h",
    "${{ inputs.run }}",
    "%0A::set-env name=X::1",
    "\n::error::x",
    "##[set-env name=X]1",
]
"""Texts that a script, the runner's files or its reading of the output could take for more than a value."""


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the tree."""
    folder = tmp_path_factory.mktemp("wheel")
    build = "import sys, hatchling.build as b; print(b.build_wheel(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", build, str(folder)], cwd=ROOT, capture_output=True, text=True, timeout=600, check=True
    )
    return folder / done.stdout.split()[-1]


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter for the `python` input. Environments that it makes have the packages of the tests' environment,
    except for samplegate: its editable installation is a .pth file, and those count in an environment's own folder."""
    path = tmp_path_factory.mktemp("python") / "python3"
    packages = sysconfig.get_path("purelib")
    path.write_text(
        "#!/bin/sh\n"
        f'"{sys.executable}" "$@" || exit\n'
        "for last; do :; done\n"
        f'[ "$3" != venv ] || echo "{packages}" >"$(echo "$last"/lib/python3.*/site-packages)/locked.pth"\n'
    )
    path.chmod(0o755)
    return path


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A job of GitHub's, without a package index."""
    return Job(tmp_path, ROOT, **OFFLINE)
