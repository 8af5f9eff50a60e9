"""Faults of the three SQLite files and their messages: the limits ledger, the review store, the decision log."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from samplegate.audit.sqlite_log import SqliteLog
from samplegate.limits.sqlite_ledger import SqliteLedger
from samplegate.reviews.sql_database import SqliteDatabase as Reviews
from samplegate.sqlite import File, Schema, SqliteFault
from tests.paths import PROXY

Opened = Callable[[Path, float], contextlib.AbstractContextManager[Any]]
"""A write transaction on a file, which waits so many seconds for its lock."""


@contextlib.contextmanager
def ledger(path: Path, seconds: float) -> Iterator[Any]:
    kept: Any = SqliteLedger({}, path, time.time)
    with contextlib.closing(kept._accounts._file), kept._transaction(time.monotonic() + seconds, shared=True):
        yield kept._rows.db.execute


@contextlib.contextmanager
def reviews(path: Path, seconds: float) -> Iterator[Any]:
    database = Reviews(f"sqlite:{path / 'reviews.db'}")
    database.until = time.monotonic() + seconds
    with contextlib.closing(database), database.writing() as connection:
        yield connection.exec_driver_sql


@contextlib.contextmanager
def decisions(path: Path, seconds: float) -> Iterator[Any]:
    log = SqliteLog(path / "decisions.db")
    with contextlib.closing(log), log._transaction(lambda: seconds) as connection:
        yield connection.exec_driver_sql


FILES: Final[dict[str, tuple[Opened, str]]] = {
    "ledger": (ledger, "limits.sqlite3"),
    "reviews": (reviews, "reviews.db"),
    "decisions": (decisions, "decisions.db"),
}


def answer(opened: Opened, folder: Path, seconds: float = 0.0, raised: BaseException | None = None) -> str:
    """The type of the raised exception, and its message without the file's path."""
    try:
        with opened(folder, seconds) as execute:
            if raised is not None:
                raise raised
            execute("SELECT 1")
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}".replace(str(folder), "F")
    return "opened"


def sqlite_error(name: str) -> sqlite3.Error:
    problem = sqlite3.OperationalError("words of SQLite")
    if name:
        problem.sqlite_errorname = name
    return problem


def change(statement: str) -> Callable[[Path], Any]:
    def changed(path: Path) -> None:
        with contextlib.closing(sqlite3.connect(path)) as db, db:
            db.execute(statement)

    return changed


NEWER: Final = {
    "ledger": "PRAGMA user_version = 7",
    "reviews": "UPDATE review_version SET version_num = '0099'",
    "decisions": "UPDATE samplegate_versions SET version = 7",
}


def damage(store: str, how: str, path: Path) -> None:
    """Put the store's file into the named state."""
    match how:
        case "a folder":
            path.mkdir()
        case "empty":
            path.touch()
        case "a text":
            path.write_text("my shopping list\n" * 100)
        case "of something else":
            change("CREATE TABLE songs(name)")(path)
        case _:
            assert "opened" == answer(FILES[store][0], path.parent, 5.0)
            change(NEWER[store])(path)


