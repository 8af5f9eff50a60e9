"""What the tests of the commands share: how a command ended, one that runs in this process, and the types of the
fixtures that run one and write its files."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pytest

from samplegate.cli.main import main


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


Run: TypeAlias = Callable[..., Ended]
Write: TypeAlias = Callable[[str, str], None]


def samplegate(folder: Path, *arguments: str, **environment: str) -> Ended:
    """Run `samplegate ARGUMENTS` in a folder, with these variables beside our own, in this process: starting one takes
    a second."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(folder)
        for name, value in environment.items():
            patch.setenv(name, value)
        try:
            code = main(arguments)
        except SystemExit as left:
            code = int(left.code or 0)
    return Ended(code, out.getvalue(), err.getvalue())
