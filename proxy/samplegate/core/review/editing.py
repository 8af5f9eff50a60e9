"""An edited request, decided again by its rule: what a model would be asked then, or why it cannot be. No edit exceeds a bound of the policy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from samplegate.core import models
from samplegate.core.asking import question
from samplegate.core.decide import Rulebook, decide
from samplegate.core.decisions import Allowed, Decision, Situation
from samplegate.core.matching.facts import Facts
from samplegate.core.policy import AllowRule, EscalateRule, ModelRule, Prepend
from samplegate.core.requests import Request, SamplingRequest
from samplegate.core.review.edits import apply
from samplegate.core.review.review import Edits


def decided_again(book: Rulebook, request: Request, situation: Situation, decision: Decision, edits: Edits) -> Allowed | str:
    """What is asked of which model after the edits: exactly that, and no other model stands in. A sentence where the policy does not take it.

    The server's request as edited is put to all the rules again: one that denies it, or that is another person's, is not got round by an edit.
    """
    allowed = decision.allowed
    rule = book.policy.rules[decision.index]
    assert allowed is not None
    assert isinstance(rule, AllowRule | EscalateRule)
    if (taken := _taken(book, request, situation, decision, edits)) is not None:
        return taken
    params = apply(allowed.params, edits)
    model = edits.model or allowed.models[0]
    if model not in allowed.models:
        return f"model {model} is none of {', '.join(allowed.models)}"
    choice = models.choose(book, rule, Facts(_sized(request, params)))
    if (misfit := choice.unfit.get(model)) is not None or not choice.models:
        return f"model {model} does not take it: {misfit or choice.why}"
    asked = question(book, _as_it_is(rule), model, params)
    if isinstance(asked, str):
        return asked
    over = [*asked.changed] or [name for name in params if asked.params.get(name) != params[name] and name not in ("metadata", "tools")]
    if params["maxTokens"] > request.params["maxTokens"]:  # R3
        over.append("maxTokens")
    if over:
        return f"beyond what the rule allows: {', '.join(sorted(set(over)))}"
    return msgspec.structs.replace(allowed, models=(model,), params=asked.params, changed=(*allowed.changed, "edited"))


def _taken(book: Rulebook, request: Request, situation: Situation, decision: Decision, edits: Edits) -> str | None:
    """Why the policy does not leave the edited request to this rule, None if it does, or would let it pass by itself."""
    found = decide(book, _sized(request, apply(request.params, edits)), situation)
    first = decide(book, request, situation)  # where it is another, that one had no room or no time: it was passed before any edit
    if found.index in (decision.index, first.index) or found.effect == "allow":
        return None
    return f"no rule takes it then ({found.detail})" if found.rule is None else f"it is rule {found.rule}'s then"


def _sized(request: Request, params: Mapping[str, Any]) -> SamplingRequest:
    return SamplingRequest(request.origin, params, len(json.dumps(params, ensure_ascii=False).encode("utf-8", "surrogatepass")))


def _as_it_is(rule: ModelRule) -> ModelRule:
    """The rule for params that are its own already: what it puts before the system prompt is not put there twice."""
    if not isinstance(rule.with_.system_prompt, Prepend):
        return rule
    return msgspec.structs.replace(rule, with_=msgspec.structs.replace(rule.with_, system_prompt="keep"))
