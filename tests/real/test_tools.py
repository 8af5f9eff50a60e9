"""Tool loops of real servers in both eras: the gate declares `sampling.tools`, a model uses a tool, the server runs it,
the model ends the loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real import peers
from tests.real.peers import Client, Gate, Server, call, drive
from tests.real.test_capabilities import failed
from tests.real.test_transparency import MODERN

PAIRS = [("python1", "sdk1"), ("typescript1", "sdk1"), *((client, "sdk2") for client in MODERN)]
ERAS = [("typescript1", "sdk1"), ("python2-pinned", "sdk2")]


@pytest.mark.parametrize(("client", "server"), PAIRS, indirect=True)
def test_a_tool_loop_runs_to_its_end_for_a_client_that_cannot_sample(
    client: Client, server: Server, decisions: Path
) -> None:
    gate = Gate(peers.POLICIES / "tools.yaml", decisions)
    seen = drive(client, server, gate, [call("loop", town="Oslo")])
    assert [{"error": False, "text": "weather.now(Oslo)|endTurn|Cold."}] == seen.results
    assert ["answered", "answered"] == [record["outcome"] for record in gate.records()]
    assert [["a call"], ["a call"]] == [record["limits"] for record in gate.records()]


@pytest.mark.parametrize(("client", "server"), ERAS, indirect=True)
def test_a_loop_that_asks_more_often_than_a_call_may_is_ended(
    client: Client, server: Server, decisions: Path, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        (peers.POLICIES / "tools.yaml")
        .read_text()
        .replace("requests: 2", "requests: 1")
        .replace("tools-cases", "cases")
    )
    (tmp_path / "cases.yaml").write_text((peers.POLICIES / "tools-cases.yaml").read_text())
    gate = Gate(policy, decisions)
    seen = drive(client, server, gate, [call("loop", town="Oslo"), call("loop", town="Oslo")])
    assert [True, True] == [failed(result) for result in seen.results]
    assert ["a call", "a call"] == [
        record["refused_by"] for record in gate.records() if record["outcome"] == "unanswered"
    ]
