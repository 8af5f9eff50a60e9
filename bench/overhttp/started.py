"""Start and end of listening programs, each with its child processes, on one core. ``programs`` defines them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

PATIENCE: Final = 60.0
"""Seconds until a program must listen. Some load modules for a second, ten times as long on a busy machine."""
ROOT: Final = Path(__file__).resolve().parents[2]


class Running:
    """A running program that listens at ``at``."""

    def __init__(self, process: subprocess.Popen[bytes], at: str, stderr: IO[bytes]) -> None:
        self.process = process
        self.at = at
        self._stderr = stderr

    def stderr_text(self) -> str:
        """Everything it has written to stderr."""
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace")

    def problem(self) -> str:
        """The end of its stderr, for a message."""
        return self.stderr_text()[-2000:]


def cores() -> tuple[int | None, int | None]:
    """The core of the measured programs and the core of the client; None if there is no second core."""
    if not hasattr(os, "sched_getaffinity"):
        return None, None
    mine = sorted(os.sched_getaffinity(0))
    return (mine[0], mine[1]) if len(mine) > 1 else (None, None)


@contextmanager
def pinned(core: int | None) -> Iterator[None]:
    """Pin this process, and the processes that it starts meanwhile, to one core."""
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def started(command: Callable[[int], Sequence[str]], path: str, core: int | None) -> Iterator[Running]:
    """Start the program that ``command`` returns for a free port, and wait until it listens. Raises RuntimeError if it
    does not."""
    port = _free_port()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT / "proxy"), str(ROOT)))}
    with tempfile.TemporaryFile() as stderr:
        with pinned(core):
            process = subprocess.Popen(
                command(port),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env=environment,
                start_new_session=True,
            )
        running = Running(process, f"http://127.0.0.1:{port}{path}", stderr)
        try:
            _await(running, port)
            yield running
        finally:
            _end(process)


def _free_port() -> int:
    """A port that is free now, because not every program can choose one and report it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def _await(running: Running, port: int) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and running.process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise RuntimeError(f"{running.process.args!r} does not listen: {running.problem()}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Terminate the process, with a second signal that shortens its drain, then kill it and its remaining children."""
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.close()
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(0.5)
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
