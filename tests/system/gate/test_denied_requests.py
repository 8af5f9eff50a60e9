"""Requests of a server that the policy denies or does not cover: answers, records, metrics, and the output of the
commands."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, Final

import pytest

from samplegate.cli import main
from tests.fakes.daemon import FORM, SAMPLE, asking, client, serving
from tests.fakes.run_process import Running, call, modern, opening
from tests.fakes.run_process import running as wrapped

ERAS: Final = ("legacy", "modern")
ABLE: Final[dict[str, Any]] = {"sampling": {}, "elicitation": {"form": {}}}
SECRET: Final = {
    "message": "sure?",
    "requestedSchema": {"type": "object", "properties": {"password": {"type": "string"}}, "required": ["password"]},
}
ASKS: Final[Mapping[str, tuple[str, dict[str, Any]]]] = {
    "form": ("elicitation/create", FORM),
    "secret": ("elicitation/create", SECRET),
    "sampling": ("sampling/createMessage", SAMPLE),
    "tools": ("sampling/createMessage", {**SAMPLE, "tools": [{"name": "t", "inputSchema": {"type": "object"}}]}),
    "url": (
        "elicitation/create",
        {"mode": "url", "message": "open", "url": "https://example.com/", "elicitationId": "e"},
    ),
}
DECLINE: Final = (
    "version: 1\nrules:\n  - {name: our-decline, match: {kind: elicitation, mode: form}, effect: deny, as: decline}\n"
)
PLAIN: Final = "version: 1\nrules:\n  - {name: our-denial, match: {not: {mode: url}}, effect: deny}\n"
NOTHING: Final = "version: 1\nrules: []\n"
BESIDE: Final = """
version: 1
models: [{name: m, model: scripted, cases: answers.yaml}]
rules:
  - {name: our-denial, match: {kind: elicitation, mode: form, field_names: passw}, effect: deny}
  - {name: our-refusal, match: {kind: sampling, max_tokens: {max: 10}}, effect: deny}
  - {name: forms, match: {kind: elicitation, mode: form}, effect: answer, content: {confirm: true}}
  - {name: models, match: {kind: sampling}, effect: allow, with: {models: [m]}}
"""


class Gate:
    """`samplegate run` around a server whose tool makes the requests of its arguments, and a client that writes its own
    frames."""

    def __init__(self, folder: Path, gate: Running, era: str, capabilities: Mapping[str, Any]) -> None:
        self.folder, self.gate, self.era, self.capabilities = folder, gate, era, capabilities
        self.stderr = ""
        if era == "legacy":
            gate.write(*opening(**capabilities))
            self.answer(0)

    def answer(self, id: int) -> dict[str, Any]:
        while (frame := self.gate.read()).get("id") != id or "method" in frame:
            pass
        return frame

    def call(self, what: str) -> dict[str, Any]:
        """The result of a call during which the server makes a request."""
        method, params = ASKS[what]
        frame = call(1, "do", ask={"method": method, "params": params})
        self.gate.write(modern(frame, **self.capabilities) if self.era == "modern" else frame)
        result: dict[str, Any] = self.answer(1)["result"]
        return result

    def end(self) -> dict[str, Any]:
        """End the run and return its one record."""
        self.stderr = self.gate.end()[2]
        (record,) = (json.loads(line) for line in (self.folder / "log.jsonl").read_text().splitlines())
        return dict(record)

    @property
    def metrics(self) -> str:
        return (self.folder / "metrics.prom").read_text()


@contextmanager
def running(folder: Path, policy: str, era: str, capabilities: Mapping[str, Any] | None = None) -> Iterator[Gate]:
    _write(folder, policy)
    words = ("--decision-log", "log.jsonl", "--metrics-file", "metrics.prom")
    with wrapped(folder, *words, command=asking(era)) as gate:
        yield Gate(folder, gate, era, {} if capabilities is None else capabilities)


def _write(folder: Path, policy: str) -> None:
    (folder / "policy.yaml").write_text(policy)
    (folder / "answers.yaml").write_text("cases:\n  - {answer: from a model}\n")


def command(folder: Path, *words: str) -> Any:
    """The JSON output of a command."""
    out = io.StringIO()
    with chdir(folder), redirect_stdout(out):
        assert main.main([*words, "--json"]) in (0, 1)
    return json.loads(out.getvalue())


def got(result: Mapping[str, Any]) -> str:
    """One word for the server's answer, or for the end of its call."""
    if result.get("isError"):
        return "call ends"
    answer = result["structuredContent"]
    if "error" in answer:
        return f"error {answer['error']['code']}"
    return str(answer["result"].get("action", "result"))


