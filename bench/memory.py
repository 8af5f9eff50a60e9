"""What a variant holds in memory beside the server: its processes' RSS and PSS, from Linux's /proc. Not the peak, and
not on other systems."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.client import connected
from bench.variants import SERVER

PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Memory:
    """MiB. PSS counts a page shared by two processes half in each."""

    rss: float
    pss: float
    processes: int = 1


def measure(command: Sequence[str]) -> Memory | None:
    """A variant without its server after `initialize` and a call; None where there is no /proc."""
    if not can_be_read():
        return None
    with connected(command) as connection:
        connection.initialize()
        connection.call()
        return held(connection.process.pid, SERVER)


def can_be_read() -> bool:
    """Whether this system has what is read here."""
    return (PROC / "self" / "smaps_rollup").is_file()


def held(pid: int, server: Sequence[str]) -> Memory:
    """What a process and all below it hold, without the server (the command of it)."""
    found = [one(each) for each in _tree(pid) if not _is_server(each, server)]
    return Memory(sum(each.rss for each in found), sum(each.pss for each in found), len(found))


def bare_python() -> Memory | None:
    """`python -c pass`, held where it would end."""
    if not can_be_read():
        return None
    script = "import os; os.write(1, b'.'); os.read(0, 1)"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        return one(process.pid)


def one(pid: int) -> Memory:
    """What one process holds."""
    text = (PROC / str(pid) / "smaps_rollup").read_text()
    kib = {name: int(value) for name, value in re.findall(r"^(Rss|Pss):\s+(\d+) kB$", text, re.MULTILINE)}
    return Memory(kib["Rss"] / 1024, kib["Pss"] / 1024)


def _tree(pid: int) -> list[int]:
    children = (PROC / str(pid) / "task" / str(pid) / "children").read_text().split()
    return [pid, *(found for child in children for found in _tree(int(child)))]


def _is_server(pid: int, server: Sequence[str]) -> bool:
    words = (PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    return len(words) > 1 and words[1] == server[1].encode()
