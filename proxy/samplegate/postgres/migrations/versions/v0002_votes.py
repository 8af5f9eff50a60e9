"""Columns for votes, and for reviewers who decide after a time.

A gate of the first version would let one person decide a review that needs several, so it can no longer use the tables.
"""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None
least_reader = "0002"

_STATEMENTS = """
ALTER TABLE samplegate.reviews ADD COLUMN votes text, ADD COLUMN proposal text,
    ADD COLUMN also_from double precision, ADD COLUMN also_names text;
CREATE INDEX reviews_also_from ON samplegate.reviews(also_from)
"""


def upgrade() -> None:
    """Add the columns, which are empty in all earlier reviews."""
    for statement in _STATEMENTS.split(";\n"):
        op.execute(statement)
