"""Requests to a model after the policy's constraints: which bounds apply, and what is removed."""

from __future__ import annotations

from typing import Any, Final

import pytest

from samplegate.policy.catalogue import MAX_TOKENS, ModelFacts
from samplegate.policy.prompt import bounded
from samplegate.policy.schema import Prepend, StopSequences, Temperature, With
from tests.fakes.requests import MODELS, sampling

SCHEMA: Final = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL: Final = {"name": "weather", "description": "Looks out.", "inputSchema": SCHEMA}
SHOWN: Final = [TOOL]


@pytest.mark.parametrize(
    ("expected", "changed", "with_", "params"),
    [
        ({"maxTokens": 500}, ["maxTokens"], With(), {"maxTokens": 1000}),
        ({"maxTokens": 100}, [], With(max_tokens=300), {"maxTokens": 100}),
        ({"maxTokens": 300}, ["maxTokens"], With(max_tokens=300), {"maxTokens": 400}),
        ({"temperature": 0.5}, ["temperature"], With(temperature=Temperature(max=0.5)), {"temperature": 1}),
        ({"temperature": 0.2}, ["temperature"], With(temperature=Temperature(min=0.2)), {"temperature": 0}),
        ({"temperature": 0}, [], With(), {"temperature": 0}),
        ({"temperature": None}, [], With(temperature=Temperature(min=0.2)), {}),
        (
            {"stopSequences": ["a"]},
            ["stopSequences"],
            With(stop_sequences=StopSequences(max=1)),
            {"stopSequences": ["a", "b"]},
        ),
        (
            {"stopSequences": None},
            ["stopSequences"],
            With(stop_sequences=StopSequences(max=0)),
            {"stopSequences": ["a", "b"]},
        ),
        ({"systemPrompt": "Be."}, [], With(), {"systemPrompt": "Be."}),
        ({"systemPrompt": None}, ["systemPrompt"], With(system_prompt="drop"), {"systemPrompt": "Be."}),
        ({"systemPrompt": None}, [], With(system_prompt="drop"), {}),
        (
            {"systemPrompt": "We.\n\nBe."},
            ["systemPrompt"],
            With(system_prompt=Prepend(prepend="We.")),
            {"systemPrompt": "Be."},
        ),
        ({"systemPrompt": "We."}, ["systemPrompt"], With(system_prompt=Prepend(prepend="We.")), {}),
        ({"includeContext": None}, ["includeContext"], With(), {"includeContext": "allServers"}),
        ({"includeContext": None}, [], With(), {"includeContext": "none"}),
        (
            {"metadata": None, "_meta": None, "api_base": None},
            [],
            With(),
            {"metadata": {"model": "x"}, "_meta": {}, "api_base": "y"},
        ),
        ({"tools": SHOWN, "toolChoice": None}, [], With(), {"tools": [TOOL]}),
        (
            {"tools": SHOWN, "toolChoice": {"mode": "required"}},
            [],
            With(),
            {"tools": [TOOL], "toolChoice": {"mode": "required"}},
        ),
        (
            {"tools": SHOWN, "toolChoice": {"mode": "auto"}},
            [],
            With(),
            {"tools": [TOOL], "toolChoice": {"mode": "auto", "_meta": {"model": "x"}}},
        ),
        (
            {"tools": None, "toolChoice": None},
            ["tools", "toolChoice"],
            With(),
            {"tools": [TOOL], "toolChoice": {"mode": "none"}},
        ),
        ({"tools": None, "toolChoice": None}, [], With(), {"tools": []}),
        ({"tools": None, "toolChoice": None}, ["toolChoice"], With(), {"tools": [], "toolChoice": {"mode": "auto"}}),
        (
            {"tools": None, "toolChoice": {"mode": "required"}},
            [],
            With(),
            {"tools": [], "toolChoice": {"mode": "required"}},
        ),
    ],
)
def test_params_stay_within_the_bounds_of_the_rule_and_the_model(
    expected: dict[str, Any], changed: list[str], with_: With, params: dict[str, Any]
) -> None:
    request = sampling(**({"maxTokens": 500} | params))
    asked = bounded(with_, MODELS[0], ModelFacts(), request.params)
    assert expected == {name: asked.params.get(name) for name in expected}
    assert changed == list(asked.changed)
    assert request.params["messages"] == asked.params["messages"]


@pytest.mark.parametrize(
    ("expected", "facts", "wanted"), [(50, ModelFacts(max_output=50), 100), (MAX_TOKENS, ModelFacts(), 2**40)]
)
def test_no_model_is_asked_for_more_than_it_can_write(expected: int, facts: ModelFacts, wanted: int) -> None:
    asked = bounded(With(), MODELS[1], facts, sampling(maxTokens=wanted).params)
    assert expected == asked.params["maxTokens"]
    assert ("maxTokens",) == asked.changed


def test_of_a_tool_only_what_a_model_needs_is_passed_on() -> None:
    noise = {
        "title": "W",
        "annotations": {"readOnlyHint": True},
        "_meta": {"api_key": "x"},
        "icons": [],
        "outputSchema": {},
        "api_base": "x",
    }
    asked = bounded(
        With(),
        MODELS[0],
        ModelFacts(),
        sampling(maxTokens=1, tools=[{**TOOL, **noise}, {"name": "n", "inputSchema": {}}]).params,
    )
    assert [TOOL, {"name": "n", "inputSchema": {}}] == asked.params["tools"]
    assert () == asked.changed


def test_names_of_headers_are_taken_out_of_schemas_but_not_properties_of_that_name() -> None:
    city = {"type": "string", "x-mcp-header": "City"}
    schema = {
        "type": "object",
        "properties": {"x-mcp-header": {"type": "string"}, "city": city},
        "anyOf": [{"x-mcp-header": "A"}],
    }
    tools = [{"name": "n", "inputSchema": schema}]
    asked = bounded(With(), MODELS[0], ModelFacts(), sampling(tools=tools).params)
    shown = {
        "type": "object",
        "properties": {"x-mcp-header": {"type": "string"}, "city": {"type": "string"}},
        "anyOf": [{}],
    }
    assert shown == asked.params["tools"][0]["inputSchema"]
    assert "City" == city["x-mcp-header"]