SAID: Final = {
    "BUSY": (
        "another process has locked it; stop the process that holds its lock",
        "another process has locked it; stop that process, or wait for it",
        "TimeoutError: another process has locked it",
    ),
    "BUSY_SNAPSHOT": (
        "another process has locked it; stop the process that holds its lock",
        "another process has locked it; stop that process, or wait for it",
        "TimeoutError: another process has locked it",
    ),
    "LOCKED": (
        "another process has locked it; stop the process that holds its lock",
        "another process has locked it; stop that process, or wait for it",
        "TimeoutError: another process has locked it",
    ),
    "PROTOCOL": (
        "another process has locked it; stop the process that holds its lock",
        "another process has locked it; stop that process, or wait for it",
        "TimeoutError: another process has locked it",
    ),
    "FULL": (
        "its disk is full (SQLITE_FULL); free disk space",
        "its disk is full; free disk space (SQLITE_FULL)",
        "OSError: [Errno 0] its disk is full; free disk space (SQLITE_FULL)",
    ),
    "READONLY": (
        (
            "it cannot be written (SQLITE_READONLY); make it and its folder writable for this user, or set"
            " --state to another folder"
        ),
        "it cannot be written; make it and its folder writable for this user (SQLITE_READONLY)",
        "OSError: [Errno 0] it cannot be written; make it and its folder writable for this user (SQLITE_READONLY)",
    ),
    "READONLY_DIRECTORY": (
        (
            "it cannot be written (SQLITE_READONLY_DIRECTORY); make it and its folder writable for this user, or"
            " set --state to another folder"
        ),
        "it cannot be written; make it and its folder writable for this user (SQLITE_READONLY_DIRECTORY)",
        (
            "OSError: [Errno 0] it cannot be written; make it and its folder writable for this user"
            " (SQLITE_READONLY_DIRECTORY)"
        ),
    ),
    "PERM": (
        (
            "it cannot be written (SQLITE_PERM); make it and its folder writable for this user, or set --state to"
            " another folder"
        ),
        "it cannot be written; make it and its folder writable for this user (SQLITE_PERM)",
        "OSError: [Errno 0] it cannot be written; make it and its folder writable for this user (SQLITE_PERM)",
    ),
    "AUTH": (
        (
            "it cannot be written (SQLITE_AUTH); make it and its folder writable for this user, or set --state to"
            " another folder"
        ),
        "it cannot be written; make it and its folder writable for this user (SQLITE_AUTH)",
        "OSError: [Errno 0] it cannot be written; make it and its folder writable for this user (SQLITE_AUTH)",
    ),
    "CANTOPEN": (
        (
            "it cannot be opened (SQLITE_CANTOPEN); check that the state folder exists and belongs to this user,"
            " or set --state to another folder"
        ),
        "it cannot be opened; make it and its folder writable for this user (SQLITE_CANTOPEN)",
        "OSError: [Errno 0] it cannot be opened; make it and its folder writable for this user (SQLITE_CANTOPEN)",
    ),
    "CORRUPT": (
        (
            "it is corrupted (SQLITE_CORRUPT); move limits.sqlite3 aside with its -wal and -shm files; all limits"
            " then start from zero"
        ),
        "it is corrupted; move it aside, with its -wal and -shm (SQLITE_CORRUPT)",
        "OSError: [Errno 0] it is corrupted; move it aside, with its -wal and -shm (SQLITE_CORRUPT)",
    ),
    "CORRUPT_INDEX": (
        (
            "it is corrupted (SQLITE_CORRUPT_INDEX); move limits.sqlite3 aside with its -wal and -shm files; all"
            " limits then start from zero"
        ),
        "it is corrupted; move it aside, with its -wal and -shm (SQLITE_CORRUPT_INDEX)",
        "OSError: [Errno 0] it is corrupted; move it aside, with its -wal and -shm (SQLITE_CORRUPT_INDEX)",
    ),
    "NOTADB": (
        (
            "it is not a database (SQLITE_NOTADB); move limits.sqlite3 aside with its -wal and -shm files; all"
            " limits then start from zero"
        ),
        "it is not a database; use another file (SQLITE_NOTADB)",
        "OSError: [Errno 0] it is not a database; use another file (SQLITE_NOTADB)",
    ),
    "ERROR": (
        "SQLITE_ERROR; move limits.sqlite3 aside with its -wal and -shm files; all limits then start from zero",
        "SQLITE_ERROR",
        "OSError: [Errno 0] SQLITE_ERROR",
    ),
    "MISMATCH": (
        "SQLITE_MISMATCH; move limits.sqlite3 aside with its -wal and -shm files; all limits then start from zero",
        "SQLITE_MISMATCH",
        "OSError: [Errno 0] SQLITE_MISMATCH",
    ),
    "CONSTRAINT_UNIQUE": (
        (
            "SQLITE_CONSTRAINT_UNIQUE; move limits.sqlite3 aside with its -wal and -shm files; all limits then"
            " start from zero"
        ),
        "SQLITE_CONSTRAINT_UNIQUE",
        "OSError: [Errno 0] SQLITE_CONSTRAINT_UNIQUE",
    ),
    "IOERR_READ": (
        (
            "SQLITE_IOERR_READ; check that the state folder exists and belongs to this user, or set --state to"
            " another folder"
        ),
        "SQLITE_IOERR_READ",
        "OSError: [Errno 0] SQLITE_IOERR_READ",
    ),
    "": (
        (
            "OperationalError; check that the state folder exists and belongs to this user, or set --state to"
            " another folder"
        ),
        "OperationalError",
        "OSError: [Errno 0] OperationalError",
    ),
    "EACCES": (
        "Permission denied; make it and its folder writable for this user, or set --state to another folder",
        "Permission denied",
        "PermissionError: [Errno 13] Permission denied",
    ),
    "ENOSPC": (
        (
            "No space left on device; check that the state folder exists and belongs to this user, or set --state"
            " to another folder"
        ),
        "No space left on device",
        "OSError: [Errno 28] No space left on device",
    ),
    "ENOENT": (
        (
            "No such file or directory; check that the state folder exists and belongs to this user, or set"
            " --state to another folder"
        ),
        "No such file or directory",
        "FileNotFoundError: [Errno 2] No such file or directory",
    ),
}
"""The messages of the ledger, the review store and the decision log, by the error of SQLite or the system."""
FOUND: Final = {
    "a folder": (
        (
            "it cannot be opened (SQLITE_CANTOPEN); check that the state folder exists and belongs to this user,"
            " or set --state to another folder"
        ),
        "it cannot be opened; make it and its folder writable for this user (SQLITE_CANTOPEN)",
        "OSError: [Errno 0] it cannot be opened; make it and its folder writable for this user (SQLITE_CANTOPEN)",
    ),
    "empty": (
        (
            "it is empty, so its balances are lost; move limits.sqlite3 aside with its -wal and -shm files; all"
            " limits then start from zero"
        ),
        "it is empty, so its reviews are lost; restore it, or move it aside with its -wal and -shm to start over",
        (
            "OSError: [Errno 0] it is empty, so its decisions are lost; restore it, or move it aside with its -wal"
            " and -shm to start over"
        ),
    ),
    "a text": (
        (
            "it is not a database (SQLITE_NOTADB); move limits.sqlite3 aside with its -wal and -shm files; all"
            " limits then start from zero"
        ),
        "it is not a database; use another file (SQLITE_NOTADB)",
        "OSError: [Errno 0] it is not a database; use another file (SQLITE_NOTADB)",
    ),
    "of something else": (
        "it contains tables from another program; set --state to another folder",
        "it contains tables from another program; use another store",
        "OSError: [Errno 0] it contains tables from another program; use another file",
    ),
    "newer": (
        (
            "its balances have version 7, but this samplegate supports 1; use a matching samplegate version, or set"
            " --state to another folder"
        ),
        (
            "its reviews have version '0099', but this samplegate supports '0003'; use a matching samplegate version,"
            " or use another store"
        ),
        (
            "OSError: [Errno 0] its decisions have version 7, but this samplegate supports 1; use a matching"
            " samplegate version, or use another file"
        ),
    ),
}
"""The messages by the file that is found."""
PREFIX: Final = {
    "ledger": "LedgerUnavailable: limits: limits.sqlite3 in the state folder: ",
    "reviews": "Unavailable: review store F/reviews.db: ",
    "decisions": "",
}


