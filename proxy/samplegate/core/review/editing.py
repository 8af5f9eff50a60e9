"""An edited request, decided again by its rule: what a model would be asked then, or why it cannot be. No edit exceeds a bound of the policy."""

from __future__ import annotations

import json

import msgspec

from samplegate.core import models
from samplegate.core.asking import question
from samplegate.core.decide import Rulebook
from samplegate.core.decisions import Allowed, Decision
from samplegate.core.matching.facts import Facts
from samplegate.core.policy import AllowRule, EscalateRule
from samplegate.core.requests import Request, SamplingRequest
from samplegate.core.review.edits import apply
from samplegate.core.review.review import Edits


def decided_again(book: Rulebook, request: Request, decision: Decision, allowed: Allowed, edits: Edits) -> Allowed | str:
    """What is asked of which model after the edits: exactly that, and no other model stands in. A sentence where the rule does not take it."""
    rule = book.policy.rules[decision.index]
    assert isinstance(rule, AllowRule | EscalateRule)
    params = apply(allowed.params, edits)
    edited = SamplingRequest(request.origin, params, len(json.dumps(params, ensure_ascii=False).encode("utf-8", "surrogatepass")))
    model = edits.model or allowed.models[0]
    if model not in allowed.models:
        return f"model {model} is none of {', '.join(allowed.models)}"
    choice = models.choose(book, rule, Facts(edited))
    if (misfit := choice.unfit.get(model)) is not None or not choice.models:
        return f"model {model} does not take it: {misfit or choice.why}"
    as_it_is = msgspec.structs.replace(rule, with_=msgspec.structs.replace(rule.with_, system_prompt="keep"))  # it was seen as the rule makes it
    asked = question(book, as_it_is, model, params)
    if isinstance(asked, str):
        return asked
    over = [*asked.changed] or [name for name in params if asked.params.get(name) != params[name] and name not in ("metadata", "tools")]
    if over:
        return f"beyond what the rule allows: {', '.join(sorted(set(over)))}"
    return msgspec.structs.replace(allowed, models=(model,), params=asked.params, changed=(*allowed.changed, "edited"))
