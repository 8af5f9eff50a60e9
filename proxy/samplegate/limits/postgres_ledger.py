"""Shared accounts in PostgreSQL, for gates on many machines. All times are the server's.

A transaction locks its accounts in the order of their keys, so that no two transactions wait for each other, and it
locks nothing before that: new accounts are made in a transaction of their own. The rules run here, on the rows just
read. They stay locked for a round trip and the commit, which bounds the throughput of an account (bench/README.md).

A process that holds slots of concurrent requests has a lease of ``LEASE`` seconds, which it renews. The slots of a
process whose lease has ended are free. Such a process must have given them up by then (``lease.py``).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any, Final

import psycopg

from samplegate.errors import Unavailable
from samplegate.limits.accounts import Account
from samplegate.limits.backend import LedgerUnavailable
from samplegate.limits.balances import Balances, account_of, balances, other_balances
from samplegate.limits.shared_ledger import MAX_ACCOUNTS, SharedLedger
from samplegate.policy import ledger
from samplegate.policy.ledger import LimitSpec
from samplegate.postgres.connection import CLOCK, PostgresConnection, Statement
from samplegate.postgres.faults import PostgresFault
from samplegate.sqlite import SqliteFault

LEASE: Final = 30.0

_MAKE: Final = (
    "INSERT INTO accounts SELECT l, k, 0, 0, false FROM unnest(%s::text[], %s::text[]) wanted(l, k)"
    ' ORDER BY l COLLATE "C", k COLLATE "C" ON CONFLICT DO NOTHING'
)
# The clock is read for each row after its lock was acquired, because the lock belongs to the inner query; so the last
# row's time is later than all locks.
_LOCK: Final = (
    "WITH locked AS MATERIALIZED (SELECT limit_name, key, level, stamp, warned FROM accounts"
    " WHERE (limit_name, key) IN (SELECT * FROM unnest(%s::text[], %s::text[])) ORDER BY limit_name, key FOR UPDATE)"
    " SELECT locked.*, extract(epoch FROM clock_timestamp())::float8 FROM locked"
)
_WRITE: Final = (
    "UPDATE accounts SET level = new.level, stamp = new.stamp, warned = new.warned"
    " FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::float8[], %s::bool[]) new(l, k, level, stamp, warned)"
    " WHERE limit_name = l AND key = k"
)
_SLOTS: Final = (
    "SELECT limit_name, key, holder, id, amount FROM slots"
    " WHERE (limit_name, key) IN (SELECT * FROM unnest(%s::text[], %s::text[]))"
)
_TAKE: Final = (
    "INSERT INTO slots VALUES(%s, %s, %s, %s, %s) ON CONFLICT(limit_name, key, holder, id) DO UPDATE"
    " SET amount = excluded.amount"
)
_FREE: Final = "DELETE FROM slots WHERE limit_name = %s AND key = %s AND holder = %s AND id = %s"
_ALIVE: Final = "SELECT name FROM holders WHERE name = ANY(%s::text[]) AND held_until > %s"
_RENEW: Final = "INSERT INTO holders VALUES(%s, %s) ON CONFLICT(name) DO UPDATE SET held_until = excluded.held_until"
_NEXT: Final = (
    "SELECT limit_name, key, level, stamp, warned FROM accounts WHERE (limit_name, key) > (%s, %s)"
    " ORDER BY limit_name, key LIMIT %s"
)
_FORGET: Final = (
    "DELETE FROM accounts WHERE (limit_name, key) IN (SELECT limit_name, key FROM accounts"
    " WHERE (limit_name, key, level, stamp) IN"
    " (SELECT * FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::float8[])) FOR UPDATE SKIP LOCKED)"
)


class PostgresLedger(SharedLedger):
    """The ledger with its shared accounts in the database at ``url``. ``clock`` is that of the accounts in memory;
    ``time`` replaces the server's."""

    def __init__(
        self,
        specs: Mapping[str, LimitSpec],
        url: str,
        clock: Callable[[], float],
        most: int = MAX_ACCOUNTS,
        *,
        time: Callable[[], float] | None = None,
    ) -> None:
        super().__init__(specs, PostgresAccounts(url, time), clock, most)


