"""Columns for votes, and for reviewers who decide after a time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns, which are empty in all earlier reviews."""
    for name, type_ in (("votes", sa.Text), ("proposal", sa.Text), ("also_from", sa.Double), ("also_names", sa.Text)):
        op.add_column("reviews", sa.Column(name, type_))
    op.create_index("reviews_also_from", "reviews", ["also_from"])
