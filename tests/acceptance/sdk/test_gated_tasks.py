"""Tasks through the gate: what it answers itself, and what it leaves to the client."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.sdk.peers import POLICIES, Drive, Gate, call
from tests.acceptance.sdk.task_peers import ACCEPTED, CLIENT_NAMES, FORM, GATES, SAMPLING, client, served

BOTH = [FORM, SAMPLING]
STEPS = [call("confirm"), call("classify", text="t"), call("both"), call("work")]


def gated(policy: str, tmp_path: Path) -> Gate:
    return Gate(POLICIES / f"{policy}.yaml", tmp_path / "decisions.jsonl")


def decided(gate: Gate) -> int:
    """The number of decisions: one for each key, however often the client polled."""
    return len({record["decision_id"] for record in gate.records()})


@pytest.mark.parametrize("through", GATES)
@pytest.mark.parametrize("name", CLIENT_NAMES)
def test_the_gate_answers_what_a_task_asks_and_the_client_never_sees_it(
    name: str, through: str, tmp_path: Path, drive: Drive
) -> None:
    gate = gated("answers", tmp_path)
    with served("fastmcp", through, gate) as place:
        seen = drive(client(name), place, None, STEPS, declare=[])
    texts = [result["text"] for result in seen.results]
    assert "accept|True|from the policy" == texts[0]
    assert texts[1].endswith("|from the policy")
    assert texts[2].startswith("accept|True|from the policy ")
    assert texts[2].endswith("|from the policy")
    assert "worked" == texts[3]
    assert [] == seen.asked
    assert 4 == decided(gate)


@pytest.mark.parametrize("through", GATES)
@pytest.mark.parametrize("name", CLIENT_NAMES)
def test_a_form_goes_to_the_client_while_the_gate_answers_the_sampling_beside_it(
    name: str, through: str, tmp_path: Path, drive: Drive
) -> None:
    gate = gated("mixed", tmp_path)
    with served("fastmcp", through, gate) as place:
        seen = drive(client(name), place, None, STEPS, declare=[FORM])
    assert [FORM, FORM] == seen.kinds()
    texts = [result["text"] for result in seen.results]
    assert ACCEPTED == texts[0]
    assert texts[1].endswith("|from the policy")
    assert texts[2].startswith(f"{ACCEPTED} ")
    assert texts[2].endswith("|from the policy")
    assert 4 == decided(gate)


@pytest.mark.parametrize("name", CLIENT_NAMES)
def test_a_task_ends_as_a_tool_error_if_its_sampling_is_denied(name: str, tmp_path: Path, drive: Drive) -> None:
    with served("fastmcp", "run", gated("denies", tmp_path)) as place:
        seen = drive(client(name), place, None, [call("classify", text="t"), call("work")], declare=BOTH)
    assert [True, False] == [result["error"] for result in seen.results]
    assert [] == seen.asked
