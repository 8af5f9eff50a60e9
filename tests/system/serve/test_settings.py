"""The start of a program with an invalid settings file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def _environ() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("SAMPLEGATE_")} | {
        "PYTHONPATH": os.pathsep.join(sys.path)
    }


def test_run_tells_what_is_wrong_with_the_settings_file_and_starts_nothing(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("server: db\nlog_level: loud\n")
    command = [
        sys.executable,
        "-m",
        "samplegate",
        "run",
        "--policy",
        "none.yaml",
        "--settings",
        str(tmp_path / "s.yaml"),
        "--",
        "no-such-command",
    ]
    done = subprocess.run(command, env=_environ(), capture_output=True, text=True, check=False, timeout=50)
    assert (2, "") == (done.returncode, done.stdout)
    assert f"{tmp_path / 's.yaml'}:2:1: log_level: 'loud' is not one of debug, info, warning, error" in done.stderr
