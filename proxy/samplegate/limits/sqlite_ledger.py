"""The ledger in SQLite: this process's own accounts in memory, shared accounts in a file. A reservation on both is one
transaction.

Each limit is stored under its identity (``accounts.identity``). With ``synchronous=NORMAL``, a killed process loses
nothing. A power cut may lose the commits since the last checkpoint (a few megabytes), never the file. WAL needs a local
disk; it does not work on a network share.
"""

from __future__ import annotations

import contextlib
import math
import sqlite3
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

import msgspec

from samplegate.errors import Unavailable
from samplegate.limits.accounts import Account, is_of_a_run, no_room, shares, sums, widen_rates
from samplegate.limits.backend import LedgerUnavailable, Settlement
from samplegate.limits.balances import Balances, account_of, balances, other_balances
from samplegate.policy import ledger
from samplegate.policy.ledger import Draw, LimitSpec, Refused, Reserved
from samplegate.process_locks import Holder, is_alive
from samplegate.sqlite import File, Kind, Schema, SqliteFault, read_file

FILE: Final = "limits.sqlite3"
MAX_PAGES: Final = 262_144  # 1 GiB: about ten million accounts
MAX_ACCOUNTS: Final = 1_000_000  # in memory, about 150 MiB; bounded because keys come from clients and servers
SWEEP_EVERY: Final = 64  # draws between two searches for idle accounts; the first draw starts one
# accounts examined per draw: more than a draw can add, so idle accounts never outnumber the others for long
EXAMINED_PER_DRAW: Final = 4
EXAMINED_WHEN_FULL: Final = 1_000
# seconds until an unknown limit's account in the file counts as abandoned: longer than any period
FORGOTTEN: Final = 400 * 86_400.0

_REMEDIES: Final[dict[Kind, str]] = {
    "busy": "stop the process that holds its lock",
    "full": "free disk space",
    "read_only": "make it and its folder writable for this user, or set --state to another folder",
    "damaged": f"move {FILE} aside with its -wal and -shm files; all limits then start from zero",
    "newer": "use a matching samplegate version, or set --state to another folder",
    "foreign": "set --state to another folder",
    "unreachable": "check that the state folder exists and belongs to this user, or set --state to another folder",
}
_TABLES: Final = (
    """CREATE TABLE accounts(limit_name TEXT NOT NULL, key TEXT NOT NULL, level INTEGER NOT NULL, stamp REAL NOT NULL, warned INTEGER NOT NULL,
    PRIMARY KEY(limit_name, key)) WITHOUT ROWID""",  # noqa: E501
    """CREATE TABLE slots(limit_name TEXT NOT NULL, key TEXT NOT NULL, holder TEXT NOT NULL, id TEXT NOT NULL, amount INTEGER NOT NULL,
    PRIMARY KEY(limit_name, key, holder, id)) WITHOUT ROWID""",  # noqa: E501
    "CREATE TABLE sweep(limit_name TEXT NOT NULL, key TEXT NOT NULL)",
    "INSERT INTO sweep VALUES('', '')",
    "PRAGMA user_version=1",
)
"""``sweep`` is the position of the last search for idle accounts."""


def _make(db: sqlite3.Connection) -> None:
    for statement in _TABLES:
        db.execute(statement)


SCHEMA: Final = Schema(
    version=1,
    select="PRAGMA user_version",
    table=None,
    make=_make,
    contents="balances",
    another="set --state to another folder",
)


