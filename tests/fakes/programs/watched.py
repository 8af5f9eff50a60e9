"""samplegate with a monitor of its event loop: `watched.py FILE serve ...`. FILE gets a line with CPU and wall seconds
for each time between two turns.

The watch takes a turn every 2 ms, so what it notes is the longest turn or a little more. CPU time is that of the loop's
thread alone.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio

from samplegate.cli.main import main

PAUSE = 0.002
NOTED = 0.01
"""Seconds from which a time is written down."""
notes = Path(sys.argv.pop(1))
run = anyio.run


async def watch() -> None:
    cpu, wall = time.thread_time(), time.monotonic()
    while True:
        await asyncio.sleep(PAUSE)
        took, passed = time.thread_time() - cpu, time.monotonic() - wall
        if took > NOTED or passed > NOTED + PAUSE:
            file.write(f"{took:.4f} {passed:.4f}\n")
        cpu, wall = time.thread_time(), time.monotonic()


def watched(function: Callable[..., Awaitable[Any]], *arguments: Any, **options: Any) -> Any:
    async def inner() -> Any:
        watching = asyncio.create_task(watch())
        try:
            return await function(*arguments)
        finally:
            watching.cancel()

    return run(inner, **options)


vars(anyio)["run"] = watched
with notes.open("a", buffering=1) as file:
    sys.exit(main())
