"""One connection to an SQLite file through SQLAlchemy Core, and its write transactions. Not the tables: ``schema.py``.

The file is made for its owner alone and kept in WAL. ``synced``: a commit is on the disk when it returns (``synchronous=FULL``); else it is the
kernel's (``NORMAL``): killing any process loses nothing, a power cut the last moments. A commit that failed is undone and the file opened anew.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from samplegate.files import identity, make_folder, make_whole
from samplegate.records.schema import Unknown, is_made, make
from samplegate.records.syncing import sync_folder

T = TypeVar("T")

MOST_PAGES: Final = 4_294_967_294  # SQLite's own most, some 16 TiB
AT_ONCE: Final = 100  # milliseconds that SQLite waits for the file's lock by itself: the end of the process may come meanwhile
PAUSE: Final = 0.01

_BUSY: Final = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL")
_WORDS: Final = {
    "SQLITE_FULL": "its disk is full; make room",
    "SQLITE_READONLY": "let this user write it and its folder",
    "SQLITE_CORRUPT": "it is damaged; move it away, with its -wal and -shm",
    "SQLITE_NOTADB": "it is no database; name another file",
}


class Database:
    """Opened by its first transaction, and anew after a fault, or where the file was moved away or replaced. For one thread."""

    def __init__(self, path: Path, *, synced: bool) -> None:
        self._path = path
        self._synced = synced
        self._connection: Connection | None = None
        self._identity: tuple[int, int] | None = None

    @property
    def is_open(self) -> bool:
        """Whether SQLite has locks on the file that closing another descriptor of it would end."""
        return self._connection is not None

    @contextlib.contextmanager
    def transaction(self, patience: Callable[[], float]) -> Iterator[Connection]:
        """One write transaction, committed when the block is left but by raising. Raises OSError, TimeoutError where others keep it locked."""
        try:
            connection = self._opened(patience)
            with connection.begin():  # SQLAlchemy's own idea of it; the driver begins nothing by itself
                _pausing(lambda: connection.exec_driver_sql("BEGIN IMMEDIATE"), patience)
                yield connection
        except (SQLAlchemyError, sqlite3.Error, Unknown) as problem:
            self.close()
            raise _said(problem) from problem
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close it; a later transaction opens it again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(SQLAlchemyError, sqlite3.Error):
                connection.close()

    def _opened(self, patience: Callable[[], float]) -> Connection:
        if self._connection is not None and identity(self._path) != self._identity:
            self.close()
        if self._connection is None:
            self._connection = _pausing(self._connect, patience)
            self._identity = identity(self._path)
        return self._connection

    def _connect(self) -> Connection:
        for made in make_folder(self._path.parent):
            if self._synced:
                sync_folder(made.parent)
        if make_whole(self._path, self._fill) and self._synced:
            sync_folder(self._path.parent)
        connection = create_engine("sqlite://", creator=lambda: _connected(self._path, self._synced), poolclass=NullPool).connect()
        try:
            _prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _fill(self, path: Path) -> None:
        """Create the file where no other process sees it yet."""
        with (
            create_engine("sqlite://", creator=lambda: _connected(path, self._synced), poolclass=NullPool).connect() as connection,
            connection.begin(),
        ):
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            make(connection)


def _prepare(connection: Connection) -> None:
    """A file of something else is left as it is: it is looked at before anything is set."""
    with connection.begin():
        if not is_made(connection):
            raise Unknown("it is empty, so its records are lost; restore it, or move it away with its -wal and -shm to begin anew")
    connection.exec_driver_sql("PRAGMA journal_mode=WAL")
    connection.rollback()


def read_only(path: Path) -> Connection:
    """A connection that changes nothing. Raises OSError where the file is none of ours."""
    try:
        return create_engine("sqlite://", creator=lambda: _reading(path), poolclass=NullPool).connect()
    except (SQLAlchemyError, sqlite3.Error) as problem:
        raise _said(problem) from problem


def _reading(path: Path) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode=ro"
    return sqlite3.connect(uri, uri=True, timeout=5.0, isolation_level=None, check_same_thread=False)


def _connected(path: Path, synced: bool) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=AT_ONCE / 1000, isolation_level=None, check_same_thread=False)
    try:
        db.execute(f"PRAGMA synchronous={'FULL' if synced else 'NORMAL'}")
        db.execute(f"PRAGMA max_page_count={MOST_PAGES:d}")
    except BaseException:
        db.close()
        raise
    return db


def _pausing(what: Callable[[], T], patience: Callable[[], float]) -> T:
    """What comes of it, tried at least once and again as long as the file is locked and ``patience`` lasts. Raises what it raises."""
    begun = time.monotonic()
    while True:
        try:
            return what()
        except (SQLAlchemyError, sqlite3.Error) as problem:
            if not _name(problem).startswith(_BUSY) or time.monotonic() - begun >= patience():
                raise
        time.sleep(PAUSE)


def _name(problem: Exception) -> str:
    original: Any = problem.orig if isinstance(problem, DBAPIError) else problem
    return getattr(original, "sqlite_errorname", "")


def _said(problem: Exception) -> OSError:
    """What SQLite says, in our words, as a fault of the place."""
    if isinstance(problem, Unknown):
        return OSError(0, str(problem))
    name = _name(problem)
    if name.startswith(_BUSY):
        return TimeoutError("another process keeps it locked")
    words = next((words for code, words in _WORDS.items() if name.startswith(code)), "")
    return OSError(0, f"{words} ({name})" if words else name or type(problem).__name__)
