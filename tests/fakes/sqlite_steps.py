"""The cost of SQLite statements in virtual-machine instructions, which does not depend on the machine's load. A
statement that scans a table needs more of them with every row."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable


def steps(db: sqlite3.Connection, act: Callable[[], object]) -> int:
    """The number of instructions that the connection executes during ``act``."""
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
