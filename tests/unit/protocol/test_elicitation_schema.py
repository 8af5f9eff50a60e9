"""Flat form schemas: which schemas are valid in each protocol version, and which content fits them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.protocol.elicitation_schema import MAX_PATTERNS, Form, NotFlat, check, read_form

NEW, OLD = "2025-11-25", "2025-06-18"
TITLED = [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]


def single_field(field: Any, **around: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"f": field}, **around}


def flat(schema: Any, revision: str = NEW) -> Form:
    form = read_form(schema, revision)
    assert isinstance(form, Form), form
    return form


@pytest.mark.parametrize(
    ("type_", "field", "in_old"),
    [
        (
            "string",
            {"type": "string", "title": "T", "description": "D", "minLength": 1, "maxLength": 5.0, "format": "email"},
            True,
        ),
        ("string", {"type": "string", "pattern": "^a+$", "default": "a"}, True),
        ("number", {"type": "number", "minimum": 0, "maximum": 1.5}, True),
        ("integer", {"type": "integer", "exclusiveMinimum": 0, "multipleOf": 2}, True),
        ("boolean", {"type": "boolean", "default": False, "x-order": 1}, True),
        ("enum", {"type": "string", "enum": ["a"], "enumNames": ["A"]}, True),
        ("enum", {"type": "string", "oneOf": TITLED}, False),
        (
            "multi_enum",
            {"type": "array", "items": {"type": "string", "enum": ["a"]}, "minItems": 1, "uniqueItems": True},
            False,
        ),
        ("multi_enum", {"type": "array", "items": {"anyOf": TITLED}, "default": ["a"]}, False),
    ],
)
def test_a_field_of_the_specification_is_flat(type_: str, field: dict[str, Any], in_old: bool) -> None:
    assert [type_] == [found.type for found in flat(single_field(field)).fields]
    assert in_old is isinstance(read_form(single_field(field), OLD), Form)


@pytest.mark.parametrize(
    "schema",
    [
        None,
        [],
        {},
        {"type": "array"},
        {"type": "object", "properties": []},
        {"type": "object", "properties": {}, "required": ["f"]},
        {"type": "object", "properties": {}, "required": "f"},
        {"type": "object", "properties": {}, "required": [1]},
        {"type": "object", "properties": {}, "$defs": {}},
        {"type": "object", "properties": {}, "$ref": "https://example.com/schema"},
        {"type": "object", "properties": {}, "allOf": []},
        {"type": "object", "properties": {}, "additionalProperties": {"$ref": "#"}},
        {"type": "object", "properties": {str(n): {"type": "string"} for n in range(1001)}},
        single_field(True),
        single_field({}),
        single_field({"type": "null"}),
        single_field({"type": ["string", "null"]}),
        single_field({"type": "object", "properties": {}}),
        single_field({"anyOf": [{"type": "string"}, {"type": "null"}]}),
        single_field({"$ref": "#/$defs/a"}),
        single_field({"type": "string", "$ref": "https://example.com/schema"}),
        single_field({"type": "string", "not": {}}),
        single_field({"type": "string", "if": {}}),
        single_field({"type": "string", "minLength": -1}),
        single_field({"type": "string", "minLength": True}),
        single_field({"type": "string", "maxLength": 1.5}),
        single_field({"type": "string", "format": 1}),
        single_field({"type": "string", "pattern": 1}),
        single_field({"type": "string", "pattern": "(?=a)"}),
        single_field({"type": "string", "pattern": "("}),
        single_field({"type": "string", "pattern": "a" * 1001}),
        single_field({"type": "string", "enum": []}),
        single_field({"type": "string", "enum": [1]}),
        single_field({"type": "string", "enum": ["a"], "oneOf": TITLED}),
        single_field({"type": "string", "oneOf": [{"type": "string"}]}),
        single_field({"type": "string", "oneOf": [{"const": "a", "$ref": "x"}]}),
        single_field({"type": "integer", "enum": [1]}),
        single_field({"type": "number", "minimum": "0"}),
        single_field({"type": "number", "multipleOf": 0}),
        single_field({"type": "number", "exclusiveMinimum": True}),
        single_field({"type": "array"}),
        single_field({"type": "array", "items": {"type": "string"}}),
        single_field({"type": "array", "items": {"type": "integer", "enum": ["a"]}}),
        single_field({"type": "array", "items": {"anyOf": [{"type": "string"}]}}),
        single_field({"type": "array", "items": {"type": "string", "enum": ["a"]}, "uniqueItems": 1}),
        single_field({"type": "array", "items": {"type": "string", "enum": ["a"]}, "contains": {}}),
    ],
)
def test_anything_more_is_not_flat(schema: Any) -> None:
    found = read_form(schema, NEW)
    assert isinstance(found, NotFlat)
    assert found.why.startswith("requestedSchema")


def patterned(count: int) -> dict[str, Any]:
    return {"type": "object", "properties": {f"f{n}": {"type": "string", "pattern": f"^a{n}"} for n in range(count)}}


def test_a_form_has_a_bounded_number_of_patterns() -> None:
    assert MAX_PATTERNS == len(flat(patterned(MAX_PATTERNS)).fields)
    found = read_form(patterned(MAX_PATTERNS + 1), NEW)
    assert NotFlat(f"requestedSchema: more than {MAX_PATTERNS} properties have a pattern") == found


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (single_field({"type": "null"}), "requestedSchema.properties.f: type is not supported in a flat form"),
        (
            {"type": "object", "properties": {"a\x1b[2J\u202eb": {}}},
            "requestedSchema.properties.'a\\x1b[2J\\u202eb': type is not supported in a flat form",
        ),
        (
            {"type": "object", "properties": {"\U000e0001" * 5000: {}}},
            "requestedSchema.properties.'" + "\\U000e0001" * 5 + "...': type is not supported in a flat form",
        ),
        ({"type": "object", "\u2066x": 1}, "requestedSchema: '\\u2066x' is not supported in a flat form"),
    ],
)
def test_a_peers_name_is_shown_escaped_and_bounded(schema: Any, why: str) -> None:
    found = read_form(schema, NEW)
    assert isinstance(found, NotFlat)
    assert why == found.why


def test_a_misfit_shows_a_peers_name_escaped() -> None:
    form = flat({"type": "object", "properties": {"\u202ef": {"type": "string"}}})
    assert check(form, {"\u202ef": 1}) == "'\\u202ef' violates type"
    assert (
        check(form, {"\u202e" * 90: None})
        == "'" + "\\u202e" * 9 + "...' is not a string, number, boolean or list of strings"
    )


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab", "äöü"], ["a", "abcd", 1, True, None, ["ab"]]),
        ({"type": "string", "pattern": "^a+$"}, ["aa"], ["b"]),
        ({"type": "string", "format": "email"}, ["a@b.example"], ["a", "a@", "a b@c"]),
        (
            {"type": "string", "format": "uri"},
            ["https://a.example/x?y#z", "mailto:a@b.example"],
            ["a", "/x", "https://", "https:x", "a:b c", "a:%zz"],
        ),
        ({"type": "string", "format": "date"}, ["2026-02-28"], ["2026-02-29", "20260228", "2026-2-8"]),
        (
            {"type": "string", "format": "date-time"},
            ["2026-02-28T23:59:60Z", "2026-02-28t01:02:03.123456789+01:00"],
            [
                "2026-02-28T01:02:03",
                "2026-02-28",
                "2026-02-28T25:00:00Z",
                "2026-02-28T01:02:61Z",
                "2026-02-28T01:02:03+99:00",
            ],
        ),
        ({"type": "string", "format": "anything"}, ["x"], [1]),
        (
            {"type": "integer", "minimum": 1, "maximum": 5},
            [1, 5.0, 5],
            [True, 0, 6, 1.5, "1", float("nan"), float("inf")],
        ),
        ({"type": "number", "exclusiveMinimum": 0}, [0.1, 1], [0, True, "1", float("nan"), float("inf")]),
        ({"type": "boolean"}, [True, False], [1, 0, "true"]),
        ({"type": "string", "enum": ["a", "b"]}, ["a"], ["c", "A", ["a"]]),
        ({"type": "string", "oneOf": TITLED}, ["a"], ["A", "c"]),
        (
            {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "minItems": 1, "maxItems": 2},
            [["a"], ["a", "b"]],
            [[], ["c"], "a", [1], [["a"]]],
        ),
        ({"type": "array", "items": {"anyOf": TITLED}}, [[], ["b"]], [["B"], {"a": 1}]),
    ],
)
def test_content_fits_or_not(field: dict[str, Any], good: list[Any], bad: list[Any]) -> None:
    form = flat(single_field(field))
    assert [None] * len(good) == [check(form, {"f": value}) for value in good]
    assert [] == [value for value in bad if check(form, {"f": value}) is None]


def test_a_missing_required_field_does_not_fit() -> None:
    assert check(flat(single_field({"type": "string"}, required=["f"])), {}) == "a required field is missing"
    assert check(flat(single_field({"type": "string"})), {}) is None


def test_a_field_too_many_fits_unless_the_form_forbids_it() -> None:
    assert check(flat(single_field({"type": "string"})), {"g": "x"}) is None
    assert check(flat(single_field({"type": "string"}, additionalProperties=False)), {"g": "x"}) is not None


def test_a_misfit_is_told_without_the_value() -> None:
    assert check(flat(single_field({"type": "string", "maxLength": 1})), {"f": "hunter2"}) == "'f' violates maxLength"


def test_a_pattern_that_hangs_other_engines_is_checked_at_once() -> None:
    form = flat(single_field({"type": "string", "pattern": "^(a+)+$"}))
    assert check(form, {"f": "a" * 5000 + "b"}) == "'f' violates pattern"
    assert check(form, {"f": "a\ud800"}) == "'f' violates pattern"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)
WORDS = st.sampled_from(
    [
        "type",
        "enum",
        "oneOf",
        "items",
        "pattern",
        "format",
        "minLength",
        "minimum",
        "multipleOf",
        "default",
        "$ref",
        "maxItems",
    ]
)
TYPES = st.sampled_from(["string", "number", "integer", "boolean", "array", "object"])


@given(st.dictionaries(WORDS, JSON | TYPES, max_size=4), TYPES, JSON)
def test_no_schema_and_no_value_raises(field: dict[str, Any], type_: str, value: Any) -> None:
    form = read_form(single_field({"type": type_} | field), NEW)
    if isinstance(form, Form):
        said = check(form, {"f": value})
        assert said is None or isinstance(said, str)
