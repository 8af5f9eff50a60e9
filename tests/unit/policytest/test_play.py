"""Policy test cases: the meaning of the short forms of a request, what is compared, and the report of a difference."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.policy.file.load import load
from samplegate.policytest.compare import CaseResult, Mismatch, same
from samplegate.policytest.load import load_cases
from samplegate.policytest.play import run
from samplegate.policytest.suite import wire

POLICY = """\
version: 1
models: [{name: main, model: openai/none}]
rules:
  - {name: model, match: {kind: sampling}, effect: allow, with: {max_tokens: 10}}
  - {name: fixed, match: {kind: elicitation, mode: form, server: db}, effect: answer, content: {count: 1, confirm: true, who: "${WHO}"}}
  - {name: links, match: {mode: url, host: id.example}, effect: escalate, reviewer: ops}
  - {name: people, match: {kind: elicitation, mode: form, server: people}, effect: escalate, reviewer: ops}
  - {name: refused, effect: deny, as: decline}
reviewers: {ops: {}}
"""  # noqa: E501


def trials(cases: str) -> list[CaseResult]:
    policy = load(POLICY, file="p.yaml", environment={}).policy
    return list(run(load_cases(f"cases:\n{cases}", file="p_test.yaml").cases, policy))


def mismatches(case: str) -> tuple[Mismatch, ...]:
    (trial,) = trials(f"  - {{name: one, {case}}}\n")
    return trial.mismatches


def asked(case: str) -> tuple[str, Any]:
    (placed,) = load_cases(f"cases:\n  - {{name: one, expect: {{effect: none}}, {case}}}\n", file="p_test.yaml").cases
    return wire(placed.case)


def user_messages(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": {"type": "text", "text": text}}]


@pytest.mark.parametrize(
    ("short", "params"),
    [
        ("sampling: hi", {"messages": user_messages("hi"), "maxTokens": 1000}),
        (
            "sampling: {text: hi, maxTokens: 5, systemPrompt: s}",
            {"messages": user_messages("hi"), "maxTokens": 5, "systemPrompt": "s"},
        ),
        (
            "sampling: {text: hi, hints: [a, b]}",
            {
                "messages": user_messages("hi"),
                "maxTokens": 1000,
                "modelPreferences": {"hints": [{"name": "a"}, {"name": "b"}]},
            },
        ),
        ("sampling: {messages: [], temperature: 0}", {"messages": [], "maxTokens": 1000, "temperature": 0}),
        (
            "sampling: {text: hi, stopSequences: [a], includeContext: none}",
            {"messages": user_messages("hi"), "maxTokens": 1000, "stopSequences": ["a"], "includeContext": "none"},
        ),
    ],
)
def test_sampling_in_short(short: str, params: dict[str, Any]) -> None:
    assert ("sampling/createMessage", params) == asked(short)


@pytest.mark.parametrize(
    ("short", "params"),
    [
        (
            "elicitation: Sure?",
            {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}, "required": []}},
        ),
        (
            "elicitation: {message: m, fields: {a: boolean, b: {type: string, maxLength: 3}}}",
            {
                "message": "m",
                "requestedSchema": {
                    "type": "object",
                    "properties": {"a": {"type": "boolean"}, "b": {"type": "string", "maxLength": 3}},
                    "required": ["a", "b"],
                },
            },
        ),
        (
            "elicitation: {message: m, fields: {a: boolean}, required: []}",
            {
                "message": "m",
                "requestedSchema": {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": []},
            },
        ),
        (
            "elicitation: {message: m, url: 'https://a.example/'}",
            {"mode": "url", "message": "m", "url": "https://a.example/", "elicitationId": "case"},
        ),
    ],
)
def test_an_elicitation_in_short(short: str, params: dict[str, Any]) -> None:
    assert ("elicitation/create", params) == asked(short)


def test_a_request_is_put_as_it_stands() -> None:
    assert ("roots/list", {"a": [1, None]}) == asked(
        "request: {jsonrpc: '2.0', id: 1, method: roots/list, params: {a: [1, null]}}"
    )


@pytest.mark.parametrize(
    "case",
    [
        "sampling: hi, expect: {effect: allow}",
        (
            "sampling: hi, expect: {effect: allow, rule: model, reason: rule, model: main, models: [main], max_tokens:"
            " 10, shadows: []}"
        ),
        "sampling: hi, expect: {effect: allow, params: {maxTokens: 10, temperature: null}}",
        "server: db, elicitation: {fields: {count: integer}}, expect: {effect: answer, content: {count: 1}}",
        (
            "server: db, environment: {WHO: me}, elicitation: {fields: {who: string}}, expect: {effect: answer,"
            " content: {who: me}}"
        ),
        "elicitation: {fields: {}}, expect: {effect: deny, as: decline}",
        "elicitation: {url: 'https://a.example/'}, expect: {effect: none, reason: no_rule}",
        "sampling: {text: hi, maxTokens: 0}, expect: {effect: none, reason: malformed}",
    ],
)
def test_what_is_as_expected_passes(case: str) -> None:
    assert () == mismatches(case)


@pytest.mark.parametrize(
    ("case", "mismatch"),
    [
        ("sampling: hi, expect: {effect: deny}", Mismatch("effect", "deny", "allow")),
        ("sampling: hi, expect: {effect: allow, rule: other}", Mismatch("rule", "other", "model")),
        ("sampling: hi, expect: {effect: allow, model: other}", Mismatch("model", "other", "main")),
        (
            "sampling: hi, expect: {effect: allow, models: [main, other]}",
            Mismatch("models", ["main", "other"], ["main"]),
        ),
        ("sampling: hi, expect: {effect: allow, max_tokens: 11}", Mismatch("max_tokens", 11, 10)),
        ("sampling: hi, expect: {effect: allow, params: {temperature: 1}}", Mismatch("params.temperature", 1, None)),
        ("sampling: hi, expect: {effect: allow, shadows: [x]}", Mismatch("shadows", ["x"], [])),
        ("sampling: hi, expect: {effect: allow, content: text}", Mismatch("content", "text", None)),
        ("elicitation: {fields: {}}, expect: {effect: deny, as: cancel}", Mismatch("as", "cancel", "decline")),
        ("elicitation: {fields: {}}, expect: {effect: deny, reason: cannot}", Mismatch("reason", "cannot", "rule")),
        (
            "server: db, elicitation: {fields: {confirm: boolean}}, expect: {effect: answer, content: {confirm: 1}}",
            Mismatch("content", {"confirm": 1}, {"confirm": True}),
        ),
        ("sampling: {text: hi, maxTokens: 0}, expect: {effect: none, rule: model}", Mismatch("rule", "model", None)),
    ],
)
def test_what_is_not_is_told(case: str, mismatch: Mismatch) -> None:
    assert (mismatch,) == mismatches(case)


def test_everything_that_differs_is_told() -> None:
    assert ["effect", "rule", "as"] == [
        m.what for m in mismatches("sampling: hi, expect: {effect: deny, rule: refused, as: decline}")
    ]


def test_a_trial_brings_the_rules_that_were_looked_at() -> None:
    (trial,) = trials("  - {name: one, elicitation: {fields: {}}, expect: {effect: deny}}\n")
    looked_at = [("model", False), ("fixed", False), ("links", False), ("people", False), ("refused", True)]
    assert looked_at == [(step.rule, step.taken) for step in trial.outcome.steps]


def test_of_a_malformed_request_it_brings_the_fault() -> None:
    (trial,) = trials("  - {name: one, sampling: {text: hi, maxTokens: 0}, expect: {effect: none}}\n")
    assert ((), "maxTokens: must be a positive whole number") == (trial.outcome.steps, trial.outcome.decision.detail)


def test_each_case_has_its_own_environment() -> None:
    case = (
        "server: db, elicitation: {fields: {who: string}}, environment: {WHO: %s}, expect: {effect: answer, content:"
        " {who: %s}}"
    )
    both = trials(f"  - {{name: one, {case % ('a', 'a')}}}\n  - {{name: two, {case % ('b', 'b')}}}\n")
    assert [(), ()] == [trial.mismatches for trial in both]


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        ("1", 1, False),
        ([1], [True], False),
        ({"a": [1]}, {"a": [1.0]}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        (None, None, True),
        ([1, 2], [1], False),
    ],
)
def test_values_are_compared_as_json(one: object, other: object, equal: bool) -> None:
    assert equal is same(one, other)


WORDS = st.sampled_from(
    ["type", "role", "content", "text", "enum", "default", "properties", "user", "string", "boolean", "${WHO}", ""]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)
OBJECT = st.dictionaries(
    WORDS | st.sampled_from(["messages", "maxTokens", "message", "requestedSchema", "mode", "url"]), JSON, max_size=4
)
METHODS = st.sampled_from(["sampling/createMessage", "elicitation/create"])
ASKED = st.one_of(
    st.fixed_dictionaries({"request": st.fixed_dictionaries({"method": METHODS, "params": OBJECT})}),
    st.fixed_dictionaries(
        {"sampling": st.fixed_dictionaries({"messages": st.lists(OBJECT, max_size=3), "maxTokens": JSON})}
    ),
    st.fixed_dictionaries(
        {"elicitation": st.fixed_dictionaries({"fields": st.dictionaries(WORDS, OBJECT, max_size=3)})}
    ),
)


@given(ASKED, st.sampled_from(["default", "db"]), JSON)
def test_whatever_a_case_asks_it_comes_to_an_end(asked: dict[str, Any], server: str, content: Any) -> None:
    case = {"name": "one", "server": server, "expect": {"effect": "none", "content": content}, **asked}
    assert 1 == len(trials("  - " + json.dumps(case)))


LIMITED = """\
version: 1
models: [{name: main, model: openai/none, max_tokens: 100, price: {input: 1, output: 1}}, {name: unknown, model: openai/none}]
limits:
  rate: {requests: 2, per: 1m, by: [server]}
  money: {usd: 1, per: day, tz: UTC}
  open: {concurrent: 1}
