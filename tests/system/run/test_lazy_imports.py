"""Modules that are imported only when they are needed, in a process each: every import makes the start slower."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

LIMITS = "import samplegate.limits.limiter"
TABLE = """
from samplegate.policy.schema import Model
from samplegate.sampler import litellm_prices
assert litellm_prices.read_prices([Model(name="m", model="openai/gpt-5-mini")])
"""
SETTINGS = """
import pathlib, samplegate.runtime.run, samplegate.cli
from samplegate.config import load
file = pathlib.Path(sys.argv[1]) if sys.argv[1:] else None
environment = {"HOME": "x", "LOCALAPPDATA": "x", "SAMPLEGATE_LOG_LEVEL": "debug"}
assert load(environment, file=file).settings.server == ("db" if file else "default")
"""
STORE = """
from samplegate.reviews.sql_store import SqlReviewStore
assert 0 == SqlReviewStore("sqlite:" + sys.argv[1]).last_change()
"""


def imported(code: str, names: str, *arguments: str) -> list[str]:
    """Those of the modules that are imported after the code has run."""
    shown = f"\nprint(*sorted({set(names.split())} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}{shown}", *arguments],
        env={name: value for name, value in os.environ.items() if not name.startswith("SAMPLEGATE_")}
        | {"PYTHONPATH": str(ROOT / "proxy")},
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    ("code", "names"),
    [(LIMITS, "sqlite3 concurrent.futures.thread secrets"), (TABLE, "litellm")],
    ids=["limits", "litellm's table"],
)
def test_what_is_not_needed_is_not_imported(code: str, names: str) -> None:
    assert [] == imported(code, names)


def test_no_pydantic_is_imported_for_the_settings_of_run(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("server: db\n")
    for arguments in ((), (str(tmp_path / "s.yaml"),)):
        assert [] == imported(SETTINGS, "pydantic pydantic_core pydantic_settings", *arguments)


def test_a_store_that_is_made_is_opened_without_alembic(tmp_path: Path) -> None:
    made = str(tmp_path / "reviews.db")
    assert [["alembic"], []] == [imported(STORE, "alembic", made) for _ in range(2)]
