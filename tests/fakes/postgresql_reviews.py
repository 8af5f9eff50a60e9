"""The review store's statements on PostgreSQL: a database for ``SqlReviewStore`` that only tests use so far."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
from sqlalchemy import Connection, create_engine, func, select, text

from samplegate.reviews import sql_schema
from samplegate.reviews.sql_schema import FACTS
from samplegate.reviews.sql_store import SqlReviewStore
from tests.fakes.stored_reviews import NOW

ONE_AT_A_TIME: Final = select(FACTS.c.number).where(FACTS.c.name == "events").with_for_update()
"""Locks the row from which events get their numbers: changes take effect one after the other."""


class PostgresqlReviews(SqlReviewStore):
    """A store at a time that ``at`` sets, or at the database's own (None)."""

    def __init__(self, place: str) -> None:
        super().__init__("sqlite:unused")
        self.now: float | None = NOW
        self._engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(place))
        self.database = _Database(self)  # type: ignore[assignment]
        with self._engine.begin() as db:
            db.execute(text("DROP SCHEMA public CASCADE"))
            db.execute(text("CREATE SCHEMA public"))
            sql_schema.SCHEMA.make(db)

    def at(self, now: float | None) -> PostgresqlReviews:
        """The store at this time."""
        self.now = now
        return self

    def wall(self) -> float:
        with self._engine.connect() as db:
            return self.database.now(db)

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def transaction(self, *, changes: bool) -> Iterator[Connection]:
        """One transaction. One that changes something is alone."""
        with self._engine.begin() as db:
            if changes:
                db.execute(ONE_AT_A_TIME)
            yield db


class _Database:
    """What the store uses of ``sql_schema.Database``."""

    def __init__(self, store: PostgresqlReviews) -> None:
        self._store = store

    def writing(self) -> object:
        return self._store.transaction(changes=True)

    def reading(self) -> object:
        return self._store.transaction(changes=False)

    def now(self, db: Connection) -> float:
        if self._store.now is not None:
            return self._store.now
        return float(db.execute(select(func.extract("epoch", func.clock_timestamp()))).scalar_one())

    def scrub(self) -> None:
        """Old versions of rows stay until PostgreSQL removes them."""