rules:
  - {name: free, match: {kind: sampling, server: free}, effect: allow, with: {models: [main]}}
  - {name: priceless, match: {kind: sampling, server: priceless}, effect: allow, with: {models: [unknown]}, limits: [money]}
  - {name: limited, match: {kind: sampling}, effect: allow, with: {models: [main]}, limits: [rate, money, open], on_limit: wait}
"""  # noqa: E501


def sequence(steps: str, scene: str = "sampling: hi") -> CaseResult:
    compiled = load(LIMITED, file="p.yaml", environment={}).policy
    (trial,) = run(
        load_cases(f"cases:\n  - name: one\n    {scene}\n    steps: [{steps}]\n", file="p_test.yaml").cases, compiled
    )
    return trial


@pytest.mark.parametrize(
    ("steps", "mismatch"),
    [
        ("{expect: {effect: deny}}", Mismatch("effect", "deny", "allow", "steps.0, line 4")),
        ("{}, {expect: {effect: allow, limits: {rate: 1}}}", Mismatch("limits.rate", 1, 2, "steps.1, line 4")),
        (
            "{expect: {effect: allow, limits: {rates: 1}}}",
            Mismatch("limits.rates", 1, "the policy has no such limit", "steps.0, line 4"),
        ),
        (
            "{repeat: 4, expect: {effect: allow}}",
            Mismatch("effect", "allow", "none", "steps.0, line 4, request 3 of 4"),
        ),
        (
            "{repeat: 2, expect: {effect: allow, limits: {rate: 1}}}",
            Mismatch("limits.rate", 1, 2, "steps.0, line 4, request 2 of 2"),
        ),
        ("{repeat: 2}, {expect: {effect: none, waits: 29s}}", Mismatch("waits", "29s", "30s", "steps.1, line 4")),
        ("{expect: {effect: allow, waits: 1s}}", Mismatch("waits", "1s", None, "steps.0, line 4")),
        ("{repeat: 2}, {expect: {effect: none, limit: money}}", Mismatch("limit", "money", "rate", "steps.1, line 4")),
        ("{expect: {effect: allow, limit: rate}}", Mismatch("limit", "rate", None, "steps.0, line 4")),
        (
            "{}, {at: 6s, expect: {effect: allow, limits: {rate: 2}}}",
            Mismatch("limits.rate", 2, 1.8, "steps.1, line 4"),
        ),
        ("{at: 3s, expect: {effect: allow, limits: {rate: 0.9}}}", Mismatch("limits.rate", 0.9, 1, "steps.0, line 4")),
        (
            "{server: priceless, expect: {effect: none, reason: limit, cost: 0}}",
            Mismatch("cost", 0, None, "steps.0, line 4"),
        ),
    ],
)
def test_what_differs_in_a_sequence_is_told_with_its_place(steps: str, mismatch: Mismatch) -> None:
    assert (mismatch,) == sequence(steps).mismatches


@pytest.mark.parametrize(
    "steps",
    [
        "{server: priceless, expect: {effect: none, rule: priceless, reason: limit, limits: {money: 0}}}",
        "{server: free, usage: {output_tokens: 7}, repeat: 50, expect: {effect: allow, limits: {money: 0, open: 0}}}",
        (
            "{sampling: {text: a, maxTokens: 0}, repeat: 5, expect: {effect: none, reason: malformed, limits: {rate:"
            " 0}}}, {expect: {effect: allow}}"
        ),
        "{repeat: 2}, {at: 29s, expect: {effect: none, waits: 1s}}, {at: 30001ms, expect: {effect: allow}}",
        "{hold: true}, {expect: {effect: none, limit: open}}, {at: 24h, expect: {effect: none, limit: open}}",
        "{hold: 1s, expect: {effect: allow, limits: {open: 1}}}, {at: 1s, expect: {effect: allow, limits: {open: 0}}}",
        "{hold: false, expect: {effect: allow, limits: {open: 0}}}",
        "{fails: unknown_model, expect: {effect: allow, limits: {money: 0, rate: 1}}}",
        "{fails: crashed, expect: {effect: allow, limits: {money: 0.0001}}}",
        "{expect: {effect: allow, cost: 0.0001}}",
    ],
)
def test_a_sequence_passes(steps: str) -> None:
    assert () == sequence(steps).mismatches


def test_another_price_is_told_in_dollars() -> None:
    (mismatch,) = sequence("{expect: {effect: allow, cost: 0.5}}").mismatches
    assert ("cost", 0.5) == (mismatch.what, mismatch.expected)
    assert 0.0001 < mismatch.got < 0.001  # 100 tokens of output and some of input, at a millionth each


def test_the_first_step_that_is_not_as_expected_brings_its_rules_and_its_reason() -> None:
    trial = sequence("{repeat: 2}, {expect: {effect: allow}}, {server: free, expect: {effect: deny}}")
    assert ["effect", "effect"] == [mismatch.what for mismatch in trial.mismatches]
    assert [("free", False), ("priceless", False), ("limited", True)] == [
        (step.rule, step.taken) for step in trial.outcome.steps
    ]
    assert "limit rate" in trial.outcome.decision.detail
    assert trial.outcome.steps[-1].why.endswith("on_limit: wait")


def test_a_case_has_a_start_of_its_own() -> None:
    late = 'sampling: hi\n    start: "2026-12-31T23:59:59Z"'
    steps = (
        "{expect: {effect: allow, limits: {money: 0.0001}}}, {at: 1s, expect: {effect: allow, limits: {money: 0.0001}}}"
    )
    assert () == sequence(steps, late).mismatches
    assert ["limits.money"] == [mismatch.what for mismatch in sequence(steps).mismatches]


def test_an_environment_of_a_step_is_its_own() -> None:
    compiled = load(POLICY, file="p.yaml", environment={}).policy
    step = "{environment: {WHO: %s}, expect: {effect: answer, content: {who: %s}}}"
    case = (
        f"  - {{name: one, server: db, elicitation: {{fields: {{who: string}}}}, steps: [{step % ('a', 'a')},"
        f" {step % ('b', 'b')}]}}"
    )
    (trial,) = run(load_cases(f"cases:\n{case}\n", file="p_test.yaml").cases, compiled)
    assert () == trial.mismatches


PEOPLE = "server: people, elicitation: {fields: {count: {type: integer, maximum: 9}}}"


@pytest.mark.parametrize(
    ("case", "expected", "why"),
    [
        (
            f"{PEOPLE}, verdict: approve",
            "approve",
            "verdict: must be answer or reject, because forms and URLs are answered, not approved",
        ),
        (f"{PEOPLE}, verdict: {{answer: {{count: 10}}}}", {"answer": {"count": 10}}, "content.count: "),
        (f"{PEOPLE}, verdict: accept", "accept", "content.count: "),
        (
            f"{PEOPLE}, verdict: {{edits: {{maxTokens: 5}}}}",
            {"edits": {"maxTokens": 5}},
            "verdict: must be answer or reject",
        ),
        (
            "elicitation: {url: 'https://id.example/'}, verdict: {answer: {a: 1}}",
            {"answer": {"a": 1}},
            "content: is not allowed with an accepted URL",
        ),
        ("sampling: hi, verdict: approve", "approve", "no review (effect: allow)"),
        (
            "sampling: {text: hi, maxTokens: 0}, verdict: approve",
            "approve",
            "no review (effect: none)",
        ),
    ],
)
def test_a_verdict_that_nobody_could_give_fails_the_case(case: str, expected: Any, why: str) -> None:
    (trial,) = trials(f"  - {{name: one, {case}, expect: {{effect: escalate}}}}\n")
    (mismatch,) = [mismatch for mismatch in trial.mismatches if mismatch.what == "verdict"]
    assert expected == mismatch.expected
    assert why in mismatch.got


def test_without_a_verdict_the_case_ends_with_the_question() -> None:
    assert () == mismatches(f"{PEOPLE}, expect: {{effect: escalate, rule: people, reviewer: ops}}")
    assert (Mismatch("outcome", "answered", None),) == mismatches(
        f"{PEOPLE}, expect: {{effect: escalate, outcome: answered}}"
    )


def test_what_is_told_of_a_case_says_what_the_person_did() -> None:
    (trial,) = trials(f"  - {{name: one, {PEOPLE}, verdict: none, expect: {{effect: deny}}}}\n")
    assert (
        "reviewer 'ops'; reviewer ops did not decide within 15m; on_timeout: unanswered" == trial.outcome.steps[-1].why
    )


TOOLS = "sampling: {text: hi, tools: [{name: t, inputSchema: {type: object}}], toolChoice: {mode: required}}"
SEEN = """\
version: 1
models: [{name: main, model: openai/none, max_tokens: 100, accepts: [tools]}, {name: spare, model: openai/none}]
limits: {tries: {requests: 9, per: 1h, by: [rule]}}
reviewers: {ops: {}}
rules:
  - {name: seen, match: {kind: sampling, server: people}, effect: escalate, reviewer: ops, with: {models: [main, spare]}}
  - {name: first, match: {kind: sampling}, effect: allow, with: {models: [main, spare]}, on_timeout: next, limits: [tries]}
  - {name: then, match: {kind: sampling}, effect: deny}
