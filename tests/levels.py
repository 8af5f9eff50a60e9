"""Which test files belong to which level: ``python -m tests.levels LEVEL...`` prints them, for pytest's command line.

A file that is named nowhere here is a unit test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
LEVELS: Final = {
    "soak": ["soak/*"],
    "conformance": ["conformance/*"],
    "deployment": [f"deploy/test_{name}.py" for name in ("alerts", "compose_starts", "image", "prometheus", "systemd")],
    "acceptance": ["real/*", "web/browser/*"],
    "system": [
        "daemon/*",
        "demo/*",
        "system/*",
        "upgrade/*",
        "bench/test_bench.py",
        "bench/overhttp/test_measuring.py",
        "cases/test_one_answer.py",
        "cases/test_table.py",
        "commands/test_reviews.py",
        "commands/test_reviews_of_a_run.py",
        "core/bridge/test_*_machine.py",
        "core/matching/test_many_expressions.py",
        "core/session/test_session_machine.py",
        "core/test_hostile_frames.py",
        "faults/test_patches.py",
        "limits/test_faults.py",
        "limits/test_processes.py",
        "limits/test_sqlite_ledger.py",
        "links/front/test_hostile_requests.py",
        "links/front/test_late_machine.py",
        "links/test_child.py",
        "links/test_watcher.py",
        "records/test_appending.py",
        "records/test_outlet.py",
        "records/test_processes.py",
        "records/test_table.py",
        "review/test_command.py",
        "review/test_errand.py",
        "review/test_outbox_killed.py",
        "sampler/test_shapes.py",
        "sampler/test_worker.py",
        "sampler/test_worker_process.py",
        "store/test_crowds.py",
        "store/test_lazy_structs.py",
        "store/test_races.py",
        "store/test_store_faults.py",
        "store/test_store_machine.py",
        "test_budget.py",
        "test_cli.py",
        "test_faults.py",
        "test_gate_machine.py",
        "test_lazy_imports.py",
        "test_log_run.py",
        "test_long_checks.py",
        "test_protocol_versions.py",
        "test_review_faults.py",
        "test_review_kills.py",
        "test_run.py",
        "test_run_limits.py",
        "test_settings_started.py",
        "test_tape_run.py",
        "web/test_openapi.py",
    ],
}


def level(file: Path) -> str:
    """The level of a test file."""
    name = file.relative_to(HERE).as_posix()
    return next((found for found, of in LEVELS.items() if any(fnmatchcase(name, one) for one in of)), "unit")


def files(folder: Path = HERE) -> Iterator[Path]:
    """Every test file, without what was installed among them."""
    for path in sorted(folder.iterdir()):
        if path.is_dir() and path.name not in (".envs", "node_modules"):
            yield from files(path)
        elif fnmatchcase(path.name, "test_*.py"):
            yield path


if __name__ == "__main__":
    print(*(path.relative_to(HERE.parent) for path in files() if level(path) in sys.argv[1:]))
