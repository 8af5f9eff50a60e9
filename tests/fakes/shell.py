"""Commands in process: how a command ended, and the types of the fixtures that run one and write its files."""

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
    """The exit code and output of a command."""

    code: int
    out: str
    err: str


Run: TypeAlias = Callable[..., Ended]
Write: TypeAlias = Callable[[str, str], None]


def samplegate(folder: Path, *arguments: str, **environment: str) -> Ended:
    """Run `samplegate ARGUMENTS` in a folder with additional environment variables. It runs in process, because
    starting one takes a second."""
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
