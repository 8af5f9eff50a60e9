"""Edits of a sampling request: within the bounds or refused at their field, applied, and reported."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.reviews.edits import EditChange, apply, changes, parse_edits, problems
from samplegate.reviews.review import EditBounds, Edits, FieldProblem
from tests.fakes.reviews import model_answer, review, said, text

USE = {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "t", "input": {}}]}
RESULT = {"role": "user", "content": [{"type": "tool_result", "toolUseId": "1", "content": []}]}
WITH_TOOLS = review(params={"messages": [said("go"), USE, RESULT], "maxTokens": 100})


def wrong(given: Any, **values: Any) -> dict[str, str]:
    found = parse_edits(given, review(**values))
    assert isinstance(found, tuple), found
    return {problem.path: problem.what for problem in found}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], {"edits": "must be an object"}),
        (
            {"max_tokens": 5},
            {"edits.max_tokens": "is unknown; expected one of maxTokens, messages, model, systemPrompt, temperature"},
        ),
        ({"maxTokens": 501}, {"edits.maxTokens": "must be from 1 to 500, the limit of model smart"}),
        ({"maxTokens": 0}, {"edits.maxTokens": "must be from 1 to 500, the limit of model smart"}),
        ({"maxTokens": 101, "model": "cheap"}, {"edits.maxTokens": "must be from 1 to 100, the limit of model cheap"}),
        (
            {"model": "cheap"},
            {"edits.maxTokens": "must be from 1 to 100, the limit of model cheap; the request has 200"},
        ),
        ({"maxTokens": True}, {"edits.maxTokens": "must be a whole number"}),
        ({"maxTokens": 1.5}, {"edits.maxTokens": "must be a whole number"}),
        ({"model": "claude"}, {"edits.model": "must be one of smart, cheap"}),
        ({"model": None}, {"edits.model": "must be the name of a model of the policy"}),
        ({"temperature": -0.1}, {"edits.temperature": "must be at least 0"}),
        ({"temperature": 1.1}, {"edits.temperature": "must be at most 1"}),
        ({"temperature": False}, {"edits.temperature": "must be a number"}),
        ({"systemPrompt": None}, {"edits.systemPrompt": 'must be a string; "" removes the system prompt'}),
        ({"messages": []}, {"edits.messages": "must contain at least one message"}),
        ({"messages": {}}, {"edits.messages": "must be a list of messages"}),
        ({"messages": [said("x", "system")]}, {"edits.messages.0.role": "must be user or assistant"}),
        (
            {"messages": [{"role": "user", "content": {"type": "text"}}]},
            {"edits.messages.0.content.text": "must be a string"},
        ),
        (
            {"messages": [{"role": "user", "content": {"type": "image", "data": "AAAA", "mimeType": "image/png"}}]},
            {"edits.messages": "must not add types of content that the request does not have (image)"},
        ),
        (
            {"maxTokens": "x", "temperature": 9, "model": "y", "messages": [5]},
            {
                "edits.maxTokens": "must be a whole number",
                "edits.temperature": "must be at most 1",
                "edits.model": "must be one of smart, cheap",
                "edits.messages.0": "must be an object",
            },
        ),
    ],
)
def test_an_edit_out_of_bounds_is_a_problem_at_its_field(given: Any, expected: dict[str, str]) -> None:
    assert expected == wrong(given)


@pytest.mark.parametrize("prompt", ["", "Do", "My own"])
def test_what_the_rule_puts_before_the_prompt_stays(prompt: str) -> None:
    assert {"edits.systemPrompt": "must start with the text that the rule prepends"} == wrong(
        {"systemPrompt": prompt}, bounds=EditBounds(prepended="Do not")
    )


def test_the_rules_lower_bound_of_the_temperature_holds() -> None:
    assert {"edits.temperature": "must be at least 0.2"} == wrong(
        {"temperature": 0.1}, bounds=EditBounds(temperature_min=0.2)
    )


def test_only_what_may_be_approved_can_be_edited() -> None:
    nothing = [FieldProblem("edits", "are not allowed: only a sampling request that can be approved can be edited")]
    assert (
        nothing
        == problems(review(bounds=None), Edits(max_tokens=1))
        == problems(model_answer(text("a")), Edits(max_tokens=1))
    )


@pytest.mark.parametrize(
    "messages",
    [[said("go"), USE], [said("go"), RESULT], [said("go"), USE, said("never mind")], [said("go"), USE, RESULT, RESULT]],
)
def test_tool_uses_keep_their_results(messages: list[Any]) -> None:
    found = parse_edits({"messages": messages}, WITH_TOOLS)
    assert isinstance(found, tuple)
    assert found[0].path.startswith("edits.messages.")


@pytest.mark.parametrize(
    "messages", [[said("stop")], [said("stop"), USE, RESULT], [said("go"), USE, RESULT, said("and now")]]
)
def test_messages_can_be_changed_taken_away_and_added(messages: list[Any]) -> None:
    assert Edits(messages=tuple(messages)) == parse_edits({"messages": messages}, WITH_TOOLS)


def test_an_edit_that_changes_nothing_is_none() -> None:
    of = review()
    assert parse_edits({**of.params, "model": "smart"}, of) is None
    assert Edits(temperature=0.0) == parse_edits({**of.params, "temperature": 0.0}, of)


def test_edits_are_applied_to_a_copy() -> None:
    of = review()
    before = copy.deepcopy(of.params)
    edits = Edits(messages=(said("other"),), system_prompt="", model="cheap", max_tokens=7, temperature=0.1)
    assert {"messages": [said("other")], "maxTokens": 7, "temperature": 0.1} == apply(of.params, edits)
    assert before == of.params
    assert before == apply(of.params, Edits())


def test_the_changes_are_told_param_by_param_and_message_by_message() -> None:
    of = review(params={"messages": [said("a"), said("b"), said("c")], "maxTokens": 200})
    edits = Edits(
        messages=(said("a"), said("B"), said("new"), said("c")), model="cheap", max_tokens=50, system_prompt="Hi"
    )
    assert [
        EditChange("messages.1", said("b"), said("B")),
        EditChange("messages.2", None, said("new")),
        EditChange("model", "smart", "cheap"),
        EditChange("systemPrompt", None, "Hi"),
        EditChange("maxTokens", 200, 50),
    ] == changes(of, edits)
    assert [] == changes(of, None) == changes(of, Edits(model="smart"))


def test_a_message_taken_away_is_one_change() -> None:
    of = review(params={"messages": [said("a"), said("b"), said("c")], "maxTokens": 1})
    assert [EditChange("messages.1", said("b"), None)] == changes(of, Edits(messages=(said("a"), said("c"))))


LISTS = st.lists(st.sampled_from([said("a"), said("b"), said("c")]), max_size=6)


@given(before=LISTS, after=LISTS.filter(bool))
def test_the_changes_make_the_new_messages_of_the_old(before: list[Any], after: list[Any]) -> None:
    found = changes(review(params={"messages": before, "maxTokens": 1}), Edits(messages=tuple(after)))
    made = {int(change.path.partition(".")[2]): change for change in found}
    removed = [change.before for change in found if change.after is None]
    assert len(before) - len(removed) + sum(change.before is None for change in found) == len(after)
    assert all(after[at] == change.after for at, change in made.items() if change.after is not None)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "maxTokens": st.integers() | st.floats(),
            "temperature": st.integers() | st.floats(),
            "model": st.text(),
        },
    )
)
def test_no_edit_that_is_read_goes_beyond_a_bound(given: dict[str, Any]) -> None:
    of = review()
    found = parse_edits(given, of)
    if isinstance(found, Edits):
        asked = apply(of.params, found)
        assert 1 <= asked["maxTokens"] <= (100 if found.model == "cheap" else 500)
        assert 0 <= asked["temperature"] <= 1
