"""The decision log in a SQLite database: its rows, several processes, faults, and its end."""

from __future__ import annotations

import json
import shutil
import sqlite3
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from samplegate import sqlite
from samplegate.audit import decision_log as decisions
from samplegate.audit.decision_log import AsyncDecisionLog, DecisionLog, decision_log
from samplegate.audit.record import content_hash
from samplegate.audit.sqlite_log import SqliteLog, lines
from samplegate.errors import Unavailable
from tests.fakes.records import NOON, RECORD, names, numbers, record

pytestmark = pytest.mark.anyio


def opened(path: Path, *, patience: float = 5.0, **more: Any) -> AsyncDecisionLog:
    return AsyncDecisionLog(SqliteLog(path, **more), patience=patience)


def told(path: Path) -> list[str]:
    return [json.loads(line)["decision_id"] for line in lines(path)]


def rows(path: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(query).fetchall()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        yield


async def until_well(log: DecisionLog) -> None:
    with anyio.fail_after(30):
        while log.problem() is not None:
            await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("durability", ["written", "synced"])
async def test_a_record_is_a_row_with_what_it_is_searched_by(tmp_path: Path, durability: Any) -> None:
    path = tmp_path / "new" / "log ?#%.db"
    log = decision_log(f"sqlite:{path}", state=tmp_path, server="db", content="none", durability=durability)
    log.check_writable(NOON)
    assert [] == names(tmp_path)
    await log.write(record("d1", rule="never", request={"a": 1}))
    await log.write(record("d2"))
    assert f"sqlite:{path}" == log.last
    columns = "time, decision_id, server, caller, kind, outcome, rule"
    day = "2026-11-18T12:00:00.000Z"
    assert [
        (day, "d1", "db", "local", "sampling", "denied", "never"),
        (day, "d2", "db", "local", "sampling", "denied", None),
    ] == rows(path, f"SELECT {columns} FROM decisions ORDER BY id")
    assert [("decisions", 1)] == rows(path, "SELECT part, version FROM samplegate_versions")
    assert ["d1", "d2"] == told(path)
    await log.aclose()
    assert [path.name] == names(path.parent)
    assert (0o600, 0o700) == (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode))


