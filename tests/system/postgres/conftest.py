"""The fixtures of commands; a server, and a new database in it for each test."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import psycopg
import pytest

from tests.fakes import postgresql
from tests.fakes.command_fixtures import run, write
from tests.fakes.postgresql import Database

__all__ = ["run", "write"]

_numbers = count()


@pytest.fixture(scope="package")
def cluster() -> Iterator[postgresql.Server]:
    with postgresql.server("fsync = off") as server:
        yield server


@pytest.fixture
def database(cluster: postgresql.Server) -> Iterator[Database]:
    """An empty database."""
    name = f"d{next(_numbers)}"
    with psycopg.connect(cluster.place, autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name}".encode())
    yield Database(cluster.place.replace("dbname=postgres", f"dbname={name}"))
    with psycopg.connect(cluster.place, autocommit=True) as db:
        db.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
