"""A database of reviews by its URL, its connection, and transactions on it; what fails is Unavailable, in words for the operator. Not the tables.

SQLite only, so far: the file is made for its owner alone and kept in WAL, and a commit is on the disk when it returns, since a verdict is worth a
person's time and its use must not be forgotten. What another kind of database needs is asked here and nowhere else.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from samplegate.files import identity, make_folder, make_whole
from samplegate.ports import Unavailable
from samplegate.store.making import Unknown, is_empty, is_made, make

T = TypeVar("T")

PATIENCE: Final = 5.0  # seconds that a transaction waits for those of other processes; theirs take milliseconds
MOST_PAGES: Final = 4_294_967_294  # SQLite's own most, some 16 TiB
AT_ONCE: Final = 100  # milliseconds that SQLite waits for the file's lock by itself
PAUSE: Final = 0.005

_BUSY: Final = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL")
_WORDS: Final = {
    "SQLITE_FULL": "its disk is full; make room",
    "SQLITE_READONLY": "it cannot be written; let this user write it and its folder",
    "SQLITE_CANTOPEN": "it cannot be opened; let this user write it and its folder",
    "SQLITE_CORRUPT": "it is damaged; move it away, with its -wal and -shm",
    "SQLITE_NOTADB": "it is no database; name another file",
}


def path_of(url: str) -> Path:
    """The file that ``sqlite:PATH`` names. Raises Unavailable for another kind, of which no more than the kind is said: it may hold a password."""
    kind, colon, rest = url.partition(":")
    if kind != "sqlite" or not rest:
        met = repr(kind[:40]) if colon else "a store without a kind"
        raise Unavailable(f"store: {met} is not known; write sqlite:PATH" if kind != "sqlite" else "store: it names no file; write sqlite:PATH")
    return Path(rest).expanduser()


class Database:
    """Opened by its first transaction, and anew after a fault or where the file was moved away or replaced. For one thread at a time."""

    def __init__(self, url: str, *, make: bool = True) -> None:
        self.path = path_of(url)
        self._make = make
        self._connection: Connection | None = None
        self._identity: tuple[int, int] | None = None
        self.until: float | None = None
        """By what moment (of ``time.monotonic``) a lock must be had; None: each transaction has ``PATIENCE``. It is tried once anyway."""

    def exists(self) -> bool:
        """Whether its file is there."""
        return self.path.exists()

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """One transaction that nobody else writes in, committed when the block is left but by raising. Raises Unavailable."""
        with self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """One look at one state of it. Raises Unavailable."""
        with self._transaction("BEGIN") as connection:
            yield connection

    @contextlib.contextmanager
    def _transaction(self, begin: str) -> Iterator[Connection]:
        try:
            until = time.monotonic() + PATIENCE if self.until is None else self.until
            connection = self._opened(until)
            with connection.begin():  # SQLAlchemy's own idea of it; the driver begins nothing by itself
                _pausing(lambda: connection.exec_driver_sql(begin), until)
                yield connection
        except (SQLAlchemyError, sqlite3.Error, Unknown, OSError) as problem:
            self.close()
            raise Unavailable(f"store of reviews {self.path}: {_said(problem)}") from problem
        except BaseException:
            self.close()
            raise

    def scrub(self) -> None:
        """Leave nothing of what was overwritten or deleted in the files, as far as nobody reads at this moment. Never raises."""
        if self._connection is not None:
            with contextlib.suppress(SQLAlchemyError, sqlite3.Error):
                self._connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
                self._connection.rollback()

    def close(self) -> None:
        """Close it; a later transaction opens it again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(SQLAlchemyError, sqlite3.Error):
                connection.close()

    def _opened(self, until: float) -> Connection:
        if self._connection is not None and identity(self.path) != self._identity:
            self.close()
        if self._connection is None:
            self._connection = _pausing(self._connect, until)
            self._identity = identity(self.path)
        return self._connection

    def _connect(self) -> Connection:
        if self._make:
            make_folder(self.path.parent)
            make_whole(self.path, _fill)
        elif not self.path.exists():
            raise Unknown("there is none; name the store that the gate uses")
        connection = create_engine("sqlite://", creator=lambda: _connected(self.path), poolclass=NullPool).connect()
        try:
            _prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection


def _fill(path: Path) -> None:
    """Create the file where no other process sees it yet."""
    with create_engine("sqlite://", creator=lambda: _connected(path), poolclass=NullPool).connect() as connection, connection.begin():
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        make(connection)


def _connected(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=AT_ONCE / 1000, isolation_level=None, check_same_thread=False)
    try:
        db.execute("PRAGMA synchronous=FULL")
        db.execute("PRAGMA secure_delete=ON")  # forms may be filled in with secrets
        db.execute(f"PRAGMA max_page_count={MOST_PAGES:d}")
    except BaseException:
        db.close()
        raise
    return db


def _prepare(connection: Connection) -> None:
    """A file of something else is left as it is: it is looked at before anything is set."""
    with connection.begin():
        if is_empty(connection):
            raise Unknown("it is empty, so its reviews are lost; restore it, or move it away with its -wal and -shm to begin anew")
        found = is_made(connection)
    connection.exec_driver_sql("PRAGMA journal_mode=WAL")
    connection.rollback()
    if not found:
        with connection.begin():
            connection.exec_driver_sql("BEGIN IMMEDIATE")  # of two processes the second finds what the first has made
            make(connection)


def _pausing(what: Callable[[], T], until: float) -> T:
    """What comes of it, tried at least once and again as long as the file is locked and there is time. Raises what it raises."""
    while True:
        try:
            return what()
        except (SQLAlchemyError, sqlite3.Error) as problem:
            if not _name(problem).startswith(_BUSY) or time.monotonic() >= until:
                raise
        time.sleep(PAUSE)


def _name(problem: Exception) -> str:
    original: Any = problem.orig if isinstance(problem, DBAPIError) else problem
    return getattr(original, "sqlite_errorname", "")


def _said(problem: Exception) -> str:
    """What went wrong, in our words; never the statement or its values."""
    if isinstance(problem, Unknown):
        return str(problem)
    if isinstance(problem, OSError):
        return os.strerror(problem.errno) if problem.errno else type(problem).__name__
    name = _name(problem)
    if name.startswith(_BUSY):
        return "another process keeps it locked; end it, or wait for it"
    words = next((words for code, words in _WORDS.items() if name.startswith(code)), "")
    return f"{words} ({name})" if words else name or type(problem).__name__
