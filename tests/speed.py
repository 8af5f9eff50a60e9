"""The speed of this machine now, so that bounds on CPU time hold on a busy one."""

from __future__ import annotations

import statistics
import time
from typing import Final

REFERENCE: Final = 0.04
"""CPU seconds of `reference_work` on a quiet machine. Where other programs share the core, or the core is slow, it
takes more, and so does every test."""
MOST: Final = 4.0
"""No test is excused for more: a shared core doubles the time."""


def slowness() -> float:
    """How many times the CPU time of a quiet machine a computation takes now, from 1 to `MOST`."""
    return min(MOST, max(1.0, statistics.median(reference_work() for _ in range(5)) / REFERENCE))


def reference_work() -> float:
    """CPU seconds of a fixed computation."""
    before = time.process_time()
    found: dict[str, list[int | str]] = {}
    for number in range(40_000):
        found[f"{number:x}"] = [number, str(number)]
    return time.process_time() - before
