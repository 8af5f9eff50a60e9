"""A column and a table for servers' own UIs.

A gate of the version before cannot read the events about them, so it can no longer use the tables.
"""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None
least_reader = "0004"

_STATEMENTS = """
ALTER TABLE samplegate.reviews ADD COLUMN ui text;
CREATE TABLE samplegate.review_uis(
    review varchar COLLATE "C" PRIMARY KEY,
    body bytea NOT NULL
)
"""


def upgrade() -> None:
    """Add the column, which is empty in all earlier reviews, and the table."""
    for statement in _STATEMENTS.split(";\n"):
        op.execute(statement)
