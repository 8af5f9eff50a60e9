"""Runs the unit tests in several pytest processes: `python -m tests.shards [OPTIONS OF PYTEST]`.

Each process collects only its own files. pytest-xdist takes a quarter more CPU time for so many small tests, because
each of its workers collects all files, and every result is sent to another process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from heapq import heapreplace
from typing import IO, Final

from tests.paths import ROOT

UNIT: Final = ROOT / "tests" / "unit"
NO_TESTS: Final = 5
"""pytest's exit code if it selected no tests."""


def shards(count: int) -> list[list[str]]:
    """The test files in ``count`` groups of about the same number of bytes, paths relative to the root."""
    groups: list[tuple[int, int, list[str]]] = [(0, number, []) for number in range(count)]
    for size, path in sorted(((path.stat().st_size, path) for path in UNIT.rglob("test_*.py")), reverse=True):
        total, number, files = groups[0]
        files.append(path.relative_to(ROOT).as_posix())
        heapreplace(groups, (total + size, number, files))
    return [sorted(files) for _, _, files in groups if files]


def main(options: Sequence[str]) -> int:
    """Run all shards at once. The first writes to this terminal, and the output of the others follows it."""
    count = 1 + (os.cpu_count() or 1)  # one more than cores, because some tests wait
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *options]
    first, *others = shards(count)
    running: list[tuple[subprocess.Popen[bytes], IO[bytes]]] = []
    for files in others:
        output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - it is read when the process has ended
        running.append((subprocess.Popen([*command, *files], cwd=ROOT, stdout=output, stderr=output), output))
    codes = [subprocess.run([*command, *first], cwd=ROOT, check=False).returncode]
    for process, output in running:
        codes.append(process.wait())
        output.seek(0)
        sys.stdout.write(output.read().decode("utf-8", "replace"))
        output.close()
    sys.stdout.flush()
    return combined(codes)


def combined(codes: Sequence[int]) -> int:
    """One exit code for all shards: that of the first that failed, 5 if no shard selected a test, otherwise 0."""
    failed = [code for code in codes if code not in (0, NO_TESTS)]
    return failed[0] if failed else 0 if 0 in codes else NO_TESTS


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
