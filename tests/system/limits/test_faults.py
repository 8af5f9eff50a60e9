"""Requests whose ledger file is unavailable: never an allow, never an exception, logged once, and normal again after
the fault."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from samplegate import sqlite
from samplegate.limits import async_ledger as state_module
from samplegate.limits.sqlite_ledger import FILE
from samplegate.policy.ledger import Refused, Reserved
from tests.fakes.ledger_faults import (
    checkpoint,
    foreign,
    garbage,
    half,
    locked,
    moved,
    newer,
    overwritten,
    strange_account,
    strange_sweep,
    without_tables,
)
from tests.fakes.limits import Clock, Desk, daily, one, per, slot, slots

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "PATIENCE", 0.7)


def desk(state: Path) -> Desk:
    return Desk(daily("d", 3, shared=True), slots("s", 3, shared=True), state=state)


async def used(state: Path, closed: bool = True) -> Desk:
    """A process's limits after one charge."""
    first = desk(state)
    await first.settle(await first.taken(one("d"), slot("s")), one("d"))
    if closed:
        await first.admission.aclose()
    return first


FAULTS: dict[str, tuple[Callable[[Path], Any], str, str]] = {
    "locked": (locked, "busy", "another process has locked it"),
    "garbage": (
        lambda state: moved(state, garbage),
        "damaged",
        "SQLITE_NOTADB); move limits.sqlite3 aside with its -wal and -shm files",
    ),
    "cut off": (lambda state: moved(state, half), "damaged", "move limits.sqlite3 aside"),
    "overwritten": (lambda state: moved(state, overwritten), "damaged", "move limits.sqlite3 aside"),
    "no tables": (lambda state: moved(state, without_tables), "damaged", "move limits.sqlite3 aside"),
    "newer": (
        lambda state: moved(state, newer),
        "newer",
        "its balances have version 7, but this samplegate supports 1; use a matching samplegate version",
    ),
    "foreign": (
        lambda state: moved(state, foreign),
        "foreign",
        "contains tables from another program; set --state to another folder",
    ),
    "no number": (lambda state: moved(state, strange_account), "damaged", "contains an unreadable account"),
    "no time": (lambda state: moved(state, strange_sweep), "damaged", "contains an unreadable account"),
    "a folder": (lambda state: moved(state, Path.mkdir), "unreachable", "check that the state folder exists"),
}


@pytest.mark.parametrize("opened", [True, False], ids=["while open", "before it is opened"])
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_state_that_cannot_be_asked_refuses_is_told_once_and_recovers(
    tmp_path: Path, fault: str, opened: bool
) -> None:
    how, kind, words = FAULTS[fault]
    ours = await used(tmp_path, closed=not opened)
    if not opened:
        ours = desk(tmp_path)
    elif fault not in {"locked", "a folder"}:
        checkpoint(tmp_path)
    with how(tmp_path):
        refused = await ours.refused(one("d"), wait=100.0)
        assert ("d", "unavailable", None) == (refused.limit, refused.why, refused.retry_after)
        assert words in refused.detail
        assert str(tmp_path) not in refused.detail
        assert refused == await ours.refused(one("d"), slot("s"))
        ((event, fields),) = ours.log.events
        assert ("limits.unavailable", kind, str(tmp_path / FILE), refused.detail) == (
            event,
            fields["kind"],
            fields["path"],
            fields["problem"],
        )
    assert 2 == await ours.room(one("d"))
    assert ["limits.unavailable", "limits.recovered"] == ours.log.names
    await ours.admission.aclose()


async def test_a_file_that_is_damaged_under_an_open_connection_allows_nothing(tmp_path: Path) -> None:
    ours = await used(tmp_path, closed=False)
    checkpoint(tmp_path)
    with (tmp_path / FILE).open("r+b") as file:
        file.write(os.urandom(file.seek(0, os.SEEK_END)))
        file.seek(0)
        file.write(os.urandom(20_000))
    other = desk(tmp_path)
    for each in (ours, other):
        got = await each.reserve(one("d"), slot("s"))
        assert isinstance(got, Refused)
        assert "unavailable" == got.why
        await each.admission.aclose()


