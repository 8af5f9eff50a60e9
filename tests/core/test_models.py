"""Which model is asked, and within which bounds."""

from __future__ import annotations

from typing import Any

import pytest

from samplegate.core.models import bounded, choose
from samplegate.core.policy import AllowRule, Match, Policy, Prepend, StopSequences, Temperature, With
from tests.core.asking import MODELS, sampling

Hints = dict[str, str | list[str]]


def chosen(asked: list[str], allowed: list[str] | None = None, hints: Hints | None = None) -> list[str]:
    policy = Policy(version=1, models=list(MODELS), hints=hints or {})
    rule = AllowRule(name="r", match=Match(kind="sampling"), with_=With(models=allowed or []))
    params = {"modelPreferences": {"hints": [{"name": name} for name in asked]}}
    return [model.name for model in choose(policy, rule, params).models]


@pytest.mark.parametrize(
    ("expected", "asked", "allowed", "hints"),
    [
        (["smart", "cheap", "local"], [], None, None),
        (["cheap", "smart"], [], ["cheap", "smart"], None),
        (["local", "smart", "cheap"], ["QWEN"], None, None),
        (["smart", "cheap", "local"], ["anthropic/claude"], None, None),
        (["cheap", "local", "smart"], ["openai"], None, None),
        (["local", "cheap"], ["openai"], ["local", "cheap"], None),
        (["smart", "cheap", "local"], ["", "  "], None, None),
        (["smart", "cheap", "local"], ["nobody"], None, None),
        (["local", "smart", "cheap"], ["nobody", "qwen"], None, None),
        (["local", "smart", "cheap"], ["gpt-4o"], None, {"gpt*": "local"}),
        (["cheap", "local", "smart"], ["GPT-4o"], None, {"gpt*": ["cheap", "local"]}),
        (["local", "smart"], ["gpt-4o"], ["smart", "local"], {"gpt*": ["cheap", "local"]}),
        (["smart", "local"], ["gpt-4o"], ["smart", "local"], {"gpt*": "cheap", "4o": "smart"}),
        (["local", "smart", "cheap"], ["my-gpt-4"], None, {"gpt*": "smart", "gpt": "local"}),
        (["smart", "cheap", "local"], ["gpt"], None, {"": "local", "g?t": "smart"}),
        (["cheap", "smart"], ["local", "cheap"], ["smart", "cheap"], None),
    ],
)
def test_the_list_of_the_rule_is_ordered_by_the_first_hint_that_means_one(
    expected: list[str], asked: list[str], allowed: list[str] | None, hints: Hints | None
) -> None:
    assert expected == chosen(asked, allowed, hints)


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
        ({"stopSequences": ["a"]}, ["stopSequences"], With(stop_sequences=StopSequences(max=1)), {"stopSequences": ["a", "b"]}),
        ({"stopSequences": None}, ["stopSequences"], With(stop_sequences=StopSequences(max=0)), {"stopSequences": ["a", "b"]}),
        ({"systemPrompt": "Be."}, [], With(), {"systemPrompt": "Be."}),
        ({"systemPrompt": None}, ["systemPrompt"], With(system_prompt="drop"), {"systemPrompt": "Be."}),
        ({"systemPrompt": None}, [], With(system_prompt="drop"), {}),
        ({"systemPrompt": "We.\n\nBe."}, ["systemPrompt"], With(system_prompt=Prepend(prepend="We.")), {"systemPrompt": "Be."}),
        ({"systemPrompt": "We."}, ["systemPrompt"], With(system_prompt=Prepend(prepend="We.")), {}),
        ({"includeContext": None}, ["includeContext"], With(), {"includeContext": "allServers"}),
        ({"includeContext": None}, [], With(), {"includeContext": "none"}),
        ({"metadata": None, "tools": None, "_meta": None, "api_base": None}, [], With(), {"metadata": {"model": "x"}, "_meta": {}, "api_base": "y"}),
    ],
)
def test_params_stay_within_the_bounds_of_the_rule_and_the_model(
    expected: dict[str, Any], changed: list[str], with_: With, params: dict[str, Any]
) -> None:
    request = sampling(**({"maxTokens": 500} | params))
    asked = bounded(with_, MODELS[0], request.params)
    assert expected == {name: asked.params.get(name) for name in expected}
    assert changed == list(asked.changed)
    assert request.params["messages"] == asked.params["messages"]
