"""A tiny process that kills a child's group when this process is killed, so that SIGKILL leaves no server behind.

It waits on a pipe that only this process holds: a word on it disarms, its end without the word means that we are gone. Not a guard
against descendants that leave the group, nor against us exiting in the millisecond before it was started. Linux and macOS only; on
Windows, and where there is no /bin/sh, there is no watcher.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import suppress
from typing import Final

from samplegate.links.processes import exit_of

SHELL: Final = "/bin/sh"
SCRIPT: Final = 'trap "" HUP INT TERM; read -r word; [ "$word" = done ] || kill -s KILL -- "-$1"'
"""Ignores what a terminal or a service manager sends to everybody, because it may have to outlive us; the end of the pipe ends it.
KILL at once: only so the group's number cannot have passed to another group in between. The child's hint to end was the end of its input."""
NAME: Final = "samplegate-watcher"


class Watcher:
    """One armed watcher. Forget it only after ``disarm``."""

    def __init__(self, process: subprocess.Popen[bytes], pipe: int) -> None:
        self._process = process
        self._pipe = pipe
        self.exit: asyncio.Future[int] | None = None
        """Done when it has ended; None while it is armed."""

    def disarm(self) -> None:
        """Tell it that the group has ended or has been ended; it then exits by itself. May be called again."""
        if self._pipe < 0:
            return
        with suppress(OSError):  # somebody killed it: then nothing is armed
            os.write(self._pipe, b"done\n")
        os.close(self._pipe)
        self._pipe = -1
        self.exit = exit_of(self._process)


def watch(group: int) -> Watcher | None:
    """Start a watcher for a process group; None where there cannot be one. It holds none of our descriptors and none of our environment."""
    if sys.platform == "win32":
        return None
    reading, writing = os.pipe()
    try:
        process = subprocess.Popen(
            [SHELL, "-c", SCRIPT, NAME, str(group)],
            stdin=reading,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
            start_new_session=True,
        )
    except OSError:
        os.close(writing)
        return None
    finally:
        os.close(reading)
    return Watcher(process, writing)