async def test_a_file_that_is_moved_away_begins_anew_also_for_who_had_it_open(tmp_path: Path) -> None:
    ours, other = await used(tmp_path, closed=False), desk(tmp_path)
    for name in (FILE, f"{FILE}-wal", f"{FILE}-shm"):
        (tmp_path / name).rename(tmp_path / f"old-{name}")
    await other.taken(one("d"))
    assert 2 == await ours.room(one("d"))
    await other.refused(one("d"))
    for each in (ours, other):
        await each.admission.aclose()


async def test_a_file_that_is_deleted_begins_anew(tmp_path: Path) -> None:
    ours = await used(tmp_path, closed=False)
    shutil.rmtree(tmp_path)
    assert 3 == await ours.room(one("d"))
    await ours.admission.aclose()
    assert [] == ours.log.events


async def test_a_full_disk_refuses_and_goes_on_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "MAX_PAGES", 12)
    ours = desk(tmp_path)
    drawn: list[str] = []
    while isinstance(got := await ours.reserve(one("d", key := f'["{len(drawn):0200d}"]')), Reserved):
        drawn.append(key)
        assert len(drawn) < 1_000
    assert "unavailable" == got.why
    assert "free disk space" in got.detail
    ours.clock.now += 86_400.0  # the room of idle accounts is free again
    await ours.admission.aclose()
    monkeypatch.undo()
    later = desk(tmp_path)
    assert 2 == await later.room(one("d", drawn[0]))
    assert [] == later.log.events
    await later.admission.aclose()


READ_ONLY = """
import asyncio, os, pathlib, sys, tempfile
sys.path[:0] = ["proxy", "."]
from samplegate.files import check_writable
from tests.fakes.limits import Desk, daily, one

async def drawn(state):
    desk = Desk(daily("d", 3, shared=True), state=state)
    answer = await desk.reserve(one("d"))
    await desk.admission.aclose()
    return getattr(answer, "detail", ""), desk.log.events

with tempfile.TemporaryDirectory() as elsewhere:  # the same once as ourselves: another user may not read the interpreter's own files
    asyncio.run(drawn(pathlib.Path(elsewhere)))
state = pathlib.Path(sys.argv[1])
if os.getuid() == 0:
    os.setuid(65534)
print(*asyncio.run(drawn(state)))
try:
    check_writable(state)
except Exception as problem:
    print(problem)
"""  # noqa: E501


def run(program: str, argument: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, argument], capture_output=True, text=True, timeout=50, check=False
    )


@pytest.mark.parametrize("what", ["the folder", "the file", "no file yet"])
async def test_what_may_only_be_read_refuses(tmp_path: Path, what: str) -> None:
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    state = tmp_path / "state"
    state.mkdir()
    if what != "no file yet":
        await used(state)
        (state / FILE).chmod(0o666 if what == "the folder" else 0o444)
    state.chmod(0o777 if what == "the file" else 0o555)
    said = run(READ_ONLY, str(state))
    assert "make it and its folder writable for this user" in said.stdout, said
    assert "set --state to a writable folder" in said.stdout, said


async def test_a_settlement_that_fails_is_made_up_for(tmp_path: Path) -> None:
    ours, other = await used(tmp_path, closed=False), desk(tmp_path)
    held = await ours.taken(one("d"), one("d"), slot("s"), slot("s"), slot("s"))
    with locked(tmp_path):
        await ours.settle(held, one("d"))
        assert ["limits.unavailable"] == ours.log.names
    await other.refused(one("d"))
    await other.refused(slot("s"))
    await ours.timers.pass_(1.0)
    before = time.monotonic()
    while ours.log.names[-1] != "limits.recovered":
        await ours.timers.pass_(0.0)
        assert time.monotonic() < before + 30
    assert 1 == await other.room(one("d"))
    assert 3 == await other.room(slot("s"))
    for each in (ours, other):
        await each.admission.aclose()


