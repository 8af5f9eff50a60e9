"""Headless agents get the results of servers that send requests, because the gate answers these requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from tests.adoption.agents.headless import AGENTS, Agent
from tests.adoption.agents.two_servers import ALLOWED, DENIED, at_work, decisions

DOORS: Final = {"claude-code": "input_required", "codex": "push", "gemini-cli": "push"}
"""How requests arrive, which depends on the agent's protocol version."""


def facts(record: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(record.get(name) for name in ("server", "kind", "rule", "outcome", "decided_by"))


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
def test_a_sampling_request_and_a_form_are_answered(agent: Agent, tmp_path: Path) -> None:
    with at_work(agent, tmp_path, ALLOWED) as session:
        ended = session.end()
        said = session.gates_stderr()
    assert 0 == ended.code, ended.stderr + said
    assert "scripted|endTurn|all is well" in ended.answer, ended.answer + said
    assert "accept|True|go ahead" in ended.answer
    records = decisions(tmp_path)
    assert [
        ("asks", "sampling", "models", "answered", "policy"),
        ("forms", "elicitation", "forms", "answered", "policy"),
    ] == [facts(record) for record in records]
    assert {DOORS[agent.name]} == {record["door"] for record in records}
    assert [] == session.outside.asked


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
def test_an_agent_ends_with_0_although_a_request_was_denied(agent: Agent, tmp_path: Path) -> None:
    with at_work(agent, tmp_path, DENIED) as session:
        ended = session.end()
        said = session.gates_stderr()
    assert 0 == ended.code, ended.stderr + said
    assert "sampling request denied by policy" in ended.answer, ended.answer + said
    assert "accept|True|go ahead" in ended.answer
    assert [
        ("asks", "sampling", "secrets", "denied", "policy"),
        ("forms", "elicitation", "forms", "answered", "policy"),
    ] == [facts(record) for record in decisions(tmp_path)]
    assert [] == session.outside.asked
