"""The CPU that a program and all it started have used, from Linux's /proc. Less shaken by neighbours than any time of
day. None elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")


def cpu(pid: int) -> float | None:
    """Microseconds since its start. A process that ended in between no longer counts."""
    try:
        return sum(_one(each) for each in below(pid)) / 1000
    except (OSError, ValueError, IndexError):
        return None


def below(pid: int) -> list[int]:
    """A process and all that it has started, directly or not. Raises OSError."""
    found = [pid]
    for task in (PROC / str(pid) / "task").iterdir():
        for child in (task / "children").read_text().split():
            found += below(int(child))
    return found


def _one(pid: int) -> int:
    return sum(int((task / "schedstat").read_text().split()[0]) for task in (PROC / str(pid) / "task").iterdir())
