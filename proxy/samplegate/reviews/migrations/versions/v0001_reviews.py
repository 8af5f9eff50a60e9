"""Tables for reviews, their history, their deliveries, and facts about the store."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create all tables in an empty database."""
    _reviews()
    _events()
    _deliveries()
    facts = op.create_table(
        "review_facts",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("number", sa.Integer),
        sa.Column("value", sa.LargeBinary),
    )
    op.bulk_insert(facts, [{"name": "events", "number": 0}])


def _reviews() -> None:
    op.create_table(
        "reviews",
        sa.Column("id", sa.String, primary_key=True),
        *(
            sa.Column(name, sa.String, nullable=False)
            for name in ("lookup", "digest", "stage", "reviewer", "server", "kind")
        ),
        *(sa.Column(name, sa.Double, nullable=False) for name in ("created", "expires", "late")),
        sa.Column("announced", sa.Boolean, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("decided", sa.Double),
        sa.Column("who", sa.String, nullable=False),
        sa.Column("door", sa.String),
        sa.Column("waiter", sa.String),
        sa.Column("held_until", sa.Double, nullable=False),
        sa.Column("answers_until", sa.Double),
        sa.Column("used_by", sa.String),
        sa.Column("used", sa.Double),
        sa.Column("verdict", sa.Text),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_index("reviews_lookup", "reviews", ["lookup", "used_by", "state", "expires"])
    op.create_index("reviews_state_created", "reviews", ["state", "created", "id", "reviewer", "server", "kind"])
    op.create_index("reviews_created", "reviews", ["created", "id", "reviewer", "server", "kind"])
    op.create_index("reviews_state_expires", "reviews", ["state", "expires"])
    op.create_index("reviews_decided", "reviews", ["decided"])
    op.create_index("reviews_waiter", "reviews", ["waiter"])


def _events() -> None:
    op.create_table(
        "review_events",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("review", sa.String, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        *(sa.Column(name, sa.String, nullable=False) for name in ("what", "who", "door", "detail")),
    )
    op.create_index("review_events_review", "review_events", ["review", "number"])


def _deliveries() -> None:
    op.create_table(
        "review_deliveries",
        sa.Column("id", sa.String, primary_key=True),
        *(sa.Column(name, sa.String, nullable=False) for name in ("review", "reviewer", "event")),
        *(sa.Column(name, sa.Double, nullable=False) for name in ("created", "due")),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("taker", sa.String),
        sa.Column("held_until", sa.Double, nullable=False),
        sa.Column("said", sa.String, nullable=False),
    )
    op.create_index("review_deliveries_due", "review_deliveries", ["state", "due"])
    op.create_index("review_deliveries_review", "review_deliveries", ["review"])
