"""Untrusted text made printable."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from samplegate.printable import printable, without_hashes

ANY: st.SearchStrategy[str] = st.text(st.characters(codec=None), max_size=50)


@given(ANY)
def test_any_text_becomes_printable(text: str) -> None:
    assert printable(text).isprintable()
    assert printable(text).encode().decode() == printable(text), "it has no surrogates"


def test_printable_text_and_kept_characters_stay() -> None:
    assert "käse\n\t\\r" == printable("käse\n\t\r", keep="\n\t")


def test_two_hashes_are_parted_even_with_a_character_between_that_readers_ignore() -> None:
    assert "#\\x23[error] #\u034f\\x23[error] #1 #\\x23#" == without_hashes("##[error] #\u034f#[error] #1 ###")
