"""Large frames through a `samplegate run` in both directions, and its memory afterwards."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fakes.both_ends import End, Gate, gate
from tests.fakes.hostile_traffic import resident

FORWARD = "version: 1\nrules: [{name: all, effect: forward}]\n"


class LineHeads:
    """The first 500 bytes of each line at one end, read in a thread so that neither end blocks the other."""

    def __init__(self, end: End) -> None:
        self.lines: list[bytes] = []
        self._end = end
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            while True:
                self.lines.append(self._end.read()[:500])
        except (AssertionError, OSError, ValueError):
            pass

    def until(self, count: int, mark: bytes = b"") -> list[bytes]:
        """Wait for ``count`` lines that contain ``mark``."""
        until = time.monotonic() + 60
        while len(found := [line for line in self.lines if mark in line]) < count:
            assert time.monotonic() < until, f"{len(found)} of {count} lines"
            time.sleep(0.002)
        return found


def settled(pid: int, most: float) -> float:
    until = time.monotonic() + 20
    while (now := resident(pid)) > most and time.monotonic() < until:
        time.sleep(0.2)
    return now


@contextmanager
def running(folder: Path, era: str) -> Iterator[tuple[Gate, LineHeads, LineHeads]]:
    with gate(folder, FORWARD, "--decision-log", "none") as at:
        at.legacy(sampling={}) if era == "legacy" else at.modern()
        client, server = LineHeads(at.client), LineHeads(at.server)
        try:
            yield at, client, server
        finally:
            os.kill(at.pid, signal.SIGKILL)  # ends both threads before their files are closed
            client.thread.join(20)
            server.thread.join(20)


def exchange(at: Gate, client: LineHeads, server: LineHeads, calls: int, size: int) -> None:
    """Make ``calls`` calls one after another, each with ``size`` bytes in the request and in the answer."""
    for number in range(calls):
        client.lines.clear()
        server.lines.clear()
        text = json.dumps({"text": f"{number}" + "x" * size}).encode()
        at.client.write(
            b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"t","arguments":%b}}' % (number, text)
        )
        server.until(1, b"tools/call")
        at.server.write(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[],"structuredContent":%b}}' % (number, text))
        client.until(1, b"structuredContent")
