"""The watcher: after SIGKILL of the gate, nothing of its server is left."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from samplegate.transport.subprocess import NAME, watch
from tests.fakes.recorder import BOUND, PYTHON, environment
from tests.paths import PROGRAMS

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no watcher")

FAMILY = (
    "import os, signal, subprocess, sys, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "child = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)'])\n"
    "print(os.getpid(), child.pid, flush=True)\n"
    "time.sleep(600)\n"
)


@contextmanager
def gate(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has started ``command`` as the gate does."""
    with subprocess.Popen(
        [sys.executable, str(PROGRAMS / "gate.py"), *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def first_line(process: subprocess.Popen[bytes]) -> list[int]:
    assert process.stdout is not None
    return [int(word) for word in process.stdout.readline().split()]


def wait_gone(pids: list[int], seconds: float) -> None:
    """Wait without polling for processes that are not our children: a pidfd is readable when its process has ended."""
    deadline = time.monotonic() + seconds
    for pid in pids:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
        os.close(fd)
        assert ready, f"{pid} outlived it"


linux = pytest.mark.skipif(
    not hasattr(os, "pidfd_open"), reason="other processes' ends can be waited for on Linux only"
)


@linux
def test_when_the_gate_is_killed_its_child_and_grandchild_die_within_a_second() -> None:
    with gate(*PYTHON, FAMILY) as process:
        pids = first_line(process)
        watcher = wait_for_watcher(pids[0])
        process.send_signal(signal.SIGKILL)
        process.wait(BOUND)
        wait_gone([*pids, watcher], 1.0)


@linux
def test_the_watcher_survives_what_a_terminal_sends_and_ends_with_an_orderly_end() -> None:
    with gate(*PYTHON, "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()") as process:
        pids = first_line(process)
        watcher = wait_for_watcher(pids[0])
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            os.kill(watcher, number)
        assert process.stdin is not None
        process.stdin.close()
        assert process.stderr is not None
        assert b"stopped 0\n" == process.stderr.read()
        assert 0 == process.wait(BOUND)
        wait_gone([*pids, watcher], 1.0)


@linux
def test_the_watcher_holds_none_of_the_gates_streams_and_is_in_a_session_of_its_own() -> None:
    with gate(*PYTHON, FAMILY) as process:
        pids = first_line(process)
        watcher = wait_for_watcher(pids[0])
        theirs = streams(watcher)
        assert {"/dev/null"} == {theirs["1"], theirs["2"]}
        held = set(theirs.values()) & set(streams(process.pid).values()) - {"/dev/null"}
        assert {theirs["0"]} == held, "only the pipe that tells it of our end"
        assert watcher == os.getsid(watcher)
        assert b"PYTHONPATH" not in Path(f"/proc/{watcher}/environ").read_bytes()


def streams(pid: int) -> dict[str, str]:
    """The targets of a process's descriptors."""
    return {link.name: str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()}


def wait_for_watcher(group: int) -> int:
    """Wait for the watcher of a group, which starts shortly after the child, and return its pid."""
    deadline = time.monotonic() + BOUND
    while time.monotonic() < deadline:
        for process in Path("/proc").glob("[0-9]*"):
            words = command_line(process)
            if words[-3:-1] == [NAME.encode(), str(group).encode()] and b"read" in words[2]:
                return int(process.name)
    pytest.fail("no watcher was started")


def command_line(process: Path) -> list[bytes]:
    try:
        return (process / "cmdline").read_bytes().split(b"\0")
    except OSError:  # it has ended meanwhile
        return []


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    """A group of one process that lives until its input ends."""
    with subprocess.Popen(
        [*PYTHON, "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, start_new_session=True
    ) as process:
        yield process


@pytest.mark.anyio
async def test_a_disarmed_watcher_kills_nobody(victim: subprocess.Popen[bytes]) -> None:
    watcher = watch(victim.pid)
    assert watcher is not None
    before = watcher.exit
    assert before is None
    watcher.disarm()
    watcher.disarm()
    assert watcher.exit is not None
    async with asyncio.timeout(BOUND):
        assert 0 == await watcher.exit
    assert victim.poll() is None


@pytest.mark.anyio
async def test_a_watcher_whose_pipe_ends_without_a_word_kills(victim: subprocess.Popen[bytes]) -> None:
    watcher = watch(victim.pid)
    assert watcher is not None
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, watcher._pipe)  # as the end of the process would close it
    os.close(nothing)
    assert -signal.SIGKILL == await asyncio.to_thread(victim.wait, BOUND)
    watcher.disarm()
    assert watcher.exit is not None
    assert 0 == await watcher.exit


@pytest.mark.anyio
async def test_disarming_a_watcher_that_somebody_killed_is_no_error() -> None:
    watcher = watch(os.getpid() + 10_000_000)
    assert watcher is not None
    watcher._process.kill()
    await asyncio.to_thread(watcher._process.wait, BOUND)
    watcher.disarm()
    assert watcher.exit is not None
    assert -signal.SIGKILL == await watcher.exit
