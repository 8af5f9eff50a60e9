"""`python -m bench.traces [--laps N]`: what traces cost. One gate exports a span of each request and of each model
call, and one does not; their laps alternate. Linux only, because CPU time is read in /proc."""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Final

from bench import machine, memory
from bench.client import Connection, connected
from bench.sampling import SERVER

POLICY: Final = """\
version: 1
models: [{name: instant, model: scripted, cases: cases.yaml}]
rules:
  - {name: samples, match: {kind: sampling}, effect: allow, with: {max_tokens: 500}}
"""
WARM_UP: Final = 200
SAMPLES: Final = 400  # of a lap
STARTS: Final = 15


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.traces", description=__doc__)
    parser.add_argument("--laps", type=int, default=20)
    laps = parser.parse_args(arguments).laps
    with ExitStack() as stack:
        url, received = stack.enter_context(_receiver())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "policy.yaml").write_text(POLICY, encoding="utf-8")
        (folder / "cases.yaml").write_text("cases: [{answer: done}]\n", encoding="utf-8")
        off = _command(folder, "off")
        on = ("env", f"OTEL_EXPORTER_OTLP_ENDPOINT={url}", *_command(folder, "on"))
        starts = [(_start(off), _start(on)) for _ in range(STARTS + 1)][1:]
        gates = [stack.enter_context(connected(command)) for command in (off, on)]
        for gate in gates:
            gate.initialize()
            gate.sample(WARM_UP, 1)
        held = [memory.tree_memory(gate.process.pid, SERVER) for gate in gates]
        runs = [[_lap(gate) for gate in (gates if number % 2 else gates[::-1])] for number in range(laps)]
        pairs = [(lap if number % 2 else lap[::-1]) for number, lap in enumerate(runs)]
    print(f"{machine.describe()}; load {machine.load()}")
    print("| what | off | on | added |\n|---|---|---|---|")
    for what, column in (("a sample, 1 at a time", 0), ("CPU time of the gate for a sample", 1)):
        before, after = (median(pair[side][column] for pair in pairs) for side in (0, 1))
        added = median(pair[1][column] - pair[0][column] for pair in pairs)
        print(f"| {what} | {before:.0f} us | {after:.0f} us | +{added:.0f} us |")
    before, after = (median(column) for column in zip(*starts, strict=True))
    print(
        f"| start to the first answered `initialize` | {before:.0f} ms | {after:.0f} ms |"
        f" +{median(late - early for early, late in starts):.0f} ms |"
    )
    quiet, traced = (found.rss for found in held)
    print(f"| memory, RSS | {quiet:.1f} MiB | {traced:.1f} MiB | +{traced - quiet:.1f} MiB |")
    print(f"{received[0]} batches were received")
    return 0


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


def _lap(gate: Connection) -> tuple[float, float]:
    """Microseconds of a sample: elapsed, and CPU time of the gate's process with all its threads."""
    before = _cpu(gate.process.pid)
    took = gate.sample(SAMPLES, 1)
    return took / SAMPLES / 1000, (_cpu(gate.process.pid) - before) / SAMPLES / 1000


def _cpu(pid: int) -> int:
    """CPU time of a process in nanoseconds."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text("ascii").split()[0]) for thread in threads)


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


if __name__ == "__main__":
    sys.exit(main())
