"""What is wrong with a form's content, field by field, in words for whoever filled it in. The law is ``checking.py``; this only words its errors.

What is said names what the schema demands (a bound, a choice), cut short like a name, and never what was entered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from samplegate.core.matching.checking import errors, is_value
from samplegate.core.matching.forms import Field, Form
from samplegate.core.parsing.strictjson import named

MOST_CHOSEN: Final = 1_000  # items of one list: people choose a few, and each is looked for among up to ten thousand

_SHOWN: Final = 8  # choices that are named where one of them must be
_TYPES: Final = {
    "string": "must be a text",
    "number": "must be a number",
    "integer": "must be a whole number",
    "boolean": "must be true or false",
    "enum": "must be one of its choices",
    "multi_enum": "must be a list of its choices",
}
_FORMATS: Final = {
    "email": "must be an email address",
    "uri": "must be a whole address such as https://example.com/",
    "date": "must be a date such as 2026-07-28",
    "date-time": "must be a date with a time and a zone such as 2026-07-28T09:30:00Z",
}


def misfits(form: Form, content: Mapping[str, Any]) -> dict[str, str]:
    """By name of the field, the first thing that is wrong with it; empty where the content fits (R34, R36). "" stands for the whole content.

    Stricter than the schema in one thing: fields that it does not describe are refused even where it would let them pass.
    """
    fields = {field.name: field for field in form.fields}
    found = {name: "is no field of this form" for name in content if name not in fields}
    found |= {name: "is required" for name, field in fields.items() if field.required and name not in content}
    found |= {name: why for name, value in content.items() if name in fields and (why := _unlike(fields[name], value)) is not None}
    rest = {name: value for name, value in content.items() if name not in found}
    return {**found, **_by_schema(form, rest, fields, found)}


def _unlike(field: Field, value: Any) -> str | None:
    """What is wrong with a value whatever its bounds are."""
    if not is_value(value):
        return _TYPES[field.type]
    if isinstance(value, list) and len(value) > MOST_CHOSEN:
        return f"must be at most {MOST_CHOSEN} of its choices"
    return None


def _by_schema(form: Form, content: Mapping[str, Any], fields: Mapping[str, Field], known: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    try:
        for error in errors(form, content):
            name = str(error.absolute_path[0]) if error.absolute_path else ""
            if name in fields:
                found.setdefault(name, _said(fields[name], error.validator, error.validator_value))
            elif error.validator not in ("required", "additionalProperties") or not known:
                found.setdefault("", f"does not fit the form's {error.validator}")
    except Exception as problem:  # the schema is a peer's: what cannot be checked does not fit, whatever jsonschema stumbled over
        found[""] = f"could not be checked ({type(problem).__name__})"
    return found


def _said(field: Field, keyword: str, wanted: Any) -> str:
    match keyword:
        case "type":
            return _TYPES[field.type]
        case "enum" | "anyOf" | "oneOf":
            return _choices(field, [each.get("const") if isinstance(each, dict) else each for each in wanted])
        case "format":
            return _FORMATS.get(wanted, f"must have the format {named(str(wanted))}")
        case _ if keyword in _DEMANDS:
            return _DEMANDS[keyword](_number(wanted))
        case "pattern":
            return f"must fit the pattern {named(str(wanted))}"
        case "uniqueItems":
            return "must not name a choice twice"
        case _:
            return f"does not fit its {keyword}"


_DEMANDS: Final[Mapping[str, Callable[[str], str]]] = {
    "minLength": lambda n: f"must have at least {n} character{_s(n)}",
    "maxLength": lambda n: f"must have at most {n} character{_s(n)}",
    "minimum": lambda n: f"must be at least {n}",
    "maximum": lambda n: f"must be at most {n}",
    "exclusiveMinimum": lambda n: f"must be more than {n}",
    "exclusiveMaximum": lambda n: f"must be less than {n}",
    "multipleOf": lambda n: f"must be a multiple of {n}",
    "minItems": lambda n: f"needs at least {n} choice{_s(n)}",
    "maxItems": lambda n: f"must be at most {n} choice{_s(n)}",
}


def _s(number: str) -> str:
    return "" if number == "1" else "s"


def _number(value: Any) -> str:
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e15
    return str(int(value) if whole else value)


def _choices(field: Field, values: list[Any]) -> str:
    if len(values) > _SHOWN:
        return f"{_TYPES[field.type]}, of which there are {len(values)}"
    listed = ", ".join(named(str(value)) for value in values)
    return f"must be one of {listed}" if field.type == "enum" else f"must only name {listed}"
