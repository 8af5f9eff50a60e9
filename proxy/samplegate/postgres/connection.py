"""A connection to PostgreSQL: transactions with deadlines, and faults worded for operators.

The first transaction connects, and so does the first after a fault. A lost connection is noticed at ``BEGIN``, before
anything has happened, and replaced once. Everything else that fails is a fault, and says whether the transaction may
have been committed.

Two kinds of waiting have bounds of their own. The server ends a wait for a lock, a statement and a transaction that
does nothing, so that a gate that freezes does not hold the rows of others. A watchdog in this process ends a connection
whose server or network does not answer, so that the calling thread returns.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Literal, LiteralString, TypeAlias

import psycopg
from psycopg.conninfo import conninfo_to_dict

from samplegate.postgres import schema
from samplegate.postgres.faults import LATE, PostgresFault, fault_of
from samplegate.postgres.url import shown

if TYPE_CHECKING:
    from sqlalchemy import Connection

Isolation: TypeAlias = Literal["READ COMMITTED", "REPEATABLE READ, READ ONLY"]
Statement: TypeAlias = tuple[LiteralString, Sequence[object]]
"""A statement with placeholders, and its parameters."""

LOCK_TIMEOUT: Final = 3.0  # seconds
STATEMENT_TIMEOUT: Final = 5.0
IDLE_TIMEOUT: Final = 2.0
"""Seconds that a transaction may do nothing: a gate that is stopped must not hold rows that others need."""
GRACE: Final = 1.0
"""Seconds beyond its deadline that a transaction gets before its connection is cut."""
MIN_TIMEOUT: Final = 0.05
MIGRATION: Final = 60.0
"""Seconds for the creation or the migration of the tables, whatever the deadline of the transaction that needs them."""
CONNECTION: Final = {
    "client_encoding": "UTF8",
    "connect_timeout": "3",
    "tcp_user_timeout": "4000",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "target_session_attrs": "read-write",
    "application_name": "samplegate",
}
"""Options of libpq that a URL may override."""


class PostgresConnection:
    """One connection, for one thread at a time.

    ``make``: whether to create and migrate the tables if they are missing or old. ``core``: whether ``core`` is used.
    """

    def __init__(self, url: str, *, make: bool = True, core: bool = False) -> None:
        self.place = shown(url)
        """The URL without its password."""
        self._url = url
        self._make = make
        self._db: psycopg.Connection | None = None
        self._with_core = core
        self._core: Connection | None = None
        self._offset = 0.0

    @contextlib.contextmanager
    def transaction(
        self,
        left: Callable[[], float],
        isolation: Isolation = "READ COMMITTED",
        last: Callable[[], Sequence[Statement]] = tuple,
    ) -> Iterator[psycopg.Connection]:
        """One transaction: committed at the end of the block, rolled back if the block raises. Raises PostgresFault for
        all of psycopg's errors, also for those within the block.

        ``left``: the seconds until its deadline; locks are requested at least once. ``last``: statements that return
        nothing, and are sent in one message with the commit.
        """
        committing = False
        db, watched = self._begin(left, isolation)
        try:
            yield db
            committing = True
            _commit(db, last())
        except (psycopg.Error, PostgresFault) as problem:
            _watchdog.forget(watched)  # before the socket is closed, because its number may be reused
            self.close()
            fault = PostgresFault(*LATE) if watched.cut else fault_of(problem)
            fault.undone = not committing or _has_failed(problem)
            if fault is problem:
                raise
            raise fault from problem
        except BaseException:
            try:
                db.rollback()
            except psycopg.Error:
                _watchdog.forget(watched)
                self.close()
            raise
        finally:
            _watchdog.forget(watched)

    @contextlib.contextmanager
    def core(self, left: Callable[[], float], isolation: Isolation = "READ COMMITTED") -> Iterator[Connection]:
        """Like ``transaction``, through SQLAlchemy Core; also raises PostgresFault for errors of Core itself."""
        from sqlalchemy.exc import DBAPIError, SQLAlchemyError

        with self.transaction(left, isolation):
            assert self._core is not None
            try:
                yield self._core  # Core never ends the transaction: it would commit ours
            except SQLAlchemyError as problem:
                if isinstance(problem, DBAPIError) and isinstance(problem.orig, psycopg.Error):
                    raise problem.orig from problem
                raise PostgresFault("unreachable", type(problem).__name__) from problem

    def now(self) -> float:
        """The server's time within a transaction, in Unix seconds: of this moment, not of the transaction's start."""
        assert self._db is not None
        (now,) = self._db.execute(CLOCK).fetchone() or (0.0,)
        self._offset = now - time.time()
        return float(now)

    def wall(self) -> float:
        """The server's time by this machine's clock and the difference when it was last asked, without asking."""
        return time.time() + self._offset

    def close(self) -> None:
        """Close the connection; the next transaction connects again."""
        core, self._core = self._core, None
        db, self._db = self._db, None
        if core is not None:
            with contextlib.suppress(Exception):
                core.invalidate()
        if db is not None:
            with contextlib.suppress(psycopg.Error):
                db.close()

    def _begin(self, left: Callable[[], float], isolation: Isolation) -> tuple[psycopg.Connection, _Watched]:
        """Begin a transaction. A connection that was lost since the last one is replaced. Raises PostgresFault."""
        used = self._db is not None
        while True:
            try:
                db = self._db = self._db or self._connect(left)
            except (psycopg.Error, OSError) as problem:
                raise fault_of(problem) from problem
            watched = _watchdog.watch(db, max(left(), 0.0) + GRACE)
            try:
                db.execute(_begin(isolation, max(left(), MIN_TIMEOUT)))
            except psycopg.Error as problem:
                _watchdog.forget(watched)
                self.close()
                if not used or watched.cut:
                    raise (PostgresFault(*LATE) if watched.cut else fault_of(problem)) from problem
                used = False
            else:
                return db, watched

    def _connect(self, left: Callable[[], float]) -> psycopg.Connection:
        db = psycopg.connect(**options(self._url), autocommit=True, prepare_threshold=None)  # type: ignore[arg-type]
        watched = _watchdog.watch(db, max(left(), 0.0) + GRACE)
        try:
            schema.ensure(db, make=self._make, migrates=lambda: watched.extend(MIGRATION))
            if self._with_core:
                self._core = schema.through_core(db)
        except BaseException as problem:
            _watchdog.forget(watched)
            db.close()
            if watched.cut:
                raise PostgresFault(*LATE) from problem
            raise
        _watchdog.forget(watched)
        return db


CLOCK: Final = "SELECT extract(epoch FROM clock_timestamp())::float8"


def _begin(isolation: Isolation, seconds: float) -> bytes:
    """``BEGIN`` with the transaction's settings, in one round trip."""
    lock = min(LOCK_TIMEOUT, seconds)
    return (
        f"BEGIN ISOLATION LEVEL {isolation}; SET LOCAL search_path = {schema.SCHEMA};"
        f" SET LOCAL lock_timeout = {lock * 1e3:.0f}; SET LOCAL statement_timeout = {STATEMENT_TIMEOUT * 1e3:.0f};"
        f" SET LOCAL idle_in_transaction_session_timeout = {IDLE_TIMEOUT * 1e3:.0f}"
    ).encode()


