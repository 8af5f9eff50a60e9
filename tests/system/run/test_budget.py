"""The budget of docs/tour.md under load: ten processes share one ledger, and half of them are killed in the middle."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.paths import PROGRAMS, ROOT

SERVER = PROGRAMS / "bare_server.py"
PROCESSES, REQUESTS, KILLED, KILL_AFTER = 10, 100, 5, 30
INPUT, OUTPUT = 10, 200  # tokens that the model reports, of 400 that are asked for
PRICE = {"input": 10.0, "output": 50.0}  # dollars a million: some 2 cents a request at worst, half of that in truth
PARAMS = {"messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}], "maxTokens": 400}
UNITS = 10**12


def readme_policy() -> dict[str, Any]:
    """The page's policy with a limit in dollars."""
    blocks: list[str] = re.findall(
        r"```yaml[^\n]*\n(.*?)```", (ROOT / "docs" / "tour.md").read_text("utf-8"), re.DOTALL
    )
    (found,) = [
        loaded
        for block in blocks
        if isinstance(loaded := yaml.safe_load(block), dict) and "usd" in str(loaded.get("limits", ""))
    ]
    policy: dict[str, Any] = found
    return policy


class Flooded:
    """One server behind the gate whose client asks again and again, and the answers that it got."""

    def __init__(self, folder: Path, number: int) -> None:
        self.log = folder / f"log-{number}.jsonl"
        environment = {"PYTHONPATH": str(ROOT / "proxy"), "PATH": os.environ["PATH"], "HOME": str(folder)}
        ours = [
            sys.executable,
            "-m",
            "samplegate",
            "run",
            "--policy",
            "policy.yaml",
            "--state",
            "state",
            "--decision-log",
            str(self.log),
        ]
        self.process = subprocess.Popen(
            [*ours, "--", sys.executable, str(SERVER)],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.answered = 0
        self.refused = 0

    def _say(self, **frame: Any) -> dict[str, Any] | None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def run(self) -> None:
        """Ask until the budget is exhausted, or until the gate is killed."""
        # closing tries again to write what a killed gate did not read
        with suppress(BrokenPipeError), self.process:
            self._ask_on()

    def _ask_on(self) -> None:
        self._say(id=0, method="initialize", params={"protocolVersion": "2025-11-25", "capabilities": {}})
        for number in range(1, REQUESTS + 1):
            arguments = {"ask": {"method": "sampling/createMessage", "params": PARAMS}}
            frame = self._say(id=number, method="tools/call", params={"name": "t", "arguments": arguments})
            if frame is None:
                return
            if "result" in frame["result"]["structuredContent"]:
                self.answered += 1
            else:
                self.refused += 1

    def records(self) -> list[dict[str, Any]]:
        return (
            [json.loads(line) for line in self.log.read_text().splitlines() if line.endswith("}")]
            if self.log.exists()
            else []
        )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    policy = readme_policy()
    # the page's names without a provider: the model answers after a delay, so that a kill interrupts it
    for model in policy["models"]:
        name = model["name"]
        model.clear()
        model.update(name=name, model="scripted", cases="cases.yaml", price=dict(PRICE))
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(policy, sort_keys=False))
    cases = {"cases": [{"answer": "fine", "delay": "150ms", "input_tokens": INPUT, "output_tokens": OUTPUT}]}
    (tmp_path / "cases.yaml").write_text(yaml.safe_dump(cases))
    return tmp_path


def test_a_thousand_requests_of_ten_processes_spend_no_more_than_the_dollar(folder: Path) -> None:
    floods = [Flooded(folder, number) for number in range(PROCESSES)]
    threads = [threading.Thread(target=flood.run) for flood in floods]
    for thread in threads:
        thread.start()
    enough = threading.Event()
    while sum(flood.answered for flood in floods) < KILL_AFTER and any(thread.is_alive() for thread in threads):
        enough.wait(0.01)
    assert KILL_AFTER <= sum(flood.answered for flood in floods)
    for flood in floods[:KILLED]:
        flood.process.kill()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive()
    level = spent(folder)
    true_cost = round(INPUT * PRICE["input"] * 10**6 + OUTPUT * PRICE["output"] * 10**6)
    records = [record for flood in floods for record in flood.records() if "cost_usd" in record]
    worst = max(round(record["reserved_usd"] * UNITS) for record in records)
    settled = sum(round(record["cost_usd"] * UNITS) for record in records)
    assert {true_cost} == {round(record["cost_usd"] * UNITS) for record in records if record["outcome"] == "answered"}
    assert level <= UNITS, "never more than the dollar, at worst"
    assert UNITS - level < worst, "it was the limit that ended it, and not the number of requests"
    left_open = level - settled
    assert 0 < left_open <= KILLED * worst, (
        "what the killed ones had open stays at its worst case, one request each at most"
    )
    survivors = floods[KILLED:]
    assert all(flood.answered + flood.refused == REQUESTS for flood in survivors)
    assert sum(flood.answered for flood in survivors) * true_cost == sum(
        round(record["cost_usd"] * UNITS)
        for flood in survivors
        for record in flood.records()
        if record["outcome"] == "answered"
    )
    assert any(record.get("refused_by") for flood in survivors for record in flood.records())


def spent(folder: Path) -> int:
    """The charges on the one account, in units."""
    with sqlite3.connect(folder / "state" / "limits.sqlite3") as state:
        ((level,),) = state.execute("SELECT level FROM accounts").fetchall()
    return int(level)
