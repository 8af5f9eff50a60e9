"""The fields of an elicitation's form as a page draws them: a peer's flat schema -> labels, kinds of inputs, choices, hints. Not what was typed
(``filled.py``).

Inputs have names of ours (``f.0``): a peer's would steer what browsers fill in by themselves. What looks like a secret is never filled in (R39).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from samplegate.core.matching.forms import MISSING, Field, Form
from samplegate.core.matching.secrecy import secret_fields
from samplegate.web.typed import Posted, first

MAX_FIELDS: Final = 200
MAX_OPTIONS: Final = 3_000  # of all fields: beyond, a form is written as JSON
MAX_RADIOS: Final = 6
MAX_LABEL: Final = 300
MAX_DESCRIPTION: Final = 4_000
LONG: Final = 200  # characters that a text may have to be a line

Draws: TypeAlias = Literal["line", "lines", "number", "date", "email", "url", "radios", "select", "checkboxes"]
NONE: Final = "none"
"""The value of the choice that is no answer."""


class Option(msgspec.Struct, frozen=True):
    """One choice; ``value`` is its number, for a peer's own values may be anything."""

    value: str
    label: str
    chosen: bool


class Entry(msgspec.Struct, frozen=True):
    """One field."""

    name: str
    """Of the input."""
    key: str
    """The peer's name for it."""
    label: str
    description: str
    draws: Draws
    required: bool
    hints: tuple[str, ...]
    secret: bool
    value: str = ""
    options: tuple[Option, ...] = ()
    problem: str = ""


def drawable(form: Form) -> bool:
    """Whether it is small enough to be drawn."""
    return len(form.fields) <= MAX_FIELDS and sum(len(choices(field)) for field in form.fields) <= MAX_OPTIONS


def entries(form: Form, posted: Posted | None, problems: Mapping[str, str]) -> tuple[Entry, ...]:
    """Every field with its default, or with what was typed; ``problems`` by the peer's names."""
    secrets = secret_fields(form.schema)
    return tuple(_entry(n, field, field.name in secrets, posted, problems.get(field.name, "")) for n, field in enumerate(form.fields))


def _entry(n: int, field: Field, secret: bool, posted: Posted | None, problem: str) -> Entry:
    name, draws = f"f.{n}", _draws(field)
    default = None if secret or field.default is MISSING else field.default
    value = _text(default) if posted is None else first(posted, name) or ""
    chosen = _chosen(field, default) if posted is None else set(posted.get(name, ()))
    chooses = draws in ("radios", "select", "checkboxes")
    description = field.schema.get("description")
    return Entry(
        name, field.name, (field.title or field.name)[:MAX_LABEL], description[:MAX_DESCRIPTION] if isinstance(description, str) else "",
        draws, field.required, tuple(_hints(field)), secret, "" if chooses else value,
        tuple(_options(field, draws, chosen)) if chooses else (), problem,
    )  # fmt: skip


def choices(field: Field) -> list[tuple[str, str]]:
    """The values of an enum and what they are called."""
    source = field.schema.get("items", {}) if field.type == "multi_enum" else field.schema if field.type == "enum" else {}
    for name in ("oneOf", "anyOf"):
        if name in source:
            return [(each["const"], str(each.get("title", each["const"]))) for each in source[name]]
    values = source.get("enum", [])
    names = source.get("enumNames")
    if isinstance(names, list) and len(names) == len(values) and all(isinstance(name, str) for name in names):
        return list(zip(values, names, strict=True))
    return [(value, value) for value in values]


def _draws(field: Field) -> Draws:
    match field.type:
        case "boolean":
            return "radios"
        case "enum":
            return "radios" if len(choices(field)) <= MAX_RADIOS else "select"
        case "multi_enum":
            return "checkboxes"
        case "number" | "integer":
            return "number"
        case _:
            return _text_draws(field)


def _text_draws(field: Field) -> Draws:
    formats: dict[Any, Draws] = {"date": "date", "email": "email", "uri": "url"}
    if (found := formats.get(field.schema.get("format"))) is not None:
        return found
    return "lines" if field.schema.get("maxLength", 0) > LONG or (isinstance(field.default, str) and "\n" in field.default) else "line"


def _options(field: Field, draws: Draws, chosen: set[str]) -> Iterator[Option]:
    if draws == "select" or (draws == "radios" and not field.required):
        yield Option(NONE, "Choose one" if field.required else "No answer", not chosen or NONE in chosen)
    if field.type == "boolean":
        yield from (Option(value, label, value in chosen) for value, label in (("true", "Yes"), ("false", "No")))
        return
    for n, (value, title) in enumerate(choices(field)):
        label = title if title == value else f"{title} ({value})"
        yield Option(str(n), label[:MAX_LABEL], str(n) in chosen)


def _chosen(field: Field, default: Any) -> set[str]:
    if field.type == "boolean":
        return {json.dumps(default)} if isinstance(default, bool) else set()
    defaults = default if isinstance(default, list) else [default]
    return {str(n) for n, (value, _) in enumerate(choices(field)) if value in defaults}


def _text(default: Any) -> str:
    return default if isinstance(default, str) else "" if default is None or isinstance(default, bool | list | dict) else json.dumps(default)


def _hints(field: Field) -> Iterator[str]:
    """What the schema wants of it, in words."""
    schema = field.schema
    if field.type in ("integer", "number"):
        yield "a whole number" if field.type == "integer" else "a number"
    formats = {"email": "an e-mail address", "uri": "an absolute address, such as https://example.com/", "date": "a date, such as 2026-11-22"}
    formats["date-time"] = "a moment with its time zone, such as 2026-11-22T10:03:00Z or 2026-11-22T11:03:00+01:00"
    if field.type == "string" and (said := formats.get(str(schema.get("format")))):
        yield said
    for name, words in _BOUNDS.items():
        if name in schema:
            yield words.format(json.dumps(schema[name]))
    if field.type == "string" and schema.get("pattern"):
        yield f"matches the expression {str(schema['pattern'])[:MAX_LABEL]}"


_BOUNDS: Final = {
    "minimum": "at least {}", "exclusiveMinimum": "more than {}", "maximum": "at most {}", "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}", "minLength": "at least {} characters", "maxLength": "at most {} characters",
    "minItems": "at least {} of them", "maxItems": "at most {} of them",
}  # fmt: skip
