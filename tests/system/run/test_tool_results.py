"""A question in a tool's result over stdio: `samplegate run` answers it before the client gets the result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.fakes.daemon import FORM, asking
from tests.fakes.run_process import call, opening, running

POLICY: Final = """
version: 1
servers: {default: {ui_results: police}}
rules: [{name: forms, match: {kind: elicitation}, effect: answer, content: {confirm: true}}]
"""


@pytest.mark.parametrize("server", ["legacy", "modern"])
@pytest.mark.parametrize("client", ["legacy", "modern"])
def test_the_client_gets_the_answer_in_place_of_the_question(tmp_path: Path, client: str, server: str) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    metadata: dict[str, Any] = {"kept": 1, "elicitation": {**FORM, "ui": {"uri": "ui://asking/picker"}}}
    with running(tmp_path, "--decision-log", "log.jsonl", command=asking(server)) as gate:
        gate.write(*opening(client))
        gate.read()
        gate.write(call(1, "do", era=client, metadata=metadata))
        answer = {"action": "accept", "content": {"confirm": True}}
        assert {"kept": 1, "elicitationResult": answer} == gate.read()["result"]["metadata"]
        assert 0 == gate.end()[0]
    (record,) = (json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines())
    assert ("tool_result", "answer", "answered") == tuple(record[name] for name in ("door", "effect", "outcome"))
