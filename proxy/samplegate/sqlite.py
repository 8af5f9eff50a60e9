"""SQLite files: opening, transactions that wait for other processes, schema versions, and errors worded for operators.

A file is created for its owner only, gets its name once its tables are complete, and uses WAL. The first transaction
opens it. A later one reopens it after an error, or if it was renamed or replaced. A migration is one transaction: after
a kill, the file has either the old tables or the new ones. An empty, newer, damaged or foreign file is rejected and
left unchanged.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

from samplegate.files import identity, make_complete, make_folder, sync_folder

if TYPE_CHECKING:
    from sqlalchemy import Connection

T = TypeVar("T")
Kind: TypeAlias = Literal["busy", "full", "read_only", "damaged", "newer", "foreign", "unreachable"]

BUSY_TIMEOUT: Final = (
    0.1  # seconds of SQLite's own lock timeout, short because the process may be asked to end meanwhile
)
PAUSE: Final = 0.005
MAX_PAGES: Final = 4_294_967_294  # SQLite's maximum, some 16 TiB

_LOCKED: Final[tuple[Kind, str, str]] = ("busy", "another process has locked it", "stop that process, or wait for it")
_OURS: Final = "make it and its folder writable for this user"
_UNKNOWN: Final[tuple[Kind, str, str]] = ("unreachable", "", "")
_ERRORS: Final[dict[str, tuple[Kind, str, str]]] = {
    "SQLITE_BUSY": _LOCKED,
    "SQLITE_LOCKED": _LOCKED,
    "SQLITE_PROTOCOL": _LOCKED,
    "SQLITE_FULL": ("full", "its disk is full", "free disk space"),
    "SQLITE_READONLY": ("read_only", "it cannot be written", _OURS),
    "SQLITE_PERM": ("read_only", "it cannot be written", _OURS),
    "SQLITE_AUTH": ("read_only", "it cannot be written", _OURS),
    "SQLITE_CANTOPEN": ("unreachable", "it cannot be opened", _OURS),
    "SQLITE_CORRUPT": ("damaged", "it is corrupted", "move it aside, with its -wal and -shm"),
    "SQLITE_NOTADB": ("damaged", "it is not a database", "use another file"),
    "SQLITE_ERROR": ("damaged", "", ""),  # no such table or column: the file is not as we created it
    "SQLITE_MISMATCH": ("damaged", "", ""),
    "SQLITE_CONSTRAINT": ("damaged", "", ""),
}
"""SQLite's error name (extended names have it as a prefix) to the kind, the problem and the remedy."""


class SqliteFault(Exception):
    """A file that cannot be used. The message follows the file's name and contains no statements or values. ``undone``
    means that certainly nothing was changed."""

    def __init__(self, kind: Kind, problem: str, remedy: str = "", code: str = "") -> None:
        said = "; ".join(filter(None, (problem, remedy)))
        super().__init__(f"{said} ({code})" if said and code else said or code)
        self.kind: Kind = kind
        self.problem = f"{problem} ({code})" if problem and code else problem or code
        """The message without the remedy."""
        self.undone = True


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables of one kind of file: their version and how to create them."""

    version: int | str
    select: str
    """The query for the file's version; 0 means that the file is not ours."""
    table: str | None
    """The table that the query reads, None for a pragma."""
    make: Callable[[Any], None]
    """Create the tables from nothing or migrate an ``older`` version, within a write transaction of a ``File`` or a
    ``CoreFile``."""
    contents: str
    """The data that is lost with the tables, such as ``reviews``."""
    another: str
    """The remedy for a foreign file, such as ``use another store``."""
    older: Collection[int | str] = ()
    """Versions from which ``make`` can migrate."""

    def is_current(self, db: sqlite3.Connection) -> bool:
        """Whether the tables have this version; False for an older one. Raises SqliteFault for any other file, and
        sqlite3.Error."""
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not tables:
            lost = f"it is empty, so its {self.contents} are lost"
            raise SqliteFault("damaged", lost, "restore it, or move it aside with its -wal and -shm to start over")
        found = db.execute(self.select).fetchone() if self.table is None or self.table in tables else (0,)
        version = None if found is None else found[0]
        if version == 0:
            raise SqliteFault("foreign", "it contains tables from another program", self.another)
        if version != self.version and version not in self.older:
            versions = f"its {self.contents} have version {version!r}, but this samplegate supports {self.version!r}"
            raise SqliteFault("newer", versions, f"use a matching samplegate version, or {self.another}")
        return version == self.version


