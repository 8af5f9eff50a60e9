"""One entry of ``inputRequests`` as a legacy request in its client's revision (R48, R121), or why that cannot ask it. Sends nothing."""

from __future__ import annotations

from typing import Final

import msgspec

from samplegate.core.bridge.cutting import cut
from samplegate.core.eras import META, META_RELATED_TASK, has_elicitation, has_modes
from samplegate.core.jsontext import dump, elements, fields, lookup, splice, string
from samplegate.core.session.rounds import ELICITATION, ROOTS, SAMPLING

METHODS: Final = frozenset({SAMPLING, ELICITATION, ROOTS})
MAX_ELEMENTS: Final = 10_000  # messages of a request, blocks of a message, choices of a field: each is read
_OF_TASKS: Final = frozenset({"task"})


class Question(msgspec.Struct, frozen=True):
    """A request to a legacy client. ``params`` is raw JSON, None for none."""

    method: str
    params: bytes | None


def question(entry: bytes, revision: str, elicitation_id: str) -> Question | str:
    """The request that asks a legacy client an entry, or what is wrong with it.

    ``elicitation_id`` names it where the mode is URL: the modern era has no such name. Raises jsontext.Malformed for an entry of two readings.
    """
    method, params = string(lookup(entry, "method")), lookup(entry, "params")
    if method not in METHODS or method is None:
        return "it is neither sampling, elicitation nor roots"
    if params is None or params[:1] != b"{":
        return Question(method, None) if method == ROOTS else "its params are not an object"
    params = _bare(params)
    if method == SAMPLING:
        return _sampling(params, revision)
    return Question(method, params) if method == ROOTS else _elicitation(params, revision, elicitation_id)


def _bare(params: bytes) -> bytes:
    """Without what would tie it to a task or to progress: a client that makes a task of it answers past the policy (R106)."""
    params = cut(params, _OF_TASKS)
    for name in ("progressToken", META_RELATED_TASK):
        if lookup(params, META, name) is not None:
            params = splice(params, (META, name), None)
    return params


# -- sampling ------------------------------------------------------------------------------------------------------------------------------


def _sampling(params: bytes, revision: str) -> Question | str:
    """Before 2025-11-25 a message is one block of text, image or audio, and there are no tools (R6)."""
    if has_modes(revision):
        return Question(SAMPLING, params)
    if not fields(params).keys().isdisjoint({"tools", "toolChoice"}):
        return f"it brings tools, which {revision} does not have"
    messages = _elements(lookup(params, "messages"))
    if messages is None:
        return "its messages are not an array"
    fitted = [_message(message, revision) for message in messages]
    if any(message is None for message in fitted):
        return f"it has a message that {revision} cannot say"
    changed = [message for message in fitted if message is not None]
    return Question(SAMPLING, params if changed == messages else splice(params, ("messages",), _array(changed)))


def _message(message: bytes, revision: str) -> bytes | None:
    content = lookup(message, "content")
    blocks = _elements(content) if content is not None and content[:1] == b"[" else None
    if blocks is not None:
        if len(blocks) != 1:
            return None
        content = blocks[0]
        message = splice(message, ("content",), content)
    known = {"text", "image"} if revision < "2025-03-26" else {"text", "image", "audio"}
    return message if string(lookup(content, "type")) in known else None


# -- elicitation ---------------------------------------------------------------------------------------------------------------------------


def _elicitation(params: bytes, revision: str, elicitation_id: str) -> Question | str:
    if not has_elicitation(revision):
        return f"{revision} has no elicitation"
    is_url = string(lookup(params, "mode")) == "url"
    if has_modes(revision):
        return Question(ELICITATION, splice(params, ("elicitationId",), dump(elicitation_id)) if is_url else params)  # R40: required there
    if is_url:
        return f"it is of mode url, which {revision} does not have"
    return _form(cut(params, {"mode"}), revision)


def _form(params: bytes, revision: str) -> Question | str:
    """For 2025-06-18: titled choices in its own words, no arrays (R48)."""
    properties = lookup(params, "requestedSchema", "properties")
    found = {} if properties is None or properties[:1] != b"{" else {name: bytes(raw) for name, raw in fields(properties).items()}
    fitted = {name: _field(raw) for name, raw in found.items()}
    if any(field is None for field in fitted.values()):
        return f"it has a field that {revision} cannot ask for"
    if fitted == found:
        return Question(ELICITATION, params)
    text = b"{" + b",".join(dump(name) + b":" + field for name, field in fitted.items() if field is not None) + b"}"
    return Question(ELICITATION, splice(params, ("requestedSchema", "properties"), text))  # once: there may be thousands of fields


def _field(field: bytes) -> bytes | None:
    if string(lookup(field, "type")) == "array":
        return None
    choices = _elements(lookup(field, "oneOf"))
    if choices is None:
        return field
    values = [lookup(choice, "const") for choice in choices]
    names = [lookup(choice, "title") for choice in choices]
    if not values or any(string(value) is None for value in values):
        return None
    shown = [value if string(name) is None else name for value, name in zip(values, names, strict=True)]
    field = splice(cut(field, {"oneOf", "enum", "enumNames"}), ("enum",), _array(values))
    return splice(field, ("enumNames",), _array(shown))


def _elements(raw: bytes | None) -> list[bytes] | None:
    """The elements of a raw JSON array, None if it is none. Raises jsontext.Malformed for too many, or for one that cannot be read."""
    return None if raw is None or raw[:1] != b"[" else elements(raw, MAX_ELEMENTS)


def _array(elements: list[bytes | None] | list[bytes]) -> bytes:
    return b"[" + b",".join(one for one in elements if one is not None) + b"]"
