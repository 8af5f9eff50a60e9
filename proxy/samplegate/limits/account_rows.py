"""Rows of accounts and slots in a SQLite database: tables and statements. They never begin or end a transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Final

from samplegate.limits.accounts import Account
from samplegate.limits.balances import account_of
from samplegate.policy import ledger

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


def make_tables(db: sqlite3.Connection) -> None:
    """Create the tables."""
    for statement in _TABLES:
        db.execute(statement)


class AccountRows:
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

    def keys(self, limit: str) -> set[str]:
        """The keys of a limit's accounts and slots."""
        both = "SELECT key FROM accounts WHERE limit_name = ? UNION SELECT key FROM slots WHERE limit_name = ?"
        return {key for (key,) in self.db.execute(both, (limit, limit)).fetchall()}

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
