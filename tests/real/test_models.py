"""An allow rule between real programs: a model on a loopback endpoint, one that hangs, one that answers 429, and the
scripted one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.openai_endpoint import Endpoint
from tests.real import peers
from tests.real.peers import Client, Gate, Server, call, drive, ended, started
from tests.real.test_capabilities import failed

POLICY = """
version: 1
models:
  - {{name: local, model: openai/{model}, api_base: "{url}", api_key_file: key}}
rules:
  - name: a model answers
    match: {{kind: sampling}}
    effect: allow
    with: {{models: [local], max_tokens: 100}}
"""
PAIRS = [("python1", "sdk1"), ("python2-auto", "sdk2"), ("typescript1", "sdk1"), ("typescript2-auto", "sdk2")]
ERAS = [("python2-auto", "sdk2"), ("typescript1", "sdk1")]
"""One of each era: every test starts a worker, which imports litellm."""
CLASSIFY = call("classify", text="a text")


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as running:
        yield running


def gate(folder: Path, endpoint: Endpoint, model: str) -> Gate:
    (folder / "key").write_text("sk-of-the-test\n")
    policy = folder / "policy.yaml"
    policy.write_text(POLICY.format(model=model, url=endpoint.url))
    return Gate(policy, folder / "decisions.jsonl")


@pytest.mark.parametrize(("client", "server"), PAIRS, indirect=True)
def test_a_model_answers_for_a_client_that_cannot_sample(
    client: Client, server: Server, endpoint: Endpoint, tmp_path: Path
) -> None:
    seen = drive(client, server, gate(tmp_path, endpoint, "normal"), [CLASSIFY])
    assert False is seen.results[0]["error"]
    assert seen.results[0]["text"].endswith("|endTurn|you said: classify: a text")
    arrived = endpoint.next()
    assert "Bearer sk-of-the-test" == {name.lower(): value for name, value in arrived.headers.items()}["authorization"]
    assert 100 == (arrived.body.get("max_tokens") or arrived.body.get("max_completion_tokens"))
    assert ["system", "user"] == [message["role"] for message in arrived.body["messages"]]
    assert "sk-of-the-test" not in seen.said


@pytest.mark.parametrize(("client", "server"), ERAS, indirect=True)
def test_a_model_that_is_rate_limited_leaves_the_request_unanswered(
    client: Client, server: Server, endpoint: Endpoint, tmp_path: Path
) -> None:
    setting = gate(tmp_path, endpoint, "status-429")
    seen = drive(client, server, setting, [CLASSIFY, call("add", a=1, b=2)])
    assert failed(seen.results[0])
    assert {"error": False, "text": "3"} == seen.results[1]
    assert "sk-of-the-test" not in str(seen.results) + seen.said + str(setting.records())


@pytest.mark.parametrize(("client", "server"), ERAS, indirect=True)
def test_a_call_taken_back_ends_the_call_of_the_model(
    client: Client, server: Server, endpoint: Endpoint, tmp_path: Path
) -> None:
    steps = [{"do": "cancel", "name": "classify", "arguments": {"text": "x"}, "when": "told"}, call("add", a=1, b=2)]
    with started(client, server, gate(tmp_path, endpoint, "hang"), steps=steps) as process:
        endpoint.next()
        seen = ended(process, told="now\n")
    assert "hang" == endpoint.next_hang_up()
    assert [{"cancelled": True}, {"error": False, "text": "3"}] == seen.results


@pytest.mark.parametrize(("client", "server"), PAIRS, indirect=True)
def test_the_scripted_model_answers_without_any_network(client: Client, server: Server, decisions: Path) -> None:
    seen = drive(client, server, Gate(peers.POLICIES / "scripted.yaml", decisions), [CLASSIFY])
    assert False is seen.results[0]["error"]
    assert seen.results[0]["text"].endswith("|the script says so")
