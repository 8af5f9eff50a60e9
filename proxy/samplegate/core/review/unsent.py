"""What a sampling request says beside what a model is sent: model preferences, includeContext, metadata, and params of no known meaning. Pure.

A reviewer sees each as the server asked it, with what the gate makes of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from samplegate.core import model_choice
from samplegate.core.decisions import Allowed
from samplegate.core.matching.facts import Facts
from samplegate.core.matching.match import Rulebook
from samplegate.core.policy import ModelRule
from samplegate.core.prompt import BOUND
from samplegate.core.requests import Request
from samplegate.core.review.review import Unsent

MOST_BYTES: Final = 64 * 1024  # of all values together, as JSON
MOST_UNKNOWN: Final = 20
_KNOWN: Final = ("modelPreferences", "includeContext", "metadata")
_SENT: Final = frozenset({"messages", "_meta", "task", *BOUND})
"""What models are sent, and what belongs to the protocol."""


def unsent(book: Rulebook, rule: ModelRule, allowed: Allowed | None, request: Request) -> tuple[Unsent, ...]:
    """Nothing for an elicitation. ``allowed``: what a model is asked, None where none can be."""
    return tuple(_of(book, rule, allowed, request)) if request.kind == "sampling" else ()


def _of(book: Rulebook, rule: ModelRule, allowed: Allowed | None, request: Request) -> Iterator[Unsent]:
    params = request.params
    unknown = sorted(params.keys() - _SENT - {*_KNOWN})
    left = MOST_BYTES
    for param in [name for name in _KNOWN if name in params] + unknown[:MOST_UNKNOWN]:
        size = len(param) + len(json.dumps(params[param]))
        value: Any = params[param] if size <= left else f"[{size} bytes: too large to show]"
        left -= size if size <= left else 0
        yield Unsent(param[:200], value, "not used: no model can be asked" if allowed is None else _effect(book, rule, allowed, request, param))
    if len(unknown) > MOST_UNKNOWN:
        yield Unsent(f"{len(unknown) - MOST_UNKNOWN} more", None, "not sent to the model")


def _effect(book: Rulebook, rule: ModelRule, allowed: Allowed, request: Request, param: str) -> str:
    match param:
        case "modelPreferences":
            return f"not sent to the model; the gate chose {allowed.models[0]}: {model_choice.choose(book, rule, Facts(request)).why}"
        case "includeContext" if request.params[param] != "none":  # R18
            return "not followed: the gate has no context to include"
        case _:
            return "not sent to the model"


def as_json(each: Unsent) -> Mapping[str, Any]:
    """The JSON of the API and the webhook."""
    return {"param": each.param, "value": each.value, "effect": each.effect}
