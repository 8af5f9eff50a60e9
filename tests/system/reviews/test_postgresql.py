"""The tables and statements of the review store on PostgreSQL, in a database that does not sort text by its bytes.

samplegate cannot use it yet. These are the tests of every store, with the real server.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import NullPool, create_engine

from samplegate.reviews import sql_schema
from samplegate.reviews.review import Filter, Review
from tests.fakes.postgresql import postgresql
from tests.fakes.postgresql_reviews import PostgresqlReviews
from tests.fakes.stored_reviews import review
from tests.unit.reviews.test_store import *  # noqa: F403 - the tests, which use the fixture below

ENGLISH = "CREATE DATABASE english TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US' LOCALE 'C.UTF-8'"


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    """A database that sorts as English dictionaries do."""
    with postgresql("fsync = off") as server:
        with psycopg.connect(server, autocommit=True) as db:
            db.execute(ENGLISH)
        yield server.replace("dbname=postgres", "dbname=english")


@pytest.fixture  # type: ignore[no-redef]
def store(
    place: str,
) -> Iterator[PostgresqlReviews]:
    kept = PostgresqlReviews(place)
    yield kept
    kept.close()


def test_the_first_step_makes_the_tables_of_the_code(store: PostgresqlReviews, place: str) -> None:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(place), poolclass=NullPool)
    with engine.connect() as connection:
        options = {"version_table": sql_schema.VERSION_TABLE, "compare_type": True}
        context = MigrationContext.configure(connection, opts=options)
        assert [] == compare_metadata(context, sql_schema.METADATA)


def test_ids_are_sorted_by_their_bytes(store: PostgresqlReviews, place: str) -> None:
    with psycopg.connect(place) as db:
        assert [("a",), ("B",)] == db.execute("SELECT * FROM (VALUES ('B'), ('a')) v ORDER BY 1").fetchall()
    for id in ("rv_a", "rv_B", "rv_b"):
        assert store.open(review(id), announce=False, most=9)
    assert ["rv_B", "rv_a", "rv_b"] == [one.id for one in store.list(Filter(oldest_first=True))]
    assert ["rv_B"] == list(store.ids_with_prefix("rv_B", 9))


def test_numbers_of_events_have_64_bits(store: PostgresqlReviews, place: str) -> None:
    with psycopg.connect(place) as db:
        db.execute("UPDATE review_facts SET number = %s WHERE name = 'events'", (2**40,))
    store.open(review(), announce=False, most=9)
    assert 2**40 + 1 == store.last_change() == store.changes(0, 1)[0].number


def test_the_time_is_the_databases_read_after_the_lock(store: PostgresqlReviews, place: str) -> None:
    store.at(None)
    assert abs(store.wall() - time.time()) < 5
    found: list[Review | None] = []
    opens = threading.Thread(target=lambda: found.append(store.open(review(), announce=False, most=9)))
    with psycopg.connect(place) as other, psycopg.connect(place, autocommit=True) as observer:
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
