"""Whether a database has the tables of reviews, and making them where it has none or older ones. alembic is imported for that alone."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, column, inspect, select, table

from samplegate.store.schema import VERSION, VERSION_TABLE

_VERSIONS: Final = table(VERSION_TABLE, column("version_num"))
OLDER: Final = frozenset[str]()
"""Versions that the steps lead on from."""
_one_at_a_time: Final = threading.Lock()  # alembic's env.py finds its connection in a global


class Unknown(Exception):
    """The database is not ours to use; the message says why, as words to stand after its name."""


def is_empty(connection: Connection) -> bool:
    """Whether it has no tables at all: a store gets its name only with its tables, so this one has lost them. Raises SQLAlchemyError."""
    return not inspect(connection).get_table_names()


def is_made(connection: Connection) -> bool:
    """Whether the tables are there as we know them; False where they are to be made or changed. Raises Unknown for others, SQLAlchemyError."""
    names = inspect(connection).get_table_names()
    if VERSION_TABLE not in names:
        if names:
            raise Unknown("it has tables of something else; name another store")
        return False
    version = connection.execute(select(_VERSIONS.c.version_num)).scalar()
    if version != VERSION and version not in OLDER:
        raise Unknown(f"its reviews are of version {version!r}, this samplegate knows {VERSION!r}; use that samplegate, or name another store")
    return bool(version == VERSION)


def make(connection: Connection) -> None:
    """Make or change the tables, unless another process has meanwhile; within a write transaction. Raises Unknown, SQLAlchemyError."""
    if is_made(connection):
        return
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    with _one_at_a_time:
        command.upgrade(config, VERSION)
