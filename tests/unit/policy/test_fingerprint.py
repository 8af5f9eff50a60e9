"""Fingerprints of requests: what the model reads counts; what differs from run to run does not."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.policy.script import fingerprint
from tests.fakes.requests import form, sampling, text

SAMPLE = sampling("hello", systemPrompt="be kind").params
FORM = form(confirm="boolean").params
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=15,
)


def tool_conversation(*ids: str) -> dict[str, Any]:
    """A conversation in which tools are used, with these ids."""
    uses = [{"type": "tool_use", "id": id, "name": "look", "input": {}} for id in ids]
    results = [
        {"type": "tool_result", "toolUseId": id, "content": [text(f"result {number}")]} for number, id in enumerate(ids)
    ]
    return {"messages": [{"role": "assistant", "content": uses}, {"role": "user", "content": results}]}


@pytest.mark.parametrize(
    "more",
    [
        {"_meta": {"progressToken": 4}},
        {"metadata": {"run": 7}},
        {"maxTokens": 5, "temperature": 0.5, "modelPreferences": {"hints": [{"name": "gpt"}]}},
        {"messages": [{"content": [text("hello") | {"_meta": {"at": 5}}], "role": "user", "_meta": {}}]},
        {"tools": [], "message": None},
    ],
)
def test_what_a_model_does_not_read_makes_no_difference(more: dict[str, Any]) -> None:
    assert fingerprint(SAMPLE) == fingerprint({**SAMPLE, **more})


@pytest.mark.parametrize(
    "more",
    [
        {"systemPrompt": "be rude"},
        {"messages": [{"role": "assistant", "content": text("hello")}]},
        {"messages": [{"role": "user", "content": text("Hello")}]},
        {"tools": [{"name": "rm", "inputSchema": {}}]},
        {"message": "hello"},
    ],
)
def test_what_a_model_reads_makes_one(more: dict[str, Any]) -> None:
    assert fingerprint(SAMPLE) != fingerprint({**SAMPLE, **more})


def test_a_form_is_its_message_and_its_fields() -> None:
    assert fingerprint(FORM) == fingerprint({**FORM, "_meta": {}, "mode": "form"})
    assert (
        len({fingerprint(FORM), fingerprint({**FORM, "message": "?"}), fingerprint(form(other="boolean").params)}) == 3
    )


def test_the_ids_of_tool_uses_count_by_their_place() -> None:
    assert fingerprint(tool_conversation("a", "b")) == fingerprint(tool_conversation("toolu_01", "call_7"))


def test_results_that_answer_each_others_use_are_something_else() -> None:
    crossed = tool_conversation("a", "b")
    crossed["messages"][1]["content"][0]["toolUseId"], crossed["messages"][1]["content"][1]["toolUseId"] = "b", "a"
    assert fingerprint(tool_conversation("a", "b")) != fingerprint(crossed)


def test_it_is_the_same_in_every_version() -> None:
    assert "147e1565c802edb3" == fingerprint(SAMPLE)


def test_half_a_character_has_one_too() -> None:
    assert 16 == len(fingerprint(sampling("half \ud83d").params))


@pytest.mark.parametrize(
    "value",
    [10 ** (sys.get_int_max_str_digits() + 1), object(), {1: 2, "a": 3}],
    ids=["too large", "no value", "names of two types"],
)
def test_what_has_no_json_is_like_nothing(value: Any) -> None:
    assert "" == fingerprint({"systemPrompt": value})


@pytest.mark.cpu(1)
@given(st.dictionaries(st.sampled_from(["messages", "systemPrompt", "tools", "message", "requestedSchema"]), JSON))
def test_any_params_have_one(params: dict[str, Any]) -> None:
    assert len(fingerprint(params)) in (0, 16)
