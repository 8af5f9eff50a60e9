"""Imports of `serve` until it is ready: only what its settings need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

SLOW: Final = frozenset(
    "aiohttp alembic cryptography detect_secrets jinja2 jsonschema jwt litellm markdown_it mcp mcp_types nh3 sqlalchemy"
    " starlette".split()
)


def imported(folder: Path) -> set[str]:
    """The packages that the daemon imports from its start to its end."""
    (folder / "policy.yaml").write_text("version: 1\nrules: [{name: never, effect: deny}]\n")
    wanted = {
        "policy": "policy.yaml",
        "listen": "127.0.0.1:0",
        "drain_delay": 0,
        "servers": {"one": {"command": "cat"}},
    }
    (folder / "serve.yaml").write_text(json.dumps(wanted))
    command = [
        sys.executable,
        "-X",
        "importtime",
        "-m",
        "samplegate",
        "serve",
        "--settings",
        str(folder / "serve.yaml"),
        "--state",
        str(folder / "s"),
    ]
    lines: list[str] = []
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env={**os.environ, "NOTIFY_SOCKET": ""}
    ) as serve:
        assert serve.stderr is not None
        for line in serve.stderr:
            lines.append(line)
            if '"callers.absent"' in line:  # the last line of the start
                break
        serve.terminate()
        lines += serve.stderr
    assert any('"daemon.ended"' in line for line in lines), "".join(lines[-20:])
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in lines if line.startswith("import time:")}


def test_the_start_imports_nothing_slow_that_no_setting_asks_for(tmp_path: Path) -> None:
    assert set() == SLOW & imported(tmp_path)