class SqliteLedger:
    """A ``LedgerBackend``. ``specs`` are by identity. ``clock`` returns Unix seconds and is read with the accounts
    locked. ``most`` bounds the accounts in memory."""

    def __init__(
        self, specs: Mapping[str, LimitSpec], state: Path, clock: Callable[[], float], most: int = MAX_ACCOUNTS
    ) -> None:
        self._specs = specs
        self._clock = clock
        self._most = most
        # The event loop reads (`exhausted`, `drawn`, `own`) while the limits' thread works. From Python 3.12 on, two
        # threads that run the same SQL share one cached statement and may get each other's parameters, so no statement
        # is cached.
        memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, cached_statements=0)
        weakref.finalize(self, memory.close)
        _make(memory)
        self._memory = _Rows(memory)
        self._shared = self._memory  # the file's rows, within a transaction that uses the file
        self._file = File(state / FILE, SCHEMA, pragmas=("synchronous=NORMAL",), max_pages=MAX_PAGES)
        self._until = math.inf
        self._holder = Holder(state / "holders")
        self._drawn = {False: SWEEP_EVERY, True: SWEEP_EVERY}
        self._owed: dict[int, Settlement] = {}
        self._numbers = count()
        self._moving: set[str] = set()
        self._size = 0

    def __len__(self) -> int:
        """The number of accounts and slots in memory."""
        return self._size

    @property
    def has_pending(self) -> bool:
        return bool(self._owed or self._moving)

    def update_limits(self, specs: Mapping[str, LimitSpec], deadline: float = math.inf) -> None:
        before, kept = self._specs, {limit: self._specs[limit] for owed in self._owed.values() for limit in owed.limits}
        self._specs = {**kept, **specs}
        for number, owed in self._owed.items():
            self._owed[number] = msgspec.structs.replace(
                owed, rates=widen_rates(owed.rates, owed.limits, before, self._specs)
            )
        self._moving = {limit for limit, one in self._specs.items() if one.shared and self._memory.has(limit)}

    def reserve(self, id: str, draws: Sequence[Draw], deadline: float) -> Reserved | Refused:
        slots, counted = sums(filter(self._is_slot, draws)), [draw for draw in draws if not self._is_slot(draw)]
        shared = any(self._specs[draw.limit].shared for draw in draws)
        try:
            with self._transaction(deadline, shared):
                now = self._clock()
                self._forget_idle(now, len(draws), shared)
                refused = self._no_slots(slots)
                charged = refused or ledger.reserve(self._specs, self._lookup, counted, now)
                if not isinstance(charged, Refused):
                    charged = self._too_many(charged[0], slots, now) or charged
                if isinstance(charged, Refused):
                    self._write(ledger.set_back(self._specs, self._lookup, counted, now))
                    return charged
                changes, warned = charged
                self._write(changes)
                for account, amount in slots.items():
                    self._take(account, id, amount)
                levels = [(limit, account.level) for (limit, _), account in changes.items()]
                levels += [(limit, self._taken(limit, key)) for limit, key in slots]
                return Reserved(id, tuple(draws), now, warned, shares(self._specs, levels))
        except LedgerUnavailable as problem:
            if not problem.undone:
                self._owed[next(self._numbers)] = Settlement(Reserved(id, tuple(draws), 0.0), slots_only=True)
            raise

    def exhausted(self, specs: Mapping[str, LimitSpec], draws: Sequence[Draw]) -> Refused | None:
        tried = ledger.reserve(specs, self._memory.find, draws, self._clock())
        return tried if isinstance(tried, Refused) else None

    def drawn(self) -> Mapping[Account, int]:
        now, db = self._clock(), self._memory.db
        accounts = db.execute("SELECT limit_name, key, level, stamp, warned FROM accounts").fetchall()
        slots = db.execute("SELECT limit_name, key, total(amount) FROM slots GROUP BY limit_name, key").fetchall()
        known = {
            (limit, key): ledger.drawn(self._specs[limit], account_of(*rest), now)
            for limit, key, *rest in accounts
            if limit in self._specs
        }
        return known | {(limit, key): int(amount) for limit, key, amount in slots}

    def own(self, most: int) -> Balances:
        own = {identity: spec for identity, spec in self._specs.items() if not spec.shared}
        return balances(self._memory.db, own, self._clock(), most)

    def settle(self, settlement: Settlement, deadline: float) -> bool:
        self._owed[next(self._numbers)] = settlement
        shared = self._is_shared(settlement)
        with self._transaction(deadline, shared):
            return shared

    def flush(self, deadline: float) -> bool:
        shared = bool(self._moving) or any(map(self._is_shared, self._owed.values()))
        with self._transaction(deadline, shared):
            return shared

    def set_shutdown_deadline(self, until: float) -> None:
        self._until = until

    def close(self, deadline: float) -> None:
        freed = not self._holder.name
        if self._moving or not freed or any(map(self._is_shared, self._owed.values())):
            with contextlib.suppress(LedgerUnavailable), self._transaction(deadline, True):
                self._shared.db.execute("DELETE FROM slots WHERE holder = ?", (self._holder.name,))
                freed = True
        self._file.close()
        self._holder.close(remove=freed)

    @contextlib.contextmanager
    def _transaction(self, deadline: float, shared: bool) -> Iterator[None]:
        """One transaction on memory and, if ``shared``, on the file, which is committed first. It starts with the owed
        corrections."""
        memory = self._memory.db
        try:
            memory.execute("BEGIN")
            self._memory.begin()
            with self._locked(deadline) if shared else contextlib.nullcontext(self._memory) as self._shared:
                due = [number for number, owed in self._owed.items() if shared or not self._is_shared(owed)]
                if shared:
                    self._move()
                self._pay(due)
                yield
            memory.commit()
        except SqliteFault as problem:
            memory.rollback()
            if not problem.undone:
                for number in self._owed:
                    self._mark_uncertain(number)
            words = f"limits: {FILE} in the state folder: {problem.problem}; {_REMEDIES[problem.kind]}"
            raise LedgerUnavailable(problem.kind, words, undone=problem.undone) from problem
        except BaseException:
            memory.rollback()
            raise
        self._size += self._memory.grown
        for number in due:
            del self._owed[number]
        if shared:
            self._moving.clear()

    @contextlib.contextmanager
    def _locked(self, deadline: float) -> Iterator[_Rows]:
        """Lock the file for this process."""

        def left() -> float:
            return min(deadline, self._until) - time.monotonic()

        if left() <= 0:
            raise SqliteFault("busy", "another process has locked it")
        with self._file.transaction(left) as db:
            yield _Rows(db)

    # -- accounts
    # ------------------------------------------------------------------------------------------------------------------

    def _place(self, limit: str) -> _Rows:
        return self._shared if self._specs[limit].shared else self._memory

    def _lookup(self, limit: str, key: str) -> ledger.Account | None:
        return self._place(limit).look(limit, key)

    def _write(self, changes: ledger.Changes) -> None:
        self._memory.write({account: one for account, one in changes.items() if not self._specs[account[0]].shared})
        self._shared.write({account: one for account, one in changes.items() if self._specs[account[0]].shared})

    def _too_many(self, changes: ledger.Changes, slots: Mapping[Account, int], now: float) -> Refused | None:
        """Refuse if memory would have too many accounts."""

        def too_many() -> list[Account]:
            new = [account for account in changes if account in self._memory.missing]
            new += [account for account in slots if not self._specs[account[0]].shared]
            return new if self._size + self._memory.grown + len(new) > self._most else []

        if too_many():
            self._memory.forget(EXAMINED_WHEN_FULL, partial(self._is_idle, now, 0.0))
        refused = too_many()
        if not refused:
            return None
        limit = self._specs[refused[0][0]].name
        return Refused(
            limit, "unavailable", detail=f"limit {limit}: {self._most} accounts are in use; use fewer keys in `by`"
        )

    def _forget_idle(self, now: float, draws: int, shared: bool) -> None:
        """Look for idle accounts, from where the last search (of any process) ended."""
        for place, file, after in (
            (self._memory, False, ledger.FORGET_AFTER),
            *([(self._shared, True, FORGOTTEN)] if shared else []),
        ):
            self._drawn[file] += draws
            if self._drawn[file] >= SWEEP_EVERY:
                place.forget(self._drawn[file] * EXAMINED_PER_DRAW, partial(self._is_idle, now, after))
                self._drawn[file] = 0

    def _is_idle(self, now: float, after: float, limit: str, account: ledger.Account) -> bool:
        spec = self._specs.get(limit)
        if spec is None and is_of_a_run(limit):  # of another run
            after = ledger.FORGET_AFTER
        return account.stamp <= now - after if spec is None else ledger.idle(spec, account, now)

    # -- what is owed
    # ------------------------------------------------------------------------------------------------------------------

    def _is_shared(self, owed: Settlement) -> bool:
        return any(self._specs[limit].shared for limit in owed.limits)

    def _mark_uncertain(self, number: int) -> None:
        """Mark a correction as uncertain, because a charge must not be given back twice."""
        self._owed[number] = msgspec.structs.replace(self._owed[number], slots_only=True)

    def _pay(self, due: Sequence[int]) -> None:
        for number in due:
            try:
                self._correct(self._owed[number])
            except (sqlite3.Error, SqliteFault):
                raise
            except Exception:  # a fault of ours must not block all later corrections
                self._mark_uncertain(number)
                raise

    def _correct(self, owed: Settlement) -> None:
        reserved = owed.reserved
        for limit, key in sums(filter(self._is_slot, reserved.draws)):
            self._place(limit).free(limit, key, self._holder.name if self._specs[limit].shared else "", reserved.id)
        counted = tuple(draw for draw in reserved.draws if not self._is_slot(draw))
        if owed.slots_only or not counted:
            return
        actual = [draw for draw in owed.actual if not self._is_slot(draw)]
        charged = msgspec.structs.replace(reserved, draws=counted)
        changes = ledger.settle(self._specs, self._lookup, charged, actual, self._clock(), rates=owed.rates)
        if owed.undo:
            for account, one in changes.items():
                changes[account] = msgspec.structs.replace(one, warned=one.warned and account[0] not in reserved.warned)
        self._write(changes)

    def _move(self) -> None:
        """Move accounts of newly shared limits from memory into the file. If in doubt, move them again: charging twice
        is less harmful than not charging."""
        for limit in self._moving:
            accounts, slots = self._memory.leave(limit)
            now = self._clock()
            self._shared.write(
                {
                    (limit, key): ledger.merged(self._specs[limit], self._shared.find(limit, key), one, now)
                    for key, one in accounts
                }
            )
            for key, id, amount in slots:
                self._take((limit, key), id, amount)

    # -- slots
    # ------------------------------------------------------------------------------------------------------------------

    def _is_slot(self, draw: Draw) -> bool:
        return self._specs[draw.limit].per == "slots"

    def _taken(self, limit: str, key: str) -> int:
        return self._place(limit).taken(limit, key)

    def _no_slots(self, wanted: Mapping[Account, int]) -> Refused | None:
        """Refuse if there is no room after the slots of dead processes were freed."""
        while (full := no_room(self._specs, self._taken, wanted)) is not None and full[0].why == "full":
            if not self._specs[full[1][0]].shared or not self._free_dead(self._shared.holders(*full[1])):
                break
        return None if full is None else full[0]

    def _take(self, account: Account, id: str, amount: int) -> None:
        if self._specs[account[0]].shared and not self._holder.name:
            self._free_dead(self._holder.registered())
            self._holder.register()
        self._place(account[0]).take(*account, self._holder.name if self._specs[account[0]].shared else "", id, amount)

    def _free_dead(self, names: Sequence[str]) -> int:
        dead = self._holder.dead(names)
        self._shared.db.executemany("DELETE FROM slots WHERE holder = ?", [(name,) for name in dead])
        return len(dead)


