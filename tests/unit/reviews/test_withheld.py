"""Params of a sampling request that are not sent to a model: bounded, and shown with how the gate treats them."""

from __future__ import annotations

from typing import Any

from samplegate.policy.decisions import Allowed
from samplegate.policy.schema import AllowRule
from samplegate.protocol.requests import SamplingRequest
from samplegate.reviews.create import MAX_BYTES, MAX_UNKNOWN, unsent
from tests.fakes.requests import compiled, origin


def of(*, allowed: bool = True, **params: Any) -> list[tuple[str, Any, str]]:
    compiled_policy = compiled(AllowRule(name="r"))
    rule = compiled_policy.policy.rules[0]
    assert isinstance(rule, AllowRule)
    request = SamplingRequest(origin(), {"messages": [], "maxTokens": 5, "_meta": {"a": 1}, **params}, 0)
    return [
        (each.param, each.value, each.effect)
        for each in unsent(compiled_policy, rule, Allowed(("m",), params, None) if allowed else None, request)
    ]


def test_what_the_protocol_and_the_model_get_is_not_in_it() -> None:
    assert [] == of(
        systemPrompt="x", temperature=1, stopSequences=["a"], tools=[], toolChoice={"mode": "auto"}, task={"ttl": 1}
    )


def test_what_is_too_large_is_told_by_its_size_and_the_rest_is_shown() -> None:
    assert [
        ("metadata", f"[{MAX_BYTES + 17} bytes: too large to show]", "not sent to the model"),
        ("x", 1, "not sent to the model"),
    ] == of(metadata={"k": "x" * MAX_BYTES}, x=1)


def test_so_many_unknown_params_and_no_more() -> None:
    many: dict[str, Any] = {f"x{n:03}": n for n in range(MAX_UNKNOWN + 5)}
    found = of(**many)
    assert ("5 more", None, "not sent to the model") == found[-1]
    assert MAX_UNKNOWN + 1 == len(found)


def test_where_no_model_can_be_asked_none_of_it_is_used() -> None:
    assert {"not used: no model can be called"} == {
        effect for _, _, effect in of(allowed=False, metadata={}, includeContext="none", modelPreferences={})
    }
