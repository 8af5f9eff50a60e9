"""A receiver that records its calls and can be waited for, and the environment of programs that tests start."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

from tests.paths import PROXY

BOUND = 20.0  # seconds that anything here may take on a machine with nine other jobs
PYTHON = [sys.executable, "-S", "-c"]
"""A child that starts fast: it needs nothing but the standard library."""


def environment() -> dict[str, str]:
    """The environment in which our programs can import the product."""
    return {**os.environ, "PYTHONPATH": str(PROXY)}


class Recorder:
    """A receiver that records everything."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.oversizes: list[int] = []
        self.heads: list[bytes] = []
        self.ends = 0
        self._changed = asyncio.Event()

    def received(self, line: bytes) -> None:
        self.lines.append(line)
        self._changed.set()

    def oversized_end(self, head: bytes, tail: bytes) -> None: ...

    def oversized(self, size: int, head: bytes) -> None:
        self.oversizes.append(size)
        self.heads.append(head)
        self._changed.set()

    def ended(self) -> None:
        self.ends += 1
        self._changed.set()

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait until ``true`` holds."""
        async with asyncio.timeout(BOUND):
            while not true():
                self._changed.clear()
                await self._changed.wait()

    async def until_lines(self, count: int) -> list[bytes]:
        await self.until(lambda: len(self.lines) >= count)
        return self.lines

    async def until_ended(self) -> None:
        await self.until(lambda: self.ends > 0)


def members(group: int) -> list[int]:
    """The live processes of a group. Zombies that a slow init has not reaped do not count."""
    if sys.platform != "linux":
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return []
        return [group]
    return [
        int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit() and _lives_in(folder, group)
    ]


def _lives_in(process: Path, group: int) -> bool:
    try:
        state, _parent, of, *_ = (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return state not in "ZX" and int(of) == group
