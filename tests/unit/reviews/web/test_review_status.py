"""One-line summary of a review."""

from __future__ import annotations

from typing import Any

import pytest

from samplegate.reviews.review import Review
from samplegate.reviews.web.pages import LENGTH, first_words, review_summary
from tests.fakes.reviews import address, form, model_answer, review, said, text


def asked(*messages: dict[str, Any]) -> Review:
    return review(params={"messages": list(messages), "maxTokens": 5})


@pytest.mark.parametrize(
    ("found", "label", "words"),
    [
        (asked(said("one"), said("two"), said("three", "assistant")), "last user message", "two"),
        (
            asked(said("one"), {"role": "user", "content": [text("two"), text("three"), {"type": "image"}]}),
            "last user message",
            "three",
        ),
        (asked(said("one"), said(" \n")), "last user message", "one"),
        (asked({"role": "user", "content": {"type": "image"}}), "last user message", ""),
        (asked(), "last user message", ""),
        (form(), "message", "Really delete?"),
        (address(), "host", "sign.example.com"),
        (address("https://xn--pypal-4ve.com/"), "host", "xn--pypal-4ve.com (p\u0430ypal.com)"),
        (address("https://\u0430\u0440\u0440\u04cf\u0435.com/login"), "host", "unclear"),
        (address("mailto:a@b.example"), "host", "none"),
        (model_answer(text("first"), text("second")), "answer", "first"),
        (model_answer({"type": "tool_use", "id": "1", "name": "x", "input": {}}), "answer", ""),
    ],
)
def test_it_is_about_what_a_person_would_look_at_first(found: Review, label: str, words: str) -> None:
    assert (label, words) == tuple(review_summary(found))


@pytest.mark.parametrize(
    "params",
    [{}, {"messages": None}, {"messages": [None, {"role": "user"}]}, {"messages": [{"role": "user", "content": None}]}],
)
def test_what_is_of_no_known_shape_is_about_nothing(params: dict[str, Any]) -> None:
    assert "" == review_summary(review(params=params)).words


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("a\n\n  b\tc\r\nd ", "a b c d"),
        ("a\u2028b\u200bc\u00a0", "a\u2028b\u200bc\u00a0"),
        ("x" * LENGTH, "x" * LENGTH),
        ("x" * (LENGTH + 1), "x" * (LENGTH - 4) + " ..."),
        ("word " * 100, ("word " * 100)[: LENGTH - 4].rstrip() + " ..."),
        (" " * 10_000 + "a", "a"),
        ("a" + " " * 10_000 + "b", "a ..."),
    ],
)
def test_the_first_words_are_one_short_line_that_hides_nothing(written: str, seen: str) -> None:
    assert seen == first_words(written)