"""  # noqa: E501


@pytest.mark.parametrize(
    ("case", "outcome"),
    [
        ("sampling: hi, verdict: approve", "answered"),
        ("sampling: hi, verdict: approve, usage: {output_tokens: 125}", "answered"),
        ("sampling: hi, verdict: approve, usage: {output_tokens: 126}", "unanswered"),
        ("sampling: hi, verdict: approve, fails: unreachable", "unanswered"),
        (f"{TOOLS}, verdict: approve", "answered"),
    ],
)
def test_what_a_person_approves_is_answered_where_the_gate_takes_the_answer(case: str, outcome: str) -> None:
    (trial,) = seen(f"{case}, server: people, expect: {{effect: escalate, reason: rule, outcome: {outcome}}}")
    assert () == trial.mismatches


def test_a_model_that_took_too_long_is_followed_as_the_rule_says() -> None:
    (trial,) = seen("sampling: hi, fails: timeout, expect: {effect: deny, rule: then, limits: {tries: 0}}")
    assert () == trial.mismatches
    assert [("seen", False), ("first", True), ("then", True)] == [
        (step.rule, step.taken) for step in trial.outcome.steps
    ]
    assert trial.outcome.steps[1].why.endswith("; the model timed out; on_timeout: next")


def test_no_other_model_stands_in_for_one_that_fails() -> None:
    (trial,) = seen(
        "sampling: hi, fails: error, expect: {effect: allow, rule: first, model: main, models: [main, spare]}"
    )
    assert () == trial.mismatches


def seen(case: str) -> list[CaseResult]:
    policy = load(SEEN, file="p.yaml", environment={}).policy
    return run(load_cases(f"cases:\n  - {{name: one, {case}}}\n", file="p_test.yaml").cases, policy)