async def test_every_column_that_is_searched_by_has_an_index(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    await opened(path).write(RECORD)
    for column in ("time", "decision_id", "server", "caller", "kind", "outcome", "rule"):
        ((*_, plan),) = rows(path, f"EXPLAIN QUERY PLAN SELECT * FROM decisions WHERE {column} = 'x'")
        assert "USING INDEX" in plan, column


async def test_contents_are_hashed_with_a_key_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    for _ in range(2):
        log = opened(path)
        await log.write(record("d", request={"a": 1}))
        await log.aclose()
    key = (tmp_path / "x.db.key").read_bytes()
    assert {content_hash({"a": 1}, key)} == {json.loads(line)["request_hash"] for line in lines(path)}


async def test_names_that_no_database_takes_are_kept_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    await opened(path, content="none").write(record("d1", caller="half \ud83d, nothing \0, and long " + "x" * 5_000))
    ((caller,),) = rows(path, "SELECT caller FROM decisions")
    assert (256, ["d1"]) == (len(caller), told(path))


async def test_what_waits_together_is_one_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, log = tmp_path / "x.db", opened(tmp_path / "x.db", content="none")
    await log.write(record("first"))
    begun, real = Counter[str](), sqlite.CoreFile.core

    def counted(*given: Any) -> Any:
        begun["transactions"] += 1
        return real(*given)

    monkeypatch.setattr(sqlite.CoreFile, "core", counted)
    async with anyio.create_task_group() as group:
        with locked(path):
            for number in range(50):
                group.start_soon(log.write, record(number))
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
    assert sorted(["first", *numbers(range(50))]) == sorted(told(path))
    assert begun["transactions"] <= 3


async def test_a_file_that_others_keep_locked_is_given_up_and_used_again(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    log = opened(path, patience=0.05)
    await log.write(record("before"))
    with (
        locked(path),
        pytest.raises(
            Unavailable, match=r"sqlite:.*x.db could not be written in time \(another process has locked it\)"
        ),
    ):
        await log.write(record("refused"))
    assert "could not be written in time" in str(log.problem())
    await log.write(record("after"))
    assert (None, ["before", "after"]) == (log.problem(), told(path))


async def test_the_end_of_the_process_does_not_wait_for_a_lock(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    log = opened(path, patience=50)
    await log.write(RECORD)
    with locked(path), anyio.fail_after(30):
        log.set_shutdown_deadline(0.1)
        with pytest.raises(Unavailable, match="could not be written in time"):
            await log.write(RECORD)


async def test_a_full_disk_refuses_and_is_over_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "PROBE_INTERVAL", 0.0)
    monkeypatch.setattr(sqlite, "MAX_PAGES", 40)
    path = tmp_path / "x.db"
    log, stood = opened(path, content="full"), 0

    async def fill() -> None:
        nonlocal stood
        while stood < 1_000:
            await log.write(record(stood, request={"text": "x" * 2_000}))
            stood += 1

    with pytest.raises(Unavailable, match=r"cannot be written: its disk is full; free disk space \(SQLITE_FULL\)"):
        await fill()
    assert numbers(range(stood)) == told(path)
    for _ in range(3):
        assert "its disk is full" in str(log.problem())
        await anyio.lowlevel.checkpoint()
    monkeypatch.undo()
    monkeypatch.setattr(decisions, "PROBE_INTERVAL", 0.0)
    await until_well(log)
    await log.write(record("after"))
    assert [*numbers(range(stood)), "after"] == told(path)


async def test_a_key_goes_on_beside_a_file_that_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "x.db"
    log = opened(path)
    await log.write(RECORD)
    key = (path.parent / "x.db.key").read_bytes()
    shutil.rmtree(path.parent)
    await log.write(RECORD)
    assert key == (path.parent / "x.db.key").read_bytes()


@pytest.mark.parametrize("how", ["moved away", "removed with its folder", "replaced"])
async def test_a_file_that_is_gone_is_begun_anew(tmp_path: Path, how: str) -> None:
    path = tmp_path / "logs" / "x.db"
    log = opened(path, content="none")
    await log.write(record("before"))
    if how == "removed with its folder":
        shutil.rmtree(path.parent)
    else:
        path.rename(tmp_path / "old.db")
    if how == "replaced":
        (path.parent / "x.db-wal").unlink()
        await opened(path, content="none").write(record("another's"))
    await log.write(record("after"))
    assert [*(["another's"] if how == "replaced" else []), "after"] == told(path)


def garbage(path: Path) -> None:
    path.write_bytes(b"this is a text and no database at all" * 100)


def alien(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE customers(name TEXT)")


def newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE samplegate_versions(part TEXT PRIMARY KEY, version INTEGER)")
        db.execute("INSERT INTO samplegate_versions VALUES('decisions', 2)")
        db.commit()


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (garbage, "it is not a database; use another file"),
        (alien, "it contains tables from another program; use another file"),
        (
            newer,
            (
                "its decisions have version 2, but this samplegate supports 1; use a matching samplegate version, or"
                " use another file"
            ),
        ),
    ],
)
async def test_a_file_of_something_else_is_left_alone(tmp_path: Path, made: Any, why: str) -> None:
    path = tmp_path / "x.db"
    made(path)
    before = path.read_bytes()
    log = opened(path, content="none")
    with pytest.raises(Unavailable, match=f"sqlite:{path} cannot be written: {why}"):
        await log.write(RECORD)
    await log.aclose()
    with pytest.raises(OSError, match="not a decision log database"):
        list(lines(path))
    assert before == path.read_bytes()


def test_a_place_that_cannot_be_written_is_an_error_at_start(tmp_path: Path) -> None:
    garbage(tmp_path / "text")
    for path, why in {
        tmp_path: "is a folder",
        tmp_path / "text": "is not a SQLite database",
        tmp_path / "text" / "x.db": "cannot be reached",
    }.items():
        with pytest.raises(Unavailable, match=f"decision log: sqlite:{path} {why}"):
            opened(path).check_writable(NOON)


@pytest.mark.parametrize("setting", ["sqlite:", "sqlite::memory:", "sqlite:///var/x.db"])
def test_a_database_without_a_plain_path_is_refused(tmp_path: Path, setting: str) -> None:
    with pytest.raises(Unavailable, match=f"decision log: {setting} has no path; write sqlite:PATH"):
        decision_log(setting, state=tmp_path, server="db", content="hash")
