"""How the tables of reviews are made or changed, by alembic, which is imported for that alone."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

from sqlalchemy import Connection

from samplegate.sqlite import Schema
from samplegate.store.schema import VERSION, VERSION_TABLE

OLDER: Final = frozenset[str]()
"""Versions that the steps lead on from."""
_one_at_a_time: Final = threading.Lock()  # alembic's env.py finds its connection in a global


def _make(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    with _one_at_a_time:
        command.upgrade(config, VERSION)


SCHEMA: Final = Schema(
    version=VERSION,
    select=f"SELECT version_num FROM {VERSION_TABLE}",
    table=VERSION_TABLE,
    make=_make,
    contents="reviews",
    another="name another store",
    older=OLDER,
)
