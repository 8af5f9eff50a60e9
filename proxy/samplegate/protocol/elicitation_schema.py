"""Pure. Flat forms of elicitations: the fields of a requestedSchema, and the validation of answers with jsonschema.

"Flat" is R32's table for the revision, applied to a schema from a hostile peer. A schema with anything more
(references, nesting, null) is NotFlat: the gate may forward it, but never answers or verifies it (T16).

So the gate never follows a reference (the registry is closed, R17), and patterns run on RE2 (R33). The four formats of
R32 are checked here, because jsonschema leaves most of them unchecked (T15). The first check imports jsonschema, which
takes time.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias

import msgspec

from samplegate.protocol.frames import has_modes
from samplegate.protocol.strictjson import plain_name, quoted_name
from samplegate.regex import peer_searcher, utf8

FieldType: TypeAlias = Literal["string", "number", "integer", "boolean", "enum", "multi_enum"]


MAX_FIELDS: Final = 1_000  # as many as a request may contain at all
MAX_CHOICES: Final = 10_000
MAX_PATTERN: Final = 1_000  # characters; RE2 is linear in the text, but its program grows with the pattern
MAX_PATTERNS: Final = 32  # of one form; each may take milliseconds to compile, during which nothing else is served


class NoDefault:
    """Type of MISSING: the field has no default."""


MISSING: Final = NoDefault()


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
    """The reason why a schema, or one property of it, is not flat: the place, never a value."""

    why: str


_NOTES: Final = frozenset(
    {"title", "description", "default", "$comment", "examples", "deprecated", "readOnly", "writeOnly"}
)
_OWN: Final[Mapping[str, frozenset[str]]] = {
    "string": frozenset({"minLength", "maxLength", "format", "pattern"}),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
    "integer": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
    "boolean": frozenset(),
    "enum": frozenset({"enum", "enumNames", "oneOf"}),
    "multi_enum": frozenset({"items", "minItems", "maxItems", "uniqueItems"}),
}
"""The keywords of each type beside ``type`` and notes. A bound that R32 does not list is checked like the others."""
_COUNTS: Final = frozenset({"minLength", "maxLength", "minItems", "maxItems"})
_NUMBERS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_NAMING: Final = frozenset(
    "properties required patternProperties $defs definitions dependentRequired dependentSchemas dependencies".split()
)
"""The keywords of a schema whose values contain names of fields."""
_AROUND: Final = frozenset({"type", "properties", "required", "$schema", "additionalProperties"}) | _NOTES


def read_form(schema: Any, revision: str) -> Form | NotFlat:
    """The fields of a requestedSchema, or the reason why it is not flat."""
    if (why := schema_fault(schema)) is not None:
        return NotFlat(f"requestedSchema: {why}")
    fields: list[Field] = []
    for field in read_fields(schema, revision):
        if isinstance(field, NotFlat):
            return field
        fields.append(field)
    return Form(tuple(fields), schema)


def schema_fault(schema: Any) -> str | None:
    """Why a requestedSchema demands more than its ``properties``, which are not checked; None if it does not."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return "type is not object"
    if (odd := _unknown(schema, _AROUND)) is not None:
        return f"{quoted_name(odd)} is not supported in a flat form"
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, dict) or len(properties) > MAX_FIELDS:
        return f"properties is not an object with at most {MAX_FIELDS} members"
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        return "required is not a list of property names"
    if not isinstance(schema.get("additionalProperties", False), bool):
        return "additionalProperties is not a boolean"
    return None if properties.keys() >= set(required) else "required names a property that is not in properties"


def read_fields(schema: Mapping[str, Any], revision: str) -> Iterator[Field | NotFlat]:
    """Every property of a schema for which ``schema_fault`` is None.

    After the first MAX_PATTERNS, properties with a pattern are not flat.
    """
    required, patterns = frozenset(schema.get("required", ())), 0
    for name, inner in schema.get("properties", {}).items():
        patterns += isinstance(inner, dict) and "pattern" in inner
        if patterns > MAX_PATTERNS and "pattern" in inner:
            yield NotFlat(f"requestedSchema: more than {MAX_PATTERNS} properties have a pattern")
        else:
            yield read_field(name, inner, revision, required=name in required)


