"""Which model is asked, and what it is asked: the rule's list, the server's hints, the rule's bounds. Calls no model and knows no price."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from samplegate.core.matching.conditions import globs, is_glob, shown
from samplegate.core.matching.facts import Facts, hint_names
from samplegate.core.policy import AllowRule, Model, Policy, Prepend, With

TEXT_ONLY: Final = "models answer text only so far"


class Choice(msgspec.Struct, frozen=True):
    """The models that may answer, best first, and why the first is first."""

    models: tuple[Model, ...]
    why: str


def choose(policy: Policy, rule: AllowRule, params: Mapping[str, Any]) -> Choice:
    """The rule's list (R21), ordered by the first hint that means one of them (R19), else as it stands. Empty if there is no model."""
    allowed = candidates(policy, rule)
    for hint in hint_names(params):
        for said, wanted in _meanings(policy, allowed, hint.lower()):
            return Choice(tuple(wanted + [model for model in allowed if model not in wanted]), f"hint {shown(hint)} {said}")
    return Choice(tuple(allowed), "first of the rule's list" if rule.with_.models else "first of the policy's models")


def candidates(policy: Policy, rule: AllowRule) -> list[Model]:
    """The models that a rule allows, in its order."""
    by_name = {model.name: model for model in policy.models}
    names = rule.with_.models or list(by_name)
    return [by_name[name] for name in names if name in by_name]


def _meanings(policy: Policy, allowed: Sequence[Model], hint: str) -> Iterator[tuple[str, list[Model]]]:
    """What a hint may mean among the allowed models, likeliest first: the policy's ``hints`` in their order, then names alike (T28)."""
    for key, value in policy.hints.items():
        if _asks_for(key.lower(), hint):
            names = [value] if isinstance(value, str) else value
            wanted = [model for name in names for model in allowed if model.name == name]
            if wanted:
                yield f"means {shown(key)} in the policy's hints", wanted
    alike = [model for model in allowed if hint in model.name.lower() or hint in model.model.lower()]
    if alike:
        yield "is part of its name", alike


def _asks_for(key: str, hint: str) -> bool:
    """A key with ``*``, ``?`` or ``[`` is a glob of the whole hint, any other a part of it."""
    if not key:
        return False
    return globs(key)[0](hint) if is_glob(key) else key in hint


def unfit(facts: Facts) -> str | None:
    """Why no model can be asked this yet, None if one can."""
    params = facts.request.params
    if params.get("tools") or params.get("toolChoice"):
        return f"the request brings tools, and {TEXT_ONLY}"
    odd = facts.content_types - {"text"}
    return f"the request holds {', '.join(sorted(odd))}, and {TEXT_ONLY}" if odd else None


class Asked(msgspec.Struct, frozen=True):
    """What the model is asked, and the names of the params that are not as they came."""

    params: Mapping[str, Any]
    changed: tuple[str, ...]


def bounded(with_: With, model: Model, params: Mapping[str, Any]) -> Asked:
    """The params for ``model`` within the rule's bounds. Only what a model needs is passed on: no metadata, tools or ``_meta`` (T25)."""
    asked: dict[str, Any] = {"messages": params["messages"], "maxTokens": _max_tokens(with_, model, params["maxTokens"])}
    if prompt := _system_prompt(with_, params.get("systemPrompt")):
        asked["systemPrompt"] = prompt
    if (temperature := params.get("temperature")) is not None:
        asked["temperature"] = _clamped(with_, temperature)
    if stops := params.get("stopSequences"):
        kept = stops if with_.stop_sequences is None else stops[: with_.stop_sequences.max]
        if kept:
            asked["stopSequences"] = kept
    bound = ("maxTokens", "systemPrompt", "temperature", "stopSequences")
    changed = [name for name in bound if (params.get(name) or None) != (asked.get(name) or None)]
    if params.get("includeContext", "none") not in (None, "none"):  # R18: there is no context to include
        changed.append("includeContext")
    return Asked(asked, tuple(changed))


def _max_tokens(with_: With, model: Model, wanted: int) -> int:
    """The smallest of what was asked, the rule's and the model's: fewer is allowed, more is not (R3)."""
    return min(most for most in (wanted, with_.max_tokens, model.max_tokens) if most is not None)


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
