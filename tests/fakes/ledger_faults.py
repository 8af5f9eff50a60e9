"""Faults of the ledger's database file: locked by another process, replaced, damaged."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from samplegate.limits.sqlite_ledger import FILE

HOLDER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
input()
"""


@contextmanager
def locked(state: Path) -> Iterator[None]:
    """Another process holds the write lock of the ledger's database."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(state / FILE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert "held\n" == other.stdout.readline()
        yield
        other.stdin.write("\n")
        other.stdin.flush()
        other.wait(30)


@contextmanager
def moved(state: Path, make: Callable[[Path], Any]) -> Iterator[None]:
    """Replace the database file with what ``make`` writes, and put it back afterwards."""
    (state / FILE).rename(state / "kept")
    make(state / FILE)
    yield
    shutil.rmtree(state / FILE) if (state / FILE).is_dir() else (state / FILE).unlink()
    (state / "kept").rename(state / FILE)


def garbage(path: Path) -> None:
    path.write_bytes(b"this is no database. " * 1_000)


def half(path: Path) -> None:
    path.write_bytes(path.with_name("kept").read_bytes()[:5_000])


def overwritten(path: Path) -> None:
    kept = path.with_name("kept").read_bytes()
    path.write_bytes(kept[:4096] + b"\xff" * (len(kept) - 4096))


def without_tables(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 1")
    db.close()


def newer(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 7")
        db.execute("CREATE TABLE accounts(all_new)")
    db.close()


def foreign(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE songs(title)")
    db.close()


def strange_account(path: Path) -> None:
    shutil.copy(path.with_name("kept"), path)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE accounts SET level = 'much'")
    db.close()


def strange_sweep(path: Path) -> None:
    shutil.copy(path.with_name("kept"), path)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE accounts SET stamp = -1e999")
    db.close()


def checkpoint(state: Path) -> None:
    """Move everything from the WAL to the database file."""
    db = sqlite3.connect(state / FILE)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
