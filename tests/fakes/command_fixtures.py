"""Fixtures that run commands in a folder for each test, as a user does, and write files there."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from samplegate.cli.main import main
from samplegate.reviews.sql_store import SqlReviewStore
from tests.fakes.shell import Ended, Run, Write


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `samplegate ARGUMENTS` in ``tmp_path``."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Ended:
        code = main(arguments)
        out, err = capsys.readouterr()
        return Ended(code, out, err)

    return run


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], str]:
    """Puts a new review store into a folder and returns its URL. The tables are created only once."""
    made = tmp_path_factory.mktemp("store") / "reviews.db"
    store = SqlReviewStore(f"sqlite:{made}")
    store.last_change()
    store.close()

    def put(folder: Path) -> str:
        return f"sqlite:{shutil.copy(made, folder / 'reviews.db')}"

    return put


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a text file in ``tmp_path``."""

    def write(name: str, text: str) -> None:
        (tmp_path / name).write_text(text, "utf-8", newline="\n")

    return write
