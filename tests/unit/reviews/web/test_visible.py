"""Invisible characters in a peer's text are written out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.reviews.web.visible import MAX_RUN, hides, plain, visible


@pytest.mark.parametrize(
    "character",
    list("\u202e\u2066\u200b\u200f\u00ad\ufeff\u2028\x00\x1b\x7f\r\u3164\u2800\U000e0041\u034f\ufe00\ue000"),
)
def test_what_cannot_be_seen_is_written_out(character: str) -> None:
    code = f"U+{ord(character):04X}"
    assert f'a<span class="mark">{code}</span>b' == visible(f"a{character}b")
    assert f"a[{code}]b" == plain(f"a{character}b")
    assert 1 == hides(f"a{character}b")


@pytest.mark.parametrize(
    "text",
    ["plain", "two\nlines\tand a tab", "déjà vu\u00a0!", "日本語\u3000文", "עברית", "👩\u200d🚒 ❤\ufe0f", "ﬁne ½ €"],
)
def test_what_people_write_stays_as_it_is(text: str) -> None:
    assert (text, text, 0) == (visible(text), plain(text), hides(text))


def test_markup_is_escaped() -> None:
    assert "&lt;b&gt;&amp;&#34;&#39;" == visible("<b>&\"'")


def test_a_joiner_that_joins_no_picture_is_written_out() -> None:
    assert 1 == hides("pay\u200dpal")


def test_of_many_in_a_row_the_rest_is_counted() -> None:
    assert f"and {10_000 - MAX_RUN} more" in visible("a" + "\u200b" * 10_000 + "b")
    assert MAX_RUN + 1 == visible("\u200b" * 10_000).count("span class")


@given(st.text(alphabet=st.characters(codec="utf-8")))
def test_no_text_becomes_markup(text: str) -> None:
    assert visible(text).replace('<span class="mark">', "").replace("</span>", "").count("<") == 0
