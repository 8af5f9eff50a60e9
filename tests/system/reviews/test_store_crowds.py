"""Queries among many pending and completed reviews cost as little as among few: every statement uses an index."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, event, insert

from samplegate.reviews import sql_schema
from samplegate.reviews.review import Filter, State
from samplegate.reviews.sql_schema import REVIEWS
from tests.fakes.review_store import TimedReviews
from tests.fakes.sqlite_steps import steps
from tests.fakes.stored_reviews import NOW, YES, review

PENDING, ENDED = 1_000, 20_000
ENDS: tuple[State, ...] = ("approved", "rejected", "answered", "expired", "withdrawn")


def filled(path: Path, pending: int, ended: int) -> TimedReviews:
    """A store with this many reviews. The pending ones are the oldest, half of all belong to one reviewer, and the same
    request occurs again and again."""
    store = TimedReviews(f"sqlite:{path}")
    plain = sql_schema.row(review(), announced=False)
    waiting = [
        {"id": f"rv_p{n}", "lookup": f"l{n % 100}", "created": NOW + n, "expires": NOW + 1e9, "state": "pending"}
        for n in range(pending)
    ]
    over = [
        {
            "id": f"rv_e{n}",
            "lookup": f"l{n % 100}",
            "created": NOW + pending + n,
            "state": ENDS[n % 5],
            "decided": NOW + pending + n,
            "used_by": "d" if n % 5 < 3 else None,
            "reviewer": "dba" if n % 2 else "ops",
        }
        for n in range(ended)
    ]
    with store.database.writing() as db:
        for some in (waiting, over):
            db.execute(insert(REVIEWS), [{**plain, **one} for one in some])
    return store


CALLS: dict[str, Callable[[TimedReviews], object]] = {
    "list what is pending": lambda store: store.list(Filter(states=("pending",))),
    "list the oldest that is pending": lambda store: store.list(
        Filter(states=("pending",), limit=5, oldest_first=True)
    ),
    "list what ended": lambda store: store.list(Filter(states=("withdrawn",), server="db")),
    "list all": lambda store: store.list(Filter()),
    "list one reviewer's history": lambda store: store.list(Filter(states=ENDS, reviewers=("dba",))),
    "list a later page": lambda store: store.list(Filter(before="rv_e5", states=ENDS)),
    "list what waits for one reviewer": lambda store: store.list(
        Filter(states=("pending",), reviewers=("ops",), kind="sampling", limit=5)
    ),
    "seek": lambda store: store.at(NOW + 1).seek("l7", stage="request", waiter="w", seconds=1),
    "seek nothing": lambda store: store.at(NOW + 1).seek("l?", stage="request", waiter="w", seconds=1),
    "last change": lambda store: store.last_change(),
    "changes": lambda store: store.changes(0, 100),
    "expire": lambda store: store.at(NOW + 1).expire(),
    "purge": lambda store: store.at(NOW).purge(0.0),
    "renew": lambda store: store.at(NOW + 1).renew(["w"], seconds=1),
    "decide": lambda store: store.at(NOW + 1).decide("rv_p3", YES, who="ann", door="page"),
    "take": lambda store: store.at(NOW).take_deliveries(["ops"], taker="t", seconds=1, limit=10),
}


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TimedReviews]:
    store = filled(tmp_path_factory.mktemp("few") / "r.db", PENDING // 10, ENDED // 10)
    yield store
    store.close()


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TimedReviews]:
    store = filled(tmp_path_factory.mktemp("many") / "r.db", PENDING, ENDED)
    yield store
    store.close()


def worked(store: TimedReviews, call: Callable[[TimedReviews], object]) -> int:
    """SQLite's instructions during a call, on whichever connection."""
    with store.database.reading() as db:
        connection = db.connection.driver_connection
    assert isinstance(connection, sqlite3.Connection)
    return steps(connection, lambda: call(store))


@pytest.mark.parametrize("name", CALLS)
def test_ten_times_the_reviews_take_as_much_work(few: TimedReviews, many: TimedReviews, name: str) -> None:
    small, large = worked(few, CALLS[name]), worked(many, CALLS[name])
    assert 0 < large < 2 * small


def test_counting_those_that_wait_walks_over_them_alone(many: TimedReviews) -> None:
    assert 0 < worked(many, lambda store: store.pending()) < 25 * PENDING


@pytest.mark.parametrize("name", [*CALLS, "count", "open", "starting"])
def test_every_statement_goes_by_an_index(few: TimedReviews, name: str) -> None:
    calls: dict[str, Callable[[TimedReviews], object]] = {
        **CALLS,
        "count": lambda store: store.pending(),
        "open": lambda store: store.open(review("rv_new"), announce=True, most=1),
        "starting": lambda store: store.ids_with_prefix("rv_p", 3),
    }
    plans: list[str] = []

    def explain(_connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.startswith(("SELECT", "UPDATE", "DELETE")):
            explained = cursor.connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
            plans.extend(step[3] for step in explained)

    event.listen(Connection, "before_cursor_execute", explain)
    try:
        calls[name](few)
    finally:
        event.remove(Connection, "before_cursor_execute", explain)
    assert plans
    assert [] == [plan for plan in plans if plan.startswith("SCAN") and "INDEX" not in plan]
