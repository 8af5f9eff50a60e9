"""Allow rules between real programs: models on a loopback endpoint that answer, hang or return 429, and the scripted
model, which also uses tools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest

from tests.acceptance.sdk.http_peers import Places
from tests.acceptance.sdk.peers import Drive, Server, call, clients, ended, started
from tests.acceptance.sdk.test_capabilities import failed
from tests.conformance.listening import Listening, listening
from tests.conformance.listening import gate as words
from tests.fakes.openai_endpoint import Arrived, Endpoint

# One worker serves all models: what is classified says which of them is asked.
POLICY = """
version: 1
models:
  - {name: normal, model: openai/normal, api_base: URL, api_key_file: key}
  - {name: limited, model: openai/status-429, api_base: URL, api_key_file: key}
  - {name: hanging, model: openai/hang, api_base: URL, api_key_file: key}
  - {name: scripted, model: scripted, cases: cases.yaml, price: {input: 1, output: 1}}
limits:
  a call: {requests: 2, per: call}
rules:
  - name: uses tools
    match: {kind: sampling, tools: true}
    effect: allow
    with: {models: [scripted]}
    limits: [a call]
  - {name: scripted, match: {kind: sampling, text: scripted}, effect: allow, with: {models: [scripted]}}
  - {name: limited, match: {kind: sampling, text: limited}, effect: allow, with: {models: [limited]}}
  - {name: hanging, match: {kind: sampling, text: hanging}, effect: allow, with: {models: [hanging]}}
  - {name: normal, match: {kind: sampling}, effect: allow, with: {models: [normal], max_tokens: 100}}
"""
CASES = """
cases:
  - text: weather in Rome
    content: [{type: tool_use, id: use-1, name: weather.now, input: {town: Rome}}]
    stop_reason: toolUse
  - {text_contains: 12 degrees, answer: Cold.}
  - {text: scripted, answer: the script says so}
  - text: weather in Oslo
    content: [{type: tool_use, id: use-1, name: weather.now, input: {town: Oslo}}]
    stop_reason: toolUse
"""
# each SDK; each server in each version that it speaks
PAIRS = [
    ("python1", "sdk1"),
    ("typescript1", "sdk1"),
    ("python2-auto", "sdk2"),
    ("python2-pinned", "sdk2"),
    ("typescript2-auto", "sdk2"),
    ("typescript2-pinned", "sdk2"),
]


@dataclass
class Gate:
    """One gate in front of both servers, with models."""

    endpoint: Endpoint
    program: Listening
    log: Path
    read: int = 0

    def server(self, name: str) -> Server:
        return Server(name, (urljoin(self.program.url, f"/servers/{name}/mcp"),))

    def records(self) -> list[dict[str, Any]]:
        """The decisions since the last call."""
        lines = self.log.read_text("utf-8").splitlines() if self.log.exists() else []
        new, self.read = lines[self.read :], len(lines)
        return [json.loads(line) for line in new]

    def arrived(self, model: str) -> Arrived:
        """The next request for that model."""
        return next(one for one in iter(self.endpoint.next, None) if one.body["model"] == model)


@pytest.fixture(scope="module")
def gate(places: Places, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    folder = tmp_path_factory.mktemp("models")
    (folder / "key").write_text("sk-of-the-test\n")
    (folder / "cases.yaml").write_text(CASES)
    with Endpoint() as endpoint:
        (folder / "policy.yaml").write_text(POLICY.replace("URL", f'"{endpoint.url}"'))
        settings = {
            "policy": "policy.yaml",
            "listen": "127.0.0.1:0",
            "state": str(folder / "state"),
            "decision_log": str(folder / "decisions.jsonl"),
            "servers": {name: {"url": places.server(name).words[0]} for name in ("sdk1", "sdk2")},
        }
        (folder / "samplegate.yaml").write_text(json.dumps(settings), "utf-8")  # JSON is YAML
        with listening(words("serve", "--settings", str(folder / "samplegate.yaml"))) as program:
            yield Gate(endpoint, program, folder / "decisions.jsonl")


@pytest.mark.parametrize(("client", "server"), PAIRS)
def test_models_answer_and_use_tools_for_a_client_that_cannot_sample(
    client: str, server: str, gate: Gate, drive: Drive
) -> None:
    gate.records()
    steps = [
        call("classify", text="a text"),
        call("classify", text="scripted"),
        call("loop", town="Oslo"),
        call("classify", text="limited"),
        call("loop", town="Rome"),
        call("add", a=1, b=2),
    ]
    seen = drive(clients()[client], gate.server(server), None, steps)
    answered, scripted, looped, limited, too_often, added = seen.results
    assert answered["text"].endswith("|endTurn|you said: classify: a text"), gate.program.said()
    assert scripted["text"].endswith("|the script says so")
    assert {"error": False, "text": "weather.now(Oslo)|endTurn|Cold."} == looped
    assert [True, True] == [failed(limited), failed(too_often)]
    assert {"error": False, "text": "3"} == added
    records = gate.records()
    assert 4 == sum(one["outcome"] == "answered" and one.get("limits") == ["a call"] for one in records)
    refused = [one for one in records if one["outcome"] == "unanswered"]
    assert ["limited", "uses tools"] == [one["rule"] for one in refused]
    assert "a call" == refused[1]["refused_by"]
    arrived = gate.arrived("normal")
    assert "Bearer sk-of-the-test" == {name.lower(): value for name, value in arrived.headers.items()}["authorization"]
    assert 100 == (arrived.body.get("max_tokens") or arrived.body.get("max_completion_tokens"))
    assert ["system", "user"] == [message["role"] for message in arrived.body["messages"]]
    assert "sk-of-the-test" not in str(seen.results) + seen.said + str(records) + "".join(gate.program.lines)


@pytest.mark.parametrize(("client", "server"), [("python2-auto", "sdk2"), ("typescript1", "sdk1")])
def test_a_call_taken_back_ends_the_call_of_the_model(client: str, server: str, gate: Gate) -> None:
    steps = [
        {"do": "cancel", "name": "classify", "arguments": {"text": "hanging"}, "when": "told"},
        call("add", a=1, b=2),
    ]
    with started(clients()[client], gate.server(server), None, steps=steps) as process:
        gate.arrived("hang")
        seen = ended(process, told="now\n")
    assert "hang" == gate.endpoint.next_hang_up()
    assert [{"cancelled": True}, {"error": False, "text": "3"}] == seen.results
