"""Memory of a variant without its server: RSS and PSS of its processes from Linux's /proc. It is not the peak, and
other systems have no such figures."""

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
    """Figures in MiB. In PSS, a page shared by two processes counts half in each."""

    rss: float
    pss: float
    processes: int = 1


def measure(command: Sequence[str]) -> Memory | None:
    """Memory of a variant without its server, after `initialize` and one call; None without /proc."""
    if not can_be_read():
        return None
    with connected(command) as connection:
        connection.initialize()
        connection.call()
        return tree_memory(connection.process.pid, SERVER)


def can_be_read() -> bool:
    """Whether this system has the files that are read here."""
    return (PROC / "self" / "smaps_rollup").is_file()


def tree_memory(pid: int, server: Sequence[str]) -> Memory:
    """Memory of a process and its descendants, without the server with this command."""
    found = [process_memory(each) for each in _tree(pid) if not _is_server(each, server)]
    return Memory(sum(each.rss for each in found), sum(each.pss for each in found), len(found))


def bare_python() -> Memory | None:
    """Memory of `python -c pass`, measured just before it would end."""
    if not can_be_read():
        return None
    script = "import os; os.write(1, b'.'); os.read(0, 1)"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        return process_memory(process.pid)


def process_memory(pid: int) -> Memory:
    """Memory of one process."""
    text = (PROC / str(pid) / "smaps_rollup").read_text()
    kib = {name: int(value) for name, value in re.findall(r"^(Rss|Pss):\s+(\d+) kB$", text, re.MULTILINE)}
    return Memory(kib["Rss"] / 1024, kib["Pss"] / 1024)


def _tree(pid: int) -> list[int]:
    children = (PROC / str(pid) / "task" / str(pid) / "children").read_text().split()
    return [pid, *(found for child in children for found in _tree(int(child)))]


def _is_server(pid: int, server: Sequence[str]) -> bool:
    words = (PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    return len(words) > 1 and words[1] == server[1].encode()
