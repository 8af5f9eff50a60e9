"""CPU time of a program and its descendants, from Linux's /proc; None elsewhere. It varies less with the machine's load
than wall time."""

from __future__ import annotations

from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")


def cpu(pid: int) -> float | None:
    """Microseconds of CPU since the start. A process that has ended no longer counts."""
    try:
        return sum(map(own, below(pid)))
    except (OSError, ValueError, IndexError):
        return None


def below(pid: int) -> list[int]:
    """A process and its descendants. Raises OSError."""
    found = [pid]
    for task in (PROC / str(pid) / "task").iterdir():
        for child in (task / "children").read_text().split():
            found += below(int(child))
    return found


def own(pid: int) -> float:
    """Microseconds of CPU of one process, without its descendants and the threads that have ended. Raises OSError."""
    tasks = (PROC / str(pid) / "task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1000
