"""`samplegate run --record`: the real answers of a model and a client, and a replay that asks neither."""

from __future__ import annotations

import json
import stat
import sys
from typing import Any, Final

import pytest

from samplegate.cli import main
from tests.fakes.openai_endpoint import Endpoint
from tests.fakes.run_command import FORM, SAMPLE, Client, RunCommand

NEVER: Final = (sys.executable, "-c", "open('started', 'w')")
REAL: Final = """
version: 1
models: [{name: real, model: openai/normal, api_base: "URL", api_key_env: KEY}]
rules:
  - {name: models, match: {kind: sampling}, effect: allow, with: {system_prompt: {prepend: Be kind.}}}
  - {name: person, match: {kind: elicitation}, effect: forward}
"""
TAPED: Final = """
version: 1
models: [{name: taped, model: scripted, cases: tapes/one.yaml}]
rules:
  - {name: models, match: {kind: sampling}, effect: allow, with: {system_prompt: {prepend: Be kind.}}}
  - {name: person, match: {kind: elicitation}, effect: answer, cases: tapes/one.yaml}
"""


def question(what: str) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": {"type": "text", "text": what}}],
        "maxTokens": 50,
        "_meta": {"trace": what},
    }


def form(name: str) -> dict[str, Any]:
    return {"message": f"{name}?", "requestedSchema": {"type": "object", "properties": {name: {"type": "string"}}}}


def ask_person(client: Client, params: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """Make the server send a form that is forwarded to the client. Returns the server's answer."""
    client.write(
        id=9,
        method="tools/call",
        params={"name": "t", "arguments": {"ask": {"method": "elicitation/create", "params": params}}},
    )
    asked = client.read()
    assert "elicitation/create" == asked["method"]
    client.write(id=asked["id"], result=result)
    answer: dict[str, Any] = client.read()["result"]["structuredContent"]["result"]
    return answer


def said(client: Client, what: str) -> tuple[str, str, str]:
    result = client.ask("sampling/createMessage", question(what))["result"]
    return result["content"]["text"], result["model"], result["stopReason"]


def test_a_recorded_run_is_repeated_without_the_model_and_without_the_client(run: RunCommand) -> None:
    tape = run.folder / "tapes" / "one.yaml"
    count = iter(range(100))
    with Endpoint(answer=lambda text: f"answer {next(count)} to {text}") as endpoint:
        (run.folder / "policy.yaml").write_text(REAL.replace("URL", endpoint.url))
        client = run("--record", str(tape), environment={"KEY": "sk-secret"})
        client.initialize(elicitation={})
        answers = [said(client, what) for what in ("Who?", "What?", "Who?", "Who?")]
        accepted = ask_person(client, FORM, {"action": "accept", "content": {"confirm": True}})
        ask_person(client, form("password"), {"action": "accept", "content": {"password": "hunter2"}})
        declined = ask_person(client, form("name"), {"action": "decline"})
        code, told = client.end()
    assert 0 == code
    assert f"recorded 6 cases in {tape}, 1 left out; to answer from it:" in told
    assert '{name: recorded, model: scripted, cases: "tapes/one.yaml"}' in told
    assert ["answer 0 to Who?", "answer 1 to What?", "answer 2 to Who?", "answer 3 to Who?"] == [
        answer[0] for answer in answers
    ]
    assert "sk-secret" not in tape.read_text()
    assert "hunter2" not in tape.read_text()

    (run.folder / "policy.yaml").write_text(TAPED)
    client = run()
    assert {"form": {}} == client.initialize()["elicitation"]
    assert answers == [said(client, what) for what in ("Who?", "What?", "Who?", "Who?")]
    again = [client.ask("elicitation/create", params)["result"] for params in (FORM, form("name"), form("password"))]
    assert [accepted["action"], declined["action"], "cancel"] == [answer["action"] for answer in again]
    assert accepted["content"] == again[0]["content"]
    assert "policy" == again[0]["_meta"]["samplegate/provenance"]["decided_by"]
    assert -1 == client.ask("sampling/createMessage", question("Never asked"))["error"]["code"]
    assert 0 == client.end()[0]


@pytest.mark.skipif(sys.platform == "win32", reason="modes")
def test_the_tape_is_its_owners_alone(run: RunCommand) -> None:
    client = run("--record", "tape.yaml")
    client.initialize()
    client.ask("sampling/createMessage", SAMPLE)
    client.end()
    assert 0o600 == stat.S_IMODE((run.folder / "tape.yaml").stat().st_mode)
    assert "hi there" in (run.folder / "tape.yaml").read_text()


def test_a_file_that_is_no_tape_keeps_it_from_starting_and_is_left_alone(run: RunCommand) -> None:
    before = (run.folder / "policy.yaml").read_text()
    code, told = run("--record", "policy.yaml", command=NEVER).end()
    assert (2, True) == (code, "record: policy.yaml is not a case file" in told)
    assert before == (run.folder / "policy.yaml").read_text()
    assert not (run.folder / "started").exists()


def test_what_a_run_decided_is_summed_up_and_decided_again(run: RunCommand, capsys: pytest.CaptureFixture[str]) -> None:
    client = run(environment={"SAMPLEGATE_RECORD_CONTENT": "full"})
    client.initialize()
    client.ask("sampling/createMessage", SAMPLE)
    client.ask("elicitation/create", FORM)
    client.ask("sampling/createMessage", question("no rule has this"))
    client.end()
    (run.folder / "new.yaml").write_text((run.folder / "policy.yaml").read_text().replace("text: hello", "text: rule"))
    (run.folder / "env").write_text("CONFIRM=true\n")
    new = ["--policy", str(run.folder / "new.yaml"), "--env-file", str(run.folder / "env")]

    assert 0 == main.main(["report", "--log", str(run.log), "--json"])
    summed = json.loads(capsys.readouterr().out)["servers"]["default"]
    assert {"allow: models": 1, "answer: forms": 1, "none: no rule": 1} == summed["rules"]
    assert {"t": 3} == summed["tools"]
    assert 1 == main.main(["replay", "--log", str(run.log), *new, "--client", "", "--fail-on-change", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert (3, 2, 0) == (told["requests"], told["changed"], told["untold"])
    flips = {(change["was"]["rule"], *(now["rule"] for now in change["now"])) for change in told["changes"]}
    assert {("models", None), (None, "models")} == flips
