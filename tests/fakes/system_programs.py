"""Programs of the system that these tests run, as packages.txt lists them. A missing one fails its tests: it is never
left out in silence."""

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
    """Debian's package by program."""
    lines = [line.split() for line in PACKAGES.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    return {line[0]: line[1] for line in lines}


def program(name: str) -> str:
    """Where a program of packages.txt is; fails the test that asks where it is nowhere."""
    found = shutil.which(name)
    if found is None:
        pytest.fail(
            f"{name}: is not on the PATH; install Debian's package {packages()[name]}, or run 'make packages' as root"
        )
    return found


def locked(name: str) -> str:
    """Where a program of the development lock is, which stands beside the interpreter."""
    found = Path(sys.executable).parent / name
    if not found.exists():
        pytest.fail(f"{name}: is not in the environment; run 'make dev'")
    return str(found)


def run(
    *command: str | Path, input: bytes | None = None, seconds: float = 30.0, env: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Run it to its end: its exit code, and what it said on both outputs."""
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
