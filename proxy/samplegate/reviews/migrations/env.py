"""The alembic environment: migrates the tables within the transaction of the given connection, wholly or not at all."""

from __future__ import annotations

from alembic import context

from samplegate.reviews.sql_schema import METADATA, VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"], target_metadata=METADATA, version_table=VERSION_TABLE
)
context.run_migrations()
