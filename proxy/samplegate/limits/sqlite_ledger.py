"""Shared accounts in a SQLite file, for the processes of one machine.

With ``synchronous=NORMAL``, a killed process loses nothing. A power cut may lose the commits since the last checkpoint
(a few megabytes), never the file. WAL needs a local disk; it does not work on a network share.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Final

from samplegate.errors import Unavailable
from samplegate.limits.account_rows import AccountRows, make_tables
from samplegate.limits.accounts import Account
from samplegate.limits.backend import LedgerUnavailable
from samplegate.limits.balances import Balances, balances, other_balances
from samplegate.limits.shared_ledger import MAX_ACCOUNTS, SharedLedger
from samplegate.policy.ledger import LimitSpec
from samplegate.process_locks import Holder, is_alive
from samplegate.sqlite import File, Kind, Schema, SqliteFault, read_file

FILE: Final = "limits.sqlite3"
MAX_PAGES: Final = 262_144  # 1 GiB: about ten million accounts

_REMEDIES: Final[dict[Kind, str]] = {
    "busy": "stop the process that holds its lock",
    "full": "free disk space",
    "read_only": "make it and its folder writable for this user, or set --state to another folder",
    "damaged": f"move {FILE} aside with its -wal and -shm files; all limits then start from zero",
    "newer": "use a matching samplegate version, or set --state to another folder",
    "foreign": "set --state to another folder",
    "unreachable": "check that the state folder exists and belongs to this user, or set --state to another folder",
}
SCHEMA: Final = Schema(
    version=1,
    select="PRAGMA user_version",
    table=None,
    make=make_tables,
    contents="balances",
    another="set --state to another folder",
)


class SqliteLedger(SharedLedger):
    """The ledger with its shared accounts in a state folder. ``clock`` is read with the accounts locked."""

    def __init__(
        self, specs: Mapping[str, LimitSpec], state: Path, clock: Callable[[], float], most: int = MAX_ACCOUNTS
    ) -> None:
        super().__init__(specs, SqliteAccounts(state, clock), clock, most)


class SqliteAccounts:
    """``SharedAccounts`` in a state folder. ``clock`` returns Unix seconds."""

    errors: tuple[type[Exception], ...] = (sqlite3.Error, SqliteFault)
    lease: float | None = None

    def __init__(self, state: Path, clock: Callable[[], float]) -> None:
        self._file = File(state / FILE, SCHEMA, pragmas=("synchronous=NORMAL",), max_pages=MAX_PAGES)
        self._holder = Holder(state / "holders")
        self._clock = clock

    @contextlib.contextmanager
    def transaction(self, left: Callable[[], float], accounts: Callable[[], Set[Account]]) -> Iterator[_SharedRows]:
        """See ``SharedAccounts``; the whole file is locked."""
        try:
            if left() <= 0:
                raise SqliteFault("busy", "another process has locked it")
            with self._file.transaction(left) as db:
                yield _SharedRows(db, self._holder, self._clock)
        except SqliteFault as problem:
            words = f"limits: {FILE} in the state folder: {problem.problem}; {_REMEDIES[problem.kind]}"
            raise LedgerUnavailable(problem.kind, words, undone=problem.undone) from problem

    def renew(self, left: Callable[[], float]) -> None:
        """Nothing: the operating system knows whether this process runs."""

    def close(self, left: Callable[[], float]) -> None:
        """Free the slots of this process, and close. Never raises."""
        freed = not self._holder.name
        if not freed:
            with contextlib.suppress(LedgerUnavailable), self.transaction(left, frozenset) as rows:
                rows.free_holder(self._holder.name)
                freed = True
        self._file.close()
        self._holder.close(remove=freed)


class _SharedRows:
    """``SharedRows`` in the file."""

    def __init__(self, db: sqlite3.Connection, holder: Holder, clock: Callable[[], float]) -> None:
        rows = AccountRows(db)
        self.db, self._rows, self._holder = db, rows, holder
        self.now = clock
        self.find, self.write, self.forget, self.taken = rows.find, rows.write, rows.forget, rows.taken

    def take(self, limit: str, key: str, id: str, amount: int) -> None:
        if not self._holder.name:
            self._free_dead(self._holder.registered())
            self._holder.register()
        self._rows.take(limit, key, self._holder.name, id, amount)

    def free(self, limit: str, key: str, id: str) -> None:
        self._rows.free(limit, key, self._holder.name, id)

    def free_dead(self, limit: str, key: str) -> bool:
        return self._free_dead(self._rows.holders(limit, key))

    def free_holder(self, name: str) -> None:
        """Free all slots of a holder."""
        self.db.execute("DELETE FROM slots WHERE holder = ?", (name,))

    def _free_dead(self, names: Sequence[str]) -> bool:
        dead = self._holder.dead(names)
        for name in dead:
            self.free_holder(name)
        return bool(dead)


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
