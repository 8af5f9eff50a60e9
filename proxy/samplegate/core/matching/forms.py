"""The flat form of an elicitation: which fields a requestedSchema asks for. Not the check of content against it (``checking.py``).

Flat is R32's table for the revision, read from a hostile peer: a schema with anything more (references, nesting, null) is NotFlat and
can be forwarded but never answered or verified by the gate (T16).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from samplegate.core.eras import has_modes
from samplegate.core.matching.patterns import peer_searcher
from samplegate.core.parsing.strictjson import named, told

FieldType: TypeAlias = Literal["string", "number", "integer", "boolean", "enum", "multi_enum"]

MAX_FIELDS: Final = 1_000  # as many as a request may bring at all
MAX_CHOICES: Final = 10_000
MAX_PATTERN: Final = 1_000  # characters; RE2 is linear in the text, but its program grows with the pattern
MAX_PATTERNS: Final = 32  # of one form; each may take milliseconds to compile, and nobody else is served meanwhile


class Missing:
    """No default."""


MISSING: Final = Missing()


class Field(msgspec.Struct, frozen=True):
    """One field of a flat form."""

    name: str
    type: FieldType
    title: str
    required: bool
    default: Any
    """MISSING if there is none."""
    schema: Mapping[str, Any]


class Form(msgspec.Struct, frozen=True):
    """A flat requestedSchema."""

    fields: tuple[Field, ...]
    schema: Mapping[str, Any]


class NotFlat(msgspec.Struct, frozen=True):
    """Why a schema, or one property of it, is outside the flat subset. Names the place, never a value."""

    why: str


_NOTES: Final = frozenset({"title", "description", "default", "$comment", "examples", "deprecated", "readOnly", "writeOnly"})
_OWN: Final[Mapping[str, frozenset[str]]] = {
    "string": frozenset({"minLength", "maxLength", "format", "pattern"}),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
    "integer": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
    "boolean": frozenset(),
    "enum": frozenset({"enum", "enumNames", "oneOf"}),
    "multi_enum": frozenset({"items", "minItems", "maxItems", "uniqueItems"}),
}
"""What each type may say beside ``type`` and notes. A bound that R32 does not list is harmless, as it is checked like the others."""
_COUNTS: Final = frozenset({"minLength", "maxLength", "minItems", "maxItems"})
_NUMBERS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_NAMING: Final = frozenset("properties required patternProperties $defs definitions dependentRequired dependentSchemas dependencies".split())
"""The keywords of a schema under which names of fields stand."""
_AROUND: Final = frozenset({"type", "properties", "required", "$schema", "additionalProperties"}) | _NOTES


def read_form(schema: Any, revision: str) -> Form | NotFlat:
    """The fields of a requestedSchema, or why it is not flat."""
    if (why := asks_more(schema)) is not None:
        return NotFlat(f"requestedSchema: {why}")
    fields: list[Field] = []
    for field in read_fields(schema, revision):
        if isinstance(field, NotFlat):
            return field
        fields.append(field)
    return Form(tuple(fields), schema)


def asks_more(schema: Any) -> str | None:
    """Why the ``properties`` of a requestedSchema are not all that it asks for, None if they are; whatever each of them is."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return "its type is not object"
    if (odd := _unknown(schema, _AROUND)) is not None:
        return f"it says {named(odd)}, which a flat form does not have"
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, dict) or len(properties) > MAX_FIELDS:
        return f"its properties are not an object of at most {MAX_FIELDS}"
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        return "its required is not a list of names"
    if not isinstance(schema.get("additionalProperties", False), bool):
        return "its additionalProperties is a schema"
    return None if properties.keys() >= set(required) else "it requires a field that it does not describe"


def read_fields(schema: Mapping[str, Any], revision: str) -> Iterator[Field | NotFlat]:
    """Every property of a schema that asks for no more; those with a pattern beyond the first MAX_PATTERNS are not flat."""
    required, patterns = frozenset(schema.get("required", ())), 0
    for name, inner in schema.get("properties", {}).items():
        patterns += isinstance(inner, dict) and "pattern" in inner
        if patterns > MAX_PATTERNS and "pattern" in inner:
            yield NotFlat(f"requestedSchema: more than {MAX_PATTERNS} of its fields have a pattern")
        else:
            yield read_field(name, inner, revision, required=name in required)


