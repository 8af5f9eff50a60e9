"""One connection to the state's file, and its transactions: what goes wrong is Broken, and the file that is asked is the one that is there."""

from __future__ import annotations

import contextlib
import math
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from samplegate.files import identity
from samplegate.limits.faults import Broken, broken
from samplegate.limits.opening import connect, pausing

MOST_PAGES: Final = 262_144  # 1 GiB: some ten million accounts


class File:
    """Opened by its first transaction, and anew after a fault. For one thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db: sqlite3.Connection | None = None
        self._inode: tuple[int, int] | None = None
        self.until = math.inf
        """When all waiting for the file's lock ends, whatever a transaction's own deadline; monotonic, and may be set from another thread."""

    @contextlib.contextmanager
    def transaction(self, deadline: float) -> Iterator[sqlite3.Connection]:
        """One write transaction, committed when the block is left, however that happens but by raising. ``deadline`` is monotonic.

        Raises Broken for all that SQLite and the system refuse, also within the block.
        """
        undone = True
        try:
            db = self._begun(deadline)
            yield db
            undone = False
            db.execute("COMMIT")
        except (sqlite3.Error, OSError, Broken) as problem:
            found = problem if isinstance(problem, Broken) else broken(problem)
            self._roll_back(keep=found.kind == "busy")
            raise Broken(found.kind, found.what, undone=undone) from problem
        except BaseException:
            self._roll_back(keep=False)
            raise

    def close(self) -> None:
        """Close it; a later transaction opens it again."""
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error):
                self._db.close()
            self._db = None

    def _begun(self, deadline: float) -> sqlite3.Connection:
        if self._db is not None and self._inode != identity(self._path):
            self.close()  # the file was moved away or replaced: we would count beside all others
        if _left(deadline) <= 0:
            raise Broken("busy", "was not free in time")
        if self._db is None:
            self._db = pausing(lambda seconds: connect(self._path, seconds, MOST_PAGES), lambda: self._left(deadline))
            self._inode = identity(self._path)
        db = self._db
        pausing(lambda seconds: _begin(db, seconds), lambda: self._left(deadline))
        return db

    def _left(self, deadline: float) -> float:
        return _left(min(deadline, self.until))

    def _roll_back(self, *, keep: bool) -> None:
        try:
            if self._db is not None and self._db.in_transaction:
                self._db.execute("ROLLBACK")
        except sqlite3.Error:
            keep = False
        if not keep:
            self.close()


def _begin(db: sqlite3.Connection, seconds: float) -> None:
    db.execute(f"PRAGMA busy_timeout={math.ceil(seconds * 1000):d}")
    db.execute("BEGIN IMMEDIATE")


def _left(deadline: float) -> float:
    return deadline - time.monotonic()
