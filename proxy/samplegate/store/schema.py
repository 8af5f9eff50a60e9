"""The tables of reviews, their history and their deliveries, as SQLAlchemy says them, and the version they have. How they are made: ``migrations/``.

Only what is searched, or changes, has a column of its own; ``body`` is written once. Nothing here is SQLite's alone.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Boolean, Column, Double, Index, Integer, LargeBinary, MetaData, String, Table, Text

VERSION: Final = "0001"
"""The newest revision in ``migrations/versions``."""
VERSION_TABLE: Final = "review_version"

METADATA: Final = MetaData()

REVIEWS: Final = Table(
    "reviews",
    METADATA,
    Column("id", String, primary_key=True),
    Column("lookup", String, nullable=False),
    Column("digest", String, nullable=False),
    Column("stage", String, nullable=False),
    Column("reviewer", String, nullable=False),
    Column("server", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("created", Double, nullable=False),
    Column("expires", Double, nullable=False),
    Column("late", Double, nullable=False),
    Column("announced", Boolean, nullable=False),
    Column("state", String, nullable=False),
    Column("decided", Double),
    Column("who", String, nullable=False),
    Column("door", String),
    Column("waiter", String),
    Column("held_until", Double, nullable=False),
    Column("answers_until", Double),
    Column("used_by", String),
    Column("used", Double),
    Column("verdict", Text),
    Column("body", Text, nullable=False),  # the last: what stands before it is read without it
    Index("reviews_lookup", "lookup", "used_by", "state", "expires"),
    Index("reviews_state_created", "state", "created", "id", "reviewer", "server", "kind"),
    Index("reviews_created", "created", "id", "reviewer", "server", "kind"),
    Index("reviews_state_expires", "state", "expires"),
    Index("reviews_decided", "decided"),
    Index("reviews_waiter", "waiter"),
)

EVENTS: Final = Table(
    "review_events",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("review", String, nullable=False),
    Column("at", Double, nullable=False),
    Column("what", String, nullable=False),
    Column("who", String, nullable=False),
    Column("door", String, nullable=False),
    Column("detail", String, nullable=False),
    Index("review_events_review", "review", "number"),
)

DELIVERIES: Final = Table(
    "review_deliveries",
    METADATA,
    Column("id", String, primary_key=True),
    Column("review", String, nullable=False),
    Column("reviewer", String, nullable=False),
    Column("event", String, nullable=False),
    Column("created", Double, nullable=False),
    Column("due", Double, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("state", String, nullable=False),
    Column("taker", String),
    Column("held_until", Double, nullable=False),
    Column("said", String, nullable=False),
    Index("review_deliveries_due", "state", "due"),
    Index("review_deliveries_review", "review"),
)

FACTS: Final = Table(
    "review_facts",
    METADATA,
    Column("name", String, primary_key=True),
    Column("number", Integer),
    Column("value", LargeBinary),
)
"""``events``: the number of the newest event, given out in the order of commits, which a sequence would not promise. ``key``: 32 random bytes."""
