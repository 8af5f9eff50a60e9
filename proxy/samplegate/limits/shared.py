"""The accounts and slots that processes share: SQLite, one short write transaction for each reservation and settlement. Blocking; for one thread.

A limit is stored under its name with what its numbers mean (quantity, period, time zone, what it is counted by), so that a limit that now counts
dollars does not read requests. Its ``most`` is not part of that: who changes it keeps what is drawn. All methods raise Broken where the file
cannot be asked; nothing is charged then. What could not be settled is kept and settled by the next transaction that works.
"""

from __future__ import annotations

import contextlib
import math
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

import msgspec

from samplegate.core import ledger
from samplegate.core.ledger import Draw, Refused, Reserved, Terms
from samplegate.holders import Holder
from samplegate.limits.editions import stored_name, widened
from samplegate.limits.faults import FILE, Broken
from samplegate.limits.filling import levels, shares
from samplegate.limits.owed import Arriving, Correction
from samplegate.limits.slots import Account, Arrival, no_room, sums
from samplegate.sqlite import Fault, File, Schema

LOOKED_AT: Final = 256  # accounts looked at for idle ones at the first reservation and each 64th: four for each that one may add
EVERY: Final = 64
MOST_PAGES: Final = 262_144  # 1 GiB: some ten million accounts
FORGOTTEN: Final = 400 * 86_400.0  # seconds after which an account of a limit that we do not know is nobody's: longer than any window

_TABLES: Final = (
    """CREATE TABLE accounts(limit_name TEXT NOT NULL, key TEXT NOT NULL, level INTEGER NOT NULL, stamp REAL NOT NULL, warned INTEGER NOT NULL,
    PRIMARY KEY(limit_name, key)) WITHOUT ROWID""",
    """CREATE TABLE slots(limit_name TEXT NOT NULL, key TEXT NOT NULL, holder TEXT NOT NULL, id TEXT NOT NULL, amount INTEGER NOT NULL,
    PRIMARY KEY(limit_name, key, holder, id)) WITHOUT ROWID""",
    "CREATE TABLE sweep(limit_name TEXT NOT NULL, key TEXT NOT NULL)",
    "INSERT INTO sweep VALUES('', '')",
    "PRAGMA user_version=1",
)
"""``sweep`` says up to where idle accounts were last looked for."""


def _make(db: sqlite3.Connection) -> None:
    for statement in _TABLES:
        db.execute(statement)


SCHEMA: Final = Schema(version=1, select="PRAGMA user_version", table=None, make=_make, contents="balances", another="give --state another folder")


