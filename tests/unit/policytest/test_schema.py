"""The JSON Schema of the test file: it rejects what the loader rejects, as far as a schema can, and describes each
key."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from samplegate.policy.file.load import PolicyError
from samplegate.policytest.load import json_schema, load_cases
from samplegate.yamlfile.tree import compose, plain_value

EXPECT = "expect: {effect: none}"


def fits(text: str) -> bool:
    return jsonschema.Draft202012Validator(json_schema()).is_valid(plain_value(compose(text)[0]))


def loads(text: str) -> bool:
    try:
        return bool(load_cases(text, file="x").cases)
    except PolicyError:
        return False


@pytest.mark.parametrize(
    ("case", "good"),
    [
        (f"sampling: a, {EXPECT}", True),
        (f"sampling: {{text: a, hints: [b]}}, {EXPECT}", True),
        (f"elicitation: {{fields: {{a: string}}, required: []}}, {EXPECT}", True),
        (f"request: {{method: a}}, {EXPECT}", True),
        (f"steps: [{{sampling: a, {EXPECT}}}, {{elicitation: b, hold: true}}]", True),
        (f"sampling: a, start: '2026-01-01T00:00:00Z', steps: [{{{EXPECT}, repeat: 5, at: 1s}}]", True),
        (f"sampling: a, tool: t, call: c, hold: 5s, usage: {{input_tokens: 0}}, {EXPECT}", True),
        ("sampling: a", False),
        (EXPECT, False),
        (f"sampling: a, elicitation: b, {EXPECT}", False),
        (f"sampling: a, {EXPECT}, steps: [{{{EXPECT}}}]", False),
        (f"sampling: a, at: 1s, steps: [{{{EXPECT}}}]", False),
        (f"sampling: a, elicitation: b, steps: [{{{EXPECT}}}]", False),
        ("sampling: a, steps: []", False),
        (f"steps: [{{sampling: a, elicitation: b, {EXPECT}}}]", False),
        (f"sampling: a, steps: [{{repeat: 0, {EXPECT}}}]", False),
        (f"sampling: a, steps: [{{name: b, {EXPECT}}}]", False),
        (f"sampling: a, at: soon, {EXPECT}", False),
        (f"sampling: a, fails: badly, {EXPECT}", False),
        (f"sampling: a, server: null, {EXPECT}", False),
        (f"sampling: {{maxTokens: 5}}, {EXPECT}", False),
        (f"sampling: {{text: a, messages: []}}, {EXPECT}", False),
        (f"sampling: {{text: a, hints: [], modelPreferences: {{}}}}, {EXPECT}", False),
        (f"elicitation: {{url: 'a:b', fields: {{}}}}, {EXPECT}", False),
        ("sampling: a, expect: {effect: none, limits: {a: -1}}", False),
        ("sampling: a, expect: {effect: none, waits: 5}", False),
    ],
)
def test_it_takes_and_refuses_what_the_loader_does(case: str, good: bool) -> None:
    text = f"cases: [{{name: one, {case}}}]\n"
    assert (good, good) == (fits(text), loads(text))


def properties(schema: Any) -> list[tuple[str, Any]]:
    return [
        (f"{name}.{key}", value)
        for name, struct in schema["$defs"].items()
        for key, value in struct["properties"].items()
    ]


def test_every_key_has_its_sentence() -> None:
    assert [] == [name for name, value in properties(json_schema()) if not value.get("description")]


def test_no_key_may_be_null() -> None:
    assert "null" not in str(json_schema()).replace("null for a member that must be absent", "")
