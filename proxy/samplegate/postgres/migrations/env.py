"""The alembic environment: migrates the tables within the transaction of the given connection, wholly or not at all."""

from __future__ import annotations

from alembic import context

from samplegate.postgres.schema import SCHEMA

context.configure(
    connection=context.config.attributes["connection"], version_table="version", version_table_schema=SCHEMA
)
context.run_migrations()