class File:
    """One SQLite file, used by one thread at a time."""

    def __init__(
        self,
        path: Path,
        schema: Schema,
        *,
        pragmas: tuple[str, ...] = (),
        max_pages: int = MAX_PAGES,
        missing: str = "",
        synced: bool = False,
    ) -> None:
        """``missing``: the remedy if the file does not exist; the file is then never created. ``synced``: whether the
        names of a new file and its folders are synced to the disk."""
        self.path = path
        self._schema = schema
        self._pragmas = pragmas
        self._max_pages = max_pages
        self._missing = missing
        self._synced = synced
        self._db: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None

    @property
    def is_open(self) -> bool:
        """Whether SQLite may hold locks on the file; closing another descriptor of the file would drop them."""
        return self._db is not None

    @contextlib.contextmanager
    def transaction(self, left: Callable[[], float], begin: str = "BEGIN IMMEDIATE") -> Iterator[sqlite3.Connection]:
        """One transaction: committed at the end of the block, rolled back if the block raises. Raises SqliteFault for
        every SQLite and system error, also for those within the block.

        The lock is requested at least once, and again while ``left`` returns more than 0 seconds.
        """
        undone = True
        try:
            if self._db is not None and self._identity != identity(self.path):
                self.close()  # the file was renamed or replaced: readers would not see our writes
            if self._db is None:
                self._db = retry_while_locked(self._connect, left)
                self._identity = identity(self.path)
            db = self._db
            retry_while_locked(lambda: db.execute(begin), left)
            yield db
            undone = False
            db.commit()
        except (sqlite3.Error, OSError, SqliteFault) as problem:
            found = problem if isinstance(problem, SqliteFault) else fault_of(problem)
            self._roll_back(keep=found.kind == "busy")
            found.undone = undone
            if found is problem:
                raise
            raise found from problem
        except BaseException:
            self._roll_back(keep=False)
            raise

    def checkpoint(self) -> None:
        """Remove overwritten and deleted content from the WAL, unless another connection is reading. Never raises."""
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """Close the file; the next transaction reopens it."""
        db, self._db = self._db, None
        if db is not None:
            with contextlib.suppress(sqlite3.Error):
                db.close()

    def _connect(self) -> sqlite3.Connection:
        if not self._missing:
            self._make_file()
        elif not self.path.exists():
            raise SqliteFault("unreachable", "it does not exist", self._missing)
        db = self._opened(self.path)
        try:
            if not self._schema.is_current(db):  # checked before anything is changed
                self._make_tables(db)
            db.execute("PRAGMA journal_mode=WAL").fetchall()
        except BaseException:
            db.close()
            raise
        return db

    def _make_file(self) -> None:
        for made in make_folder(self.path.parent):
            if self._synced:
                sync_folder(made.parent)
        if make_complete(self.path, self._fill) and self._synced:
            sync_folder(self.path.parent)

    def _fill(self, draft: Path) -> None:
        """Create the tables in a draft that no other process sees."""
        with contextlib.closing(self._opened(draft)) as db:
            self._make_tables(db, new=True)

    def _make_tables(self, db: sqlite3.Connection, *, new: bool = False) -> None:
        """Create or migrate in one transaction: of two processes, the second finds the first one's tables."""
        db.execute("BEGIN IMMEDIATE")
        try:
            if new or not self._schema.is_current(db):
                self._schema.make(db)
            db.commit()
        except BaseException:
            db.rollback()
            raise

    def _opened(self, path: Path) -> sqlite3.Connection:
        db = sqlite3.connect(path, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False)
        try:
            for pragma in (*self._pragmas, f"max_page_count={min(self._max_pages, MAX_PAGES):d}"):
                db.execute(f"PRAGMA {pragma}").fetchall()
        except BaseException:
            db.close()
            raise
        return db

    def _roll_back(self, *, keep: bool) -> None:
        """Roll back. ``keep`` the connection if possible."""
        try:
            if self._db is not None:
                self._db.rollback()
        except sqlite3.Error:
            keep = False
        if not keep:
            self.close()


