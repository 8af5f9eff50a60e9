"""Database migrations: they create the tables that the code expects, wherever the package is installed, and alembic is
loaded only if there is a migration to run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, insert
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateTable

from samplegate.reviews import sql_database, sql_schema, sql_store
from samplegate.reviews.review import Filter
from samplegate.reviews.sql_store import SqlReviewStore
from tests.fakes.stored_reviews import review

MIGRATIONS = Path(sql_schema.__file__).parent / "migrations"


def test_the_steps_lead_to_the_tables_of_the_code(tmp_path: Path) -> None:
    store = SqlReviewStore(f"sqlite:{tmp_path / 'reviews.db'}")
    store.last_change()
    store.close()
    engine = create_engine(f"sqlite:///{tmp_path / 'reviews.db'}")
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": sql_schema.VERSION_TABLE, "compare_type": True}
        )
        assert [] == compare_metadata(context, sql_schema.METADATA)
    engine.dispose()


def test_reviews_of_the_first_version_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url, first = f"sqlite:{tmp_path / 'reviews.db'}", replace(sql_schema.SCHEMA, version="0001", older=())
    columns = ("votes", "proposal", "also_from", "also_names", "ui")
    with monkeypatch.context() as older:
        older.setattr(sql_schema, "VERSION", "0001")
        older.setattr(sql_database, "SCHEMA", first)
        store = SqlReviewStore(url)
        old = {name: value for name, value in sql_schema.row(review(), announced=True).items() if name not in columns}
        with store.database.writing() as db:
            db.execute(insert(sql_schema.REVIEWS), old)
        store.close()
    store = SqlReviewStore(url)
    assert (review(), ["rv_a"]) == (store.get("rv_a"), [one.id for one in store.list(Filter(reviewers=("ops",)))])
    store.close()


def test_the_version_of_the_code_is_the_last_step_and_all_before_it_are_known() -> None:
    script = ScriptDirectory(str(MIGRATIONS))
    revisions = [step.revision for step in script.walk_revisions()]
    assert (sql_schema.VERSION, set(revisions[1:])) == (script.get_current_head(), set(sql_schema.OLDER))


def test_nothing_in_the_tables_and_the_statements_is_sqlites_alone() -> None:
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    tables = [str(CreateTable(table).compile(dialect=dialect)) for table in sql_schema.METADATA.sorted_tables]
    assert len(tables) == sum("CREATE TABLE" in table and "SERIAL" not in table for table in tables)
    assert all(
        "VARCHAR" not in column.replace('VARCHAR COLLATE "C"', "") for table in tables for column in table.split(",")
    )
    assert 2 == sum(table.count("number BIGINT") for table in tables)
    page = sql_store.page(Filter(states=("pending",), reviewers=("ops",)), "pending", None, 5)
    assert "LIMIT" in str(page.compile(dialect=dialect))
