"""Processes of one program, forked from a process that has already imported what the program needs
(``programs/forking.py``)."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from tests.paths import ROOT


class Forked:
    """A process, with the part of ``subprocess.Popen`` that tests use."""

    def __init__(self, forks: Forks, arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> None:
        pipes = [os.pipe() for _ in range(4)]
        (given, write), (out, put_out), (err, put_err), (news, put_news) = pipes
        self.returncode: int | None = None
        self.stdin: IO[bytes] = os.fdopen(write, "wb")
        self.stdout: IO[bytes] = os.fdopen(out, "rb")
        self.stderr: IO[bytes] = os.fdopen(err, "rb")
        self._forks, self._news = forks, os.fdopen(news, "rb", buffering=0)
        theirs = [given, put_out, put_err, put_news]
        forks.ask({"arguments": arguments, "cwd": str(cwd), "env": dict(env)}, theirs)
        for stream in theirs:
            os.close(stream)
        while "pid" not in (said := self._told()):  # a short program may end before its keeper has told its number
            self._learn(said)
        self.pid: int = said["pid"]

    def _learn(self, said: dict[str, Any]) -> None:
        self._forks.imports.update(dict.fromkeys(said.get("imported", ())))
        self.returncode = said.get("code")

    def _told(self) -> dict[str, Any]:
        line = self._news.readline()
        assert line, "what it is forked from has ended"
        said: dict[str, Any] = json.loads(line)
        return said

    def wait(self, timeout: float | None = None) -> int:
        """The exit code. It is the negative signal number if the process was killed."""
        while self.returncode is None:
            if not select.select([self._news], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            self._learn(self._told())
        return self.returncode

    def communicate(self, input: bytes = b"", timeout: float | None = None) -> tuple[bytes, bytes]:
        """Read stdout and stderr until the process ends."""
        said = {self.stdout: b"", self.stderr: b""}
        readers = [threading.Thread(target=lambda s=s: said.update({s: s.read()}), daemon=True) for s in said]
        for reader in readers:
            reader.start()
        with suppress(BrokenPipeError, ValueError):  # it has ended, or has closed its stdin
            self.stdin.write(input)
            self.stdin.close()
        self.wait(timeout)
        for reader in readers:
            reader.join(timeout)
        return said[self.stdout], said[self.stderr]

    def kill(self) -> None:
        """Send SIGKILL, unless the process has ended."""
        self._send(signal.SIGKILL)

    def terminate(self) -> None:
        """Send SIGTERM, unless the process has ended."""
        self._send(signal.SIGTERM)

    def news(self) -> int:
        """The descriptor that is readable when there is something to ``hear``."""
        return self._news.fileno()

    def hear(self) -> int | None:
        """Read what is there to hear, and return the exit code if the process has ended. Nothing follows it."""
        self._learn(self._told())
        if self.returncode is not None:
            self._news.close()
        return self.returncode

    def _send(self, number: signal.Signals) -> None:
        if self.returncode is None and not select.select([self._news], [], [], 0)[0]:
            os.kill(self.pid, number)

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill the process if it still runs."""
        self.kill()
        self.wait(10)
        with suppress(BrokenPipeError):
            self.stdin.close()
        for stream in (self.stdout, self.stderr, self._news):
            stream.close()


class Forks:
    """The process that the others are forked from."""

    def __init__(self, control: socket.socket) -> None:
        self._control, self._lock = control, threading.Lock()
        self.imports: dict[str, None] = {}
        """What runs imported late: later ones are forked with it."""

    def ask(self, request: Mapping[str, Any], streams: Sequence[int]) -> None:
        """Request one more process, in the format of ``programs/forking.py``."""
        with self._lock:
            new, self.imports = list(self.imports), {}
            line = json.dumps({**request, "imports": new}).encode() + b"\n"
            sent = socket.send_fds(self._control, [line], list(streams))
            self._control.sendall(line[sent:])

    def start(self, *arguments: str, cwd: Path, env: Mapping[str, str]) -> Forked:
        """Start a process."""
        return Forked(self, arguments, cwd=cwd, env=env)


@contextmanager
def forks(module: str, *, env: Mapping[str, str] | None = None) -> Iterator[Forks]:
    """The process from which the module's ``program`` is forked."""
    ours, theirs = socket.socketpair()
    with (
        ours,
        subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.programs.forking", str(theirs.fileno()), module],
            cwd=ROOT, pass_fds=[theirs.fileno()],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT / 'proxy'}:{ROOT}", **(env or {})},
        ) as process,
    ):  # fmt: skip
        theirs.close()
        try:
            yield Forks(ours)
        finally:
            ours.close()  # the end of its input
            process.wait(10)