def error(name: str) -> BaseException:
    number = getattr(errno, name, None)
    return sqlite_error(f"SQLITE_{name}" if name else "") if number is None else OSError(number, os.strerror(number))


@pytest.mark.parametrize("name", SAID)
def test_what_sqlite_says_is_told_in_words_with_a_remedy(tmp_path: Path, name: str) -> None:
    for (store, (opened, _)), words in zip(FILES.items(), SAID[name], strict=True):
        assert f"{PREFIX[store]}{words}" == answer(opened, tmp_path, 5.0, error(name))


@pytest.mark.parametrize("how", FOUND)
def test_a_file_that_is_none_of_ours_is_refused_and_left_as_it_is(tmp_path: Path, how: str) -> None:
    for (store, (opened, name)), words in zip(FILES.items(), FOUND[how], strict=True):
        damage(store, how, tmp_path / name)
        before = how == "a folder" or (tmp_path / name).read_bytes()
        assert f"{PREFIX[store]}{words}" == answer(opened, tmp_path, 0.1)
        assert before == (how == "a folder" or (tmp_path / name).read_bytes())


@pytest.mark.parametrize("store", FILES)
def test_a_lock_is_waited_for_as_long_as_there_is_patience_and_no_longer(tmp_path: Path, store: str) -> None:
    opened, name = FILES[store]
    assert "opened" == answer(opened, tmp_path, 5.0)
    with contextlib.closing(sqlite3.connect(tmp_path / name, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        for seconds in (0.0, 0.1):
            begun = time.monotonic()
            assert "another process has locked it" in answer(opened, tmp_path, seconds)
            assert seconds <= time.monotonic() - begun < seconds + 20
        ends = threading.Timer(0.05, other.execute, ["ROLLBACK"])
        ends.start()
        assert "opened" == answer(opened, tmp_path, 20.0)
        ends.join()


def test_without_any_patience_the_store_and_the_log_try_once_and_the_ledger_does_not(tmp_path: Path) -> None:
    answers = {store: answer(opened, tmp_path, 0.0) for store, (opened, _) in FILES.items()}
    words = "another process has locked it; stop the process that holds its lock"
    assert {"ledger": f"{PREFIX['ledger']}{words}", "reviews": "opened", "decisions": "opened"} == answers


# -- the chain of versions


def of_version(version: int, step: Callable[[sqlite3.Connection], Any]) -> Schema:
    return Schema(version, "PRAGMA user_version", None, step, "songs", "use another file", older=range(1, version))


def first(db: sqlite3.Connection) -> None:
    db.execute("CREATE TABLE songs(name)")
    db.execute("INSERT INTO songs VALUES('one')")
    db.execute("PRAGMA user_version=1")


def second(db: sqlite3.Connection, between: Callable[[], object] = bool) -> None:
    db.execute("ALTER TABLE songs ADD COLUMN length")
    between()
    db.execute("PRAGMA user_version=2")


def songs(path: Path, schema: Schema) -> list[Any]:
    file = File(path, schema)
    with contextlib.closing(file), file.transaction(lambda: 5.0) as db:
        return db.execute("SELECT * FROM songs").fetchall()


def test_an_older_file_is_brought_to_the_present_version_with_all_that_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "songs.db"
    assert [("one",)] == songs(path, of_version(1, first))
    assert [("one", None)] == songs(path, of_version(2, second))
    with pytest.raises(
        SqliteFault,
        match="its songs have version 2, but this samplegate supports 1; use a matching samplegate version, or use"
        " another file",
    ):
        songs(path, of_version(1, first))


KILLED: Final = (
    "import os, sys, tests.unit.test_sqlite as t; t.songs(t.Path(sys.argv[1]), t.of_version(2, lambda db: t.second(db,"
    " lambda: os._exit(9))))"
)


@pytest.mark.parametrize("end", ["a kill", "a fault"])
def test_a_step_that_is_broken_off_leaves_the_old_file(tmp_path: Path, end: str) -> None:
    path = tmp_path / "songs.db"
    songs(path, of_version(1, first))
    if end == "a kill":
        environment = {**os.environ, "PYTHONPATH": "proxy:."}
        assert (
            9
            == subprocess.run(
                [sys.executable, "-c", KILLED, str(path)], env=environment, timeout=50, check=False
            ).returncode
        )
    else:
        with pytest.raises(ZeroDivisionError):
            songs(path, of_version(2, lambda db: second(db, lambda: 1 / 0)))
    assert [("one",)] == songs(path, of_version(1, first))
    assert [("one", None)] == songs(path, of_version(2, second))


def test_no_statement_has_a_numbered_placeholder() -> None:
    """Python 3.14 refuses `?1` with a sequence of values; 3.12 and 3.13 warn."""
    statement = re.compile(r"\b(?:SELECT|INSERT|UPDATE|DELETE)\b[^\n]*\?[0-9]")
    assert [] == [
        str(path) for path in (PROXY / "samplegate").rglob("*.py") if statement.search(path.read_text("utf-8"))
    ]
