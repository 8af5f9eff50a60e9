"""SQLite files: opening one, transactions that wait for other processes, the version of its tables, and errors in words
for the operator.

A file is created for its owner only, gets its name once its tables are complete, and uses WAL. The first transaction
opens it, and the next one reopens it after a fault or if it was moved away or replaced. A step from an older version is
one transaction: a kill leaves the old tables or the new ones. An empty, newer, damaged or foreign file is refused and
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

from samplegate.files import identity, make_folder, make_whole, sync_folder

if TYPE_CHECKING:
    from sqlalchemy import Connection

T = TypeVar("T")
Kind: TypeAlias = Literal["busy", "full", "read_only", "damaged", "newer", "foreign", "unreachable"]

AT_ONCE: Final = 0.1  # seconds that SQLite waits for a lock by itself: the end of the process may come meanwhile
PAUSE: Final = 0.005
MOST_PAGES: Final = 4_294_967_294  # SQLite's own most, some 16 TiB

_LOCKED: Final[tuple[Kind, str, str]] = ("busy", "another process keeps it locked", "end it, or wait for it")
_OURS: Final = "let this user write it and its folder"
_UNKNOWN: Final[tuple[Kind, str, str]] = ("unreachable", "", "")
_ERRORS: Final[dict[str, tuple[Kind, str, str]]] = {
    "SQLITE_BUSY": _LOCKED,
    "SQLITE_LOCKED": _LOCKED,
    "SQLITE_PROTOCOL": _LOCKED,
    "SQLITE_FULL": ("full", "its disk is full", "make room"),
    "SQLITE_READONLY": ("read_only", "it cannot be written", _OURS),
    "SQLITE_PERM": ("read_only", "it cannot be written", _OURS),
    "SQLITE_AUTH": ("read_only", "it cannot be written", _OURS),
    "SQLITE_CANTOPEN": ("unreachable", "it cannot be opened", _OURS),
    "SQLITE_CORRUPT": ("damaged", "it is damaged", "move it away, with its -wal and -shm"),
    "SQLITE_NOTADB": ("damaged", "it is no database", "name another file"),
    "SQLITE_ERROR": ("damaged", "", ""),  # no such table or column: it is not the file that we know
    "SQLITE_MISMATCH": ("damaged", "", ""),
    "SQLITE_CONSTRAINT": ("damaged", "", ""),
}
"""By the beginning of SQLite's name for it (extended names begin alike): the kind, the problem, the remedy."""


