"""Without the extra `postgres`, everything that names a PostgreSQL database says how to install it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT = "import sys; sys.modules['psycopg'] = None; from samplegate.cli import main; sys.exit(main.main())"
URL = "postgresql://gates@127.0.0.1:1/gates"
ID = "a1b2c3d4e5f6"


@pytest.mark.parametrize(
    "command",
    [
        ("run", "--policy", "policy.yaml", "--", "true"),
        ("run", "--policy", "policy.yaml", "--decision-log", "database", "--", "true"),
        ("serve", "--settings", "serve.yaml"),
        ("reviews", "list"),
        ("status",),
        ("why", "--settings", "serve.yaml", ID),
        ("why", "--log", "database", "--", ID),
        ("report", "--log", "database"),
        ("report", "--log", URL),
        ("replay", "--policy", "policy.yaml", "--log", "database"),
        ("database", "migrate"),
        ("database", "import"),
    ],
    ids=" ".join,
)
def test_the_extra_is_named(command: tuple[str, ...], tmp_path: Path) -> None:
    policy = {"version": 1, "models": [{"name": "m", "model": "openai/gpt-5-mini"}], "rules": []}
    (tmp_path / "policy.yaml").write_text(json.dumps(policy))
    settings = {"policy": "policy.yaml", "servers": {"one": {"command": "true"}}, "decision_log": "database"}
    (tmp_path / "serve.yaml").write_text(json.dumps(settings))
    found = subprocess.run(
        [sys.executable, "-c", WITHOUT, *command],
        cwd=tmp_path,
        env={**os.environ, "SAMPLEGATE_DATABASE": URL, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert "pip install 'samplegate[postgres]'" in found.stdout + found.stderr, found
    assert "Traceback" not in found.stderr
    assert 0 != found.returncode
