"""Pure. Model requests: the params within the bounds of rule and model, and the values on both sides of the sampler
port.

Only necessary content reaches a model: no metadata, no ``_meta``, and of a tool only its name, description and schema
(T25). ``model_choice.py`` chooses the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from samplegate.policy.catalogue import MAX_TOKENS, ModelFacts
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
    """One call of one model. ``params`` are MCP createMessage params, already within the rule's bounds."""

    model: str
    """The policy's name of the model."""
    params: Mapping[str, Any]
    timeout: float
    """Seconds until the caller gives up; the HTTP call ends by then."""


class Sampled(msgspec.Struct, frozen=True):
    """A model's answer."""

    content: tuple[Mapping[str, Any], ...]
    """Content blocks in MCP's newest shape, at least one: text, tool_use, image or audio (R13)."""
    model: str | None
    """The model that really generated the answer, as its provider names it (R1); None if the provider does not say."""
    stop_reason: str | None
    """``endTurn``, ``maxTokens``, ``toolUse`` or the provider's own value (R5)."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    unknown_stop: str | None = None
    """The provider's own stop reason, if it is unknown; ``stop_reason`` is then ``endTurn``."""
    dropped: tuple[str, ...] = ()
    """Requested params that the provider does not support, so they were not sent: ``temperature``, ``stop``."""


class SampleFailed(msgspec.Struct, frozen=True):
    """A failed model call. ``message`` is for the log and contains no key, no URL query and no content."""

    failure: Failure
    message: str
    retry_after: float | None = None
    started: bool = False
    """Whether the model had begun to answer. Then no other model is tried."""
    free: bool = False
    """Whether the call cannot have cost anything: it was never sent, or rejected with a 4xx."""
    input_tokens: int | None = None
    """The provider's reported usage, for an answer that was rejected."""
    output_tokens: int | None = None


SampleResult: TypeAlias = Sampled | SampleFailed


BOUND: Final = ("maxTokens", "systemPrompt", "temperature", "stopSequences", "tools", "toolChoice")
_HEADER: Final = "x-mcp-header"


class BoundedPrompt(msgspec.Struct, frozen=True):
    """The params for a model, and the names of the changed ones."""

    params: Mapping[str, Any]
    changed: tuple[str, ...]


def bounded(with_: With, model: Model, facts: ModelFacts, params: Mapping[str, Any]) -> BoundedPrompt:
    """The params for ``model`` within the rule's bounds. The model does not get tools that it must not use
    (``toolChoice: none``, R9)."""
    asked: dict[str, Any] = {
        "messages": params["messages"],
        "maxTokens": max_output_tokens(with_, model, facts, params["maxTokens"]),
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
    # `required` without tools is for the sampler to reject (R9)
    if mode == "required" or (mode is not None and "tools" in asked):
        asked["toolChoice"] = {"mode": mode}
    return BoundedPrompt(asked, tuple(_changed(params, asked)))


def _changed(params: Mapping[str, Any], asked: Mapping[str, Any]) -> list[str]:
    changed = []
    for name in BOUND:
        before, after = params.get(name) or None, asked.get(name) or None
        # the shape of tools always changes, so only their removal counts
        if (before is None) != (after is None) if name in ("tools", "toolChoice") else before != after:
            changed.append(name)
    if params.get("includeContext", "none") not in (None, "none"):  # R18: there is no context to include
        changed.append("includeContext")
    return changed


def max_output_tokens(with_: With, model: Model, facts: ModelFacts, wanted: int) -> int:
    """The lowest of the requested, the rule's, the model's and its provider's maximum: fewer tokens are allowed, more
    are not (R3)."""
    return min(
        most for most in (wanted, with_.max_tokens, model.max_tokens, facts.max_output, MAX_TOKENS) if most is not None
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
    """A schema without MCP's HTTP header names next to types. A property with that name stays. The parser bounds its
    depth."""
    if isinstance(schema, list):
        return [_without_headers(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _without_headers(value)
        for key, value in schema.items()
        if not (key == _HEADER and not isinstance(value, dict))
    }
