"""Pure. The request that a model gets, within the bounds of the rule and the model; and the values on both sides of the
sampler port.

Only what a model needs is passed on: no metadata and no ``_meta``, and of a tool only its name, description and schema
(T25). ``model_choice.py`` chooses the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from samplegate.policy.catalogue import MOST_TOKENS, ModelFacts
from samplegate.policy.schema import Model, Prepend, With

Failure: TypeAlias = Literal[
    "bad_key",
    "rate_limited",
    "refused",
    "unreachable",
    "unknown_model",
    "bad_request",
    "timeout",
    "no_case",
    "empty",
    "crashed",
    "error",
]


class SampleRequest(msgspec.Struct, frozen=True):
    """One model is asked once. ``params`` are MCP createMessage params, already within the rule's bounds."""

    model: str
    """Our name of the model."""
    params: Mapping[str, Any]
    timeout: float
    """Seconds until the caller gives up; the HTTP call ends by then."""


class Sampled(msgspec.Struct, frozen=True):
    """The model answered."""

    content: tuple[Mapping[str, Any], ...]
    """Content blocks in MCP's newest shape, at least one: text, tool_use, image or audio (R13)."""
    model: str | None
    """The model that really generated the text, as its provider names it (R1); None where it does not say."""
    stop_reason: str | None
    """``endTurn``, ``maxTokens``, ``toolUse`` or the provider's own word (R5)."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    unknown_stop: str | None = None
    """The provider's own stop reason, if it is unknown; ``stop_reason`` is ``endTurn`` then."""
    dropped: tuple[str, ...] = ()
    """What was asked and the provider does not take, so it was left out: ``temperature``, ``stop``."""


class SampleFailed(msgspec.Struct, frozen=True):
    """The model did not answer. ``message`` is for the log: it holds no key, no URL query and no content."""

    failure: Failure
    message: str
    retry_after: float | None = None
    started: bool = False
    """The model had begun to answer: no other is asked in its place."""
    free: bool = False
    """Nothing can have been charged: it was never sent, or refused with a 4xx."""
    input_tokens: int | None = None
    """What the provider reported all the same, for an answer that was not taken."""
    output_tokens: int | None = None


SampleResult: TypeAlias = Sampled | SampleFailed


BOUND: Final = ("maxTokens", "systemPrompt", "temperature", "stopSequences", "tools", "toolChoice")
_HEADER: Final = "x-mcp-header"


class BoundedPrompt(msgspec.Struct, frozen=True):
    """What the model is asked, and the names of the params that are not as they came."""

    params: Mapping[str, Any]
    changed: tuple[str, ...]


def bounded(with_: With, model: Model, facts: ModelFacts, params: Mapping[str, Any]) -> BoundedPrompt:
    """The params for ``model`` within the rule's bounds. Tools that may not be used (``toolChoice: none``, R9) are not
    shown to it."""
    asked: dict[str, Any] = {
        "messages": params["messages"],
        "maxTokens": most_tokens(with_, model, facts, params["maxTokens"]),
    }
    if prompt := _system_prompt(with_, params.get("systemPrompt")):
        asked["systemPrompt"] = prompt
    if (temperature := params.get("temperature")) is not None:
        asked["temperature"] = _clamped(with_, temperature)
    if stops := params.get("stopSequences"):
        kept = stops if with_.stop_sequences is None else stops[: with_.stop_sequences.max]
        if kept:
            asked["stopSequences"] = kept
    mode = (params.get("toolChoice") or {}).get("mode")
    if (tools := params.get("tools")) and mode != "none":
        asked["tools"] = [_tool(tool) for tool in tools]
    # to require one of none is the sampler's to refuse (R9)
    if mode == "required" or (mode is not None and "tools" in asked):
        asked["toolChoice"] = {"mode": mode}
    return BoundedPrompt(asked, tuple(_changed(params, asked)))


def _changed(params: Mapping[str, Any], asked: Mapping[str, Any]) -> list[str]:
    changed = []
    for name in BOUND:
        before, after = params.get(name) or None, asked.get(name) or None
        # of tools the shape always changes: told is only that they are gone
        if (before is None) != (after is None) if name in ("tools", "toolChoice") else before != after:
            changed.append(name)
    if params.get("includeContext", "none") not in (None, "none"):  # R18: there is no context to include
        changed.append("includeContext")
    return changed


def most_tokens(with_: With, model: Model, facts: ModelFacts, wanted: int) -> int:
    """The smallest of what was asked, the rule's, the model's and its provider's: fewer is allowed, more is not
    (R3)."""
    return min(
        most for most in (wanted, with_.max_tokens, model.max_tokens, facts.max_output, MOST_TOKENS) if most is not None
    )


def _clamped(with_: With, temperature: float) -> float:
    bounds = with_.temperature
    if bounds is None:
        return temperature
    low = temperature if bounds.min is None else max(temperature, bounds.min)
    return low if bounds.max is None else min(low, bounds.max)


def _system_prompt(with_: With, prompt: str | None) -> str | None:
    match with_.system_prompt:
        case "keep":
            return prompt
        case "drop":
            return None
        case Prepend(prepend=first):
            return f"{first}\n\n{prompt}" if prompt else first


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    out = {"name": tool["name"], "inputSchema": _without_headers(tool["inputSchema"])}
    if isinstance(description := tool.get("description"), str):
        out["description"] = description
    return out


def _without_headers(schema: Any) -> Any:
    """A schema without the names of HTTP headers that MCP puts beside a type; a property of that name stays. The parser
    bounds its depth."""
    if isinstance(schema, list):
        return [_without_headers(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _without_headers(value)
        for key, value in schema.items()
        if not (key == _HEADER and not isinstance(value, dict))
    }
