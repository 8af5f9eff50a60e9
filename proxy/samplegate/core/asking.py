"""What a model of a rule is asked: the request within the rule's bounds and the model's, without secrets where the rule says so. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from samplegate.core import models, redaction
from samplegate.core.matching.match import Rulebook
from samplegate.core.policy import ModelRule


class Question(msgspec.Struct, frozen=True):
    """createMessage params for one model, the names of those that are not as they came, and how many secrets of which pattern were taken out."""

    params: Mapping[str, Any]
    changed: tuple[str, ...] = ()
    redacted: Mapping[str, int] = msgspec.field(default_factory=dict)


def question(book: Rulebook, rule: ModelRule, model: str, params: Mapping[str, Any]) -> Question | str:
    """What ``model`` (our name) is asked; why it cannot be, where the rule stops at secrets."""
    asked = models.bounded(rule.with_, book.model(model), book.catalogue[model], params)
    secrets = rule.with_.secrets
    if secrets is None or secrets.prompt == "keep" or book.redactor is None:
        return Question(asked.params, asked.changed)
    clean, found = redaction.clean_params(book.redactor, asked.params)
    if not found:
        return Question(asked.params, asked.changed)
    if secrets.prompt == "stop":
        return f"the prompt holds a secret ({', '.join(sorted(found))})"
    return Question(clean, (*asked.changed, "secrets"), found)


def unasked(params: Mapping[str, Any], blocks: Sequence[Mapping[str, Any]]) -> str | None:
    """Why an answer's blocks are none to what was asked (R9): a tool that was not offered, or none where one was required. None if they are."""
    offered = {tool["name"] for tool in params.get("tools") or ()}
    used = [block["name"] for block in blocks if block["type"] == "tool_use"]
    if not offered.issuperset(used):
        return "it uses a tool that was not offered to it"
    if offered and not used and (params.get("toolChoice") or {}).get("mode") == "required":
        return "it uses no tool although one was required"
    return None