class PostgresAccounts:
    """``SharedAccounts`` in a PostgreSQL database."""

    errors: tuple[type[Exception], ...] = (psycopg.Error, PostgresFault, SqliteFault)
    lease: float | None = LEASE

    def __init__(self, url: str, clock: Callable[[], float] | None = None) -> None:
        """``clock`` replaces the server's time, in Unix seconds."""
        self._connection = PostgresConnection(url)
        self._clock = clock
        self._holder = os.urandom(16).hex()
        self._holds = False
        self._swept = ("", "")

    @contextlib.contextmanager
    def transaction(self, left: Callable[[], float], accounts: Callable[[], Set[Account]]) -> Iterator[_SharedRows]:
        """See ``SharedAccounts``."""
        try:
            if left() <= 0:
                raise PostgresFault("busy", "it did not respond in time")
            while left() > 0:  # a third time only if an account that was just made was deleted as idle
                rows = _SharedRows(self._holder, self._swept)
                try:
                    with self._connection.transaction(left, last=rows.writes) as db:
                        rows.lock(db, sorted(accounts()))
                        rows.time = rows.time if self._clock is None else self._clock()
                        yield rows
                        self._holds = self._holds or rows.holds
                except _MissingAccounts as missing:
                    self._make(missing.accounts, left)
                else:
                    self._swept = rows.swept
                    return
            raise PostgresFault("busy", "other processes delete idle accounts meanwhile", "try again")
        except PostgresFault as problem:
            raise _unavailable(problem, problem.undone) from problem
        except SqliteFault as problem:  # from ``account_of``
            raise _unavailable(PostgresFault("damaged", problem.problem), True) from problem

    def _make(self, accounts: Sequence[Account], left: Callable[[], float]) -> None:
        """Make empty accounts, which exist from then on. Raises PostgresFault."""
        try:
            with self._connection.transaction(left) as db:
                db.execute(_MAKE, _columns(accounts))
        except PostgresFault as problem:
            problem.undone = True  # whether they exist or not: nothing was charged
            raise

    def renew(self, left: Callable[[], float]) -> None:
        """Renew the lease of this process. Raises LedgerUnavailable."""
        with self.transaction(left, frozenset) as rows:
            rows.renew()

    def close(self, left: Callable[[], float]) -> None:
        """Free the slots of this process, and close. Never raises."""
        if self._holds:
            with contextlib.suppress(PostgresFault), self._connection.transaction(left) as db:
                db.execute("DELETE FROM slots WHERE holder = %s", (self._holder,))
                db.execute("DELETE FROM holders WHERE name = %s", (self._holder,))
        self._connection.close()


def _unavailable(problem: PostgresFault, undone: bool) -> LedgerUnavailable:
    words = f"limits: the shared database: {problem.problem}"
    return LedgerUnavailable(problem.kind, f"{words}; {problem.remedy}" if problem.remedy else words, undone=undone)


class _MissingAccounts(Exception):
    """Accounts that do not exist yet, or were deleted because they were idle."""

    def __init__(self, accounts: Sequence[Account]) -> None:
        super().__init__()
        self.accounts = accounts


def _columns(accounts: Sequence[Account]) -> list[list[str]]:
    """The identities and the keys of accounts, for a statement."""
    return [[limit for limit, _ in accounts], [key for _, key in accounts]]


