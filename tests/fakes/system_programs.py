"""System programs that the tests run, as listed in packages.txt. A missing program fails its tests; it never skips
them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.paths import ROOT, TESTS

DEPLOY: Final = ROOT / "deploy"
PACKAGES: Final = TESTS / "deployment" / "packages.txt"


def packages() -> dict[str, str]:
    """The Debian package of each program."""
    lines = [line.split() for line in PACKAGES.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    return {line[0]: line[1] for line in lines}


def program(name: str) -> str:
    """The path of a program in packages.txt. Fails the test if it is missing."""
    found = shutil.which(name)
    if found is None:
        pytest.fail(
            f"{name}: is not on the PATH; install Debian's package {packages()[name]}, or run 'make packages' as root"
        )
    return found


def locked(name: str) -> str:
    """The path of a program from the development lock, next to the interpreter."""
    found = Path(sys.executable).parent / name
    if not found.exists():
        pytest.fail(f"{name}: is not in the environment; run 'make dev'")
    return str(found)


def run(
    *command: str | Path, input: bytes | None = None, seconds: float = 120.0, env: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Run a command to its end. Returns its exit code and its whole output."""
    done = subprocess.run(
        [str(word) for word in command],
        input=input,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=seconds,
        check=False,
        env=env,
    )
    return done.returncode, done.stdout.decode()
