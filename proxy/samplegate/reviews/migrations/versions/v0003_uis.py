"""A column and a table for servers' own UIs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, which is empty in all earlier reviews, and the table."""
    op.add_column("reviews", sa.Column("ui", sa.Text))
    op.create_table(
        "review_uis",
        sa.Column("review", sa.String, primary_key=True),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