def read_field(name: str, schema: Any, revision: str, *, required: bool = False) -> Field | NotFlat:
    """One property as a field, or the reason why it is not flat."""
    why = "schema is not an object" if not isinstance(schema, dict) else None
    found = None if why else _type(schema, revision)
    if why is None:
        why = "type is not supported in a flat form" if found is None else _fault(found, schema)
    if why is not None or found is None:
        return NotFlat(f"requestedSchema.properties.{plain_name(name)}: {why}")
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
    """The reason why a property of that type is not flat; None if it is."""
    if (odd := _unknown(schema, _OWN[type_] | _NOTES | {"type"})) is not None:
        return f"{quoted_name(odd)} is not supported in a {type_} field"
    for name in schema.keys() & _COUNTS:
        if not _is_count(schema[name]):
            return f"{name} is not a non-negative integer"
    for name in schema.keys() & _NUMBERS:
        if not _is_number(schema[name]) or (name == "multipleOf" and schema[name] <= 0):
            return f"{name} is not a valid number"
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
        return "format is not a string"
    pattern = schema.get("pattern", "")
    if not isinstance(pattern, str) or len(pattern) > MAX_PATTERN:
        return f"pattern is not a string of at most {MAX_PATTERN} characters"
    return "pattern is not supported by RE2" if pattern and isinstance(peer_searcher(pattern), str) else None


def _enum_fault(schema: Mapping[str, Any]) -> str | None:
    if "enum" in schema:
        if "oneOf" in schema:
            return "both enum and oneOf are set"
        return None if _is_choices(schema["enum"]) else "enum is not a list of strings"
    return None if _is_titled(schema["oneOf"]) else "oneOf is not a list of {const, title} objects"


def _items_fault(schema: Mapping[str, Any]) -> str | None:
    items = schema.get("items")
    if (
        not isinstance(items, dict)
        or _unknown(items, frozenset({"type", "enum", "anyOf", "oneOf"}) | _NOTES) is not None
    ):
        return "items does not define a list of choices"
    if not isinstance(schema.get("uniqueItems", False), bool):
        return "uniqueItems is not a boolean"
    titled = [items[name] for name in ("anyOf", "oneOf") if name in items]
    if "enum" in items and not titled and items.get("type") == "string":
        return None if _is_choices(items["enum"]) else "items.enum is not a list of strings"
    return (
        None
        if len(titled) == 1 and "enum" not in items and _is_titled(titled[0])
        else "items does not define a list of choices"
    )


def _is_choices(values: object) -> bool:
    return (
        isinstance(values, list) and 0 < len(values) <= MAX_CHOICES and all(isinstance(value, str) for value in values)
    )


def _is_titled(values: object) -> bool:
    if not isinstance(values, list) or not 0 < len(values) <= MAX_CHOICES:
        return False
    known = frozenset({"const", "title", "description", "type"})
    return all(isinstance(v, dict) and isinstance(v.get("const"), str) and _unknown(v, known) is None for v in values)


def all_names(schema: object) -> Iterator[str]:
    """The names under ``properties`` and similar keywords anywhere in a schema.

    The parser has bounded the depth and size of the schema.
    """
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
    """The names in one value of ``required``, ``properties`` or ``dependentRequired``.

    These are the texts in a list, or the keys of an object with the texts in its lists.
    """
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, str))
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield name
            if isinstance(inner, list):
                yield from (item for item in inner if isinstance(item, str))


MAX_SEARCHED: Final = 32 * 1024
"""Characters of a text that is matched with a pattern; a longer one does not fit.

With so little memory, RE2 takes up to 3 microseconds for each.
"""

_email: Final = re.compile(r"[^@\s\x00-\x1f]{1,64}@[^@\s\x00-\x1f]{1,255}\Z")
_date: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
_date_time: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([0-9]{2}:[0-9]{2}):([0-9]{2})(?:\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})\Z"
)
_uri: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]*\Z")
_bad_escape: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


def is_email(text: str) -> bool:
    """Whether a string has something on both sides of one @: a stricter check would refuse addresses that work."""
    return _email.match(text) is not None


def is_date(text: str) -> bool:
    """Whether a string is a full-date of RFC 3339."""
    return _date.match(text) is not None and _parses(dt.date.fromisoformat, text)


def is_date_time(text: str) -> bool:
    """Whether a string is a date-time of RFC 3339; leap seconds are valid."""
    found = _date_time.match(text)
    if found is None or int(found[3]) > 60:
        return False
    zone = "+00:00" if found[4] in "Zz" else found[4]
    return _parses(dt.datetime.fromisoformat, f"{found[1]}T{found[2]}:{min(int(found[3]), 59):02}{zone}")


def _parses(read: Callable[[str], object], text: str) -> bool:
    try:
        read(text)
    except ValueError:
        return False
    return True


def is_uri(text: str) -> bool:
    """Whether a string is an absolute URI of RFC 3986, in characters; a web address must have a host."""
    if _uri.match(text) is None or _bad_escape.search(text):
        return False
    return not text.lower().startswith(("http:", "https:")) or (
        "://" in text and text.partition("://")[2][:1] not in ("", "/", "?", "#")
    )


FORMATS: Final[Mapping[str, Callable[[str], bool]]] = {
    "email": is_email,
    "uri": is_uri,
    "date": is_date,
    "date-time": is_date_time,
}


