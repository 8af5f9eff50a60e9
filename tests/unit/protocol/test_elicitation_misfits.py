"""Validation errors in a form's content, reported at each field."""

from __future__ import annotations

import time
from typing import Any

import pytest

from samplegate.protocol.elicitation_schema import MAX_CHOSEN, MISSING, Field, Form, check, field_problems, read_form


def form(required: list[str] | None = None, **fields: Any) -> Form:
    read = read_form({"type": "object", "properties": fields, "required": required or []}, "2025-11-25")
    assert isinstance(read, Form), read
    return read


TITLED = [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]


@pytest.mark.parametrize(
    ("schema", "value", "what"),
    [
        ({"type": "string"}, 5, "must be text"),
        ({"type": "string"}, None, "must be text"),
        ({"type": "boolean"}, "true", "must be true or false"),
        ({"type": "boolean"}, 1, "must be true or false"),
        ({"type": "integer"}, True, "must be a whole number"),
        ({"type": "integer"}, 1.5, "must be a whole number"),
        ({"type": "number"}, "1", "must be a number"),
        ({"type": "number"}, {"a": 1}, "must be a number"),
        ({"type": "string", "minLength": 1}, "", "must have at least 1 character"),
        ({"type": "string", "maxLength": 3}, "abcd", "must have at most 3 characters"),
        ({"type": "string", "pattern": "^a+$"}, "b", "must match the pattern '^a+$'"),
        ({"type": "string", "format": "email"}, "x", "must be an email address"),
        ({"type": "string", "format": "uri"}, "x", "must be a complete URL such as https://example.com/"),
        ({"type": "string", "format": "date"}, "2026-02-30", "must be a date such as 2026-07-28"),
        (
            {"type": "string", "format": "date-time"},
            "x",
            "must be a date and time with a time zone, such as 2026-07-28T09:30:00Z",
        ),
        ({"type": "integer", "minimum": 1.0}, 0, "must be at least 1"),
        ({"type": "number", "maximum": 0.5}, 1, "must be at most 0.5"),
        ({"type": "number", "exclusiveMinimum": 0}, 0, "must be more than 0"),
        ({"type": "number", "exclusiveMaximum": 1}, 1, "must be less than 1"),
        ({"type": "integer", "multipleOf": 5}, 7, "must be a multiple of 5"),
        ({"type": "string", "enum": ["red", "green"]}, "blue", "must be one of 'red', 'green'"),
        ({"type": "string", "enum": ["red", "green"]}, True, "must be one of the allowed choices"),
        ({"type": "string", "oneOf": TITLED}, "Small", "must be one of 's', 'l'"),
        (
            {"type": "string", "enum": [str(n) for n in range(9)]},
            "9",
            "must be one of the allowed choices (9 choices)",
        ),
        ({"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}, ["c"], "may only contain 'a', 'b'"),
        ({"type": "array", "items": {"anyOf": TITLED}}, ["Small"], "may only contain 's', 'l'"),
        ({"type": "array", "items": {"anyOf": TITLED}}, "s", "must be a list of allowed choices"),
        ({"type": "array", "items": {"anyOf": TITLED}}, [1], "must be a list of allowed choices"),
        ({"type": "array", "items": {"anyOf": TITLED}, "minItems": 1}, [], "must have at least 1 selected choice"),
        (
            {"type": "array", "items": {"anyOf": TITLED}, "maxItems": 1},
            ["s", "l"],
            "must have at most 1 selected choice",
        ),
        (
            {"type": "array", "items": {"anyOf": TITLED}, "uniqueItems": True},
            ["s", "s"],
            "must not contain duplicates",
        ),
    ],
)
def test_the_field_says_what_its_schema_demands(schema: dict[str, Any], value: Any, what: str) -> None:
    found = field_problems(form(a=schema, b={"type": "string"}), {"a": value, "b": "fine"})
    assert {"a": what} == found


def test_what_is_missing_or_not_asked_for_is_told_by_name() -> None:
    found = field_problems(form(["a", "b"], a={"type": "string"}, b={"type": "string"}), {"c": 1, "b": "x"})
    assert {"c": "is not a field of this form", "a": "is required"} == found


def test_a_field_is_refused_that_the_schema_lets_pass() -> None:
    asked = form(a={"type": "string"})
    assert check(asked, {"a": "x", "extra": "y"}) is None
    assert {"extra": "is not a field of this form"} == field_problems(asked, {"a": "x", "extra": "y"})


@pytest.mark.parametrize("value", [5.0, 5, -3])
def test_a_whole_number_may_be_written_with_a_point(value: float) -> None:
    assert {} == field_problems(form(a={"type": "integer"}), {"a": value})


def test_a_long_pattern_and_long_choices_are_cut_short() -> None:
    found = field_problems(
        form(a={"type": "string", "pattern": "a" * 900}, b={"type": "string", "enum": ["c" * 900]}),
        {"a": "x", "b": "x"},
    )
    assert max(map(len, found.values())) < 100


def test_thousands_of_choices_of_thousands_do_not_take_minutes() -> None:
    choices = [str(n) for n in range(10_000)]
    asked = form(
        a={"type": "array", "items": {"anyOf": [{"const": name, "title": name} for name in choices]}},
        b={"type": "array", "items": {"type": "string", "enum": choices}},
    )
    started = time.process_time()
    assert {} == field_problems(asked, {"a": choices[-MAX_CHOSEN:], "b": choices[-MAX_CHOSEN:]})
    assert {"a": f"must have at most {MAX_CHOSEN} selected choices"} == field_problems(asked, {"a": choices})
    assert time.process_time() - started < 10


def test_two_choices_with_one_value_are_one_choice_too_many() -> None:
    """The schema requires exactly one of them."""
    asked = form(a={"type": "string", "oneOf": [*TITLED, TITLED[0]]})
    assert {} == field_problems(asked, {"a": "l"})
    assert {"a"} == field_problems(asked, {"a": "s"}).keys()


@pytest.mark.parametrize(
    ("schema", "what"),
    [
        ({"properties": {"a": {"type": "no type"}}}, {"": "could not be validated (UnknownType)"}),
        ({"properties": {"a": {"const": "x"}}}, {"a": "violates const"}),
        ({"maxProperties": 0}, {"": "violates the form's maxProperties"}),
    ],
)
def test_a_schema_that_goes_beyond_a_form_lets_nothing_pass(schema: dict[str, Any], what: dict[str, str]) -> None:
    odd = Form((Field("a", "string", "", required=False, default=MISSING, schema={}),), schema)
    assert what == field_problems(odd, {"a": "y"})
