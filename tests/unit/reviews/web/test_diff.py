"""The diff between two texts."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.reviews.web.diff import Piece, ShownChange, of_content, of_edits, pieces, shortened


def test_a_changed_word_is_gone_and_new() -> None:
    assert (
        Piece("same", "in three "),
        Piece("gone", "sentences"),
        Piece("new", "words"),
        Piece("same", "."),
    ) == pieces("in three sentences.", "in three words.")


def test_a_word_is_never_cut_in_two() -> None:
    assert (Piece("gone", "400"), Piece("new", "5000")) == pieces("400", "5000")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("1,000", "5,000"),
        ("0.25", "0.75"),
        ("v1.2.3", "v1.2.4"),
        ("10:30", "10:45"),
        ("400", "4000"),
        ("1.5", "1"),
        ("1.5", "11.5"),
        ("a_b", "a_c"),
    ],
)
def test_a_number_is_shown_whole(before: str, after: str) -> None:
    assert (Piece("same", "at "), Piece("gone", before), Piece("new", after), Piece("same", ". ")) == pieces(
        f"at {before}. ", f"at {after}. "
    )


@pytest.mark.parametrize(("name", "label"), [("maxTokens", "Max tokens"), ("temperature", "Temperature")])
@pytest.mark.parametrize(("before", "after"), [(400, 5000), (400, 4000), (0.25, 0.2)])
def test_an_edited_number_is_gone_and_new_as_a_whole(name: str, label: str, before: float, after: float) -> None:
    assert [ShownChange(label, (Piece("gone", str(before)), Piece("new", str(after))))] == of_edits(
        {name: before}, "m", {name: after}
    )


@given(st.text(alphabet="ab_1., \n", max_size=60), st.text(alphabet="ab_1., \n", max_size=60))
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
    edits = {
        "model": "quick",
        "maxTokens": 20,
        "messages": [{"role": "user", "content": {"type": "text", "text": "ho"}}],
    }
    found = of_edits(params, "careful", edits)
    assert ["Model", "Max tokens", "Message 1"] == [change.label for change in found]
    assert ShownChange("Model", (Piece("gone", "careful"), Piece("new", "quick"))) == found[0]


def test_only_the_part_that_changed_is_told() -> None:
    old = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert ["Message 1, part 2"] == [
        change.label for change in of_content(old, [old[0], {"type": "text", "text": "c"}], "Message 1")
    ]
