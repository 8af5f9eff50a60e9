"""The review store on PostgreSQL, directly and through PgBouncer; the database does not sort text by its bytes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import NullPool, create_engine

from samplegate.postgres import schema
from samplegate.reviews import sql_schema
from samplegate.reviews.review import Filter, Review
from samplegate.reviews.sql_store import SqlReviewStore
from tests.fakes import postgresql
from tests.fakes.review_store import TimedReviews
from tests.fakes.stored_reviews import review
from tests.unit.reviews.test_store import *  # noqa: F403 - the tests, which use the fixture below

ENGLISH = "CREATE DATABASE english TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US' LOCALE 'C.UTF-8'"


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    """A database that sorts as English dictionaries do."""
    with postgresql.postgresql("fsync = off") as server:
        with psycopg.connect(server, autocommit=True) as db:
            db.execute(ENGLISH)
        yield server.replace("dbname=postgres", "dbname=english")


@pytest.fixture(scope="module")
def pooled(place: str) -> Iterator[str]:
    with postgresql.pgbouncer(place) as pooled:
        yield pooled


@pytest.fixture(params=["place", "pooled"])  # type: ignore[no-redef]
def store(request: pytest.FixtureRequest, place: str) -> Iterator[TimedReviews]:
    postgresql.empty(place)
    kept = TimedReviews(postgresql.url(request.getfixturevalue(request.param)))
    yield kept
    kept.close()


def test_the_first_step_makes_the_tables_of_the_code(store: TimedReviews, place: str) -> None:
    assert 0 == store.last_change()
    engine = create_engine("postgresql+psycopg://", creator=lambda: connected(place), poolclass=NullPool)
    with engine.connect() as connection:
        names = set(sql_schema.METADATA.tables)
        options = {
            "compare_type": True,
            "include_name": lambda name, kind, _: kind != "table" or name in names,
        }
        assert [] == compare_metadata(MigrationContext.configure(connection, opts=options), sql_schema.METADATA)


def connected(place: str) -> psycopg.Connection:
    """A connection that finds the tables without their schema."""
    return psycopg.connect(place, options=f"-csearch_path={schema.SCHEMA}")


def test_ids_are_sorted_by_their_bytes(store: TimedReviews, place: str) -> None:
    with psycopg.connect(place) as db:
        assert [("a",), ("B",)] == db.execute("SELECT * FROM (VALUES ('B'), ('a')) v ORDER BY 1").fetchall()
    for id in ("rv_a", "rv_B", "rv_b"):
        assert store.open(review(id), announce=False, most=9)
    assert ["rv_B", "rv_a", "rv_b"] == [one.id for one in store.list(Filter(oldest_first=True))]
    assert ["rv_B"] == list(store.ids_with_prefix("rv_B", 9))


def test_numbers_of_events_have_64_bits(store: TimedReviews, place: str) -> None:
    assert 0 == store.last_change()
    with connected(place) as db:
        db.execute("UPDATE review_facts SET number = %s WHERE name = 'events'", (2**40,))
    store.open(review(), announce=False, most=9)
    assert 2**40 + 1 == store.last_change() == store.changes(0, 1)[0].number


def test_the_time_is_the_databases_read_after_the_lock(store: TimedReviews, place: str) -> None:
    real = SqlReviewStore(postgresql.url(place))
    assert None is real.get("rv_a")
    found: list[Review | None] = []
    opens = threading.Thread(target=lambda: found.append(real.open(review(), announce=False, most=9)))
    with connected(place) as other, psycopg.connect(place, autocommit=True) as observer:
        other.execute("SELECT number FROM review_facts WHERE name = 'events' FOR UPDATE")
        opens.start()
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        until = time.monotonic() + 20
        while observer.execute(waiting).fetchone() != (1,):
            assert time.monotonic() < until
            time.sleep(0.01)
        assert None is store.get("rv_a")  # a reader does not wait
        (released,) = other.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone() or (0.0,)
    opens.join(20)
    (opened,) = found
    assert opened is not None
    assert released <= opened.created <= released + 20
    assert pytest.approx(100) == opened.expires - opened.created
    assert abs(real.wall() - time.time()) < 5
    real.close()
