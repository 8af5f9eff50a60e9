"""A review's history as lines."""

from __future__ import annotations

from typing import Any

from samplegate.reviews.review import ReviewEvent
from samplegate.reviews.web.render import lines


def events(*what: Any) -> list[ReviewEvent]:
    return [ReviewEvent(number=n, review="rv_1", at=float(n), what=each) for n, each in enumerate(what)]


def test_only_joins_that_follow_one_another_are_one_line() -> None:
    found = lines(events("opened", "joined", "joined", "told", "joined", "told", "told"))
    assert [("opened", 1), ("joined", 2), ("told", 1), ("joined", 1), ("told", 1), ("told", 1)] == [
        (line.event.what, line.count) for line in found
    ]


def test_a_line_of_several_has_the_time_of_the_last() -> None:
    (line,) = lines(events("joined", "joined", "joined"))
    assert 2.0 == line.event.at


def test_a_join_is_explained() -> None:
    opened, joined = lines(events("opened", "joined"))
    assert ("", "the same request arrived again and is waiting") == (opened.meaning, joined.meaning)


def test_of_many_lines_the_last_are_shown() -> None:
    found = lines(events(*["told", "joined"] * 100))
    assert 50 == len(found)
    assert 199.0 == found[-1].event.at
