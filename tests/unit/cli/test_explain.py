"""`samplegate explain`: the rule, the reasons, the outcome on the wire, and exit codes."""

from __future__ import annotations

import io
import json
import sys

import pytest

from tests.fakes.shell import Ended, Run, Write

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
MESSAGES = [{"role": "user", "content": {"type": "text", "text": "hi"}}]
SAMPLING = json.dumps(
    {"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage", "params": {"messages": MESSAGES, "maxTokens": 50}}
)
ENDED = "the client's call fails with an isError result"


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
    why = "the client did not declare the capability"
    told = [
        (
            "request   sampling/createMessage, server docs, caller local, during tools/call summarize_page, legacy"
            " (2025-11-25)"
        ),
        "rule      1 no   secrets       deny     kind: 'sampling' is not elicitation",
        f"rule      2 no   client first  forward  it matches but cannot be carried out: {why}; otherwise: next",
        "rule      3 used model         allow    model 'main': the only model in the policy's list",
        "decision  allow by rule 'model' (reason: rule)",
        'models    ["main"]',
        "maxTokens 10",
        'changed   ["maxTokens"]',
        "model     1 main  max 43 input and 10 output tokens, unknown price",
        "advertised yes",
        (
            "outcome   Answered: the answer from main goes to the server as the reply to its request; if the"
            " model fails, the"
            " server gets error -1"
        ),
    ]
    assert told == ended.out.splitlines()


@pytest.mark.parametrize(
    ("options", "outcome"),
    [
        (["--client", "sampling"], "Forwarded: the client gets the request, and its reply goes to the server"),
        (
            ["--client", "sampling", "--era", "modern", "--tool", "a"],
            "Forwarded: the call ends with input_required, and the client's retry brings the answer",
        ),
        (["--server", "docs"], "Unanswered: the server gets error -1"),
        (["--server", "docs", "--tool", "a", "--tool", "summarize_b"], "Unanswered: the server gets error -1"),
        ([], "Unanswered: the server gets error -32602"),
        (["--era", "modern", "--tool", "a"], f"Unanswered: {ENDED}"),
        (["--era", "modern", "--method", "prompts/get"], "Unanswered: the client's call fails with error -1"),
        (
            ["--revision", "2026-07-28", "--server", "docs", "--tool", "summarize_a"],
            (
                "Answered: the answer from main goes to the server in the gate's retry of the call; if the model"
                f" fails, {ENDED}"
            ),
        ),
    ],
)
def test_the_outcome_of_sampling(explain: Run, options: list[str], outcome: str) -> None:
    assert f"outcome   {outcome}" == explain(SAMPLING, *options).out.splitlines()[-1]


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        ({"confirm": "boolean"}, "Answered: the server gets accept with this content as the reply to its request"),
        ({"password": "string"}, "Denied: the server gets decline"),
        ({"other": "string"}, "Unanswered: the server gets cancel"),
    ],
)
def test_the_outcome_of_a_form(
    explain: Run, monkeypatch: pytest.MonkeyPatch, fields: dict[str, str], outcome: str
) -> None:
    monkeypatch.setenv("SAMPLEGATE_TEST", "true")
    assert f"outcome   {outcome}" == explain(form(**fields), "--server", "docs").out.splitlines()[-1]


def test_json_tells_the_same(explain: Run) -> None:
    told = json.loads(explain(SAMPLING, "--json", "--server", "docs", "--tool", "summarize_page").out)
    assert ("allow", "model", "rule", ["main"], True) == tuple(
        told[name] for name in ("effect", "rule", "reason", "models", "declared")
    )
    assert [False, False, True] == [rule["taken"] for rule in told["rules"]]


