"""`samplegate report --run` reads a gigabyte of logs with the memory that it needs for a hundred megabytes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import pytest

from samplegate.audit.runs import GateFile, new_state

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]
MB = 1_000_000
PEAK = (
    "import resource, sys; from samplegate.cli.main import main; code = main(sys.argv[1:]);"
    "print('peak', resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr); sys.exit(code)"
)


def log_of(size: int, file: Path) -> int:
    """Write a log of this size. A quarter of the requests is of the run, and a tenth of a percent of them is denied.
    Returns the number of denied ones."""
    line = {
        "decision_id": "", "time": "2026-11-18T12:00:00.000Z", "run": "", "server": "docs", "caller": "local",
        "era": "legacy", "revision": "2025-11-25", "door": "push", "kind": "sampling", "effect": "allow",
        "rule": "models", "reason": "rule", "outcome": "", "policy_hash": "p" * 64, "request_hash": "r" * 80,
    }  # fmt: skip
    denied = written = 0
    with file.open("w") as log:
        for first in count(0, 4_000):
            lines = []
            for number in range(first, first + 4_000):
                bad = number == first
                line |= {"decision_id": f"{number:x}", "run": "8" if number % 4 else "7"}
                lines.append(json.dumps(line | {"outcome": "denied" if bad else "answered"}, separators=(",", ":")))
            written += log.write("\n".join(lines) + "\n")
            denied += 1
            if written >= size:
                break
    return denied


def test_memory_stays_flat(tmp_path: Path) -> None:
    peaks = []
    for size in (100 * MB, 1_000 * MB):
        state = tmp_path / str(size)
        (state / "decisions").mkdir(parents=True)
        denied = log_of(size, state / "decisions" / "docs-2026-11-18.jsonl")
        gate = new_state(
            "7",
            command="run",
            server="docs",
            wrapped="",
            policy=Path("/p"),
            decision_log=str(state / "decisions"),
            now=time.time(),
        )
        GateFile.create(state, gate).close(time.time(), 0)
        report = [
            sys.executable,
            "-c",
            PEAK,
            "report",
            "--run",
            "7",
            "--state",
            str(state),
            "--junit",
            str(state / "j"),
        ]
        ended = subprocess.run(report, capture_output=True, text=True, timeout=300, check=False)
        assert (1, True) == (ended.returncode, f"failed: denied ({denied})" in ended.stdout), ended.stderr
        peaks.append(int(ended.stderr.split("peak ")[1]))
        (state / "decisions" / "docs-2026-11-18.jsonl").unlink()
    assert peaks[1] < 1.1 * peaks[0], peaks