def _commit(db: psycopg.Connection, last: Sequence[Statement]) -> None:
    """Execute statements and commit, in one message of the simple query protocol.

    Separate messages, as psycopg's pipeline mode sends them, may end with one after which the server waits for the next
    without IDLE_TIMEOUT, so that a gate that freezes there would keep its locks.
    """
    cursor = psycopg.ClientCursor(db)
    cursor.execute("; ".join([*(cursor.mogrify(*statement) for statement in last), "COMMIT"]).encode())
    while cursor.nextset():
        pass
    if cursor.statusmessage != "COMMIT":  # the server rolls back a transaction in which a statement has failed
        raise _RolledBack("unreachable", "it has rolled the transaction back")


class _RolledBack(PostgresFault):
    """The server has answered COMMIT with ROLLBACK."""


def _has_failed(problem: psycopg.Error | PostgresFault) -> bool:
    """Whether an error at the commit proves that nothing was committed: the server, not a pooler or the network, has
    reported it and goes on. It skips all that follows the error, with the COMMIT."""
    if isinstance(problem, PostgresFault):
        return isinstance(problem, _RolledBack)
    return problem.diag.severity_nonlocalized == "ERROR" and not (problem.sqlstate or "08").startswith("08")


def options(url: str) -> dict[str, object]:
    """The options of a connection. Raises PostgresFault."""
    try:
        given = conninfo_to_dict(url)
        several = "," in str(given.get("host", ""))  # each host is waited for; libpq waits two seconds at least
        return {**CONNECTION, **({"connect_timeout": "2"} if several else {}), **given}
    except psycopg.Error:  # its text may contain the password
        raise PostgresFault(
            "refused", "its URL is invalid", "write postgresql://USER@HOST/NAME, with other characters as %XX"
        ) from None


class _Watched:
    """A socket that is shut down at a time, unless it is forgotten before."""

    def __init__(self, fd: int, until: float) -> None:
        self.fd = fd
        self.until = until
        self.cut = False

    def extend(self, seconds: float) -> None:
        """Shut it down later, so many seconds from now."""
        self.until = time.monotonic() + seconds


class _Watchdog:
    """One thread that shuts down the sockets of transactions whose time is over.

    psycopg has no timeout for a statement, and the server's own timeouts do not help if it does not answer.
    """

    INTERVAL: Final = 0.25
    NAP: Final = 40
    """Intervals without a transaction after which the thread sleeps, because waking it costs more than an interval."""

    def __init__(self) -> None:
        self._wake = threading.Condition()
        self._watched: set[_Watched] = set()
        self._thread: threading.Thread | None = None
        self._asleep = False

    def watch(self, db: psycopg.Connection, seconds: float) -> _Watched:
        """Shut the connection's socket down after ``seconds``."""
        watched = _Watched(db.fileno(), time.monotonic() + seconds)
        with self._wake:
            self._watched.add(watched)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="samplegate-watchdog", daemon=True)
                self._thread.start()
            elif self._asleep:
                self._wake.notify()
        return watched

    def forget(self, watched: _Watched) -> None:
        """Leave the socket alone."""
        with self._wake:
            self._watched.discard(watched)

    def _run(self) -> None:
        idle = 0
        with self._wake:
            while True:
                self._asleep = idle >= self.NAP
                self._wake.wait(None if self._asleep else self.INTERVAL)
                idle = 0 if self._watched else idle + 1
                now = time.monotonic()
                for watched in [one for one in self._watched if one.until <= now]:
                    self._watched.discard(watched)
                    watched.cut = True
                    _shut_down(watched.fd)


def _shut_down(fd: int) -> None:
    with contextlib.suppress(OSError):
        found = socket.socket(fileno=fd)
        try:
            found.shutdown(socket.SHUT_RDWR)
        finally:
            found.detach()


_watchdog: Final = _Watchdog()
