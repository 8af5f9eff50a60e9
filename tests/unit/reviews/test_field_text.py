"""A form field as text, the same for a terminal and a chat."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.reviews.views import choices, kind, lines, span

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=300),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=15,
)
WORDS = ("type", "enum", "enumNames", "oneOf", "anyOf", "items", "default", "minimum", "pattern", "format", "minItems")


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string", "enum": ["a", "b"]}, [("a", ""), ("b", "")]),
        ({"type": "string", "enum": ["a", "b"], "enumNames": ["Ay"]}, [("a", "Ay"), ("b", "")]),
        ({"type": "string", "oneOf": [{"const": "a", "title": "Ay"}]}, [("a", "Ay")]),
        ({"type": "array", "items": {"type": "string", "enum": ["a"]}}, [("a", "")]),
        ({"type": "array", "items": {"anyOf": [{"const": "a", "title": "Ay"}]}}, [("a", "Ay")]),
        ({"type": "integer"}, []),
    ],
)
def test_choices_are_read_however_they_are_written(schema: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert expected == choices(schema)


@pytest.mark.parametrize(
    ("default", "expected"),
    [
        (True, "true"),
        (3, "3"),
        ("a", "a"),
        ("", '""'),
        (["a", "b"], "a, b"),
        ([], "[]"),
        ("x" * 500, "x" * 197 + "..."),
    ],
)
def test_a_default_is_told_as_it_is_typed_unless_it_is_a_secret(default: Any, expected: str) -> None:
    assert [f"default: {expected}"] == list(lines({"type": "string", "default": default}, secret=False))
    assert [] == list(lines({"type": "string", "default": default}, secret=True))


@pytest.mark.cpu(1)
@given(st.dictionaries(st.sampled_from(WORDS), ANYTHING, max_size=6))
def test_whatever_a_schema_holds_is_told_in_few_short_lines(schema: dict[str, Any]) -> None:
    found = [kind(schema), *lines(schema, secret=False)]
    assert len(found) <= 34
    assert all(len(line) <= 2_000 for line in found[1:])


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(-1, "0 s"), (42.9, "42 s"), (119, "119 s"), (120, "2 min"), (7_200, "2 h"), (86_400, "24 h"), (259_200, "3 d")],
)
def test_spans_are_said_as_people_say_them(seconds: float, expected: str) -> None:
    assert expected == span(seconds)
