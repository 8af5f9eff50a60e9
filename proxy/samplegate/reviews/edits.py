"""Pure. Edits of a sampling request by a reviewer: parsed, checked against the policy's bounds, applied and compared.

An edit beyond a bound is a problem at its field and is never clamped, because the reviewer must know what the model is
asked. This is the form's check; the policy then decides the edited request once more.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from samplegate.policy import model_choice
from samplegate.policy.catalogue import MAX_TOKENS
from samplegate.policy.decide import CompiledPolicy, decide, model_params
from samplegate.policy.decisions import Allowed, Decision, Situation
from samplegate.policy.facts import Facts
from samplegate.policy.schema import AllowRule, EscalateRule, ModelRule, Prepend
from samplegate.protocol.requests import Request, SamplingRequest, check_messages
from samplegate.protocol.strictjson import JsonFault, plain_name
from samplegate.reviews.review import EditBounds, Edits, FieldProblem, Review, below, unknown


def decide_edited(
    compiled: CompiledPolicy, request: Request, situation: Situation, decision: Decision, edits: Edits
) -> Allowed | str:
    """The decision about an edited request: exactly these params for exactly this model, without a fallback.

    A sentence if the policy does not accept the edits. All rules are evaluated again on the server's request as edited.
    So an edit cannot bypass a rule that denies the request or sends it to another reviewer.
    """
    allowed = decision.allowed
    rule = compiled.policy.rules[decision.index]
    assert allowed is not None
    assert isinstance(rule, AllowRule | EscalateRule)
    if (taken := _rule_mismatch(compiled, request, situation, decision, edits)) is not None:
        return taken
    params = apply(allowed.params, edits)
    model = edits.model or allowed.models[0]
    if model not in allowed.models:
        return f"model {model} is not one of {', '.join(allowed.models)}"
    choice = model_choice.choose(compiled, rule, Facts(_request_with(request, params)))
    if (misfit := choice.unfit.get(model)) is not None or not choice.models:
        return f"model {model} cannot answer it: {misfit or choice.why}"
    asked = model_params(compiled, _without_prepend(rule), model, params)
    if isinstance(asked, str):
        return asked
    over = [*asked.changed] or [
        name for name in params if asked.params.get(name) != params[name] and name not in ("metadata", "tools")
    ]
    if params["maxTokens"] > request.params["maxTokens"]:  # R3
        over.append("maxTokens")
    if over:
        return f"the edits exceed the rule's limits: {', '.join(sorted(set(over)))}"
    return msgspec.structs.replace(allowed, models=(model,), params=asked.params, changed=(*allowed.changed, "edited"))


def _rule_mismatch(
    compiled: CompiledPolicy, request: Request, situation: Situation, decision: Decision, edits: Edits
) -> str | None:
    """Why the edited request no longer belongs to this rule; None if it does, or if the policy allows it directly."""
    found = decide(compiled, _request_with(request, apply(request.params, edits)), situation)
    # if this is another rule, it had no room or no time and was skipped before any edit
    first = decide(compiled, request, situation)
    if found.index in (decision.index, first.index) or found.effect == "allow":
        return None
    return (
        f"no rule matches the edited request ({found.detail})"
        if found.rule is None
        else f"the edited request matches rule {found.rule} instead"
    )


def _request_with(request: Request, params: Mapping[str, Any]) -> SamplingRequest:
    return SamplingRequest(
        request.origin, params, len(json.dumps(params, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    )


def _without_prepend(rule: ModelRule) -> ModelRule:
    """The rule for params that it has already changed: the text before the system prompt is not added twice."""
    if not isinstance(rule.with_.system_prompt, Prepend):
        return rule
    return msgspec.structs.replace(rule, with_=msgspec.structs.replace(rule.with_, system_prompt="keep"))


MEMBERS: Final = frozenset({"messages", "systemPrompt", "model", "maxTokens", "temperature"})
_PREFIX: Final = "edits."
_NO_EDITS: Final = Edits()


class EditChange(NamedTuple):
    """One difference. None: the value is absent."""

    path: str
    """A param's name, or ``messages.2``."""
    before: Any
    after: Any