@pytest.mark.parametrize("era", ERAS)
def test_a_decline_reaches_the_server_where_only_a_deny_rule_covers_the_kind(tmp_path: Path, era: str) -> None:
    with running(tmp_path, DECLINE, era) as gate:
        assert "decline" == gate.call("form")["structuredContent"]["result"]["action"]
        record = gate.end()
    assert ("deny", "our-decline", "rule", "denied", "decline") == tuple(
        record[it] for it in ("effect", "rule", "reason", "outcome", "action")
    )
    assert 'effect="deny",kind="elicitation",outcome="denied",reason="rule",rule="our-decline"' in gate.metrics


@pytest.mark.parametrize(("era", "what"), [("legacy", "form"), ("modern", "sampling")])
def test_a_plain_deny_of_what_was_not_offered_is_an_error_that_names_no_rule(
    tmp_path: Path, era: str, what: str
) -> None:
    """R8, R31: the capability is not declared, and only the operator learns which rule denied it."""
    with running(tmp_path, PLAIN, era, ABLE) as gate:
        result = gate.call(what)
        record = gate.end()
    if era == "legacy":
        error = result["structuredContent"]["error"]
        assert -32602 == error["code"]
    else:
        error = {"message": result["content"][0]["text"]}
        assert result["isError"]
    assert f"denied by policy [decision {record['decision_id']}]" in error["message"]
    assert not [word for word in ("our-denial", "policy.yaml") if word in json.dumps(result)]
    kind = "sampling" if what == "sampling" else "elicitation"
    assert ("deny", "our-denial", "rule", "denied", kind) == tuple(
        record[it] for it in ("effect", "rule", "reason", "outcome", "kind")
    )
    assert record.get("action") is None, "the server got an error, not an action"
    assert f'effect="deny",kind="{kind}",outcome="denied",reason="rule",rule="our-denial"' in gate.metrics
    assert '"rule": "our-denial"' in gate.stderr


def test_explain_to_server_names_the_rule_to_the_server(tmp_path: Path) -> None:
    with running(tmp_path, f"{PLAIN}servers: {{default: {{explain_to_server: true}}}}\n", "legacy", ABLE) as gate:
        assert "our-denial" in gate.call("form")["structuredContent"]["error"]["message"]


@pytest.mark.parametrize("era", ERAS)
def test_a_request_that_no_rule_covers_is_withheld_by_the_policy_and_says_so(tmp_path: Path, era: str) -> None:
    with running(tmp_path, NOTHING, era, ABLE) as gate:
        result = gate.call("form")
        record = gate.end()
    said = result["structuredContent"]["error"]["message"] if era == "legacy" else result["content"][0]["text"]
    assert "policy" in said
    assert "this client" not in said
    assert f"[decision {record['decision_id']}]" in said
    assert "policy.yaml" not in json.dumps(result)
    assert ("call ends" if era == "modern" else "error -32602") == got(result)
    assert ("none", "not_offered", "unanswered") == tuple(record[it] for it in ("effect", "reason", "outcome"))
    (id,) = re.findall(r"\[decision (\w+)\]", said)
    story = command(tmp_path, "why", id, "--log", "log.jsonl")
    assert ("not_offered", True) == (story["reason"], story["complete"])
    asked = (story["records"][0][it] for it in ("server", "caller", "calls"))
    assert ("default", "local", [{"method": "tools/call", "tool": "do"}]) == tuple(asked)


