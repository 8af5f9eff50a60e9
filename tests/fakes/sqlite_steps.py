"""Work in SQLite counted in instructions of its virtual machine, which no busy machine changes: a statement that walks
over a table costs more of them with every row."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable


def steps(db: sqlite3.Connection, act: Callable[[], object]) -> int:
    """How many instructions the connection carries out during ``act``."""
    taken = 0

    def one() -> int:
        nonlocal taken
        taken += 1
        return 0

    db.set_progress_handler(one, 1)
    try:
        act()
    finally:
        db.set_progress_handler(None, 1)
    return taken
