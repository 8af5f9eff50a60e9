"""`samplegate wrap` and `unwrap`, killed at each step on the disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.paths import ROOT

MIN_STEPS: Final = 20
FILE: Final = """\
{
  "numStartups": 4, // state of the client
  "mcpServers": {
    "docs": {"command": "npx", "args": ["-y", "docs"], "env": {"TOKEN": "sesame"}},
    "hosted": {"type": "http", "url": "https://x.example/mcp", "headers": {"Authorization": "Bearer sesame"}}
  }
}
"""


@pytest.mark.timeout(120)
def test_a_kill_at_each_step_leaves_the_old_file_or_the_new_one_and_the_next_call_completes_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".claude.json").write_text(FILE)
    (tmp_path / "policy.yaml").write_text("version: 1\nrules:\n  - {name: all, effect: forward}\n")
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/fakes/programs/killed_wrap.py"), str(tmp_path)],
        env={"HOME": str(home), "PATH": os.environ["PATH"]},
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert 0 == done.returncode, done.stderr
    *kills, end = map(json.loads, done.stdout.splitlines())
    for command in ("wrap", "unwrap"):
        mine = [kill for kill in kills if kill["command"] == command]
        assert len(mine) > MIN_STEPS
        files = [kill["file"] for kill in mine]
        assert sorted(files, key="old new".split().index) == files, "first the old file, then the new one"
        assert {"old", "new"} == set(files)
    assert all(kill["again"] for kill in kills)
    assert {0} == {mode for kill in kills for mode in kill["others"]}, "state for others"
    assert {"restored": True, "left": []} == end