class SqliteFault(Exception):
    """A file could not be used: the text that follows its name, without statements or values. ``undone``: certainly
    nothing was changed."""

    def __init__(self, kind: Kind, problem: str, remedy: str = "", code: str = "") -> None:
        said = "; ".join(filter(None, (problem, remedy)))
        super().__init__(f"{said} ({code})" if said and code else said or code)
        self.kind: Kind = kind
        self.problem = f"{problem} ({code})" if problem and code else problem or code
        """Without the remedy."""
        self.undone = True


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables of one kind of file, and how to create them."""

    version: int | str
    select: str
    """The statement that asks a file for its version; 0 is none of ours."""
    table: str | None
    """The table that it asks, None for a pragma."""
    make: Callable[[Any], None]
    """Make the tables from nothing or from an ``older`` version, within a write transaction of a ``File`` or a
    ``CoreFile``."""
    contents: str
    """What is lost with the tables: ``reviews``."""
    another: str
    """What to do about a file that is not ours: ``name another store``."""
    older: Collection[int | str] = ()
    """The versions that ``make`` leads on from."""

    def is_current(self, db: sqlite3.Connection) -> bool:
        """Whether the tables are of this version; False for an older one. Raises Fault for any other file,
        sqlite3.Error."""
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not tables:
            lost = f"it is empty, so its {self.contents} are lost"
            raise SqliteFault("damaged", lost, "restore it, or move it away with its -wal and -shm to begin anew")
        found = db.execute(self.select).fetchone() if self.table is None or self.table in tables else (0,)
        version = None if found is None else found[0]
        if version == 0:
            raise SqliteFault("foreign", "it has tables of something else", self.another)
        if version != self.version and version not in self.older:
            versions = f"its {self.contents} are of version {version!r}, this samplegate knows {self.version!r}"
            raise SqliteFault("newer", versions, f"use that samplegate, or {self.another}")
        return version == self.version


class File:
    """One SQLite file. For one thread at a time."""

    def __init__(
        self,
        path: Path,
        schema: Schema,
        *,
        pragmas: tuple[str, ...] = (),
        most_pages: int = MOST_PAGES,
        missing: str = "",
        synced: bool = False,
    ) -> None:
        """``missing``: what to do where there is no file, which is not made then; ``synced``: whether its name outlives
        a power cut."""
        self.path = path
        self._schema = schema
        self._pragmas = pragmas
        self._most_pages = most_pages
        self._missing = missing
        self._synced = synced
        self._db: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None

    @property
    def is_open(self) -> bool:
        """Whether SQLite has locks on the file that closing another descriptor of it would end."""
        return self._db is not None

    @contextlib.contextmanager
    def transaction(self, left: Callable[[], float], begin: str = "BEGIN IMMEDIATE") -> Iterator[sqlite3.Connection]:
        """One transaction, committed when the block is left but by raising. Raises Fault for all that SQLite and the
        system refuse, also within it.

        A lock is asked for at least once, and waited for as long as seconds are ``left``, which is asked again each
        time.
        """
        undone = True
        try:
            if self._db is not None and self._identity != identity(self.path):
                self.close()  # it was moved away or replaced: what we wrote would be read by nobody
            if self._db is None:
                self._db = pausing(self._connect, left)
                self._identity = identity(self.path)
            db = self._db
            pausing(lambda: db.execute(begin), left)
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
        """Remove overwritten and deleted content from the WAL, unless another connection reads now. Never raises."""
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """Close it; a later transaction opens it again."""
        db, self._db = self._db, None
        if db is not None:
            with contextlib.suppress(sqlite3.Error):
                db.close()

    def _connect(self) -> sqlite3.Connection:
        if not self._missing:
            self._make_file()
        elif not self.path.exists():
            raise SqliteFault("unreachable", "there is none", self._missing)
        db = self._opened(self.path)
        try:
            if not self._schema.is_current(db):  # looked at before anything is set
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
        if make_whole(self.path, self._fill) and self._synced:
            sync_folder(self.path.parent)

    def _fill(self, draft: Path) -> None:
        """Create the tables where no other process sees them yet."""
        with contextlib.closing(self._opened(draft)) as db:
            self._make_tables(db, new=True)

    def _make_tables(self, db: sqlite3.Connection, *, new: bool = False) -> None:
        """Migrate in one transaction: of two processes, the second finds the tables of the first."""
        db.execute("BEGIN IMMEDIATE")
        try:
            if new or not self._schema.is_current(db):
                self._schema.make(db)
            db.commit()
        except BaseException:
            db.rollback()
            raise

    def _opened(self, path: Path) -> sqlite3.Connection:
        db = sqlite3.connect(path, timeout=AT_ONCE, isolation_level=None, check_same_thread=False)
        try:
            for pragma in (*self._pragmas, f"max_page_count={min(self._most_pages, MOST_PAGES):d}"):
                db.execute(f"PRAGMA {pragma}").fetchall()
        except BaseException:
            db.close()
            raise
        return db

    def _roll_back(self, *, keep: bool) -> None:
        """``keep`` the connection, if that can be."""
        try:
            if self._db is not None:
                self._db.rollback()
        except sqlite3.Error:
            keep = False
        if not keep:
            self.close()


class CoreFile(File):
    """A file whose transactions go through SQLAlchemy Core; the driver begins and ends nothing by itself."""

    _core: Connection | None = None

    @contextlib.contextmanager
    def core(self, left: Callable[[], float], begin: str = "BEGIN IMMEDIATE") -> Iterator[Connection]:
        """As ``transaction``; what Core itself refuses is a Fault too."""
        from sqlalchemy.exc import DBAPIError, SQLAlchemyError

        with self.transaction(left, begin):
            assert self._core is not None
            try:
                with self._core.begin():
                    yield self._core
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
    """SQLAlchemy's connection over one of the driver, which stays open when it is closed."""
    from sqlalchemy import create_engine
    from sqlalchemy.pool import StaticPool

    return create_engine("sqlite://", creator=lambda: db, poolclass=StaticPool).connect()


def read_only(path: Path) -> sqlite3.Connection:
    """A connection that changes nothing. Raises sqlite3.Error."""
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5.0, isolation_level=None, check_same_thread=False
    )


def pausing(what: Callable[[], T], left: Callable[[], float]) -> T:
    """What comes of it, tried at least once and again as long as the file is locked and seconds are ``left``. Raises
    what it raises.

    SQLite's own busy timeout does not cover the switch to WAL, and cannot be interrupted.
    """
    while True:
        try:
            return what()
        except sqlite3.OperationalError as problem:
            if fault_of(problem).kind != "busy" or left() <= 0:
                raise
        time.sleep(PAUSE)


def fault_of(problem: sqlite3.Error | OSError) -> SqliteFault:
    """What SQLite or the system says, in our words."""
    if isinstance(problem, OSError):
        said = os.strerror(problem.errno) if problem.errno else type(problem).__name__
        return SqliteFault("read_only" if isinstance(problem, PermissionError) else "unreachable", said)
    name = getattr(problem, "sqlite_errorname", "")
    kind, said, remedy = next((row for code, row in _ERRORS.items() if name.startswith(code)), _UNKNOWN)
    return SqliteFault(kind, said, remedy, "" if kind == "busy" else name or type(problem).__name__)
