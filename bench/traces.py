"""Benchmark of traces: one gate exports a span of each request and of each model call, and one does not; their laps
alternate."""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Final

from bench import memory
from bench.client import Connection, connected
from bench.overhttp import usage
from bench.sampling import SERVER

POLICY: Final = """\
version: 1
models: [{name: instant, model: scripted, cases: cases.yaml}]
rules:
  - {name: samples, match: {kind: sampling}, effect: allow, with: {max_tokens: 500}}
"""
WARM_UP: Final = 200


@dataclass(frozen=True, slots=True)
class Pair:
    """A figure without and with traces: medians. ``added`` is the median of the differences in the same lap."""

    off: float
    on: float
    added: float


@dataclass(frozen=True, slots=True)
class Traces:
    """``sample`` and ``cpu`` (of the gate's process with all its threads) are microseconds of a sample, one at a time;
    ``start`` is milliseconds; ``memory`` is MiB of RSS."""

    sample: Pair
    cpu: Pair
    start: Pair
    memory: Pair


def measure(laps: int, samples: int, starts: int) -> Traces | None:
    """Run laps of ``samples`` that alternate between the two gates. None without /proc. Raises RuntimeError if no span
    arrives."""
    if not memory.can_be_read():
        return None
    with ExitStack() as stack:
        url, received = stack.enter_context(_receiver())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "policy.yaml").write_text(POLICY, encoding="utf-8")
        (folder / "cases.yaml").write_text("cases: [{answer: done}]\n", encoding="utf-8")
        off = _command(folder, "off")
        on = ("env", f"OTEL_EXPORTER_OTLP_ENDPOINT={url}", *_command(folder, "on"))
        begun = [(_start(off), _start(on)) for _ in range(starts + 1)][1:]
        gates = [stack.enter_context(connected(command)) for command in (off, on)]
        for gate in gates:
            gate.initialize()
            gate.sample(WARM_UP, 1)
        held = [memory.tree_memory(gate.process.pid, SERVER).rss for gate in gates]
        runs = [[_lap(gate, samples) for gate in (gates if number % 2 else gates[::-1])] for number in range(laps)]
        pairs = [(lap if number % 2 else lap[::-1]) for number, lap in enumerate(runs)]
    if not received[0]:
        raise RuntimeError("no span arrived at the receiver; is the extra `otel` installed?")
    sample, cpu = (_pair([(lap_off[column], lap_on[column]) for lap_off, lap_on in pairs]) for column in (0, 1))
    return Traces(sample, cpu, _pair(begun), _pair([(held[0], held[1])]))


def _pair(laps: Sequence[tuple[float, float]]) -> Pair:
    off, on = (median(column) for column in zip(*laps, strict=True))
    return Pair(off, on, median(with_traces - without for without, with_traces in laps))


def _command(folder: Path, name: str) -> tuple[str, ...]:
    """A gate with a scripted model and a decision log."""
    policy, log = str(folder / "policy.yaml"), str(folder / f"{name}.jsonl")
    return (sys.executable, "-m", "samplegate", "run", "--policy", policy, "--decision-log", log, "--", *SERVER)


def _start(command: Sequence[str]) -> float:
    """Milliseconds to the first answered `initialize`."""
    started = time.perf_counter()
    with connected(command) as gate:
        gate.initialize()
        return (time.perf_counter() - started) * 1000


def _lap(gate: Connection, samples: int) -> tuple[float, float]:
    """Microseconds of a sample: elapsed, and CPU time of the gate's process with all its threads."""
    before = usage.own(gate.process.pid)
    took = gate.sample(samples, 1) / 1000
    return took / samples, (usage.own(gate.process.pid) - before) / samples


@contextmanager
def _receiver() -> Iterator[tuple[str, list[int]]]:
    """A receiver of spans that reads and counts requests, and decodes none."""
    received = [0]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            received[0] += 1
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", received
        finally:
            server.shutdown()
