"""Programs that serve HTTP and print their address: start, wait, end. Their stderr is kept for the message of a failing
test."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from tests.acceptance.sdk import peers
from tests.paths import ROOT

START: Final = 30.0  # seconds until a program listens; it takes one or two
END: Final = 10.0
PLACE: Final = re.compile(r"(?:listening|running|available) (?:on|at) (?:port )?(http://[^\s\"]+|\d+)", re.IGNORECASE)


@dataclass
class Listening:
    """A program that serves: its address, its process and its output."""

    url: str
    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)

    def said(self) -> str:
        """The last output, without the gate's line for every request."""
        return "".join(line for line in self.lines if '"event": "http.request"' not in line)[-4000:]


def gate(*words: str) -> tuple[str, ...]:
    """The command that starts the gate with these arguments."""
    return (str(Path(sys.executable).with_name("samplegate.exe" if sys.platform == "win32" else "samplegate")), *words)


def serve(policy: Path, *behind: str, log: Path | None = None) -> tuple[str, ...]:
    """The command of a gate with one server: behind is ``--url URL`` or ``--`` and a command."""
    decisions = str(log) if log else "none"
    return gate("serve", "--policy", str(policy), "--listen", "127.0.0.1:0", "--decision-log", decisions, *behind)


def known_good(*words: str) -> tuple[str, ...]:
    """The command of the known-good server: ``stdio`` or ``http``, and a version to restrict it to."""
    return (peers.sdk(2), "-m", "tests.conformance.known_good", *words)


def _read(stream: IO[str], lines: list[str], places: queue.Queue[str | None]) -> None:
    for line in stream:
        lines.append(line)
        if found := PLACE.search(line):
            places.put(found[1])
    places.put(None)


@contextmanager
def listening(words: Sequence[str], environment: Mapping[str, str] | None = None) -> Iterator[Listening]:
    """The running program. If it does not end when asked to, it and its descendants are killed."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    environment = {**os.environ, "SAMPLEGATE_DRAIN_DELAY": "0", **(environment or {})}
    process: subprocess.Popen[str] = subprocess.Popen(  # type: ignore[call-overload]
        words, cwd=ROOT, env=environment, text=True, errors="replace", start_new_session=True, **pipes
    )
    lines: list[str] = []
    places: queue.Queue[str | None] = queue.Queue()
    assert process.stderr is not None
    reader = threading.Thread(target=_read, args=(process.stderr, lines, places), daemon=True)
    reader.start()
    try:
        yield Listening(_address(places, words, lines), process, lines)
    finally:
        _end(process)
        reader.join(END)
        process.stderr.close()


def _address(places: queue.Queue[str | None], words: Sequence[str], lines: list[str]) -> str:
    try:
        place = places.get(timeout=START)
    except queue.Empty:
        place = None
    if place is None:
        raise AssertionError(f"{' '.join(words[:4])} ... does not serve; it said:\n{''.join(lines)[-4000:]}")
    return f"http://127.0.0.1:{place}/mcp" if place.isdecimal() else place.rstrip(".,;")


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(END)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(END)
