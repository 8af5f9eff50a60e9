"""Opening the state's file: made for its owner alone, of a version we know, in SQLite's WAL. What stands in it is ``shared.py``'s.

Durability: a commit is the kernel's when it returns (``synchronous=NORMAL``), so that killing any process loses nothing; a power cut may
lose the commits since the last checkpoint (some megabytes of them), never the file. WAL needs a disk of this machine, not a network share.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from samplegate.files import make_folder, make_whole
from samplegate.limits.faults import Broken

VERSION: Final = 1
PAUSE: Final = 0.01
AT_ONCE: Final = 0.1  # seconds that SQLite waits for the file's lock by itself: the end of the process may come meanwhile
T = TypeVar("T")

_ACCOUNT: Final = "limit_name TEXT NOT NULL, key TEXT NOT NULL"
_KEY: Final = "PRIMARY KEY(limit_name, key)"
_SLOT: Final = "PRIMARY KEY(limit_name, key, holder, id)"
SCHEMA: Final = (
    f"CREATE TABLE accounts({_ACCOUNT}, level INTEGER NOT NULL, stamp REAL NOT NULL, warned INTEGER NOT NULL, {_KEY}) WITHOUT ROWID",
    f"CREATE TABLE slots({_ACCOUNT}, holder TEXT NOT NULL, id TEXT NOT NULL, amount INTEGER NOT NULL, {_SLOT}) WITHOUT ROWID",
    f"CREATE TABLE sweep({_ACCOUNT})",
    "INSERT INTO sweep VALUES('', '')",
)
"""``sweep`` says up to where idle accounts were last looked for."""


def connect(path: Path, seconds: float, most_pages: int) -> sqlite3.Connection:
    """A connection in autocommit, the tables made if there were none; ``seconds`` are for its locks. Raises Broken, sqlite3.Error, OSError."""
    make_folder(path.parent)
    make_whole(path, lambda draft: _fill(draft, most_pages))
    db = sqlite3.connect(path, timeout=seconds, isolation_level=None, check_same_thread=False)
    try:
        _prepare(db, most_pages)
    except BaseException:
        db.close()
        raise
    return db


def pausing(what: Callable[[float], T], left: Callable[[], float]) -> T:
    """What comes of it, tried at least once and again as long as the file is locked and seconds are ``left``. Raises what it raises.

    ``what`` is told how long it may wait for the lock. SQLite's own waiting would do but for two things: it does not wait for the switch to WAL,
    and nothing can end it.
    """
    while True:
        try:
            return what(max(0.0, min(left(), AT_ONCE)))
        except sqlite3.OperationalError as problem:
            if not (problem.sqlite_errorname or "").startswith("SQLITE_BUSY") or left() <= 0:
                raise
        time.sleep(PAUSE)


def _fill(path: Path, most_pages: int) -> None:
    """Create the file where no other process sees it yet."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(f"PRAGMA max_page_count={most_pages:d}")
        db.execute("BEGIN IMMEDIATE")
        for statement in SCHEMA:
            db.execute(statement)
        db.execute(f"PRAGMA user_version={VERSION:d}")
        db.execute("COMMIT")


def _prepare(db: sqlite3.Connection, most_pages: int) -> None:
    _check_version(db)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=NORMAL")
    db.execute(f"PRAGMA max_page_count={most_pages:d}")


def _check_version(db: sqlite3.Connection) -> None:
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    if version > VERSION or version < 0:
        raise Broken("newer", f"is of version {version}, this samplegate knows {VERSION}")
    if version == VERSION:
        return
    if db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise Broken("foreign", "has tables of something else")
    raise Broken("damaged", "is empty, so what was drawn is lost")
