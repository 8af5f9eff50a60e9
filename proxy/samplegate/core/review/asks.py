"""What a told review asks, as named texts for places that show text only, such as a chat. Pure; escapes and cuts nothing of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from samplegate.core.matching.secrecy import secret_fields
from samplegate.core.review import fieldwords

MOST_MESSAGES: Final = 10
MOST_FIELDS: Final = 30
FITS: Final = 2_500  # characters of a form with all that its fields may be: a chat's block holds 3000 with what is escaped in it
_address: Final = re.compile(r"(?i)\b[a-z][a-z0-9+.-]{0,30}://\S+")


def asks(told: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Names of ours and texts of the server's, the most important first. ``told``: of ``telling.told``, whose ``show`` is not "none"."""
    if "request" not in told:  # too large to be told
        return
    request = told["request"]
    if told["stage"] == "answer":
        yield "The model's answer", _content((told.get("answer") or {}).get("content"))
    if told["mode"] == "url":
        yield from _opening(told, request)
    elif told["mode"] == "form":
        yield "It says", str(request.get("message", ""))
        yield "It asks for", _fields(request.get("requestedSchema"))
    else:
        yield from _sampling(request, told.get("bounds") or {})
    for each in told.get("unsent") or ():
        yield f"The server also asked for {each['param']} ({each['effect']})", _json(each["value"])
    if told.get("arguments"):
        arguments = _json(told["arguments"])
        yield "Arguments of the call", _without_addresses(arguments) if told["mode"] == "url" else arguments


def _opening(told: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """R41, T12: the host apart, the address itself nowhere."""
    address = told.get("address") or {}
    host, shown = address.get("host") or "none that can be told", address.get("host_unicode")
    yield "Host", host if shown in (None, "", host) else f"{host}\n(looks like {shown})"
    if address.get("warnings"):
        yield "Beware", "\n".join(map(str, address["warnings"]))
    yield "It says", _without_addresses(str(request.get("message", "")))


def _without_addresses(text: str) -> str:
    return _address.sub("[address: at the page]", text)


def _sampling(request: Mapping[str, Any], bounds: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    models = bounds.get("models") or ()
    settings = [f"model {models[0]}"] if models else []
    settings += [f"{name} {request[name]}" for name in ("maxTokens", "temperature") if isinstance(request.get(name), int | float)]
    if settings:
        yield "Settings", ", ".join(settings)
    if isinstance(request.get("systemPrompt"), str):
        yield "System prompt", request["systemPrompt"]
    messages = request.get("messages")
    messages = messages if isinstance(messages, list) else []
    if len(messages) > MOST_MESSAGES:
        yield "Messages", f"{len(messages)} of them; the last {MOST_MESSAGES} follow"
    for message in messages[-MOST_MESSAGES:]:
        found = message if isinstance(message, Mapping) else {}
        yield f"Message of the {'assistant' if found.get('role') == 'assistant' else 'user'}", _content(found.get("content"))


def _content(content: Any) -> str:
    blocks = content if isinstance(content, Sequence) and not isinstance(content, str) else [content]
    return "\n".join(_block(block) for block in blocks)


def _block(block: Any) -> str:
    if not isinstance(block, Mapping):
        return "" if block is None else _json(block)
    if block.get("type") == "text":
        return str(block.get("text", ""))
    if block.get("type") in ("image", "audio"):
        return f"[{block['type']}, {block.get('mimeType', 'of no type')}]"
    return _json(block)


def _fields(schema: Any) -> str:
    """Each with its bounds, default and choices; without them where that is too much to read here."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping) or not properties:
        return "nothing but a yes"
    required = schema.get("required")
    needed, secret = required if isinstance(required, list) else [], secret_fields(schema)
    fields = [(name, field if isinstance(field, Mapping) else {}) for name, field in list(properties.items())[:MOST_FIELDS]]
    more = [f"and {len(properties) - MOST_FIELDS} more"] if len(properties) > MOST_FIELDS else []
    heads = [_head(name, field, name in needed) for name, field in fields]
    rest = [[f"    {line}" for line in fieldwords.lines(field, secret=name in secret)] for name, field in fields]
    whole = "\n".join([*(line for head, below in zip(heads, rest, strict=True) for line in (head, *below)), *more])
    return whole if len(whole) <= FITS else "\n".join([*heads, *more, "(what each may be is at the page)"])


def _head(name: str, field: Mapping[str, Any], needed: bool) -> str:
    said = " - ".join(str(field[key]) for key in ("title", "description") if isinstance(field.get(key), str))
    return f"{name} ({fieldwords.kind(field)}{', required' if needed else ''}){f': {said}' if said else ''}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
