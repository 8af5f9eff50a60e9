"""Conditions on arguments in the real gate, in front of a stdio server, with a real log and `samplegate replay`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.fakes.daemon_reviews import form
from tests.fakes.run_process import call, lines, opening, running
from tests.fakes.shell import samplegate
from tests.paths import PROGRAMS

pytestmark = pytest.mark.anyio
POLICY: Final = """
version: 1
rules:
  - {name: not so, match: {tool: do, arguments: {force: true}}, effect: deny}
  - name: below
    match: {kind: elicitation, mode: form, tool: do, arguments: {path: {under: /srv/public}}}
    effect: answer
    content: {confirm: true}
"""
ASK: Final[dict[str, Any]] = form("sure?")


def server(era: str) -> tuple[str, ...]:
    return ("python", str(PROGRAMS / "asking.py"), era)


def outcome(frame: dict[str, Any]) -> str:
    """The action that the server got, or `none`."""
    said = frame.get("result", {}).get("structuredContent", {}).get("result", {})
    return str(said.get("action", "none"))


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_rule_looks_at_the_arguments_of_the_call(tmp_path: Path, era: str) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    log = tmp_path / "log.jsonl"
    calls = [
        call(1, "do", era=era, path="/srv/public/a", **ASK),
        call(2, "do", era=era, path="/srv/public/../private", **ASK),
        call(3, "do", era=era, path="/srv/public/a", force=True, **ASK),
        call(4, "do", era=era, path="/srv/public/a", force="false", **ASK),
        call(5, "do", era=era, **ASK),
    ]
    twice = lines(call(6, "do", era=era, path="/srv/public/a", **ASK))
    twice = twice.replace(b'"path": "/srv/public/a"', b'"path": "/srv/public/a", "path": "/etc"')
    outcomes = []
    environment = {"SAMPLEGATE_DECISION_LOG": str(log), "SAMPLEGATE_RECORD_CONTENT": "full"}
    with running(tmp_path, command=server(era), environment=environment) as gate:
        gate.write(*opening(era, elicitation={}))
        for number, frame in enumerate([*map(lines, calls), twice], 1):
            assert gate.process.stdin is not None
            gate.process.stdin.write(frame)
            gate.process.stdin.flush()
            while (answer := gate.read()).get("id") != number:
                pass
            outcomes.append(outcome(answer))
        gate.end()
    assert ["accept", *["cancel"] * 5] == outcomes

    records = [json.loads(line) for line in log.read_text().splitlines()]
    assert [["below", None, "not so", "not so", None]] == [[record.get("rule") for record in records[:5]]]
    assert "/srv/public/a" == records[0]["arguments"][0][0]["path"]
    assert "/etc" not in json.dumps(records)
    missed = {miss["rule"]: miss["condition"] for miss in records[1]["rules"]}
    assert {"not so": "arguments.force", "below": "arguments.path?"} == missed

    (tmp_path / "other.yaml").write_text(POLICY.replace("/srv/public", "/srv/private"))
    found = []
    for policy in ("policy.yaml", "other.yaml"):
        words = ("replay", "--log", str(log), "--policy", str(tmp_path / policy), "--json")
        told = json.loads((await asyncio.to_thread(samplegate, tmp_path, *words)).out)
        found.append({name: told[name] for name in ("same", "changed")})
    assert [{"same": 5, "changed": 0}, {"same": 4, "changed": 1}] == found