def read_field(name: str, schema: Any, revision: str, *, required: bool = False) -> Field | NotFlat:
    """One property as a field, or why it is not flat."""
    why = "its schema is not an object" if not isinstance(schema, dict) else None
    found = None if why else _type(schema, revision)
    if why is None:
        why = "it has none of the types of a flat form" if found is None else _fault(found, schema)
    if why is not None or found is None:
        return NotFlat(f"requestedSchema.properties.{told(name)}: {why}")
    title = schema.get("title")
    return Field(name, found, title if isinstance(title, str) else "", required, schema.get("default", MISSING), schema)


def _type(schema: Mapping[str, Any], revision: str) -> FieldType | None:
    match schema.get("type"):
        case "string" if "enum" in schema:
            return "enum"
        case "string" if "oneOf" in schema:
            return "enum" if has_modes(revision) else None
        case "string" | "number" | "integer" | "boolean" as plain:
            found: FieldType = plain
            return found
        case "array" if has_modes(revision):
            return "multi_enum"
        case _:
            return None


def _fault(type_: FieldType, schema: Mapping[str, Any]) -> str | None:
    """Why a property of that type is not flat, None if it is."""
    if (odd := _unknown(schema, _OWN[type_] | _NOTES | {"type"})) is not None:
        return f"it says {named(odd)}, which a flat {type_} field does not have"
    for name in schema.keys() & _COUNTS:
        if not _is_count(schema[name]):
            return f"its {name} is not a count"
    for name in schema.keys() & _NUMBERS:
        if not _is_number(schema[name]) or (name == "multipleOf" and schema[name] <= 0):
            return f"its {name} is not a number"
    if type_ == "string":
        return _string_fault(schema)
    if type_ == "enum":
        return _enum_fault(schema)
    return _items_fault(schema) if type_ == "multi_enum" else None


def _unknown(schema: Mapping[str, Any], known: frozenset[str]) -> str | None:
    return next((name for name in schema if name not in known and not name.startswith("x-")), None)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and float(value).is_integer()


def _string_fault(schema: Mapping[str, Any]) -> str | None:
    if not isinstance(schema.get("format", ""), str):
        return "its format is not a name"
    pattern = schema.get("pattern", "")
    if not isinstance(pattern, str) or len(pattern) > MAX_PATTERN:
        return f"its pattern is not an expression of at most {MAX_PATTERN} characters"
    return "its pattern is not one that RE2 can check" if pattern and isinstance(peer_searcher(pattern), str) else None


def _enum_fault(schema: Mapping[str, Any]) -> str | None:
    if "enum" in schema:
        if "oneOf" in schema:
            return "it has both enum and oneOf"
        return None if _is_choices(schema["enum"]) else "its enum is not a list of texts"
    return None if _is_titled(schema["oneOf"]) else "its oneOf is not a list of {const, title}"


def _items_fault(schema: Mapping[str, Any]) -> str | None:
    items = schema.get("items")
    if not isinstance(items, dict) or _unknown(items, frozenset({"type", "enum", "anyOf", "oneOf"}) | _NOTES) is not None:
        return "its items are not a list of choices"
    if not isinstance(schema.get("uniqueItems", False), bool):
        return "its uniqueItems is neither true nor false"
    titled = [items[name] for name in ("anyOf", "oneOf") if name in items]
    if "enum" in items and not titled and items.get("type") == "string":
        return None if _is_choices(items["enum"]) else "its items.enum is not a list of texts"
    return None if len(titled) == 1 and "enum" not in items and _is_titled(titled[0]) else "its items are not a list of choices"


def _is_choices(values: object) -> bool:
    return isinstance(values, list) and 0 < len(values) <= MAX_CHOICES and all(isinstance(value, str) for value in values)


def _is_titled(values: object) -> bool:
    if not isinstance(values, list) or not 0 < len(values) <= MAX_CHOICES:
        return False
    known = frozenset({"const", "title", "description", "type"})
    return all(isinstance(v, dict) and isinstance(v.get("const"), str) and _unknown(v, known) is None for v in values)


def all_names(schema: object) -> Iterator[str]:
    """The names that stand in ``properties`` and its like anywhere in a schema. Depth and size were bounded when it was parsed."""
    todo: list[object] = [schema]
    while todo:
        node = todo.pop()
        if isinstance(node, dict):
            for key in _NAMING & node.keys():
                yield from _names(node[key])
            todo.extend(node.values())
        elif isinstance(node, list):
            todo.extend(node)


def _names(value: object) -> Iterator[str]:
    """The texts in a list, the keys of an object and the texts in its lists: ``required``, ``properties``, ``dependentRequired``."""
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, str))
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield name
            if isinstance(inner, list):
                yield from (item for item in inner if isinstance(item, str))
