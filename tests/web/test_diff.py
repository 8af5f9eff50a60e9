"""What was changed of a text."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from samplegate.web.diff import Change, Piece, of_content, of_edits, pieces, shortened


def test_a_changed_word_is_gone_and_new() -> None:
    assert (Piece("same", "in three "), Piece("gone", "sentences"), Piece("new", "words"), Piece("same", ".")) == pieces(
        "in three sentences.", "in three words."
    )


def test_a_word_is_never_cut_in_two() -> None:
    assert (Piece("gone", "400"), Piece("new", "5000")) == pieces("400", "5000")


@given(st.text(alphabet="ab \n", max_size=60), st.text(alphabet="ab \n", max_size=60))
def test_both_texts_can_be_read_off_the_pieces(before: str, after: str) -> None:
    found = pieces(before, after)
    assert before == "".join(piece.text for piece in found if piece.what != "new")
    assert after == "".join(piece.text for piece in found if piece.what != "gone")


def test_texts_that_are_too_large_to_compare_are_gone_and_new_in_good_time() -> None:
    began = time.process_time()
    found = pieces("a b\n" * 20_000, "c d\n" * 20_000)
    assert ["gone", "new"] == [piece.what for piece in found if piece.text.strip()]
    assert time.process_time() - began < 5


def test_of_what_stayed_only_the_ends_at_a_change_are_shown() -> None:
    found = shortened(pieces("x " * 1000 + "old", "x " * 1000 + "new"))
    assert "same" == found[0].what
    assert len(found[0].text) < 400
    assert "[...]" in found[0].text


def test_edits_are_told_under_the_labels_of_their_fields() -> None:
    params = {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 10}
    edits = {"model": "quick", "maxTokens": 20, "messages": [{"role": "user", "content": {"type": "text", "text": "ho"}}]}
    found = of_edits(params, "careful", edits)
    assert ["Model", "Most tokens", "Message 1"] == [change.label for change in found]
    assert Change("Model", (Piece("gone", "careful"), Piece("new", "quick"))) == found[0]


def test_only_the_part_that_changed_is_told() -> None:
    old = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert ["Message 1, part 2"] == [change.label for change in of_content(old, [old[0], {"type": "text", "text": "c"}], "Message 1")]
