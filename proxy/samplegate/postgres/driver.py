"""The driver of PostgreSQL, which is an optional dependency."""

from __future__ import annotations

from importlib.util import find_spec

from samplegate.errors import Unavailable


def check_driver() -> None:
    """Raises Unavailable if the driver is not installed. Whatever imports it only for a shared database calls this
    before."""
    if find_spec("psycopg") is None:
        raise Unavailable("database: needs the extra postgres; install it with: pip install 'samplegate[postgres]'")
