"""A table for tasks. A gate of the version before can use the tables, because it does not read this one."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None
least_reader = "0002"

_STATEMENTS = """
CREATE TABLE samplegate.tasks(
    scope text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    record bytea NOT NULL,
    expires double precision NOT NULL,
    PRIMARY KEY(scope, id)
) WITH (fillfactor = 50);
CREATE INDEX tasks_expires ON samplegate.tasks(expires)
"""


def upgrade() -> None:
    """Create the table."""
    for statement in _STATEMENTS.split(";\n"):
        op.execute(statement)