def parse_edits(given: Any, review: Review) -> Edits | tuple[FieldProblem, ...] | None:
    """The edits in decoded JSON, without those that change nothing; None if none is left."""
    if not isinstance(given, dict):
        return (FieldProblem("edits", "must be an object"),)
    found = unknown(given, MEMBERS, _PREFIX)
    read: dict[str, Any] = {}
    for name, (type_, what) in _TYPES.items():
        if name not in given:
            continue
        value: Any = _as_integer(given[name]) if name == "maxTokens" else given[name]
        if not isinstance(value, type_) or isinstance(value, bool):
            found.append(FieldProblem(f"{_PREFIX}{name}", what))
        else:
            read[_ATTRIBUTES[name]] = tuple(value) if isinstance(value, list) else value
    edits = Edits(**read)
    found += problems(review, edits)
    return tuple(found) if found else _without_unchanged(review, edits)


_TYPES: Final[Mapping[str, tuple[type | tuple[type, ...], str]]] = {
    "messages": (list, "must be a list of messages"),
    "systemPrompt": (str, 'must be a string; "" removes the system prompt'),
    "model": (str, "must be the name of a model of the policy"),
    "maxTokens": (int, "must be a whole number"),
    "temperature": ((int, float), "must be a number"),
}
_ATTRIBUTES: Final = dict(zip(Edits.__struct_encode_fields__, Edits.__struct_fields__, strict=True))


