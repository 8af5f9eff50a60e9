"""An agent with two gated servers: `asks` sends sampling requests, `forms` sends a form. Its model calls both."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.adoption.agents.headless import Agent, Session, gate, working
from tests.adoption.agents.scripted_model import Call

POLICY: Final = """\
version: 1
models: [{name: trial, model: scripted, cases: cases.yaml}]
rules:
  - {name: secrets, match: {kind: sampling, text: secret}, effect: deny}
  - {name: models, match: {kind: sampling}, effect: allow, with: {models: [trial]}}
  - {name: forms, match: {kind: elicitation, mode: form}, effect: answer, content: {confirm: true, reason: go ahead}}
"""
CASES: Final = "cases: [{answer: all is well}]\n"
ALLOWED: Final = "a report"
DENIED: Final = "a secret report"


@contextmanager
def at_work(
    agent: Agent, folder: Path, text: str, *, holds: bool = False, environment: Mapping[str, str] | None = None
) -> Iterator[Session]:
    """The agent at work, with the state folder ``folder/state``. With ``holds``, its model does not answer after both
    calls. ``environment`` is added to the agent's."""
    folder.mkdir(exist_ok=True)
    (folder / "policy.yaml").write_text(POLICY)
    (folder / "cases.yaml").write_text(CASES)
    gates = [gate(name, folder / "policy.yaml", folder / "state") for name in ("asks", "forms")]
    calls = [Call("asks", "classify", {"text": text}), Call("forms", "confirm")]
    with (
        agent.endpoint(calls=calls, holds=holds) as endpoint,
        working(agent, folder, gates, endpoint, environment or {}) as session,
    ):
        yield session


def decisions(folder: Path) -> list[dict[str, Any]]:
    """The records of both gates, in the order of time."""
    logs = (folder / "state" / "decisions").glob("*.jsonl")
    records = [json.loads(line) for log in logs for line in log.read_text("utf-8").splitlines()]
    return sorted(records, key=lambda record: str(record["time"]))
