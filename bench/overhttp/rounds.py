"""Benchmark of sampling rounds with the built-in model, modern era only: each call must return its own sample, and each
round must be recorded."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.overhttp import programs
from bench.overhttp.calls import MANY, run
from bench.overhttp.load import Client, client
from bench.overhttp.started import cores, pinned, started
from bench.overhttp.wire import FIRST_ID, Calls, WrongAnswer, check

SERVER: Final = (sys.executable, str(programs.HERE / "asking_server.py"))
POLICY: Final = """\
version: 1
models: [{name: script, model: scripted, cases: answers.yaml}]
rules:
  - {name: samples, match: {kind: sampling}, effect: allow, with: {models: [script]}}
"""
ANSWERS: Final = """\
cases:
  - {text: "number (?P<number>[0-9]+)", answer: "sample of {number}"}
"""


@dataclass(frozen=True, slots=True)
class Rounds:
    """``lost`` are calls that did not return their own sample. ``recorded`` are lines of the decision log with an
    answered request."""

    rounds: int
    lost: int
    recorded: int
    rate: float
    """Rounds per second."""


def measure(rounds: int) -> Rounds:
    """Run ``rounds`` rounds over 32 connections."""
    mine, others = cores()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "policy.yaml").write_text(POLICY, encoding="utf-8")
        (folder / "answers.yaml").write_text(ANSWERS, encoding="utf-8")
        log = folder / "decisions.jsonl"
        gate = programs.gate("gate", folder / "state", "--", *SERVER, policy=folder / "policy.yaml", log=str(log))
        with started(gate.command, gate.path, mine) as running, pinned(others):
            lost, seconds, first = run(_asked(running.at, rounds))
            if lost:
                print(f"bench: {lost} rounds were lost, the first by {first}; {running.problem()}", file=sys.stderr)
        return Rounds(rounds, lost, _recorded(log), rounds / seconds)


async def _asked(at: str, rounds: int) -> tuple[int, float, str]:
    numbers = iter(range(rounds))
    lost, first = 0, ""
    ready = await client(at, "modern", min(MANY, rounds))
    began = time.perf_counter()

    async def one(which: int) -> None:
        nonlocal lost, first
        for number in numbers:
            try:
                await _round(ready, which, at, number)
            except (WrongAnswer, OSError, TimeoutError) as problem:
                lost, first = lost + 1, first or repr(problem)

    await asyncio.gather(*(one(which) for which in range(len(ready.connections))))
    seconds = time.perf_counter() - began
    ready.close()
    return lost, seconds, first


async def _round(ready: Client, which: int, at: str, number: int) -> None:
    calls = Calls(at, "modern", arguments=json.dumps({"number": number}), id=FIRST_ID + number)
    id, whole = calls.next()
    head, body = await ready.connections[which].ask(whole)
    check(head, body, id, b'"sample of %d"' % number)


def _recorded(log: Path) -> int:
    lines = (json.loads(line) for line in log.read_bytes().splitlines())
    return len({record["decision_id"] for record in lines if record.get("outcome") == "answered"})
