"""A form that a person filled in -> the elicitation's content, each value of its field's type. Whether it fits the schema says ``verdicts.read``."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final

from samplegate.core.matching.forms import Field, Form
from samplegate.core.parsing.strictjson import Fault, decode
from samplegate.web.fields import NONE, choices
from samplegate.web.typed import Posted, first, kept

_number: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,40})(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,3})?\Z")
MAX_INTEGER: Final = 2**63 - 1


class Unfilled:
    """Nothing was typed or chosen: the field is left out."""


UNFILLED: Final = Unfilled()


def content(form: Form, posted: Posted) -> tuple[dict[str, Any], dict[str, str]]:
    """The values by the peer's names, and what is wrong by the same names. Empty fields are left out, never filled with defaults."""
    values: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for n, field in enumerate(form.fields):
        value = _value(field, posted, f"f.{n}")
        if isinstance(value, Problem):
            problems[field.name] = str(value)
        elif value is not UNFILLED:
            values[field.name] = value
        elif field.required:
            problems[field.name] = "is needed"
    return values, problems


class Problem(str):
    """What is wrong with what was typed."""

    __slots__ = ()


def _value(field: Field, posted: Posted, name: str) -> Any:
    if field.type == "multi_enum":
        return _picked(field, posted.get(name, ()))
    typed = first(posted, name)
    if not typed or (typed == NONE and field.type in ("boolean", "enum")):
        return UNFILLED
    match field.type:
        case "boolean":
            return {"true": True, "false": False}.get(typed, Problem("must be yes or no"))
        case "enum":
            values = dict(_numbered(field))
            return values.get(typed, Problem("must be one of the choices"))
        case "number" | "integer":
            return number(typed, whole=field.type == "integer")
        case _:
            return kept(field.default, typed) if isinstance(field.default, str) else kept("", typed)


def _numbered(field: Field) -> list[tuple[str, str]]:
    return [(str(n), value) for n, (value, _) in enumerate(choices(field))]


def _picked(field: Field, numbers: Any) -> Any:
    """The chosen values in their order. None chosen is no answer, or the empty list where one is needed."""
    values = dict(_numbered(field))
    if not set(numbers) <= values.keys():
        return Problem("must be some of the choices")
    picked = [value for number, value in values.items() if number in numbers]
    return picked if picked or (field.required and not field.schema.get("minItems")) else UNFILLED


def number(typed: str, *, whole: bool) -> Any:
    """What was typed as a number, or the Problem with it."""
    text = typed.strip().replace("\u2212", "-")
    found = _number.match(text)
    if found is None or (whole and (found[1] or found[2])):
        return Problem("must be a whole number" if whole else "must be a number, with a point for fractions")
    value: int | float = json.loads(text)
    too_large = math.isinf(value) if isinstance(value, float) else abs(value) > MAX_INTEGER
    return Problem("is too large a number") if too_large else value


def as_json(posted: Posted) -> Mapping[str, Any] | str:
    """Content that was written as JSON, for forms too large to be drawn; or what is wrong with it."""
    try:
        value = decode((first(posted, "content") or "").encode("utf-8", "replace"), max_bytes=1 << 20)
    except Fault as fault:
        return f"is not JSON: {fault}"
    return value if isinstance(value, dict) else "must be an object with the fields of the form"
