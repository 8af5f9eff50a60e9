"""Whatever ends an agent, its gates and their servers end, and no decision is lost.

Claude Code 2.1 sends SIGINT to its servers, SIGTERM 0.1 s later and SIGKILL 0.4 s after that. Codex 0.169 sends SIGTERM
to their process groups and SIGKILL a few milliseconds later. Gemini CLI 0.61 sends SIGTERM and ends without waiting. An
agent that is killed only ends their input.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.adoption.agents.headless import AGENTS, Agent
from tests.adoption.agents.two_servers import ALLOWED, at_work, decisions


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
def test_the_gates_of_an_agent_that_gets_a_signal_end(agent: Agent, number: signal.Signals, tmp_path: Path) -> None:
    with at_work(agent, tmp_path, ALLOWED, holds=True) as session:
        session.endpoint.wait_for_results()
        session.process.send_signal(number)
        session.end()
        session.gates_stderr()  # ends only with the last of them
    assert ["answered", "answered"] == [record["outcome"] for record in decisions(tmp_path)]