class _SharedRows:
    """``SharedRows`` of one transaction. Writes are sent with the commit."""

    _db: psycopg.Connection

    def __init__(self, holder: str, swept: Account) -> None:
        self._holder, self.swept = holder, swept
        self.holds = False
        """Whether slots were taken."""
        self._accounts: dict[Account, ledger.Account | None] = {}
        self._changed: dict[Account, ledger.Account] = {}
        self._slots: dict[Account, dict[tuple[str, str], int]] | None = None
        self._statements: list[Statement] = []
        self.time = 0.0

    def lock(self, db: psycopg.Connection, accounts: Sequence[Account]) -> None:
        """Lock these accounts, in this order, and read them and the clock. Raises _MissingAccounts, psycopg.Error."""
        self._db = db
        rows = (db.execute(_LOCK, _columns(accounts)) if accounts else db.execute(CLOCK)).fetchall()
        for limit, key, level, stamp, warned, _ in rows if accounts else ():
            account = account_of(level, stamp, warned)
            self._accounts[limit, key] = account if account.stamp or account.level else None
        if missing := [account for account in accounts if account not in self._accounts]:
            raise _MissingAccounts(missing)
        self.time = max(row[-1] for row in rows)

    def now(self) -> float:
        return self.time

    def find(self, limit: str, key: str) -> ledger.Account | None:
        return self._accounts[limit, key]

    def write(self, changes: ledger.Changes) -> None:
        assert changes.keys() <= self._accounts.keys(), "accounts are locked before they change"
        self._accounts.update(changes)
        self._changed.update(changes)

    def forget(self, most: int, is_idle: Callable[[str, ledger.Account], bool]) -> None:
        rows = self._db.execute(_NEXT, (*self.swept, most)).fetchall()
        self.swept = rows[-1][:2] if len(rows) == most else ("", "")
        idle = [
            row for row in rows if row[:2] not in self._accounts and is_idle(row[0], account_of(row[2], row[3], row[4]))
        ]
        if idle:
            self._statements.append((_FORGET, tuple([list(column) for column in zip(*idle, strict=True)][:4])))

    def taken(self, limit: str, key: str) -> int:
        return sum(self._slots_of(limit, key).values())

    def free_dead(self, limit: str, key: str) -> bool:
        slots = self._slots_of(limit, key)
        holders = {holder for holder, _ in slots} - {self._holder}
        alive = {name for (name,) in self._db.execute(_ALIVE, (sorted(holders), self.time)).fetchall()}
        dead = [(holder, id) for holder, id in slots if holder in holders - alive]
        for holder, id in dead:
            self._free(limit, key, holder, id)
        return bool(dead)

    def take(self, limit: str, key: str, id: str, amount: int) -> None:
        self._slots_of(limit, key)[self._holder, id] = amount
        self._statements.append((_TAKE, (limit, key, self._holder, id, amount)))
        if not self.holds:
            self.holds = True
            self.renew()

    def free(self, limit: str, key: str, id: str) -> None:
        self._free(limit, key, self._holder, id)

    def renew(self) -> None:
        """Renew the lease of this process."""
        self._statements.append((_RENEW, (self._holder, self.time + LEASE)))

    def writes(self) -> list[Statement]:
        """The statements of the writes."""
        if not self._changed:
            return self._statements
        rows = [(*account, one.level, one.stamp, bool(one.warned)) for account, one in self._changed.items()]
        return [*self._statements, (_WRITE, [list(column) for column in zip(*rows, strict=True)])]

    def _free(self, limit: str, key: str, holder: str, id: str) -> None:
        self._slots_of(limit, key).pop((holder, id), None)
        self._statements.append((_FREE, (limit, key, holder, id)))

    def _slots_of(self, limit: str, key: str) -> dict[tuple[str, str], int]:
        """The slots of an account by holder and reservation."""
        if self._slots is None:
            self._slots = {account: {} for account in self._accounts}
            wanted = self._db.execute(_SLOTS, _columns(list(self._accounts)))
            for limit_name, its_key, holder, id, amount in wanted.fetchall():
                self._slots[limit_name, its_key][holder, id] = amount
        return self._slots[limit, key]


class _Reader:
    """A connection for the statements of ``balances``, which have SQLite's placeholders."""

    def __init__(self, db: psycopg.Connection) -> None:
        self._db = db

    def execute(self, sql: str, parameters: tuple[Any, ...] = (), /) -> psycopg.Cursor[Any]:
        return self._db.execute(sql.replace("?", "%s").encode(), parameters)


def read_balances(
    url: str, specs: Mapping[str, LimitSpec], most: int, seconds: float, *, others: bool = False
) -> tuple[Balances, float]:
    """The balances of shared limits in a database: of these limits (by identity), or with ``others`` those of all
    limits but these; and the server's time. It changes nothing. Raises Unavailable."""
    connection = PostgresConnection(url, make=False)
    try:
        with connection.transaction(lambda: seconds, "REPEATABLE READ, READ ONLY") as db:
            now = connection.now()
            gone = (
                "SELECT DISTINCT holder FROM slots WHERE holder NOT IN (SELECT name FROM holders WHERE held_until > %s)"
            )
            dead = [name for (name,) in db.execute(gone, (now,)).fetchall()]
            return (other_balances if others else balances)(_Reader(db), specs, now, most, dead=dead), now
    except PostgresFault as problem:
        raise Unavailable(f"limits: {connection.place}: {problem}") from problem
    finally:
        connection.close()
