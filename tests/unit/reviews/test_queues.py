"""Queues of pending reviews, read without changing the store."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from samplegate.errors import Unavailable
from samplegate.reviews.queues import Queue, read_queues
from tests.fakes.review_store import TimedReviews
from tests.fakes.stored_reviews import NO, NOW, review


def names(folder: Path) -> list[tuple[str, int, int]]:
    return sorted((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in folder.iterdir())


def test_pending_reviews_are_counted_by_reviewer(tmp_path: Path) -> None:
    store = TimedReviews(f"sqlite:{tmp_path / 'reviews.db'}")
    for one in (
        review("rv_a"),
        review("rv_b", created=NOW - 50, expires=NOW + 20),
        review("rv_c", reviewer="legal"),
        review("rv_d", reviewer="legal", expires=NOW - 1),
        review("rv_e", reviewer="done"),
    ):
        assert store.at(one.created).open(one, announce=False, most=10)
    store.at(NOW).decide("rv_e", NO, who="ann", door="cli")
    found, now = read_queues(f"sqlite:{tmp_path / 'reviews.db'}", NOW)
    assert (Queue("legal", 1, NOW, NOW + 100), Queue("ops", 2, NOW - 50, NOW + 20)) == found
    assert NOW == now
    store.close()
    before = names(tmp_path)
    assert (found, NOW) == read_queues(f"sqlite:{tmp_path / 'reviews.db'}", NOW)
    assert before == names(tmp_path)


def test_a_store_that_is_not_there_has_none_and_is_not_created(tmp_path: Path) -> None:
    assert ((), NOW) == read_queues(f"sqlite:{tmp_path / 'reviews.db'}", NOW)
    assert [] == list(tmp_path.iterdir())


def test_a_newer_store_is_refused_with_its_place(tmp_path: Path) -> None:
    TimedReviews(f"sqlite:{tmp_path / 'reviews.db'}").last_change()
    db = sqlite3.connect(tmp_path / "reviews.db")
    db.execute("UPDATE review_version SET version_num = '9999'")
    db.commit()
    db.close()
    with pytest.raises(Unavailable, match=r"reviews\.db: its reviews have version '9999', but .*; use a matching"):
        read_queues(f"sqlite:{tmp_path / 'reviews.db'}", NOW)
