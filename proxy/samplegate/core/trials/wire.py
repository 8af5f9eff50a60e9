"""A request of a case as a server would write it. Not its reading (``core/parsing``)."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from samplegate.core.parsing.parse import ELICITATION, SAMPLING
from samplegate.core.trials.suite import Asked, Elicitation, Sampling

Object: TypeAlias = dict[str, Any]


def wire(asked: Asked) -> tuple[str, Object]:
    """The method and params."""
    if asked.request is not None:
        return asked.request.method, asked.request.params
    if asked.sampling is not None:
        return SAMPLING, _sampling(Sampling(text=asked.sampling) if isinstance(asked.sampling, str) else asked.sampling)
    form = asked.elicitation
    return ELICITATION, _elicitation(Elicitation(message=form) if isinstance(form, str) else form or Elicitation())


def _sampling(short: Sampling) -> Object:
    params: Object = {"messages": short.messages, "maxTokens": short.max_tokens, **msgspec.to_builtins(short)}
    if short.text is not None:
        params["messages"] = [{"role": "user", "content": {"type": "text", "text": params.pop("text")}}]
    if short.hints is not None:
        params["modelPreferences"] = {"hints": [{"name": name} for name in params.pop("hints")]}
    return params


def _elicitation(short: Elicitation) -> Object:
    if short.url is not None:
        return {"mode": "url", "message": short.message, "url": short.url, "elicitationId": "case"}
    fields = short.fields or {}
    properties = {name: {"type": schema} if isinstance(schema, str) else schema for name, schema in fields.items()}
    required = list(fields) if short.required is None else short.required
    return {"message": short.message, "requestedSchema": {"type": "object", "properties": properties, "required": required}}
