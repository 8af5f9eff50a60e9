"""Every match of an expression, within bounds."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from samplegate.regex import STRETCH, Allowance, compiled, finder, merged_spans, spans


def found(pattern: str, text: bytes) -> list[tuple[int, int]]:
    return list(spans(compiled(pattern), text, Allowance()))


def names(patterns: dict[str, str], text: bytes) -> list[str]:
    return [name for name, _ in finder(patterns).hits(text)]


@given(
    st.sampled_from(["a", "a+", "ab|b", r"\bab\b", "a(?s:.*?)b", "^a", "b$", "(?i)AB", "a*", "[^a]{2,3}"]),
    st.text("ab c\n", max_size=40),
)
def test_the_places_are_those_that_a_search_for_each_finds(pattern: str, text: str) -> None:
    expected = [
        match.span() for match in re.compile(pattern.replace("$", r"\Z")).finditer(text) if match.end() > match.start()
    ]
    assert expected == found(pattern, text.encode())


@pytest.mark.parametrize("before", [0, STRETCH - 5, STRETCH - 1, STRETCH, 3 * STRETCH + 1])
@pytest.mark.parametrize("inside", [0, 10, STRETCH, 5 * STRETCH])
def test_a_place_is_found_whole_wherever_it_lies(before: int, inside: int) -> None:
    text = b" " * before + b"BEGIN" + b"x" * inside + b"END" + b" " * 3 * STRETCH
    assert [(before, before + inside + 8)] == found("BEGIN(?s:.*?)END", text)
    assert [(before, before + inside + 8)] == found("BEGINx*END", text)
    assert [(before, before + inside + 6)] == found("BEGINx*E", text)


def test_the_end_of_a_stretch_is_no_end_of_a_word_or_text() -> None:
    text = b" " * (STRETCH - 4) + b"keys" + b"s" * STRETCH
    assert [] == found(r"\bkeys\b", text)
    assert [] == found(r"keys$", text)


def test_of_an_expression_with_the_named_group_only_that_part_is_the_place() -> None:
    assert [(4, 7)] == found("key=(?P<secret>[a-z]+);", b"key=abc;")
    assert [(0, 4)] == found("key=(?P<secret>[a-z]+)?", b"key=")
    assert [(0, 7)] == found("key=([a-z]+)", b"key=abc")


def test_what_is_left_when_the_allowance_is_used_up_is_one_place() -> None:
    text = b"a" * 20 * STRETCH
    found = list(spans(compiled("a(?s:.*?b)?"), text, Allowance(spare=0)))
    assert len(text) == found[-1][1]
    assert len(found) < 100
    assert all(end == start for (_, end), (start, _) in pairwise(found))


def test_names_are_those_whose_expression_is_somewhere() -> None:
    patterns = {"word": "(?i)straße", "digits": "[0-9]{4}", "any": "x|y", "folded": "(?i)key"}
    assert ["word", "digits"] == names(patterns, "Eine STRASSE, eine STRAßE 1234".encode())
    assert ["any"] == names(patterns, b"y 123")
    assert ["folded"] == names(patterns, "\u212aEY".encode())  # the Kelvin sign folds to k
    assert [] == names(patterns, b"")


@pytest.mark.parametrize("pattern", ["[0-9]{4}", "a", "(?i)[a-z]{3}x", r"\d", "(?s).+", "é+"])
def test_a_single_expression_is_found_whether_or_not_it_needs_a_literal(pattern: str) -> None:
    assert ["one"] == names({"one": pattern}, "1234 abcx aéé".encode())


def test_what_is_no_re2_expression_is_not_taken() -> None:
    with pytest.raises(re2.error):
        finder({"ahead": "(?=x)"})


def test_places_that_overlap_are_one_and_those_that_touch_are_two() -> None:
    assert [((0, 5), "a"), ((5, 7), "c")] == merged_spans([((5, 7), "c"), ((0, 3), "a"), ((2, 5), "b")])
    assert [((0, 9), "long")] == merged_spans([((0, 3), "short"), ((0, 9), "long"), ((1, 2), "in")])
    assert [] == merged_spans([])
