"""Blocking stdio client for the laps. It does not parse answers, so its own time is small and the same for every
variant."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

PATIENCE: Final = 60.0
"""Seconds until a variant that does not answer is killed, which ends the run."""
PAYLOAD: Final = b'{"reply":%d,"text":"%s"}'
INITIALIZE: Final = (
    b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
    b'"capabilities":{"elicitation":{}},"clientInfo":{"name":"bench","version":"1"}}}\n'
)
INITIALIZED: Final = b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'


class Connection:
    """A connection to a started variant. Times are in nanoseconds of the performance counter."""

    def __init__(self, command: Sequence[str]) -> None:
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parent.parent / "proxy")}
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  closed with the connection
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=environment,
            bufsize=1 << 20,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._in, self._out = self.process.stdin, self.process.stdout
        self._id = 0

    def initialize(self) -> None:
        """Do the handshake."""
        self._round_trip(INITIALIZE, b"0")
        self._in.write(INITIALIZED)
        self._in.flush()

    def call(self, text: bytes = b"hello", reply: int = 5) -> int:
        """Make one tools/call with this text; ``reply`` is the size of its answer. Returns the duration."""
        self._id += 1
        arguments = PAYLOAD % (reply, text)
        frame = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":%s}}\n' % (
            self._id,
            arguments,
        )
        started = time.perf_counter_ns()
        self._round_trip(frame, b"%d" % self._id)
        return time.perf_counter_ns() - started

    def sample(self, count: int, at_once: int) -> int:
        """Make one tools/call to the sampling server, which asks for ``count`` samples, ``at_once`` of them
        concurrently. Returns the duration of all."""
        started = time.perf_counter_ns()
        self.samples(count, at_once)
        return time.perf_counter_ns() - started

    def samples(self, count: int, at_once: int) -> list[int]:
        """The same, but returns the duration of each sample, as measured by the server."""
        self._id += 1
        arguments = b'{"count":%d,"at_once":%d}' % (count, at_once)
        frame = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"sample","arguments":%s}}\n' % (
            self._id,
            arguments,
        )
        took: list[int] = json.loads(self._round_trip(frame, b"%d" % self._id))["result"]["structuredContent"]["took"]
        return took

    def _round_trip(self, frame: bytes, id: bytes) -> bytes:
        with suppress(BrokenPipeError):  # the missing answer is reported below
            self._in.write(frame)
            self._in.flush()
        while True:
            line = self._out.readline()
            if not line:
                self._stderr.seek(0)
                raise RuntimeError(
                    f"{self.process.args!r} ended before it answered:"
                    f" {self._stderr.read()[-2000:].decode(errors='replace')}"
                )
            if b'"id":' + id not in line and b'"id": ' + id not in line:
                continue  # a notification from the peer
            if b'"result"' not in line[:200] and b'"result"' not in line[-200:]:
                raise RuntimeError(f"{self.process.args!r} answered {line[:300]!r}")
            return line

    def close(self) -> None:
        """Close the server's input, wait, then kill it, as clients do."""
        with suppress(BrokenPipeError):
            self._in.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._out.close()
        self._stderr.close()


@contextmanager
def connected(command: Sequence[str]) -> Iterator[Connection]:
    """A started variant. It is killed if it does not finish within the time limit."""
    connection = Connection(command)
    try:
        with guarded(connection.process):
            yield connection
    finally:
        connection.close()


@contextmanager
def guarded(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Kill the process if it does not finish within the time limit. Its readers then get the end of the stream."""
    guard = threading.Timer(PATIENCE * 4, process.kill)
    guard.daemon = True
    guard.start()
    try:
        yield
    finally:
        guard.cancel()