@lru_cache(maxsize=1)
def _checker() -> Callable[[Any], Any]:
    """The validator class with our keywords, formats and closed registry, as a function of the schema."""
    from jsonschema import Draft202012Validator, FormatChecker
    from jsonschema.validators import extend
    from referencing import Registry

    formats = FormatChecker(formats=())
    for name, good in FORMATS.items():
        formats.checks(name)(lambda value, good=good: not isinstance(value, str) or good(value))
    keywords = {
        "pattern": _pattern,
        "anyOf": _choice,
        "oneOf": _choice,
        "enum": _enum,
        "items": _items,
        "uniqueItems": _unique,
    }
    validator: Any = extend(Draft202012Validator, keywords)  # type: ignore[no-untyped-call]
    return lambda schema: validator(schema, registry=Registry(), format_checker=formats)


def _pattern(validator: Any, wanted: str, instance: Any, schema: Any) -> Iterator[Any]:
    if not isinstance(instance, str) or not _within(schema, "minLength", len(instance), "maxLength"):
        return  # a wrong length is an error of its own and needs no search
    search = peer_searcher(wanted)
    if len(instance) > MAX_SEARCHED or isinstance(search, str) or search(utf8(instance)) is None:
        yield _error("pattern")


def _choice(validator: Any, wanted: list[Any], instance: Any, schema: Any) -> Iterator[Any]:
    # of a form's thousands of choices, check only those with this very value, because all of them would take minutes
    if not _accepts(validator, [each for each in wanted if each.get("const") == instance], instance, "oneOf" in schema):
        yield _error("choice")


def _enum(validator: Any, wanted: list[Any], instance: Any, schema: Any) -> Iterator[Any]:
    if not isinstance(instance, str) or instance not in wanted:
        yield _error("enum")


