"""Cutting members out of a JSON object: the rest stays the same, byte for byte."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.protocol.rawjson import Malformed, cut, inserted

NAMES = ["a", "b", "resultType", "_meta", 'q"', "\u00e9", ","]
OBJECTS = st.dictionaries(st.sampled_from(NAMES), st.sampled_from([1, "x,}", {"a": [1, {}]}, None, "\u00e9\\"]))
STYLES: Any = st.sampled_from(
    [{}, {"indent": 1}, {"separators": (",", ":")}, {"separators": (" , ", " : "), "ensure_ascii": False}]
)


@given(OBJECTS, st.sets(st.sampled_from(NAMES)), STYLES)
def test_what_is_cut_is_gone_and_nothing_else(found: dict[str, Any], names: set[str], style: Any) -> None:
    text = json.dumps(found, **style).encode()
    left = cut(text, names)
    assert {name: value for name, value in found.items() if name not in names} == json.loads(left)
    assert list(json.loads(left)) == [name for name in found if name not in names]


@given(OBJECTS, STYLES)
def test_what_is_put_in_stands_behind_the_rest(found: dict[str, Any], style: Any) -> None:
    assert {**found, "new": 1} == json.loads(inserted(json.dumps(found, **style).encode(), b'"new":1'))


def test_spelling_stays() -> None:
    assert b'{ "a" : 1.0, "c":"\\u00e9" }' == cut(b'{ "a" : 1.0, "b":2, "c":"\\u00e9" }', {"b"})


@pytest.mark.parametrize("text", [b"[]", b"5", b"", b'{"a":1,"a":2}', b'{"a":1'])
def test_what_is_no_object_of_one_reading_is_not_cut(text: bytes) -> None:
    with pytest.raises(Malformed):
        cut(text, {"b"})
