"""Parsing a server's params: a checked request, or what is wrong with them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.protocol import frames
from samplegate.protocol.requests import (
    ELICITATION,
    SAMPLING,
    BadRequest,
    ElicitationRequest,
    Origin,
    SamplingRequest,
    parse,
)

REVISIONS = [*frames.LEGACY, *frames.MODERN]
TEXT = {"type": "text", "text": "hello"}
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": TEXT}], "maxTokens": 100}
FORM = {
    "message": "sure?",
    "requestedSchema": {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]},
}
URL = {"message": "go there", "mode": "url", "url": "https://example.com/x", "elicitationId": "e1"}
USE = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
RESULT = {"type": "tool_result", "toolUseId": "t1", "content": [TEXT]}


def origin(revision: str = "2025-11-25") -> Origin:
    return Origin("srv", "local", frames.era_of(revision), revision)


def read(method: str, params: Any, revision: str = "2025-11-25") -> Any:
    return parse(method, json.dumps(params).encode(), origin(revision))


def talk(*messages: tuple[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": content} for role, content in messages], "maxTokens": 9}


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_plain_sampling_request_is_taken_in_every_revision(revision: str) -> None:
    raw = json.dumps(ASK).encode()
    assert SamplingRequest(origin(revision), ASK, len(raw)) == parse(SAMPLING, raw, origin(revision))


@pytest.mark.parametrize("revision", REVISIONS)
def test_an_elicitation_without_a_mode_is_a_form(revision: str) -> None:
    raw = json.dumps(FORM).encode()
    assert ElicitationRequest(origin(revision), FORM, len(raw), "form") == parse(ELICITATION, raw, origin(revision))


def test_every_member_the_specification_has_is_taken() -> None:
    full = {
        **ASK,
        "systemPrompt": "be brief",
        "includeContext": "thisServer",
        "temperature": 0.5,
        "stopSequences": ["\n"],
        "metadata": {"x": [1]},
        "modelPreferences": {
            "hints": [{"name": "claude"}, {}, {"name": ""}],
            "costPriority": 1,
            "speedPriority": 0.0,
            "intelligencePriority": 7,
        },
        "tools": [{"name": "look", "inputSchema": {"$ref": "https://example.com/s"}}],
        "toolChoice": {"mode": "required"},
        "task": {"ttl": 1},
        "_meta": {"progressToken": 3},
        "vendor/extra": {"kept": True},
    }
    assert full == read(SAMPLING, full).params


def test_five_point_zero_tokens_are_five() -> None:
    tokens = read(SAMPLING, {**ASK, "maxTokens": 5.0}).params["maxTokens"]
    assert (5, int) == (tokens, type(tokens))


def test_a_null_where_nothing_is_needed_counts_as_absent() -> None:
    nulls = {
        "systemPrompt": None,
        "temperature": None,
        "stopSequences": None,
        "modelPreferences": {"hints": None},
        "tools": None,
        "_meta": None,
    }
    assert {**ASK, "modelPreferences": {}} == read(SAMPLING, {**ASK, **nulls}).params


SAMPLING_FAULTS: list[tuple[Any, str]] = [
    ([], "params: must be an object"),
    ({}, "messages: must be a list"),
    ({**ASK, "messages": {}}, "messages: must be a list"),
    ({**ASK, "messages": [ASK["messages"]] * 10_001}, "messages: has more than 10000 items"),
    ({**ASK, "messages": ["hello"]}, "messages.0: must be an object"),
    (talk(("system", TEXT)), "messages.0.role: must be user or assistant"),
    (talk((["user"], TEXT)), "messages.0.role: must be user or assistant"),  # type: ignore[arg-type]
    (talk(("user", "hello")), "messages.0.content: must be a content block"),
    (talk(("user", {"type": ["text"]})), "messages.0.content.type: is not a content type of 2025-11-25"),
    (talk(("user", {"type": "video"})), "messages.0.content.type: is not a content type of 2025-11-25"),
    (talk(("user", {"type": "text"})), "messages.0.content.text: must be a string"),
    (talk(("user", [TEXT, {"type": "image", "data": 7}])), "messages.0.content.1.data: must be a string"),
    (talk(("user", {**TEXT, "annotations": 1})), "messages.0.content.annotations: must be an object"),
    ({**ASK, "maxTokens": None}, "maxTokens: must be a positive whole number"),
    ({**ASK, "maxTokens": True}, "maxTokens: must be a positive whole number"),
    ({**ASK, "maxTokens": 0}, "maxTokens: must be a positive whole number"),
    ({**ASK, "maxTokens": 1.5}, "maxTokens: must be a positive whole number"),
    ({**ASK, "maxTokens": "9"}, "maxTokens: must be a positive whole number"),
    ({**ASK, "maxTokens": 1e300}, "maxTokens: must be a positive whole number"),
    ({**ASK, "systemPrompt": 1}, "systemPrompt: must be a string"),
    ({**ASK, "temperature": True}, "temperature: must be a number"),
    ({**ASK, "stopSequences": "x"}, "stopSequences: must be a list"),
    ({**ASK, "stopSequences": [1]}, "stopSequences.0: must be a string"),
    ({**ASK, "stopSequences": ["x"] * 1001}, "stopSequences: has more than 1000 items"),
    ({**ASK, "metadata": "x"}, "metadata: must be an object"),
    ({**ASK, "modelPreferences": []}, "modelPreferences: must be an object"),
    ({**ASK, "modelPreferences": {"hints": ["claude"]}}, "modelPreferences.hints.0: must be an object"),
    ({**ASK, "modelPreferences": {"hints": [{"name": 4}]}}, "modelPreferences.hints.0.name: must be a string"),
    ({**ASK, "modelPreferences": {"speedPriority": False}}, "modelPreferences.speedPriority: must be a number"),
    ({**ASK, "tools": ["look"]}, "tools.0: must be an object"),
    ({**ASK, "tools": [{"name": "look"}]}, "tools.0.inputSchema: must be an object"),
    ({**ASK, "toolChoice": {"mode": "any"}}, "toolChoice.mode: must be auto, required or none"),
    ({**ASK, "_meta": 1}, "_meta: must be an object"),
]


@pytest.mark.parametrize(("params", "fault"), SAMPLING_FAULTS, ids=lambda x: x[:60] if isinstance(x, str) else "")
def test_a_malformed_sampling_request_is_refused_at_its_place(params: Any, fault: str) -> None:
    assert BadRequest(-32602, fault) == read(SAMPLING, params)


BALANCED = [
    talk(("user", TEXT), ("assistant", [TEXT, USE]), ("user", [RESULT])),
    talk(("assistant", USE), ("user", RESULT), ("assistant", TEXT)),
    talk(
        ("assistant", [USE, {**USE, "id": "t2"}]),
        ("user", [{**RESULT, "toolUseId": "t2", "content": []}, {**RESULT, "isError": True}]),
    ),
    talk(
        ("assistant", USE),
        (
            "user",
            {**RESULT, "content": [{"type": "resource_link", "uri": "x:y", "name": "n"}], "structuredContent": {}},
        ),
    ),
]
UNBALANCED = [
    (talk(("assistant", USE)), "messages.0: has a tool use without a matching tool result"),
    (talk(("assistant", USE), ("user", TEXT)), "messages.1: tool results do not match the preceding tool uses"),
    (talk(("user", RESULT)), "messages.0: tool results do not match the preceding tool uses"),
    (talk(("assistant", USE), ("user", [RESULT, TEXT])), "messages.1: mixes tool results with other content"),
    (
        talk(("assistant", USE), ("user", [RESULT, RESULT])),
        "messages.1: tool results do not match the preceding tool uses",
    ),
    (
        talk(("assistant", USE), ("user", {**RESULT, "toolUseId": "t9"})),
        "messages.1: tool results do not match the preceding tool uses",
    ),
    (talk(("assistant", USE), ("assistant", RESULT)), "messages.1: has a tool result, but its role is not user"),
    (talk(("user", USE)), "messages.0: has a tool use, but its role is not assistant"),
    (talk(("assistant", [USE, USE])), "messages.0: two tool uses have the same id"),
    (talk(("assistant", {**USE, "input": []})), "messages.0.content.input: must be an object"),
    (talk(("assistant", USE), ("user", {**RESULT, "content": TEXT})), "messages.1.content.content: must be a list"),
    (
        talk(("assistant", USE), ("user", {**RESULT, "content": [{}]})),
        "messages.1.content.content.0: must be a content block",
    ),
]


@pytest.mark.parametrize("params", BALANCED)
def test_balanced_tool_results_are_taken(params: Any) -> None:
    assert params == read(SAMPLING, params).params


@pytest.mark.parametrize(("params", "fault"), UNBALANCED, ids=[fault for _, fault in UNBALANCED])
def test_unbalanced_tool_results_are_refused(params: Any, fault: str) -> None:
    assert BadRequest(-32602, fault) == read(SAMPLING, params)


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize(
    ("content", "since"),
    [
        ({"type": "audio", "data": "", "mimeType": "audio/wav"}, "2025-03-26"),
        ([TEXT], "2025-11-25"),
        ([], "2025-11-25"),
    ],
    ids=["audio", "list", "empty list"],
)
def test_content_is_taken_from_the_revision_that_brought_it(revision: str, content: Any, since: str) -> None:
    assert (revision >= since) == isinstance(read(SAMPLING, talk(("user", content)), revision), SamplingRequest)


def test_structured_content_may_be_anything_only_in_the_modern_era() -> None:
    asked = talk(("assistant", USE), ("user", {**RESULT, "structuredContent": [1]}))
    assert BadRequest(-32602, "messages.1.content.structuredContent: must be an object") == read(SAMPLING, asked)
    assert isinstance(read(SAMPLING, asked, "2026-07-28"), SamplingRequest)


HARMLESS_SCHEMAS: list[Any] = [
    {},
    {"$ref": "https://example.com/schema"},
    {
        "type": "object",
        "properties": {"a": {"type": "object", "properties": {"b": {"$ref": "#/$defs/x"}}}},
        "$defs": {"x": True},
    },
    {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "b": True}},
]


@pytest.mark.parametrize("schema", HARMLESS_SCHEMAS)
def test_a_schema_that_is_not_flat_is_kept_as_it_is(schema: Any) -> None:
    assert schema == read(ELICITATION, {"message": "m", "requestedSchema": schema}).params["requestedSchema"]


ELICITATION_FAULTS: list[tuple[Any, str]] = [
    ({**FORM, "message": 1}, "message: must be a string"),
    ({"message": "m"}, "requestedSchema: must be an object"),
    ({**FORM, "requestedSchema": True}, "requestedSchema: must be an object"),
    ({**FORM, "requestedSchema": {"properties": []}}, "requestedSchema.properties: must be an object"),
    ({**FORM, "requestedSchema": {"required": "ok"}}, "requestedSchema.required: must be a list"),
    ({**FORM, "requestedSchema": {"required": [1]}}, "requestedSchema.required: must be a list of strings"),
    (
        {**FORM, "requestedSchema": {"properties": {str(n): {} for n in range(10_000)}}},
        "requestedSchema.properties: has more than 1000 properties",
    ),
    ({**FORM, "mode": "voice"}, "mode: is not a mode of 2025-11-25"),
    ({**FORM, "mode": None}, "mode: is not a mode of 2025-11-25"),
    ({**FORM, "mode": ["form"]}, "mode: is not a mode of 2025-11-25"),
    ({**URL, "url": None}, "url: must be a string"),
    ({**URL, "url": "https://"}, "url: has no host"),
    ({**URL, "elicitationId": 7}, "elicitationId: must be a string"),
]


@pytest.mark.parametrize(("params", "fault"), ELICITATION_FAULTS, ids=[fault for _, fault in ELICITATION_FAULTS])
def test_a_malformed_elicitation_is_refused_at_its_place(params: Any, fault: str) -> None:
    assert BadRequest(-32602, fault) == read(ELICITATION, params)


def test_a_url_is_asked_for_only_from_2025_11_25_on() -> None:
    assert BadRequest(-32602, "mode: is not a mode of 2025-06-18") == read(ELICITATION, URL, "2025-06-18")
    assert "url" == read(ELICITATION, URL).mode


def test_the_elicitation_id_is_needed_only_where_the_revision_has_it() -> None:
    bare = {name: value for name, value in URL.items() if name != "elicitationId"}
    assert BadRequest(-32602, "elicitationId: must be a string") == read(ELICITATION, bare)
    assert "url" == read(ELICITATION, bare, "2026-07-28").mode


def test_another_method_is_not_ours() -> None:
    fault = "method: must be sampling/createMessage or elicitation/create"
    assert BadRequest(-32601, fault) == parse("roots/list", b"{}", origin())


def test_absent_params_are_malformed() -> None:
    assert BadRequest(-32602, "params: is required") == parse(SAMPLING, None, origin())


def test_a_hundred_megabytes_are_refused_before_they_are_decoded() -> None:
    fault = "params: larger than 33554432 bytes"
    assert BadRequest(-32602, fault) == parse(SAMPLING, b"{" + b" " * 100_000_000 + b"}", origin())


METHODS = st.sampled_from([SAMPLING, ELICITATION])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=5,
)
NAMES = [
    "messages",
    "maxTokens",
    "role",
    "content",
    "type",
    "text",
    "mode",
    "url",
    "message",
    "requestedSchema",
    "properties",
    "tools",
    "hints",
]
NODES = st.recursive(
    VALUES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=20,
)


@given(METHODS, st.binary(max_size=80), st.sampled_from(REVISIONS))
def test_any_bytes_are_a_request_or_malformed(method: str, raw: bytes, revision: str) -> None:
    assert isinstance(parse(method, raw, origin(revision)), SamplingRequest | ElicitationRequest | BadRequest)


@given(METHODS, NODES, st.sampled_from([ASK, FORM, URL, *BALANCED]), st.sampled_from(NAMES), st.sampled_from(REVISIONS))
def test_any_json_in_any_place_is_a_request_or_malformed(
    method: str, node: Any, whole: Any, name: str, revision: str
) -> None:
    for params in (node, {**whole, name: node}):
        assert isinstance(read(method, params, revision), SamplingRequest | ElicitationRequest | BadRequest)


@given(
    st.dictionaries(
        st.text().map(lambda name: f"x/{name}"),
        st.booleans() | st.text(alphabet=st.characters(codec="utf-8")),
        max_size=3,
    )
)
def test_members_nobody_knows_change_nothing_and_are_kept(extra: dict[str, Any]) -> None:
    assert {**ASK, **extra} == read(SAMPLING, {**ASK, **extra}).params
    assert {**FORM, **extra} == read(ELICITATION, {**FORM, **extra}).params


VARIANTS: list[tuple[str, Any, str]] = [
    (SAMPLING, {**ASK, "Messages": []}, "params: 'Messages' could be read as another member"),
    (SAMPLING, {**ASK, "MAXTOKENS": 9}, "params: 'MAXTOKENS' could be read as another member"),
    (
        SAMPLING,
        {"messages": [{**ASK["messages"][0], "Role": "user"}], "maxTokens": 9},
        "messages.0: 'Role' could be read as another member",
    ),
    (SAMPLING, talk(("user", {**TEXT, "Text": "evil"})), "messages.0.content: 'Text' could be read as another member"),
    (
        SAMPLING,
        talk(("user", [TEXT, {**TEXT, "tYpe": "image"}])),
        "messages.0.content.1: 'tYpe' could be read as another member",
    ),
    (
        SAMPLING,
        talk(
            ("assistant", USE),
            ("user", {**RESULT, "content": [{"type": "resource", "resource": {"uri": "a:b", "TEXT": "evil"}}]}),
        ),
        "messages.1.content.content.0.resource: 'TEXT' could be read as another member",
    ),
    (SAMPLING, {**ASK, "modelPreferences": {"Hints": []}}, "modelPreferences: 'Hints' could be read as another member"),
    (
        SAMPLING,
        {**ASK, "modelPreferences": {"hints": [{"NAME": "x"}]}},
        "modelPreferences.hints.0: 'NAME' could be read as another member",
    ),
    (SAMPLING, {**ASK, "toolChoice": {"Mode": "none"}}, "toolChoice: 'Mode' could be read as another member"),
    (
        SAMPLING,
        {**ASK, "tools": [{"name": "a", "inputSchema": {}, "Name": "b"}]},
        "tools.0: 'Name' could be read as another member",
    ),
    (ELICITATION, {**URL, "URL": "https://evil.example/"}, "params: 'URL' could be read as another member"),
    (ELICITATION, {**FORM, "me\u017f\u017fage": "evil"}, "params: 'me\u017f\u017fage' could be read as another member"),
    (
        ELICITATION,
        {**FORM, "requestedSchema": {"type": "object", "Properties": {}}},
        "requestedSchema: 'Properties' could be read as another member",
    ),
]


@pytest.mark.parametrize(("method", "params", "fault"), VARIANTS)
def test_a_member_that_another_parser_folds_into_one_of_ours_is_refused(method: str, params: Any, fault: str) -> None:
    assert BadRequest(-32602, fault) == read(method, params)


def test_field_names_of_a_form_may_differ_in_case_only() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "A": {"type": "string"}, "Properties": {"type": "string"}},
    }
    assert isinstance(read(ELICITATION, {**FORM, "requestedSchema": schema}), ElicitationRequest)