def _as_integer(value: Any) -> Any:
    """5.0 is a whole number in JSON (T15)."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def problems(review: Review, edits: Edits) -> list[FieldProblem]:
    """All problems of edits: beyond ``Review.bounds``, or not a request that a server could have sent."""
    bounds = review.bounds
    if bounds is None or review.stage != "request":
        return [FieldProblem("edits", "are not allowed: only a sampling request that can be approved can be edited")]
    return [
        *_messages(review, edits),
        *_prompt(bounds, edits),
        *_model(bounds, edits),
        *_tokens(review, bounds, edits),
        *_temperature(bounds, edits),
    ]


def _messages(review: Review, edits: Edits) -> list[FieldProblem]:
    """Check the shapes of the server's own revision, and tool uses with their results (R6, R10 to R13).

    Edits must not add a kind of content that the request does not have, because the model was not chosen for it.
    """
    if edits.messages is None:
        return []
    if not edits.messages:
        return [FieldProblem("edits.messages", "must contain at least one message")]
    try:
        check_messages(copy.deepcopy(list(edits.messages)), review.revision)
    except JsonFault as fault:
        return [below(_PREFIX, fault)]
    if more := _block_types(edits.messages) - _block_types(review.params.get("messages", ())) - {"text"}:
        return [
            FieldProblem(
                "edits.messages",
                f"must not add types of content that the request does not have ({', '.join(sorted(more))})",
            )
        ]
    return []


def _block_types(messages: Sequence[Mapping[str, Any]]) -> set[str]:
    return {block["type"] for message in messages for block in _blocks(message["content"])}


def _blocks(content: Any) -> Any:
    return content if isinstance(content, list) else [content]


def _prompt(bounds: EditBounds, edits: Edits) -> list[FieldProblem]:
    if edits.system_prompt and bounds.drops_system_prompt:
        return [FieldProblem("edits.systemPrompt", "is not allowed, because the rule removes system prompts")]
    if edits.system_prompt is None or edits.system_prompt.startswith(bounds.prepended):
        return []
    return [FieldProblem("edits.systemPrompt", "must start with the text that the rule prepends")]


def _model(bounds: EditBounds, edits: Edits) -> list[FieldProblem]:
    if edits.model is None or edits.model in bounds.models:
        return []
    return [FieldProblem("edits.model", f"must be one of {', '.join(map(plain_name, bounds.models[:20]))}")]


def _tokens(review: Review, bounds: EditBounds, edits: Edits) -> list[FieldProblem]:
    """Check the bound of the model that will be asked. It may differ from the model that the policy chose."""
    model = edits.model if edits.model in bounds.models else next(iter(bounds.models), "")
    most = min(bounds.max_tokens.get(model or "", MAX_TOKENS), MAX_TOKENS)
    if edits.max_tokens is not None:
        return (
            []
            if 1 <= edits.max_tokens <= most
            else [
                FieldProblem(
                    "edits.maxTokens", f"must be from 1 to {most}, the limit of model {plain_name(model or '')}"
                )
            ]
        )
    asked = review.params.get("maxTokens", 1)
    if edits.model is None or asked <= most:
        return []
    return [
        FieldProblem(
            "edits.maxTokens",
            f"must be from 1 to {most}, the limit of model {plain_name(edits.model)}; the request has {asked}",
        )
    ]


def _temperature(bounds: EditBounds, edits: Edits) -> list[FieldProblem]:
    value = edits.temperature
    if value is None:
        return []
    low = max(0.0, bounds.temperature_min or 0.0)
    if not math.isfinite(value) or value < low:
        return [FieldProblem("edits.temperature", f"must be at least {low:g}")]
    if bounds.temperature_max is not None and value > bounds.temperature_max:
        return [FieldProblem("edits.temperature", f"must be at most {bounds.temperature_max:g}")]
    return []


def _without_unchanged(review: Review, edits: Edits) -> Edits | None:
    """Drop unchanged fields, because forms send all their fields."""
    same = {
        "messages": edits.messages is not None and list(edits.messages) == list(review.params.get("messages", ())),
        "system_prompt": edits.system_prompt == review.params.get("systemPrompt", ""),
        "model": review.bounds is not None and edits.model == next(iter(review.bounds.models), None),
        "max_tokens": edits.max_tokens == review.params.get("maxTokens"),
        "temperature": edits.temperature == review.params.get("temperature"),
    }
    kept = msgspec.structs.replace(edits, **{name: None for name, is_same in same.items() if is_same})
    return None if kept == _NO_EDITS else kept


def apply(params: Mapping[str, Any], edits: Edits) -> dict[str, Any]:
    """The params after the edits, as a new dict. The model is not one of them."""
    asked = dict(params)
    if edits.messages is not None:
        asked["messages"] = list(edits.messages)
    if edits.max_tokens is not None:
        asked["maxTokens"] = edits.max_tokens
    if edits.temperature is not None:
        asked["temperature"] = edits.temperature
    if edits.system_prompt:
        asked["systemPrompt"] = edits.system_prompt
    elif edits.system_prompt == "":
        asked.pop("systemPrompt", None)
    return asked


def changes(review: Review, edits: Edits | None) -> list[EditChange]:
    """The changes for a diff: one per param, and one per message between the unchanged start and end."""
    if edits is None:
        return []
    before, after = review.params, apply(review.params, edits)
    found = _changed_messages(before.get("messages", ()), after.get("messages", ()))
    first = next(iter(review.bounds.models), None) if review.bounds else None
    if edits.model is not None and edits.model != first:
        found.append(EditChange("model", first, edits.model))
    names = ("systemPrompt", "maxTokens", "temperature")
    return found + [
        EditChange(name, before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)
    ]


def _changed_messages(before: Sequence[Any], after: Sequence[Any]) -> list[EditChange]:
    shorter = min(len(before), len(after))
    first = next((at for at in range(shorter) if before[at] != after[at]), shorter)
    last = next((at for at in range(shorter - first) if before[-1 - at] != after[-1 - at]), shorter - first)
    old, new = before[first : len(before) - last], after[first : len(after) - last]
    pairs = [
        (old[at] if at < len(old) else None, new[at] if at < len(new) else None)
        for at in range(max(len(old), len(new)))
    ]
    return [EditChange(f"messages.{first + at}", *pair) for at, pair in enumerate(pairs) if pair[0] != pair[1]]