def test_a_dash_is_stdin(run: Run, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("p.yaml", POLICY)
    monkeypatch.setattr(sys, "stdin", io.StringIO(SAMPLING))
    assert "decision  none (reason: not_offered)" in run("explain", "--policy", "p.yaml", "-").out


def test_white_space_does_not_count_for_the_size(run: Run, write: Write) -> None:
    write("p.yaml", "version: 1\nrules: [{name: small, match: {kind: sampling, size: {max: 83}}, effect: deny}]\n")
    write("r.json", json.dumps(json.loads(SAMPLING), indent=8))
    assert "decision  deny by rule 'small'" in run("explain", "--policy", "p.yaml", "r.json").out


def test_a_malformed_request_leaves_with_one(explain: Run) -> None:
    ended = explain(
        '{"method": "sampling/createMessage", "params": {"messages": [{"role": "user", "content": {"type": "text",'
        ' "text": "hi"}}]}}'
    )
    assert (
        1,
        "samplegate: r.json: malformed: maxTokens: must be a positive whole number; the server gets error -32602\n",
    ) == (ended.code, ended.err)


@pytest.mark.parametrize(
    ("request_text", "complaint"),
    [
        ("{", "r.json: is not a JSON request"),
        ("[]", "r.json: has no method"),
        ('{"params": {}}', "r.json: has no method"),
        ('{"method": "a", "method": "b"}', "r.json: is not a JSON request"),
        ("", "r.json: is not a JSON request"),
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
        (
            ["--era", "modern", "--revision", "2025-06-18"],
            "samplegate: --era: revision 2025-06-18 is not modern",
        ),
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


SPENDING = """\
version: 1
models:
  - {name: smart, model: o/smart, intelligence: 0.9, price: {input: 3, output: 15}, margin: 1}
  - {name: cheap, model: o/cheap, intelligence: 0.5, price: {input: 0.25, output: 2}, margin: 1, accepts: [tools]}
  - {name: dark, model: o/dark, accepts: [tools]}
limits:
  day: {usd: 5, per: day, tz: UTC, by: [server, tool]}
  rate: {requests: 10, per: 1m}
  call: {output_tokens: 5000, per: call}
  slots: {concurrent: 2}
rules:
  - name: best
    match: {kind: sampling, server: docs}
    effect: allow
    with: {models: [smart, cheap], prefer: {cost: 0.4, intelligence: 0.6}, max_tokens: 100}
    limits: [day, rate, call, slots]
  - {name: tools, match: {kind: sampling, tools: true}, effect: allow, with: {models: [smart, cheap]}, limits: [rate]}
  - {name: unpriced, match: {kind: sampling, server: dark}, effect: allow, with: {models: [dark]}}
"""
HELLO = {"messages": [{"role": "user", "content": {"type": "text", "text": "x" * 68}}], "maxTokens": 1000}


def asked(**params: object) -> str:
    return json.dumps({"method": "sampling/createMessage", "params": {**HELLO, **params}})


@pytest.fixture
def spend(run: Run, write: Write) -> Run:
    write("p.yaml", SPENDING)

    def spend(request: str, *options: str) -> Ended:
        write("r.json", request)
        return run("explain", "--policy", "p.yaml", *options, "r.json")

    return spend


def test_the_models_their_scores_and_what_is_drawn_are_told(spend: Run) -> None:
    told = spend(asked(), "--server", "docs", "--tool", "sum").out.splitlines()
    assert [
        (
            "model     1 smart  max 100 input and 100 output tokens, $0.0018; score 0.60 (cost 0.00, speed 0.00,"
            " intelligence 1.00)"
        ),
        (
            "model     2 cheap  max 100 input and 100 output tokens, $0.00023; score 0.40 (cost 1.00, speed 0.00,"
            " intelligence 0.00)"
        ),
        "limit     day: $0.0018 of $5.00 per day (UTC), for docs, sum",
        "limit     rate: 1 of 10 requests per 1m",
        "limit     call: 100 of 5000 output tokens per call, for this call",
        "limit     slots: 1 of 2 at once",
    ] == [line for line in told if line.startswith(("model ", "limit "))]
    why = "score 0.60 by the rule's prefer (cost 0.4, intelligence 0.6), ahead of cheap with 0.40"
    assert f"rule      1 used best  allow  model 'smart': {why}" in told


@pytest.mark.parametrize(
    ("calls", "drawn"),
    [([], ["its session (no call is in flight)"]), (["--tool", "a", "--tool", "b"], ["call 1 of 2", "call 2 of 2"])],
    ids=["no call", "several calls"],
)
def test_whose_account_a_limit_per_call_is_drawn_on_is_told(spend: Run, calls: list[str], drawn: list[str]) -> None:
    told = spend(asked(), "--server", "docs", *calls).out.splitlines()
    assert [f"limit     call: 100 of 5000 output tokens per call, for {who}" for who in drawn] == [
        line for line in told if " call: " in line
    ]


def test_a_model_that_does_not_fit_is_told_with_why(spend: Run) -> None:
    tools = asked(tools=[{"name": "t", "inputSchema": {"type": "object"}}])
    told = spend(tools, "--server", "other").out.splitlines()
    assert "model     - smart  skipped: does not accept tools" in told
    assert "limit     rate: 1 of 10 requests per 1m" in told


def test_json_tells_what_is_spent_too(spend: Run) -> None:
    told = json.loads(spend(asked(), "--server", "docs", "--json").out)
    first, second = told["choice"]["models"]
    assert ("smart", {"input_tokens": 100, "output_tokens": 100, "usd": 0.0018}) == (first["name"], first["worst"])
    assert ("cheap", 0.4) == (second["name"], second["score"]["total"])
    assert {"limit": "day", "key": '["docs","none"]', "quantity": "usd", "amount": 0.0018, "of": 5.0} == told["draws"][
        0
    ]
    assert ["day", "rate", "call", "slots"] == [draw["limit"] for draw in told["draws"]]
    assert told["untold"] is None
    unpriced = json.loads(spend(asked(), "--server", "dark", "--json").out)
    assert ({}, None) == (unpriced["choice"]["unfit"], unpriced["choice"]["models"][0]["worst"]["usd"])
    denied = json.loads(spend(asked(), "--server", "nobody", "--json").out)
    assert (None, []) == (denied["choice"], denied["draws"])


def test_variables_come_from_an_env_file_and_the_environment_goes_first(
    run: Run, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("p.yaml", POLICY)
    write("r.json", form(confirm="boolean"))
    write("e.env", "SAMPLEGATE_TEST=true\n")
    ended = run("explain", "--policy", "p.yaml", "--env-file", "e.env", "--server", "docs", "r.json")
    assert 'content   {"confirm": true}' in ended.out.splitlines()
    monkeypatch.setenv("SAMPLEGATE_TEST", "false")
    assert (
        'content   {"confirm": false}'
        in run("explain", "--policy", "p.yaml", "--env-file", "e.env", "--server", "docs", "r.json").out.splitlines()
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("no variable", "e.env:1: the line is not a variable; write NAME=value"), (None, "e.env: cannot be read")],
)
def test_an_env_file_that_cannot_be_read_leaves_with_two(
    run: Run, write: Write, text: str | None, complaint: str
) -> None:
    write("p.yaml", POLICY)
    write("r.json", SAMPLING)
    if text is not None:
        write("e.env", text)
    for command in (
        ["explain", "--policy", "p.yaml", "--env-file", "e.env", "r.json"],
        ["check", "--env-file", "e.env", "p.yaml"],
    ):
        ended = run(*command)
        assert 2 == ended.code
        assert complaint in ended.err


@pytest.mark.parametrize(
    ("case", "outcome"),
    [
        ("{action: decline}", "Answered: the server gets decline as the reply to its request"),
        (
            "{action: accept, values: {confirm: true}}",
            "Answered: the server gets accept with this content as the reply to its request",
        ),
        ("{answer: hi}", "Unanswered: the server gets cancel"),
    ],
)
def test_the_outcome_of_a_rule_that_answers_from_a_file(run: Run, write: Write, case: str, outcome: str) -> None:
    write(
        "p.yaml", "version: 1\nrules: [{name: taped, match: {kind: elicitation}, effect: answer, cases: tape.yaml}]\n"
    )
    write("tape.yaml", f"cases: [{case}]\n")
    write("r.json", form(confirm="boolean"))
    assert f"outcome   {outcome}" == run("explain", "--policy", "p.yaml", "r.json").out.splitlines()[-1]


PEOPLE = """\
version: 1
models: [{name: main, model: scripted, cases: talk.yaml}, {name: plain, model: scripted, cases: talk.yaml, accepts: []}]
reviewers: {ops: {timeout: 10m}, desk: {late_verdict: 0s, approvals: 2}}
rules:
  - {name: by hand, match: {kind: sampling, content_types: [image]}, effect: escalate, reviewer: ops, with: {models: [plain]}}
  - name: asks
    match: {kind: sampling, tools: false}
    effect: escalate
    reviewer: ops
    with: {models: [main], max_tokens: 10}
    review_answer: desk
    on_timeout: deny
  - {name: seen, match: {kind: sampling}, effect: allow, review_answer: desk}
  - {name: forms, match: {kind: elicitation}, effect: escalate, reviewer: desk}
"""  # noqa: E501


@pytest.fixture
def escalated(run: Run, write: Write) -> Run:
    write("p.yaml", PEOPLE)
    write("talk.yaml", "cases: [{answer: hi}]\n")

    def explain(request: str, *options: str) -> Ended:
        write("r.json", request)
        return run("explain", "--policy", "p.yaml", *options, "r.json")

    return explain


def test_who_is_asked_for_how_long_and_what_a_model_would_be_is_told(escalated: Run) -> None:
    told = escalated(SAMPLING).out.splitlines()
    at = told.index("decision  escalate by rule 'asks' (reason: rule)")
    wire = (
        "after ops approves, the answer from main goes to the server as the reply to its request; ops may also answer"
        " directly"
    )
    assert [
        'models    ["main"]',
        "maxTokens 10",
        'changed   ["maxTokens"]',
        (
            "reviewer  ops reviews the request within 55s (the review itself expires after 10m); for 24h, a"
            " late decision answers the next identical request, once"
        ),
        "reviewer  desk reviews the answer with 2 approvals within 55s (the review itself expires after 15m)",
        "timeout   without a decision, the request is denied",
        "model     1 main  max 43 input and 10 output tokens, $0.00",
        "advertised yes",
        f"outcome   Escalated: {wire}; if rejected, the server gets error -1",
    ] == told[at + 1 :]


def test_a_form_that_a_person_fills_in_is_told_in_json_too(escalated: Run) -> None:
    told = json.loads(escalated(form(confirm="boolean"), "--tool", "x", "--era", "modern", "--json").out)
    asked = {"reviewer": "desk", "stage": "request", "timeout": 900.0, "waits": 550.0, "late_verdict": 0.0}
    asks = [{**asked, "approvals": 2}]
    assert {"asks": asks, "on_timeout": "unanswered"} == told["review"]
    assert (
        "escalated: the answer from desk goes to the server in the gate's retry of the call; if rejected, the server"
        " gets decline" == told["outcome"]
    )


def test_what_no_model_takes_is_told_to_be_a_persons_to_answer(escalated: Run) -> None:
    image = SAMPLING.replace(
        '{"type": "text", "text": "hi"}', '{"type": "image", "data": "aGk=", "mimeType": "image/png"}'
    )
    told = escalated(image).out
    assert (
        "because no model can answer (no model accepts images (plain: text only)); if rejected, the server gets"
        " error -1" in told
    )
    assert "reviewer  ops reviews" in told
    assert " output tokens, " not in told


def test_an_answer_that_is_looked_at_is_told(escalated: Run) -> None:
    request = SAMPLING.replace(
        '"maxTokens": 50', '"maxTokens": 50, "tools": [{"name": "t", "inputSchema": {"type": "object"}}]'
    )
    told = escalated(request, "--server", "db").out
    assert (
        "reviewer  desk reviews the answer with 2 approvals within 55s (the review itself expires after 15m)"
        in told.splitlines()
    )
    assert (
        "after desk approves, the answer from main goes to the server as the reply to its request; otherwise the"
        " server gets"
        " error -1" in told
    )


ARGUMENTS = """\
version: 1
rules:
  - {name: forced, match: {tool: t, arguments: {force: true}}, effect: deny}
  - {name: a, match: {kind: elicitation, tool: t, arguments: {path: {under: /srv}}}, effect: answer, content: {a: x}}
"""


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (['{"path": "/srv/x", "force": false}'], ["arguments.force: false is not true", "used"]),
        (['{"path": "/etc/x"}'], ["arguments.force: not set", "arguments.path: '/etc/x' is not under /srv"]),
        (['{"path": "/srv/../x"}'], ["arguments.force: not set", "arguments.path: '/srv/../x' is not under /srv"]),
        (['{"path": "/srv/x"}', '{"path": 5}'], ["not set", "5 is not under /srv (one of 2 calls in flight)"]),
        (['{"force": 1}'], ["used"]),
        (['{"path": "/etc/x", "path": "/srv/x"}'], ["used"]),
        ([], ["used"]),
    ],
)
def test_why_arguments_do_not_match_is_told(run: Run, write: Write, arguments: list[str], told: list[str]) -> None:
    """Without arguments they are unknown, and in doubt a deny matches."""
    write("p.yaml", ARGUMENTS)
    write("r.json", form(a="string"))
    options = [word for one in arguments for word in ("--arguments", one)]
    ended = run("explain", "--policy", "p.yaml", "--tool", "t", *options, "r.json")
    rules = [line for line in ended.out.splitlines() if line.startswith("rule ")]
    assert len(told) == len(rules)
    assert all(text in line for text, line in zip(told, rules, strict=True)), rules


@pytest.mark.parametrize(
    ("text", "why"), [("[1]", "is not a JSON object"), ("{", "is not JSON"), ("[" * 99_999, "is not JSON")]
)
def test_arguments_that_are_no_object_leave_with_two(
    run: Run, write: Write, capsys: pytest.CaptureFixture[str], text: str, why: str
) -> None:
    write("r.json", form(a="string"))
    with pytest.raises(SystemExit) as left:
        run("explain", "--arguments", text, "r.json")
    assert 2 == left.value.code
    assert why in capsys.readouterr().err


IDENTITY = """
version: 1
rules:
  - {name: contractors, match: {groups: contractors}, effect: deny}
  - {name: a, match: {kind: elicitation, groups: "ops-*", claims: {x.y: 5}}, effect: answer, content: {a: x}}
"""


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], ["groups: not set", "groups: not set"]),
        (["--groups", "ops-eu", "--claims", '{"x": {"y": 5}}'], ["does not include contractors", "used"]),
        (["--groups", "dev,ops-eu", "--claims", '{"x": {"y": [1, 5]}}'], ["does not include contractors", "used"]),
        (["--groups", "dev"], ["does not include contractors", "groups: ['dev'] does not include ops-*"]),
        (["--groups", "ops-eu"], ["does not include contractors", "claims.x.y: not set"]),
        (["--groups", "", "--claims", "{}"], ["groups: not set", "groups: not set"]),
        (["--groups", "ops-eu", "--claims", '{"x": {"y": 6}}'], ["does not include", "claims.x.y: 6 is not 5"]),
        (["--groups", "ops-eu", "--claims", '{"x": {"y": "5"}}'], ["does not include", "claims.x.y: '5' is not 5"]),
        (["--groups", "ops-eu", "--claims", '{"x": {"y": 5}, "x": 1}'], ["does not include", "unknown or ambiguous"]),
        (["--caller", "jwt:ann"], ["used"]),
        (["--caller", "jwt:ann", "--groups", "ops-eu"], ["does not include", "unknown or ambiguous"]),
        (["--groups", "contractors"], ["used"]),
    ],
)
def test_why_groups_and_claims_do_not_match_is_told(
    run: Run, write: Write, options: list[str], told: list[str]
) -> None:
    """Those of the local caller are none, and those of others are unknown unless they are given."""
    write("p.yaml", IDENTITY)
    write("r.json", form(a="string"))
    ended = run("explain", "--policy", "p.yaml", *options, "r.json")
    rules = [line for line in ended.out.splitlines() if line.startswith("rule ")]
    assert len(told) == len(rules)
    assert all(text in line for text, line in zip(told, rules, strict=True)), rules