class _Rows:
    """The rows of one database, within a transaction."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self.begin()

    def begin(self) -> None:
        """Reset the counters at the start of a transaction."""
        self.grown = 0
        """Rows added minus rows removed."""
        self.missing: set[Account] = set()
        """Accounts that were looked up and do not exist."""

    def find(self, limit: str, key: str) -> ledger.Account | None:
        found = self.db.execute(
            "SELECT level, stamp, warned FROM accounts WHERE limit_name = ? AND key = ?", (limit, key)
        ).fetchone()
        return None if found is None else account_of(*found)

    def look(self, limit: str, key: str) -> ledger.Account | None:
        found = self.find(limit, key)
        if found is None:
            self.missing.add((limit, key))
        return found

    def has(self, limit: str) -> bool:
        one = "SELECT 1 FROM accounts WHERE limit_name = ? UNION ALL SELECT 1 FROM slots WHERE limit_name = ? LIMIT 1"
        return self.db.execute(one, (limit, limit)).fetchone() is not None

    def write(self, changes: ledger.Changes) -> None:
        if changes:
            rows = [(limit, key, one.level, one.stamp, int(one.warned)) for (limit, key), one in changes.items()]
            self.db.executemany("INSERT OR REPLACE INTO accounts VALUES(?, ?, ?, ?, ?)", rows)
            self.grown += len(self.missing & changes.keys())
            self.missing -= changes.keys()

    def forget(self, most: int, is_idle: Callable[[str, ledger.Account], bool]) -> None:
        """Delete idle accounts among the next ``most`` accounts."""
        begin = self.db.execute("SELECT limit_name, key FROM sweep").fetchone() or ("", "")
        rows = self.db.execute(
            "SELECT limit_name, key, level, stamp, warned FROM accounts WHERE (limit_name, key) > (?, ?) ORDER BY"
            " limit_name, key LIMIT ?",
            (*begin, most),
        ).fetchall()
        idle = [(limit, key) for limit, key, *rest in rows if is_idle(limit, account_of(*rest))]
        self.db.executemany("DELETE FROM accounts WHERE limit_name = ? AND key = ?", idle)
        self.grown -= len(idle)
        self.missing.update(idle)  # one of them may be written again in this transaction
        if len(rows) == most or begin != ("", ""):
            self.db.execute("UPDATE sweep SET limit_name = ?, key = ?", rows[-1][:2] if len(rows) == most else ("", ""))

    def leave(self, limit: str) -> tuple[list[tuple[str, ledger.Account]], list[tuple[str, str, int]]]:
        """Remove and return all rows of a limit: accounts by key, slots by key and reservation."""
        accounts = self.db.execute(
            "SELECT key, level, stamp, warned FROM accounts WHERE limit_name = ?", (limit,)
        ).fetchall()
        slots = self.db.execute("SELECT key, id, amount FROM slots WHERE limit_name = ?", (limit,)).fetchall()
        for table in ("accounts", "slots"):
            self.grown -= self.db.execute(f"DELETE FROM {table} WHERE limit_name = ?", (limit,)).rowcount
        return [(key, account_of(*rest)) for key, *rest in accounts], slots

    def taken(self, limit: str, key: str) -> int:
        return int(
            self.db.execute(
                "SELECT total(amount) FROM slots WHERE limit_name = ? AND key = ?", (limit, key)
            ).fetchone()[0]
        )

    def holders(self, limit: str, key: str) -> list[str]:
        return [
            name
            for (name,) in self.db.execute(
                "SELECT DISTINCT holder FROM slots WHERE limit_name = ? AND key = ?", (limit, key)
            ).fetchall()
        ]

    def take(self, limit: str, key: str, holder: str, id: str, amount: int) -> None:
        self.db.execute("INSERT OR REPLACE INTO slots VALUES(?, ?, ?, ?, ?)", (limit, key, holder, id, amount))
        self.grown += 1

    def free(self, limit: str, key: str, holder: str, id: str) -> None:
        which = "DELETE FROM slots WHERE limit_name = ? AND key = ? AND holder = ? AND id = ?"
        self.grown -= self.db.execute(which, (limit, key, holder, id)).rowcount


MAX_HOLDERS: Final = 1_000
"""Processes with slots that are looked at by ``read_balances``. The slots of others count."""


def read_balances(
    state: Path, specs: Mapping[str, LimitSpec], now: float, most: int, *, others: bool = False
) -> Balances:
    """The balances of shared limits in a state folder: of these limits (by identity), or with ``others`` those of all
    limits but these. Nothing if no limit was ever drawn on. It changes nothing. Raises Unavailable."""

    def ask(db: sqlite3.Connection) -> Balances:
        holders = db.execute("SELECT DISTINCT holder FROM slots LIMIT ?", (MAX_HOLDERS,)).fetchall()
        dead = [name for (name,) in holders if not is_alive(state / "holders", name)]
        return (other_balances if others else balances)(db, specs, now, most, dead=dead)

    path = state / FILE
    if not path.exists():
        return Balances()
    try:
        return read_file(path, SCHEMA, ask)
    except SqliteFault as problem:
        raise Unavailable(f"limits: {path}: {problem.problem}; {_REMEDIES[problem.kind]}") from problem