@pytest.mark.parametrize(
    ("era", "what", "rule", "answer"),
    [("modern", "secret", "our-denial", "cancel"), ("legacy", "sampling", "our-refusal", "error -1")],
)
def test_a_plain_deny_is_answered_as_ever_where_another_rule_declares_the_kind(
    tmp_path: Path, era: str, what: str, rule: str, answer: str
) -> None:
    with running(tmp_path, BESIDE, era) as gate:
        assert answer == got(gate.call(what))
        assert rule == gate.end()["rule"]


def test_the_warning_about_what_a_client_is_not_offered_names_the_rule_to_add(tmp_path: Path) -> None:
    with running(tmp_path, NOTHING, "legacy", ABLE) as gate:
        gate.call("form")
        gate.end()
    (warned,) = (json.loads(line) for line in gate.stderr.splitlines() if '"capability.withheld"' in line)
    assert ["sampling", "elicitation.form"] == warned["capabilities"]
    _write(tmp_path, "version: 1\nrules:\n" + "".join(f"  - {rule}\n" for rule in warned["add"]))
    with running(tmp_path, (tmp_path / "policy.yaml").read_text(), "legacy", ABLE) as gate:
        gate.gate.end()
    assert '"capability.withheld"' not in gate.stderr


@pytest.mark.anyio
@pytest.mark.timeout(120)
async def test_over_http_the_answers_are_the_same(tmp_path: Path) -> None:
    ask = {"ask": {"method": "elicitation/create", "params": FORM}}
    _write(tmp_path, DECLINE)
    async with (
        serving(tmp_path, "--policy", "policy.yaml", "--", *asking("legacy"), forked=True) as gate,
        client(gate) as c,
    ):
        await c.begin()
        assert "decline" == got((await c.call("legacy", 1, **ask))["result"])
        assert "decline" == got((await c.call("modern", 2, **ask))["result"])


@pytest.mark.parametrize(
    ("era", "policy", "what"), [("legacy", PLAIN, "tools"), ("modern", BESIDE, "secret"), ("modern", NOTHING, "url")]
)
def test_the_commands_show_the_rule_and_the_answer_that_the_server_gets(
    tmp_path: Path, era: str, policy: str, what: str
) -> None:
    """tests/system/test_one_answer.py shows it in process for generated policies and requests."""
    with running(tmp_path, policy, era) as gate:
        answer = got(gate.call(what))
        record = gate.end()
    method, params = ASKS[what]
    (tmp_path / "request.json").write_text(json.dumps({"method": method, "params": params}))
    explained = command(tmp_path, "explain", "--policy", "policy.yaml", "request.json", "--tool", "do", "--era", era)
    assert (record["effect"], record.get("rule"), record["reason"]) == tuple(
        explained[it] for it in ("effect", "rule", "reason")
    )
    assert answer == explained["wire"]
    expect = {
        "effect": record["effect"],
        "rule": record.get("rule"),
        "reason": record["reason"],
        "outcome": record["outcome"],
        "wire": answer,
    }
    case = {"name": "one", "era": era, "tool": "do", "request": {"method": method, "params": params}}
    tests = {"cases": [{**case, "expect": {name: value for name, value in expect.items() if value is not None}}]}
    (tmp_path / "policy_test.yaml").write_text(json.dumps(tests))
    tested = command(tmp_path, "test", "policy.yaml")
    ((one,),) = (file["cases"] for file in tested["files"])
    assert [] == one["mismatches"]
    assert (record.get("rule"), answer) == (one["rule"], one["wire"])
    if record["effect"] == "deny" and era == "legacy":
        (checked,) = command(tmp_path, "check", "policy.yaml")["files"]
        denials = [
            denial for server in checked["servers"] for coverage in server["requests"] for denial in coverage["denials"]
        ]
        assert {"rule": record["rule"], "wire": [answer], "when": "match"} in denials
