"""A server as our child process: its link, its end, and the end we give it (R90) with everything it has started.

Not a supervisor: it never starts a child again. On Windows the group is not ended, only the child, and nothing of it is tested.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from samplegate.links.lines import MAX_LINE, Receiver
from samplegate.links.link import LineLink, connect
from samplegate.links.processes import exit_of, start
from samplegate.links.stderr import Stderr, Tell
from samplegate.links.watcher import Watcher, watch

# SDK clients kill us about 2 s after they close our stdin. What follows must fit in 1.8 s and sums up to 1.5, so the rest is ours.
END_OF_INPUT_GRACE: Final = 0.8
"""Seconds from the end of its input: the regular way to end, and a Python server with many imports takes 0.3 s to unload."""
TERMINATE_GRACE: Final = 0.4
"""Seconds from SIGTERM: whoever missed the end of its input (some servers do) mostly dies of this at once."""
KILL_GRACE: Final = 0.2
"""Seconds from SIGKILL until the system has let go of it. More would not help: what is left hangs in the kernel."""
TAIL_GRACE: Final = 0.1
"""Seconds after its end for what stands in the pipe, which is read in one or two turns of the loop unless reading is paused."""
GROUP_POLL: Final = 0.01
"""Seconds between two looks whether the group is empty; no event tells it, and it is looked for only while stopping."""
KILLED: Final = -9
"""The code of a child that even SIGKILL has not ended within its grace."""


class Child:
    """A started server. Whoever started it calls ``stop`` in the end, also if it ended by itself: it may have left children."""

    def __init__(self, process: subprocess.Popen[bytes], link: LineLink, stderr: Stderr | None = None) -> None:
        self.link = link
        self._stderr = stderr
        self.pid = process.pid
        self._process = process
        self._exit = exit_of(process)
        self._exit.add_done_callback(self._released)
        self._stopping: asyncio.Task[int] | None = None
        self._watcher: Watcher | None = None
        # one turn later: the child boots meanwhile, and frames that already wait for it go first
        asyncio.get_running_loop().call_soon(self._arm)

    async def exited(self) -> int:
        """Wait for its end: the exit code, or minus the signal's number (``exit_code`` makes a shell's number of it).

        Its last lines may still come after that, until the receiver's ``ended``; and ``ended`` may stay away for as
        long as a process it has left behind holds its stdout.
        """
        return await asyncio.shield(self._exit)

    async def stop(self) -> int:
        """End it and its group within 1.8 s: close its stdin, wait, SIGTERM, wait, SIGKILL. The code as from ``exited``.

        The receiver hears nothing after this returns; it has heard ``ended``, but for sure only where reading was not paused and nobody
        outside the group holds the child's stdout. May be called again and from several tasks, and goes on if one of them is cancelled.
        """
        if self._stopping is None or self._stopping.cancelled():
            self._stopping = asyncio.get_running_loop().create_task(self._stop())
            self._stopping.add_done_callback(self._stopped)
        return await asyncio.shield(self._stopping)

    async def _stop(self) -> int:
        await self._end()
        self._disarm()
        await self.link.read_out(TAIL_GRACE)
        self.link.abort()
        if self._stderr is not None:
            await self._stderr.aclose()
        if self._watcher is not None and self._watcher.exit is not None:
            await asyncio.wait([self._watcher.exit], timeout=TAIL_GRACE)
        return self._exit.result() if self._exit.done() else KILLED

    def _stopped(self, task: asyncio.Task[int]) -> None:
        """The loop is being shut down under us, maybe before the first step: there is no time left for manners."""
        if task.cancelled():
            if self._lives():
                self._signal("SIGKILL")
            self._disarm()
            self.link.abort()

    async def _end(self) -> None:
        self.link.close_writing()
        await asyncio.wait([self._exit], timeout=END_OF_INPUT_GRACE)
        for name, grace in (("SIGTERM", TERMINATE_GRACE), ("SIGKILL", KILL_GRACE)):
            if self._lives():
                self._signal(name)
                await self._gone(grace)

    async def _gone(self, grace: float) -> None:
        """Wait until the child has been reaped and its group is empty, at most ``grace`` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await asyncio.shield(self._exit)
                while self._lives():  # noqa: ASYNC110 - no event tells when a group is empty
                    await asyncio.sleep(GROUP_POLL)

    def _lives(self) -> bool:
        """True if the child is not reaped or its group has members, which keep the group's number from being given to others."""
        if not self._exit.done():
            return True
        if sys.platform == "win32":
            return False
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:  # macOS says so of a group of zombies; elsewhere it has become another user's
            return sys.platform != "darwin"
        return True

    def _signal(self, name: str) -> None:
        if sys.platform == "win32":
            self._process.terminate()
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, getattr(signal, name))

    def _arm(self) -> None:
        if self._lives():
            self._watcher = watch(self.pid)

    def _released(self, _: asyncio.Future[int]) -> None:
        if not self._lives():
            self._disarm()

    def _disarm(self) -> None:
        if self._watcher is not None:
            self._watcher.disarm()


async def start_child(
    command: Sequence[str],
    receiver: Receiver,
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    max_line: int = MAX_LINE,
    said: Tell | None = None,
) -> Child:
    """Start a server. ``env`` is its whole environment; ``said`` gets the lines of its stderr, which is ours without. Raises CannotStart.

    Frames are not delivered before the caller next awaits, so it may set the link's ``pressure`` first.
    """
    process = start(command, env=env, cwd=cwd, stderr=None if said is None else subprocess.PIPE)
    reading, writing = _take(process.stdout), _take(process.stdin)
    complaints, process.stderr = process.stderr, None
    process.stdin = process.stdout = None
    stderr = None if said is None or complaints is None else Stderr.reading(complaints, said)
    return Child(process, connect(reading, writing, receiver, max_line=max_line), stderr)


def exit_code(code: int) -> int:
    """What a shell would report: 128 + n for a child that signal n ended."""
    return 128 - code if code < 0 else code


def _take(file: IO[bytes] | None) -> int:
    """The descriptor of a pipe, taken from the file object that would close it."""
    assert file is not None, "both are pipes"
    fd = os.dup(file.fileno())
    file.close()
    return fd
