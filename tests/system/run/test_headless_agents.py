"""Headless agents: a client that declares forms and cancels each of them at once, with either starter policy of
`init`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.fakes.daemon import FORM, asking
from tests.fakes.run_process import Running, call, opening, running
from tests.fakes.shell import samplegate

SAMPLEGATE: Final = (sys.executable, "-m", "samplegate")


class Agent:
    """A client that declares forms, cancels every request and counts them."""

    def __init__(self, gate: Running) -> None:
        self.gate, self.asked = gate, 0
        gate.write(*opening(elicitation={"form": {}}))
        self.answer(0)

    def answer(self, id: int) -> dict[str, Any]:
        while (frame := self.gate.read()).get("id") != id or "method" in frame:
            if "method" in frame and "id" in frame:
                self.asked += 1
                self.gate.write({"jsonrpc": "2.0", "id": frame["id"], "result": {"action": "cancel"}})
        return frame

    def call(self) -> None:
        self.gate.write(call(1, "do", ask={"method": "elicitation/create", "params": FORM}))

    def result(self) -> dict[str, Any]:
        """The server's answer."""
        result: dict[str, Any] = self.answer(1)["result"]["structuredContent"]["result"]
        return result


def own(folder: Path) -> dict[str, str]:
    return {"HOME": str(folder), "USER": "ann", "SAMPLEGATE_STATE": str(folder / "state")}


def pending(folder: Path) -> list[dict[str, Any]]:
    """The pending reviews. There are none before there is a store."""
    ended = samplegate(folder, "reviews", "list", "--json", **own(folder))
    return list(json.loads(ended.out)) if ended.code == 0 else []


@contextmanager
def agent(folder: Path, *options: str) -> Iterator[Agent]:
    """The agent and a server that asks, with a gate under the policy that ``init`` writes with these options."""
    assert 0 == samplegate(folder, "init", *options, **own(folder)).code
    words = ("--policy", "samplegate.yaml", "--decision-log", "log.jsonl")
    with running(folder, *words, command=asking("legacy"), environment=own(folder)) as gate:
        yield Agent(gate)


def test_the_starter_forwards_a_form_and_the_agent_cancels_it(tmp_path: Path) -> None:
    with agent(tmp_path) as client:
        client.call()
        assert ("cancel", 1) == (client.result()["action"], client.asked)
    (record,) = (json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines())
    assert ("forward", "client") == (record["effect"], record["decided_by"])


@pytest.mark.timeout(180)
def test_the_headless_starter_asks_the_reviewer_and_never_the_agent(tmp_path: Path) -> None:
    with agent(tmp_path, "--headless") as client:
        client.call()
        while not (waiting := pending(tmp_path)):  # the test's own time limit ends it
            pass
        (review,) = waiting
        said = samplegate(tmp_path, "reviews", "answer", review["id"], "--accept", "confirm=yes", **own(tmp_path))
        assert 0 == said.code, said.err
        result = client.result()
    assert ("accept", {"confirm": True}, 0) == (result["action"], result["content"], client.asked)
