"""Markdown of summaries, as a renderer of GitHub's dialect reads it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from samplegate.ci.markdown import MAX_CODE, bounded, code, table
from samplegate.printable import printable

READER = MarkdownIt("commonmark").enable("table")
PARTS = [
    "|",
    "\\",
    "`",
    "``",
    "\n",
    "\r\n",
    " ",
    "<b>",
    "](x)",
    "@me",
    "#1",
    "***",
    "---",
    "\u202e",
    "&#124;",
    "~~~",
    "$",
]
HOSTILE = st.lists(st.one_of(st.sampled_from(PARTS), st.text(st.characters(codec=None), max_size=3)), max_size=12).map(
    "".join
)


def cells(markdown: str) -> Iterator[list[Token]]:
    """The inline tokens of each cell of the only table."""
    found = READER.parse(markdown)
    assert ("table_open", "table_close") == (found[0].type, found[-1].type)
    for before, token in pairwise(found):
        if before.type in ("th_open", "td_open"):
            yield token.children or []


@given(HOSTILE)
def test_any_text_is_one_code_span(text: str) -> None:
    paragraph, inline, end = READER.parse(f"{code(text)} and {code(text)}")
    assert ("paragraph_open", "paragraph_close") == (paragraph.type, end.type)
    shown = printable(text) or " "
    assert [("code_inline", shown), ("text", " and "), ("code_inline", shown)] == [
        (child.type, child.content) for child in inline.children or []
    ]


@given(st.lists(st.tuples(HOSTILE, HOSTILE), min_size=1, max_size=4), st.integers(1, 4))
def test_a_table_keeps_its_columns_and_its_texts(rows: list[tuple[str, str]], most: int) -> None:
    found = list(cells(table(["a | b", "c\nd"], [[code(a), code(b)] for a, b in rows], most=most)))
    expected = [[("text", "a | b")], [("text", "c d")]]
    expected += [[("code_inline", printable(text) or " ")] for row in rows[:most] for text in row]
    if len(rows) > most:
        expected += [[("text", f"and {len(rows) - most} more")], []]
    assert expected == [[(child.type, child.content) for child in cell] for cell in found]


def test_a_span_is_bounded_and_closed_for_more_backticks_than_a_reader_counts() -> None:
    for text in ("`" * 5_000, "` `` ``` ```` " * 500, "x" * 5_000):
        (_, inline, _) = READER.parse(code(text))
        (child,) = inline.children or []
        assert ("code_inline", MAX_CODE) == (child.type, len(child.content))
        assert 30 >= len(child.markup)


def test_a_table_without_rows_is_nothing_and_one_with_a_wrong_row_is_an_error() -> None:
    assert "" == table(["a"], [], most=1)
    with pytest.raises(ValueError, match="a row has 2 cells instead of 1"):
        table(["a"], [["b", "c"]], most=1)


def test_a_document_is_cut_at_a_block_and_says_so() -> None:
    parts = ["# Head", "", "ä" * 30, "x" * 60]
    whole = f"# Head\n\n{'ä' * 30}\n\n{'x' * 60}\n"
    size = len(whole.encode())
    assert whole == bounded(parts, size)
    assert f"# Head\n\n{'ä' * 30}\n\nThis summary is cut at {size - 1} bytes.\n" == bounded(parts, size - 1)
    assert "# Head\n\nThis summary is cut at 50 bytes.\n" == bounded(parts, 50)
    assert "This summary is cut at 40 bytes.\n" == bounded(parts, 40)
    assert ("", "") == (bounded(parts, 10), bounded([], 10))


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=30)), st.integers(0, 200))
def test_a_document_has_at_most_its_bytes(parts: list[str], most: int) -> None:
    assert most >= len(bounded(parts, most).encode())