async def test_what_asks_no_file_says_nothing_of_it(tmp_path: Path) -> None:
    specs = daily("d", 3, shared=True), per("process", "p", 3)
    ours = Desk(*specs, state=tmp_path)
    await ours.settle(await ours.taken(one("d")))
    with locked(tmp_path):
        await ours.refused(one("d"))
        await ours.settle(await ours.taken(one("p")))
        ours.update_limits(*specs, daily("e", 1, shared=True))
        await ours.taken(one("p"))
        assert ["limits.unavailable"] == ours.log.names
    await ours.taken(one("d"))
    assert ["limits.unavailable", "limits.recovered"] == ours.log.names
    await ours.admission.aclose()


async def test_the_next_call_makes_up_for_a_settlement_that_failed(tmp_path: Path) -> None:
    ours = await used(tmp_path, closed=False)
    held = await ours.taken(one("d"), one("d"))
    with locked(tmp_path):
        for _ in held.draws:  # in parts
            await ours.settle(msgspec.structs.replace(held, draws=held.draws[:1]))
    assert 2 == await ours.room(one("d"))
    await ours.admission.aclose()


async def test_the_end_makes_up_for_a_settlement_that_failed(tmp_path: Path) -> None:
    ours, other = await used(tmp_path, closed=False), desk(tmp_path)
    held = await ours.taken(one("d"), one("d"), slot("s"))
    with locked(tmp_path):
        await ours.settle(held)
    await ours.admission.aclose()
    assert 2 == await other.room(one("d"))
    assert 3 == await other.room(slot("s"))
    await other.admission.aclose()


async def test_an_end_with_the_file_locked_leaves_the_slots_to_be_found_free(tmp_path: Path) -> None:
    ours, other = await used(tmp_path, closed=False), desk(tmp_path)
    await ours.taken(slot("s"))
    with locked(tmp_path):
        await ours.admission.aclose()
    assert 3 == await other.room(slot("s"))
    await other.admission.aclose()


async def test_many_that_come_while_it_is_locked_wait_no_longer_than_one(tmp_path: Path) -> None:
    ours = await used(tmp_path, closed=False)
    with locked(tmp_path):
        async with anyio.create_task_group() as group:
            for _ in range(500):  # one after another they would take six minutes, far over the test's timeout
                group.start_soon(ours.refused, one("d"))
    await ours.admission.aclose()


async def test_files_keep_their_modes_with_the_file_open(tmp_path: Path) -> None:
    ours = await used(tmp_path, closed=False)
    names = [FILE, f"{FILE}-wal", f"{FILE}-shm"]
    assert dict.fromkeys(names, 0o600) == {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in names}
    await ours.admission.aclose()


async def test_a_disk_that_does_not_answer_keeps_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "GRACE", 0.1)
    ours, answers = await used(tmp_path, closed=False), threading.Event()
    real = ours.clock.__class__.__call__

    def hanging(clock: Clock) -> float:
        answers.wait(30)
        return real(clock)

    monkeypatch.setattr(Clock, "__call__", hanging)
    for _ in range(2):
        refused = await ours.refused(one("d"))
        assert "did not respond in time" in refused.detail
    answers.set()
    assert 2 == await ours.room(one("d"))
    await ours.admission.aclose()


async def test_a_retry_that_fails_is_followed_by_a_later_one(tmp_path: Path) -> None:
    ours = await used(tmp_path, closed=False)
    held = await ours.taken(one("d"))
    with locked(tmp_path):
        await ours.settle(held)
        for pause in (1.0, 2.0, 4.0):
            assert 1 == ours.timers.left
            await ours.timers.pass_(pause)
            with anyio.fail_after(30):
                await ours.timers.until_one()
        assert ["limits.unavailable"] == ours.log.names
    await ours.admission.aclose()
    assert 0 == ours.timers.left
