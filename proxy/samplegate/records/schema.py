"""The tables of a decision log in a database, and their version. Only SQLAlchemy's words for them; importing it takes some 0.3 s."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import BigInteger, Column, Connection, Index, Integer, MetaData, String, Table, Text, insert

from samplegate.core.record import MAX_NAME, Record, timestamp
from samplegate.sqlite import Schema

VERSION: Final = 1
PART: Final = "decisions"

METADATA: Final = MetaData()
VERSIONS: Final = Table("samplegate_versions", METADATA, Column("part", String, primary_key=True), Column("version", Integer, nullable=False))
DECISIONS: Final = Table(
    PART,
    METADATA,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("time", String, nullable=False),
    Column("decision_id", String, nullable=False),
    Column("server", String, nullable=False),
    Column("caller", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("outcome", String, nullable=False),
    Column("rule", String),
    Column("record", Text, nullable=False),
    Index("decisions_time", "time"),
    Index("decisions_decision_id", "decision_id"),
    *(Index(f"decisions_{name}", name, "time") for name in ("server", "caller", "kind", "outcome", "rule")),
    sqlite_autoincrement=True,  # a number never comes round again, so that ``id`` is the order of the records
)
"""``time`` is RFC 3339 in UTC, ``record`` the line of JSON that a file would have; the other columns say what stands in it, to be searched."""


def _make(connection: Connection) -> None:
    METADATA.create_all(connection, checkfirst=False)
    connection.execute(insert(VERSIONS), [{"part": PART, "version": VERSION}])


SCHEMA: Final = Schema(
    version=VERSION,
    select=f"SELECT version FROM {VERSIONS.name} WHERE part = '{PART}'",
    table=VERSIONS.name,
    make=_make,
    contents="decisions",
    another="name another file",
)


def row(record: Record, line: bytes) -> dict[str, Any]:
    """The values of a record's row; ``line`` is its JSON."""
    columns = {name: _text(getattr(record, name)) for name in ("decision_id", "server", "caller", "kind", "outcome", "rule")}
    return {**columns, "time": timestamp(record.time), "record": line.decode()}


def _text(value: str | None) -> str | None:
    """Without halves of characters, which no database takes, and bounded, since indexes hold it."""
    return None if value is None else value[:MAX_NAME].encode("utf-8", "replace").decode()
