"""What of a review's content leaves the house: texts without secrets, pictures as their type and size, and no more than so many bytes. Pure.

Gives copies of decoded JSON. Does not choose the fields: that is ``telling.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from samplegate.core.matching.secrecy import secret_fields

Clean = Callable[[str], str]

MAX_DEPTH: Final = 70  # params nest 64 deep at most
TOO_DEEP: Final = "[nested too deep]"

_STEPS: Final = ((16_384, 2_000), (4_096, 500), (1_024, 100), (256, 50), (128, 20), (64, 8))
"""Characters that texts, and items that lists and objects, are cut to, step by step, until the whole is small enough."""


def cleaned(value: Any, clean: Clean | None, depth: int = 0) -> Any:
    """Every text, names of members too, through ``clean``; pictures, sounds and other binary data as their type and size."""
    if depth > MAX_DEPTH:
        return TOO_DEEP
    match value:
        case str():
            return value if clean is None else clean(value)
        case list() | tuple():
            return [cleaned(each, clean, depth + 1) for each in value]
        case Mapping():
            return _members(without_media(value), clean, depth)
        case _:
            return value


def _members(value: Mapping[str, Any], clean: Clean | None, depth: int) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, each in value.items():
        free = name if clean is None else clean(name)
        while free in out:  # two names that differed in their secrets stay two
            free += "#"
        out[free] = cleaned(each, clean, depth + 1)
    return out


def without_media(block: Mapping[str, Any]) -> Mapping[str, Any]:
    """A content block with the size of its data in bytes in the data's place; anything else as it is."""
    name = "data" if block.get("type") in ("image", "audio") else "blob"
    data = block.get(name)
    if not isinstance(data, str):
        return block
    return {**{key: each for key, each in block.items() if key != name}, "bytes": len(data) * 3 // 4 - data[-2:].count("=")}


def all_without_media(value: Any) -> Any:
    """The same for all of a value, with texts as they are."""
    return cleaned(value, None)


def without_secret_defaults(schema: Any) -> Any:
    """A requestedSchema in which fields that look secret bring no values along (R39)."""
    secret = secret_fields(schema)
    if not secret:
        return schema
    values = frozenset({"default", "examples", "const", "enum"})
    fields = schema["properties"].items()
    return {**schema, "properties": {name: _without(field, values) if name in secret else field for name, field in fields}}


def _without(field: Any, names: frozenset[str]) -> Any:
    return {name: value for name, value in field.items() if name not in names} if isinstance(field, dict) else field


def size(value: Any) -> int:
    """Bytes as compact JSON."""
    return len(json.dumps(value, separators=(",", ":")))


def cut(value: dict[str, Any], most: int) -> dict[str, Any] | None:
    """``value`` with its texts and lists cut until it is at most ``most`` bytes of ASCII JSON; None where that does not help."""
    value = all_without_media(value)
    for characters, items in _STEPS:
        if size(value) <= most:
            return value
        value = {name: _cut(each, characters, items) for name, each in value.items()}
    return value if size(value) <= most else None


def _cut(value: Any, characters: int, items: int) -> Any:
    match value:
        case str() if len(value) > characters + 40:
            return f"{value[:characters]}... [cut: {len(value)} characters]"
        case list():
            return [_cut(each, characters, items) for each in value[:items]]
        case dict():
            return {name[:characters]: _cut(each, characters, items) for name, each in list(value.items())[:items]}
        case _:
            return value
