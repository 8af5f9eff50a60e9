"""The database of reviews, opened by its URL, and transactions on it. Failures raise Unavailable with a message for the
operator.

SQLite only, so far. A commit is on the disk when it returns, since a verdict is worth a person's time and its use must
not be forgotten. Overwritten and deleted content is erased from the file, because forms may contain secrets.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sqlalchemy import Connection

from samplegate.gate.ports import Unavailable
from samplegate.reviews.sql_schema import SCHEMA
from samplegate.sqlite import CoreFile, Fault

PATIENCE: Final = 5.0  # seconds that a transaction waits for those of other processes; theirs take milliseconds


def path_of(url: str) -> Path:
    """The file that ``sqlite:PATH`` names. Raises Unavailable for another kind, of which no more than the kind is said:
    it may hold a password."""
    kind, colon, rest = url.partition(":")
    if kind != "sqlite" or not rest:
        met = repr(kind[:40]) if colon else "a store without a kind"
        raise Unavailable(
            f"store: {met} is not known; write sqlite:PATH"
            if kind != "sqlite"
            else "store: it names no file; write sqlite:PATH"
        )
    return Path(rest).expanduser()


class Database:
    """Opened by its first transaction, and anew after a fault or where the file was moved away or replaced. For one
    thread at a time."""

    def __init__(self, url: str, *, make: bool = True) -> None:
        self.path = path_of(url)
        missing = "" if make else "name the store that the gate uses"
        self._file = CoreFile(self.path, SCHEMA, pragmas=("synchronous=FULL", "secure_delete=ON"), missing=missing)
        self.scrub = self._file.checkpoint
        self.close = self._file.close
        self.until: float | None = None
        """By what moment (of ``time.monotonic``) a lock must be had; None: each transaction has ``PATIENCE``. It is
        tried once anyway."""

    def exists(self) -> bool:
        """Whether its file is there."""
        return self.path.exists()

    def writing(self) -> contextlib.AbstractContextManager[Connection]:
        """One transaction that nobody else writes in, committed when the block is left but by raising. Raises
        Unavailable."""
        return self._transaction("BEGIN IMMEDIATE")

    def reading(self) -> contextlib.AbstractContextManager[Connection]:
        """One look at one state of it. Raises Unavailable."""
        return self._transaction("BEGIN")

    @contextlib.contextmanager
    def _transaction(self, begin: str) -> Iterator[Connection]:
        until = time.monotonic() + PATIENCE if self.until is None else self.until
        try:
            with self._file.core(lambda: until - time.monotonic(), begin) as connection:
                yield connection
        except Fault as problem:
            raise Unavailable(f"store of reviews {self.path}: {problem}") from problem