def _items(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
    """Check the items of a list of choices, with a table because there may be tens of thousands of both."""
    if not isinstance(instance, list) or not _within(schema, "minItems", len(instance), "maxItems"):
        return  # a wrong type or count is an error of its own
    keyword = next(name for name in ("enum", "anyOf", "oneOf") if name in wanted)
    table: defaultdict[str, list[Any]] = defaultdict(list)
    for each in wanted[keyword]:
        table[each if keyword == "enum" else each["const"]].append(each)
    known: dict[str, bool] = {}
    for index, item in enumerate(instance):
        if not isinstance(item, str) or wanted.get("type", "string") != "string":
            yield from validator.descend(item, wanted, path=index)
            continue
        if item not in known:
            same = table.get(item, [])
            known[item] = bool(same) if keyword == "enum" else _accepts(validator, same, item, keyword == "oneOf")
        if not known[item]:
            yield _error("choice", validator=keyword, validator_value=wanted[keyword], path=(index,))


def _unique(validator: Any, wanted: bool, instance: Any, schema: Any) -> Iterator[Any]:
    if wanted and isinstance(instance, list) and len(set(instance)) < len(instance):
        yield _error("uniqueItems")


def _accepts(validator: Any, same: list[Any], instance: Any, once: bool) -> bool:
    """Whether one of the choices with this very value accepts it; with ``once``, exactly one."""
    plain: int = sum(each.get("type", "string") == "string" for each in same) if isinstance(instance, str) else 0
    if plain == len(same) or (plain and not once):
        return plain == 1 if once else plain > 0
    taken: int = sum(validator.evolve(schema=each).is_valid(instance) for each in same)
    return taken == 1 if once else taken > 0


def _error(what: str, **more: Any) -> Any:
    from jsonschema import ValidationError

    return ValidationError(what, **more)


def _within(schema: Mapping[str, Any], least: str, count: int, most: str) -> bool:
    return schema.get(least, 0) <= count <= schema.get(most, math.inf)  # type: ignore[no-any-return]


def check(form: Form, content: Mapping[str, Any]) -> str | None:
    """Why ``content`` does not fit the form (R34, R36); None if it does.

    The text names the field and the keyword, never a value.
    """
    for name, value in content.items():
        if not is_value(value):
            return f"{quoted_name(name)} is not a string, number, boolean or list of strings"
    try:
        error = next(errors(form, content), None)
    # the schema is a peer's: if jsonschema fails in any way, the content does not fit
    except Exception as problem:
        return f"it could not be validated ({type(problem).__name__})"
    if error is None:
        return None
    if error.validator == "required":
        return "a required field is missing"
    place = quoted_name(str(error.absolute_path[0])) if error.absolute_path else ""
    return f"{place} violates {error.validator}" if place else f"it violates {error.validator}"


def errors(form: Form, content: Mapping[str, Any]) -> Iterator[Any]:
    """Errors of jsonschema, with ``absolute_path``, ``validator`` (the keyword) and ``validator_value``.

    May raise any exception of jsonschema.
    """
    return iter(_checker()(form.schema).iter_errors(content))


def is_value(value: Any) -> bool:
    """Whether a form can produce the value (R34): a string, a finite number, a boolean or a list of strings."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, (str, int)) or (isinstance(value, list) and all(isinstance(item, str) for item in value))


MAX_CHOSEN: Final = 1_000  # items of one list: users choose a few, and each is searched among up to ten thousand

_MAX_LISTED: Final = 8  # choices that an error lists
_TYPES: Final = {
    "string": "must be text",
    "number": "must be a number",
    "integer": "must be a whole number",
    "boolean": "must be true or false",
    "enum": "must be one of the allowed choices",
    "multi_enum": "must be a list of allowed choices",
}
_FORMATS: Final = {
    "email": "must be an email address",
    "uri": "must be a complete URL such as https://example.com/",
    "date": "must be a date such as 2026-07-28",
    "date-time": "must be a date and time with a time zone, such as 2026-07-28T09:30:00Z",
}


def field_problems(form: Form, content: Mapping[str, Any]) -> dict[str, str]:
    """The first problem of each field, by its name; empty if the content fits (R34, R36).

    The name "" stands for the whole content. This check is stricter than the schema in one respect: it refuses fields
    that the schema does not describe, even if the schema would accept them.
    """
    fields = {field.name: field for field in form.fields}
    found = {name: "is not a field of this form" for name in content if name not in fields}
    found |= {name: "is required" for name, field in fields.items() if field.required and name not in content}
    found |= {
        name: why
        for name, value in content.items()
        if name in fields and (why := _value_problem(fields[name], value)) is not None
    }
    rest = {name: value for name, value in content.items() if name not in found}
    return {**found, **_schema_problems(form, rest, fields, found)}


def _value_problem(field: Field, value: Any) -> str | None:
    """The problem of a value that does not depend on its constraints."""
    if not is_value(value):
        return _TYPES[field.type]
    if isinstance(value, list) and len(value) > MAX_CHOSEN:
        return f"must have at most {MAX_CHOSEN} selected choices"
    return None


def _schema_problems(
    form: Form, content: Mapping[str, Any], fields: Mapping[str, Field], known: Mapping[str, str]
) -> dict[str, str]:
    found: dict[str, str] = {}
    try:
        for error in errors(form, content):
            name = str(error.absolute_path[0]) if error.absolute_path else ""
            if name in fields:
                found.setdefault(name, _problem(fields[name], error.validator, error.validator_value))
            elif error.validator not in ("required", "additionalProperties") or not known:
                found.setdefault("", f"violates the form's {error.validator}")
    # the schema is a peer's: if jsonschema fails in any way, the content does not fit
    except Exception as problem:
        found[""] = f"could not be validated ({type(problem).__name__})"
    return found


def _problem(field: Field, keyword: str, wanted: Any) -> str:
    match keyword:
        case "type":
            return _TYPES[field.type]
        case "enum" | "anyOf" | "oneOf":
            return _choices(field, [each.get("const") if isinstance(each, dict) else each for each in wanted])
        case "format":
            return _FORMATS.get(wanted, f"must have the format {quoted_name(str(wanted))}")
        case _ if keyword in _CONSTRAINTS:
            return _CONSTRAINTS[keyword](_number(wanted))
        case "pattern":
            return f"must match the pattern {quoted_name(str(wanted))}"
        case "uniqueItems":
            return "must not contain duplicates"
        case _:
            return f"violates {keyword}"


_CONSTRAINTS: Final[Mapping[str, Callable[[str], str]]] = {
    "minLength": lambda n: f"must have at least {n} character{_s(n)}",
    "maxLength": lambda n: f"must have at most {n} character{_s(n)}",
    "minimum": lambda n: f"must be at least {n}",
    "maximum": lambda n: f"must be at most {n}",
    "exclusiveMinimum": lambda n: f"must be more than {n}",
    "exclusiveMaximum": lambda n: f"must be less than {n}",
    "multipleOf": lambda n: f"must be a multiple of {n}",
    "minItems": lambda n: f"must have at least {n} selected choice{_s(n)}",
    "maxItems": lambda n: f"must have at most {n} selected choice{_s(n)}",
}


def _s(number: str) -> str:
    return "" if number == "1" else "s"


def _number(value: Any) -> str:
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e15
    return str(int(value) if whole else value)


def _choices(field: Field, values: list[Any]) -> str:
    if len(values) > _MAX_LISTED:
        return f"{_TYPES[field.type]} ({len(values)} choices)"
    listed = ", ".join(quoted_name(str(value)) for value in values)
    return f"must be one of {listed}" if field.type == "enum" else f"may only contain {listed}"