class CoreFile(File):
    """A file with transactions through SQLAlchemy Core, which neither begins nor ends one in the database by itself."""

    _core: Connection | None = None

    @contextlib.contextmanager
    def core(self, left: Callable[[], float], begin: str = "BEGIN IMMEDIATE") -> Iterator[Connection]:
        """Like ``transaction``; also raises SqliteFault for errors of Core itself."""
        from sqlalchemy.exc import DBAPIError, SQLAlchemyError

        with self.transaction(left, begin):
            assert self._core is not None
            try:
                yield self._core  # Core begins a transaction of its own and never ends it: it would commit ours
            except SQLAlchemyError as problem:
                if isinstance(problem, DBAPIError) and isinstance(problem.orig, sqlite3.Error):
                    raise problem.orig from problem
                raise SqliteFault("unreachable", type(problem).__name__) from problem

    def close(self) -> None:
        core, self._core = self._core, None
        if core is not None:
            core.close()
        super().close()

    def _connect(self) -> sqlite3.Connection:
        db = super()._connect()
        self._core = through_core(db)
        return db

    def _make_tables(self, db: sqlite3.Connection, *, new: bool = False) -> None:
        with through_core(db) as core, core.begin():
            db.execute("BEGIN IMMEDIATE")
            if new or not self._schema.is_current(db):
                self._schema.make(core)


def through_core(db: sqlite3.Connection) -> Connection:
    """An SQLAlchemy connection over a driver's connection, which stays open when this one is closed."""
    from sqlalchemy import create_engine
    from sqlalchemy.pool import StaticPool

    return create_engine("sqlite://", creator=lambda: db, poolclass=StaticPool).connect()


def read_only(path: Path) -> sqlite3.Connection:
    """A read-only connection. Raises sqlite3.Error."""
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5.0, isolation_level=None, check_same_thread=False
    )


READ_TRIES: Final = 5


def read_file(path: Path, schema: Schema, ask: Callable[[sqlite3.Connection], T]) -> T:
    """Read from a file of another process in one read transaction. It creates and changes nothing, and delays no
    writer. Raises SqliteFault; an older schema is one, too.

    A file without a WAL is in use by no process, and opening it as usual would create one. It is then read as
    immutable, and again if it changed meanwhile.
    """
    for _ in range(READ_TRIES):
        stamp = _stamp(path)
        how = "mode=ro" if stamp[-1] else "mode=ro&immutable=1"
        try:
            db = sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, timeout=1.0, isolation_level=None)
            with contextlib.closing(db):
                db.execute("BEGIN")
                if not schema.is_current(db):
                    raise SqliteFault("newer", f"its {schema.contents} have an older version", "start a gate once")
                found = ask(db)
        except (sqlite3.Error, OSError, SqliteFault) as problem:
            if not stamp[-1] and stamp != _stamp(path):
                continue
            raise (problem if isinstance(problem, SqliteFault) else fault_of(problem)) from problem
        if stamp[-1] or stamp == _stamp(path):
            return found
    raise SqliteFault("busy", "it changes too often to be read", "try again")


def _stamp(path: Path) -> tuple[int, ...]:
    """What changes if another process opens or writes the file. Raises SqliteFault."""
    try:
        found = path.stat()
    except OSError as problem:
        raise fault_of(problem) from problem
    used = path.with_name(f"{path.name}-wal").exists()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, used


def retry_while_locked(what: Callable[[], T], left: Callable[[], float]) -> T:
    """Run ``what``, and retry while the file is locked and ``left`` returns more than 0 seconds. Raises its last error.

    SQLite's own busy timeout does not cover the switch to WAL and cannot be interrupted.
    """
    while True:
        try:
            return what()
        except sqlite3.OperationalError as problem:
            if fault_of(problem).kind != "busy" or left() <= 0:
                raise
        time.sleep(PAUSE)


def fault_of(problem: sqlite3.Error | OSError) -> SqliteFault:
    """An SQLite or system error as a SqliteFault."""
    if isinstance(problem, OSError):
        said = os.strerror(problem.errno) if problem.errno else type(problem).__name__
        return SqliteFault("read_only" if isinstance(problem, PermissionError) else "unreachable", said)
    name = getattr(problem, "sqlite_errorname", "")
    kind, said, remedy = next((row for code, row in _ERRORS.items() if name.startswith(code)), _UNKNOWN)
    return SqliteFault(kind, said, remedy, "" if kind == "busy" else name or type(problem).__name__)
