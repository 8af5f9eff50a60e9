"""`samplegate explain`: the rule, the reasons, the outcome on the wire, and how it ends."""

from __future__ import annotations

import io
import json
import sys

import pytest

from tests.commands.shell import Ended, Run, Write

POLICY = """\
version: 1
models: [{name: main, model: openai/none}]
rules:
  - {name: secrets, match: {kind: elicitation, field_names: password}, effect: deny, as: decline}
  - {name: client first, match: {kind: sampling}, effect: forward, otherwise: next}
  - {name: model, match: {kind: sampling, server: docs, tool: "summarize_*"}, effect: allow, with: {max_tokens: 10}}
  - name: confirmed
    match: {kind: elicitation, mode: form, server: docs, has: [confirm]}
    effect: answer
    content: {confirm: "${SAMPLEGATE_TEST}"}
"""
SAMPLING = '{"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 50}}'
ENDED = "the client's call ends with an isError result"


def form(**fields: str) -> str:
    schema = {"type": "object", "properties": {name: {"type": kind} for name, kind in fields.items()}}
    return json.dumps({"method": "elicitation/create", "params": {"message": "m", "requestedSchema": schema}})


@pytest.fixture
def explain(run: Run, write: Write) -> Run:
    write("p.yaml", POLICY)

    def explain(request: str, *options: str) -> Ended:
        write("r.json", request)
        return run("explain", "--policy", "p.yaml", *options, "r.json")

    return explain


def test_every_rule_up_to_the_one_that_took_it_is_told(explain: Run) -> None:
    ended = explain(SAMPLING, "--server", "docs", "--tool", "summarize_page")
    assert (0, "") == (ended.code, ended.err)
    why = "the client did not declare that it can be asked this"
    told = [
        "request   sampling/createMessage, server docs, caller local, during tools/call summarize_page, legacy (2025-11-25)",
        "rule      1 no    secrets       deny     kind: 'sampling' is not elicitation",
        f"rule      2 no    client first  forward  it matches but cannot be carried out: {why}; otherwise: next",
        "rule      3 taken model         allow    model 'main': first of the policy's models",
        "decision  allow, by model (rule)",
        'models    ["main"]',
        "maxTokens 10",
        'changed   ["maxTokens"]',
        "declared  yes",
        "outcome   Answered: what main writes goes to the server as the reply to its request; if it fails, the server gets error -1",
    ]
    assert told == ended.out.splitlines()


@pytest.mark.parametrize(
    ("options", "outcome"),
    [
        (["--client", "sampling"], "forwarded: the client is sent the request, and its reply goes to the server"),
        (
            ["--client", "sampling", "--era", "modern", "--tool", "a"],
            "forwarded: the call ends with input_required, and the client's retry of it brings the answer",
        ),
        (["--server", "docs"], "Unanswered: the server gets error -1"),
        (["--server", "docs", "--tool", "a", "--tool", "summarize_b"], "Unanswered: the server gets error -1"),
        ([], "Unanswered: the server gets error -32602, whatever the rule says"),
        (["--era", "modern", "--tool", "a"], f"Unanswered: {ENDED}, whatever the rule says"),
        (["--era", "modern", "--method", "prompts/get"], "Unanswered: the client's call ends with error -1, whatever the rule says"),
        (
            ["--revision", "2026-07-28", "--server", "docs", "--tool", "summarize_a"],
            f"Answered: what main writes goes to the server in the gate's retry of the call; if it fails, {ENDED}",
        ),
    ],
)
def test_the_outcome_of_sampling(explain: Run, options: list[str], outcome: str) -> None:
    assert f"outcome   {outcome}" == explain(SAMPLING, *options).out.splitlines()[-1]


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        ({"confirm": "boolean"}, "Answered: accept with this content goes to the server as the reply to its request"),
        ({"password": "string"}, "Denied: the server gets decline"),
        ({"other": "string"}, "Unanswered: the server gets cancel"),
    ],
)
def test_the_outcome_of_a_form(explain: Run, monkeypatch: pytest.MonkeyPatch, fields: dict[str, str], outcome: str) -> None:
    monkeypatch.setenv("SAMPLEGATE_TEST", "true")
    assert f"outcome   {outcome}" == explain(form(**fields), "--server", "docs").out.splitlines()[-1]


def test_json_tells_the_same(explain: Run) -> None:
    told = json.loads(explain(SAMPLING, "--json", "--server", "docs", "--tool", "summarize_page").out)
    assert ("allow", "model", "rule", ["main"], True) == tuple(told[name] for name in ("effect", "rule", "reason", "models", "declared"))
    assert [False, False, True] == [rule["taken"] for rule in told["rules"]]


def test_a_dash_is_stdin(run: Run, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("p.yaml", POLICY)
    monkeypatch.setattr(sys, "stdin", io.StringIO(SAMPLING))
    assert "decision  none (no_rule)" in run("explain", "--policy", "p.yaml", "-").out


def test_white_space_does_not_count_for_the_size(run: Run, write: Write) -> None:
    write("p.yaml", "version: 1\nrules: [{name: small, match: {kind: sampling, size: {max: 33}}, effect: deny}]\n")
    write("r.json", json.dumps(json.loads(SAMPLING), indent=8))
    assert "decision  deny, by small" in run("explain", "--policy", "p.yaml", "r.json").out


def test_a_malformed_request_leaves_with_one(explain: Run) -> None:
    ended = explain('{"method": "sampling/createMessage", "params": {"messages": []}}')
    assert (1, "samplegate: r.json: malformed: maxTokens: must be a positive whole number; the server gets error -32602\n") == (ended.code, ended.err)


@pytest.mark.parametrize(
    ("request_text", "complaint"),
    [
        ("{", "r.json: is no JSON request"),
        ("[]", "r.json: has no method"),
        ('{"params": {}}', "r.json: has no method"),
        ('{"method": "a", "method": "b"}', "r.json: is no JSON request"),
        ("", "r.json: is no JSON request"),
    ],
)
def test_what_is_no_request_leaves_with_two(explain: Run, request_text: str, complaint: str) -> None:
    ended = explain(request_text)
    assert 2 == ended.code
    assert complaint in ended.err


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--client", "smpling"], "samplegate: --client: 'smpling' is not one of sampling, "),
        (["--revision", "2020-01-01"], "samplegate: --revision: '2020-01-01' is not one of 2024-11-05, "),
        (["--era", "modern", "--revision", "2025-06-18"], "samplegate: --era: modern does not have revision 2025-06-18"),
    ],
)
def test_a_scene_that_cannot_be_leaves_with_two(explain: Run, options: list[str], complaint: str) -> None:
    ended = explain(SAMPLING, *options)
    assert 2 == ended.code
    assert ended.err.startswith(complaint)


def test_a_policy_with_problems_leaves_with_one_and_tells_them(run: Run, write: Write) -> None:
    write("p.yaml", POLICY.replace("allow", "alow"))
    write("r.json", SAMPLING)
    ended = run("explain", "--policy", "p.yaml", "r.json")
    assert 1 == ended.code
    assert ended.err.startswith("p.yaml:6:")


def test_a_policy_that_is_not_there_leaves_with_two(run: Run, write: Write) -> None:
    write("r.json", SAMPLING)
    assert 2 == run("explain", "--policy", "p.yaml", "r.json").code
