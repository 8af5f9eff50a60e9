"""What one field of an elicitation's form takes, in words for people: its kind, bounds, default and choices (R32). Pure.

Takes any JSON, since a schema may be no flat one, or cut and cleaned on its way. Escapes nothing: that is for whoever shows it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

MOST_CHOICES: Final = 30
MOST_TEXT: Final = 200  # characters of a bound, a default or a choice
_BOUNDS: Final = {
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minItems": "at least {} of them",
    "maxItems": "at most {} of them",
    "format": "of the format {}",
    "pattern": "matching {}",
}


def kind(schema: Mapping[str, Any]) -> str:
    """One of a list, some of a list, or the type's name."""
    found = schema.get("type")
    if found == "array":
        return "some of a list"
    return "one of a list" if "enum" in schema or "oneOf" in schema else found if isinstance(found, str) else "value"


def lines(schema: Mapping[str, Any], *, secret: bool) -> Iterator[str]:
    """All but its name, kind, title and description. ``secret``: it looks like one, so no default is told (R39)."""
    bounds = [words.format(_short(schema[name])) for name, words in _BOUNDS.items() if name in schema]
    if bounds:
        yield f"must be {', '.join(bounds)}"
    if "default" in schema and not secret:
        yield f"default: {_short(schema['default'])}"
    found = choices(schema)
    for value, title in found[:MOST_CHOICES]:
        yield f"- {_short(value)}{f': {_short(title)}' if title not in ('', value) else ''}"
    if len(found) > MOST_CHOICES:
        yield f"and {len(found) - MOST_CHOICES} more"


def choices(schema: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The values that an enum takes, each with its title or "", of all four ways to write one."""
    listed = schema.get("items") if schema.get("type") == "array" else schema
    if not isinstance(listed, Mapping):
        return []
    for name in ("oneOf", "anyOf"):
        if isinstance(listed.get(name), list):
            return [(str(one.get("const", "")), str(one.get("title", ""))) for one in listed[name] if isinstance(one, Mapping)]
    values, titles = listed.get("enum"), listed.get("enumNames")
    values, titles = (each if isinstance(each, list) else [] for each in (values, titles))
    return [(str(value), str(titles[at]) if at < len(titles) else "") for at, value in enumerate(values)]


def _short(value: Any) -> str:
    """As somebody would type it: lists with commas."""
    if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        value = ", ".join(value)
    text = value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 3]}..."
