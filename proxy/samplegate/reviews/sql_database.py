"""The database of reviews by its URL: a SQLite file, or PostgreSQL. Failures raise Unavailable with a message for the
operator.

A commit is on the disk when it returns, because a verdict costs a reviewer's time and its use must not be forgotten. In
both databases, transactions that change something take effect one after the other. Overwritten and deleted content is
erased from a SQLite file, because forms may contain secrets; PostgreSQL keeps it in old versions of rows, in its
write-ahead log and in backups.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Set
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

from sqlalchemy import Connection, select

from samplegate.errors import Unavailable
from samplegate.postgres.driver import check_driver
from samplegate.postgres.url import is_database
from samplegate.process_locks import Holder
from samplegate.reviews.sql_schema import FACTS, SCHEMA
from samplegate.sqlite import CoreFile, SqliteFault

if TYPE_CHECKING:
    from samplegate.postgres.connection import Isolation

PATIENCE: Final = 5.0  # seconds that a transaction waits for those of other processes, which take milliseconds
Transaction: TypeAlias = contextlib.AbstractContextManager[Connection]


class OutcomeUnknown(Unavailable):
    """A transaction failed at its commit, so it may have been committed."""


class Database(Protocol):
    """A database for one thread at a time. Its first transaction opens it, and so does the first after a fault."""

    fleet: bool
    """Whether gates on other machines may use it, so that a lease alone tells whether a process is alive."""
    place: str
    """The database for messages, without a password."""
    until: float | None
    """The deadline for a lock, on ``time.monotonic``; None: ``PATIENCE`` for each transaction.

    The lock is tried at least once.
    """

    def exists(self) -> bool:
        """Whether the database may exist."""
        ...

    def writing(self) -> Transaction:
        """A write transaction, alone in the database, committed unless the block raises. Raises Unavailable."""
        ...

    def claiming(self) -> Transaction:
        """A write transaction beside others. It locks the rows that it changes by itself, and waits for one of them at
        most. Raises Unavailable."""
        ...

    def reading(self) -> Transaction:
        """A read transaction, which sees one state of the database. Raises Unavailable."""
        ...

    def now(self, db: Connection) -> float:
        """The database's time within a transaction, which has its locks by then if it writes. In Unix seconds."""
        ...

    def wall(self) -> float:
        """The database's time, without asking the database."""
        ...

    def scrub(self) -> None:
        """Erase overwritten content as far as the database can."""

    def register(self, process: str) -> None:
        """Announce, within a transaction, that this process runs; its name has 32 hexadecimal digits."""

    def dead(self, processes: Set[str]) -> Set[str]:
        """Those of the processes that have certainly ended, within a transaction."""
        ...

    def close(self) -> None:
        """Close the database; a later transaction opens it again."""


def database_of(url: str, *, make: bool = True, clock: Callable[[], float] | None = None) -> Database:
    """The database of a URL: ``sqlite:PATH`` or ``postgresql://...``. ``make``: whether to create what is missing.
    ``clock``: replaces the database's time, in Unix seconds. Raises Unavailable."""
    return (PostgresDatabase if is_database(url) else SqliteDatabase)(url, make=make, clock=clock)


def path_of(url: str) -> Path:
    """The file in ``sqlite:PATH``.

    Raises Unavailable for another scheme. The message contains only the scheme, because the URL may contain a password.
    """
    kind, colon, rest = url.partition(":")
    if kind != "sqlite":
        found = f"unknown kind {kind[:40]!r}" if colon else "it has no kind"
        raise Unavailable(f"store: {found}; write sqlite:PATH or postgresql://...")
    if not rest:
        raise Unavailable("store: it has no path; write sqlite:PATH")
    return Path(rest).expanduser()


class SqliteDatabase:
    """A SQLite file. It has no clock of its own, so its time is this machine's."""

    fleet = False

    def __init__(self, url: str, *, make: bool = True, clock: Callable[[], float] | None = None) -> None:
        self.path = path_of(url)
        self.place = str(self.path)
        self.until: float | None = None
        self.wall = clock or time.time
        missing = "" if make else "pass the gate's store with --store"
        self._file = CoreFile(self.path, SCHEMA, pragmas=("synchronous=FULL", "secure_delete=ON"), missing=missing)
        self._holder = Holder(self.path.with_name(f"{self.path.name}-holders"))
        self.scrub = self._file.checkpoint

    def exists(self) -> bool:
        return self.path.exists()

    def writing(self) -> Transaction:
        return self._transaction("BEGIN IMMEDIATE")

    claiming = writing

    def reading(self) -> Transaction:
        return self._transaction("BEGIN")

    def now(self, db: Connection) -> float:
        return self.wall()

    def register(self, process: str) -> None:
        self._holder.register(process)

    def dead(self, processes: Set[str]) -> Set[str]:
        return set(self._holder.dead(processes))

    def close(self) -> None:
        self._file.close()
        self._holder.close(remove=True)

    @contextlib.contextmanager
    def _transaction(self, begin: Literal["BEGIN IMMEDIATE", "BEGIN"]) -> Iterator[Connection]:
        until = time.monotonic() + PATIENCE if self.until is None else self.until
        try:
            with self._file.core(lambda: until - time.monotonic(), begin) as connection:
                yield connection
        except SqliteFault as problem:
            raise _unavailable(self.place, problem, undone=problem.undone) from problem


SERIAL: Final = select(FACTS.c.number).where(FACTS.c.name == "events").with_for_update()
"""Locks the row from which events get their numbers. A transaction that changes something takes it before all other
rows, so that no two of them wait for each other. A row lock works through every pooler, and pg_locks shows it."""


class PostgresDatabase:
    """A PostgreSQL database, whose time is the server's. Its gates may run on other machines, so only a lease tells
    whether one of them is alive."""

    fleet = True

    def __init__(self, url: str, *, make: bool = True, clock: Callable[[], float] | None = None) -> None:
        check_driver()
        from samplegate.postgres.connection import PostgresConnection

        self._connection = PostgresConnection(url, make=make, core=True)
        self._clock = clock
        self.place = self._connection.place
        self.until: float | None = None
        self.close = self._connection.close

    def exists(self) -> bool:
        return True

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        with self.claiming() as connection:
            connection.execute(SERIAL).scalar_one()
            yield connection

    def claiming(self) -> Transaction:
        return self._transaction("READ COMMITTED")

    def reading(self) -> Transaction:
        return self._transaction("REPEATABLE READ, READ ONLY")

    def now(self, db: Connection) -> float:
        return self._connection.now() if self._clock is None else self._clock()

    def wall(self) -> float:
        return self._connection.wall() if self._clock is None else self._clock()

    def scrub(self) -> None:
        """Nothing: the server removes old versions of rows by itself, later."""

    def register(self, process: str) -> None:
        """Nothing: a lease is enough."""

    def dead(self, processes: Set[str]) -> Set[str]:
        """None: their leases end by themselves."""
        return frozenset()

    @contextlib.contextmanager
    def _transaction(self, isolation: Isolation) -> Iterator[Connection]:
        from samplegate.postgres.faults import PostgresFault

        until = time.monotonic() + PATIENCE if self.until is None else self.until
        try:
            with self._connection.core(lambda: until - time.monotonic(), isolation) as connection:
                yield connection
        except PostgresFault as problem:
            raise _unavailable(self.place, problem, undone=problem.undone) from problem


def _unavailable(place: str, problem: Exception, *, undone: bool) -> Unavailable:
    return (Unavailable if undone else OutcomeUnknown)(f"review store {place}: {problem}")