class Shared:
    """The file in ``state``. ``terms`` are those of the shared limits, by what draws call them: the ids of their editions.

    ``clock`` is Unix seconds, asked with the file locked.
    """

    def __init__(self, terms: Mapping[str, Terms], state: Path, clock: Callable[[], float]) -> None:
        self._file = File(state / FILE, SCHEMA, pragmas=("synchronous=NORMAL",), most_pages=MOST_PAGES)
        self._until = math.inf
        self._clock = clock
        self._holder = Holder(state / "holders")
        self._reservations = 0
        self._owed: dict[int, Correction | Arriving] = {}
        self._corrections = count()
        self._know(terms)

    def amend(self, terms: Mapping[str, Terms], arrival: Arrival | None, deadline: float = math.inf) -> None:
        """Other terms from here on. What is owed is paid under its own; what arrives is owed from now on. Asks nothing."""
        owed = {limit for one in self._owed.values() for limit in one.limits}
        before, now = self._terms, {**{limit: self._terms[limit] for limit in owed}, **terms}
        for number, one in self._owed.items():
            if isinstance(one, Correction):
                self._owed[number] = msgspec.structs.replace(one, rates=widened(one.rates, one.limits, before, now))
        if arrival is not None:
            self._owed[next(self._corrections)] = Arriving(arrival)
        self._know(now)

    def _know(self, terms: Mapping[str, Terms]) -> None:
        self._terms = terms
        self._stored = {limit: stored_name(one) for limit, one in terms.items()}
        self._known = {stored: limit for limit, stored in self._stored.items()}

    def reserve(self, id: str, draws: Sequence[Draw], deadline: float) -> Reserved | Refused:
        """Charge all of the draws, or none. ``deadline`` is monotonic, for all waiting together."""
        slots, counted = sums(filter(self._is_slot, draws)), [draw for draw in draws if not self._is_slot(draw)]
        try:
            with self._transaction(deadline) as db:
                now = self._clock()
                if self._reservations % EVERY == 0:
                    self._forget_idle(db, now)
                self._reservations += 1
                refused = self._no_slots(db, slots) if slots else None
                charged = refused or ledger.reserve(self._terms, self._look(db), counted, now)
                if isinstance(charged, Refused):
                    self._write(db, ledger.set_back(self._terms, self._look(db), counted, now))
                    return charged
                changes, warned = charged
                self._write(db, changes)
                self._take_slots(db, id, slots)
                taken = {account: self._taken(db, *account) for account in slots}
                return Reserved(id, tuple(draws), now, warned, shares(self._terms, levels(changes, taken)))
        except Broken as problem:
            if not problem.undone:
                self._owed[next(self._corrections)] = Correction(Reserved(id, tuple(draws), 0.0), slots_only=True)
            raise

    def settle(self, correction: Correction, deadline: float) -> None:
        """Correct what was charged, free the slots; what fails is tried again by the next transaction."""
        self._owed[next(self._corrections)] = correction
        with self._transaction(deadline):
            return

    @property
    def owes(self) -> bool:
        """Whether something waits to be settled."""
        return bool(self._owed)

    def pay(self, deadline: float) -> None:
        """Settle what could not be settled until now."""
        if self._owed:
            with self._transaction(deadline):
                return

    def hurry(self, until: float) -> None:
        """The end has begun: nobody waits for the file's lock beyond ``until``, monotonic. For any thread."""
        self._until = until

    def close(self, deadline: float) -> None:
        """Free what this process holds and close the file, if it was ever opened. Raises nothing."""
        freed = not self._holder.name
        if self._owed or not freed:
            with contextlib.suppress(Broken), self._transaction(deadline) as db:
                db.execute("DELETE FROM slots WHERE holder = ?", (self._holder.name,))
                freed = True
        self._file.close()
        self._holder.close(remove=freed)

    @contextlib.contextmanager
    def _transaction(self, deadline: float) -> Iterator[sqlite3.Connection]:
        """One write transaction, with what is owed paid first."""
        try:
            if self._left(deadline) <= 0:
                raise Fault("busy", "it was not free in time; another process keeps it locked")
            with self._file.transaction(lambda: self._left(deadline)) as db:
                paid = self._pay(db)
                yield db
        except Fault as problem:
            if not problem.undone:
                self._owed = {number: owed.in_doubt() for number, owed in self._owed.items()}
            raise Broken(problem) from problem
        for number in paid:
            del self._owed[number]

    def _left(self, deadline: float) -> float:
        return min(deadline, self._until) - time.monotonic()

    # -- accounts --------------------------------------------------------------------------------------------------------------------------

    def _look(self, db: sqlite3.Connection) -> ledger.Look:
        def look(limit: str, key: str) -> ledger.Account | None:
            found = db.execute("SELECT level, stamp, warned FROM accounts WHERE limit_name = ? AND key = ?", (self._stored[limit], key)).fetchone()
            return None if found is None else _account(*found)

        return look

    def _write(self, db: sqlite3.Connection, changes: ledger.Changes) -> None:
        rows = [(self._stored[limit], key, one.level, one.stamp, int(one.warned)) for (limit, key), one in changes.items()]
        db.executemany("INSERT OR REPLACE INTO accounts VALUES(?, ?, ?, ?, ?)", rows)

    def _pay(self, db: sqlite3.Connection) -> list[int]:
        """Carry out what could not be settled until now; which that was."""
        for number, owed in self._owed.items():
            try:
                self._correct(db, owed) if isinstance(owed, Correction) else self._arrive(db, owed.arrival)
            except (sqlite3.Error, Fault):
                raise
            except Exception:  # a fault of ours: it must not stand in the way of everything that comes after
                self._owed[number] = owed.in_doubt() if isinstance(owed, Correction) else Arriving(Arrival({}, {}))
                raise
        return list(self._owed)

    def _correct(self, db: sqlite3.Connection, owed: Correction) -> None:
        reserved = owed.reserved
        for limit, key in sums(filter(self._is_slot, reserved.draws)):
            which = (self._stored[limit], key, self._holder.name, reserved.id)
            db.execute("DELETE FROM slots WHERE limit_name = ? AND key = ? AND holder = ? AND id = ?", which)
        counted = tuple(draw for draw in reserved.draws if not self._is_slot(draw))
        if owed.slots_only or not counted:
            return
        actual = [draw for draw in owed.actual if not self._is_slot(draw)]
        changes = ledger.settle(
            self._terms, self._look(db), msgspec.structs.replace(reserved, draws=counted), actual, self._clock(), rates=owed.rates
        )
        if owed.undo:
            changes = {
                account: msgspec.structs.replace(one, warned=one.warned and account[0] not in reserved.warned) for account, one in changes.items()
            }
        self._write(db, changes)

    def _arrive(self, db: sqlite3.Connection, arrival: Arrival) -> None:
        look, now = self._look(db), self._clock()
        self._write(db, {account: ledger.merged(self._terms[account[0]], look(*account), one, now) for account, one in arrival.accounts.items()})
        for account, held in arrival.slots.items():
            for id, amount in held.items():
                self._take_slots(db, id, {account: amount})

    def _forget_idle(self, db: sqlite3.Connection, now: float) -> None:
        """Look at the accounts after those that were looked at last, by whichever process."""
        begin = db.execute("SELECT limit_name, key FROM sweep").fetchone() or ("", "")
        rows = db.execute(
            "SELECT limit_name, key, level, stamp, warned FROM accounts WHERE (limit_name, key) > (?, ?) ORDER BY limit_name, key LIMIT ?",
            (*begin, LOOKED_AT),
        ).fetchall()
        idle = [(stored, key) for stored, key, *rest in rows if self._is_idle(stored, _account(*rest), now)]
        db.executemany("DELETE FROM accounts WHERE limit_name = ? AND key = ?", idle)
        if len(rows) == LOOKED_AT or tuple(begin) != ("", ""):
            db.execute("UPDATE sweep SET limit_name = ?, key = ?", rows[-1][:2] if len(rows) == LOOKED_AT else ("", ""))

    def _is_idle(self, stored: str, account: ledger.Account, now: float) -> bool:
        name = self._known.get(stored)
        return account.stamp < now - FORGOTTEN if name is None else ledger.idle(self._terms[name], account, now)

    # -- slots -----------------------------------------------------------------------------------------------------------------------------

    def _is_slot(self, draw: Draw) -> bool:
        return self._terms[draw.limit].per == "slots"

    def _no_slots(self, db: sqlite3.Connection, wanted: Mapping[Account, int]) -> Refused | None:
        """Whether there is no room, after the slots of dead processes were freed."""
        while (full := no_room(self._terms, partial(self._taken, db), wanted)) is not None and full[0].why == "full":
            limit, key = full[1]
            names = db.execute("SELECT DISTINCT holder FROM slots WHERE limit_name = ? AND key = ?", (self._stored[limit], key)).fetchall()
            if not self._free_dead(db, [name for (name,) in names]):
                break
        return None if full is None else full[0]

    def _taken(self, db: sqlite3.Connection, limit: str, key: str) -> int:
        found = db.execute("SELECT total(amount) FROM slots WHERE limit_name = ? AND key = ?", (self._stored[limit], key)).fetchone()
        return int(found[0])

    def _take_slots(self, db: sqlite3.Connection, id: str, wanted: Mapping[Account, int]) -> None:
        if wanted and not self._holder.name:
            self._free_dead(db, self._holder.left_behind())
            self._holder.register()
        rows = [(self._stored[limit], key, self._holder.name, id, amount) for (limit, key), amount in wanted.items()]
        db.executemany("INSERT OR REPLACE INTO slots VALUES(?, ?, ?, ?, ?)", rows)

    def _free_dead(self, db: sqlite3.Connection, names: Sequence[str]) -> int:
        dead = self._holder.dead(names)
        db.executemany("DELETE FROM slots WHERE holder = ?", [(name,) for name in dead])
        return len(dead)


def _account(level: object, stamp: object, warned: object) -> ledger.Account:
    if isinstance(level, int) and level >= 0 and isinstance(stamp, float) and math.isfinite(stamp):
        return ledger.Account(level, stamp, bool(warned))
    raise Fault("damaged", "it has an account that cannot be read")
