"""Balances for operators: in this process, in a state folder, and without changing anything."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from samplegate.errors import Unavailable
from samplegate.limits.accounts import identity
from samplegate.limits.balances import EXAMINED, Balances, key_values, spec_of
from samplegate.limits.sqlite_ledger import FILE, SqliteLedger, read_balances
from samplegate.policy.ledger import Draw, LimitSpec, Reserved
from tests.paths import PROXY

NOW: Final = 1_763_000_000.0
UNIT: Final = 10**6
HOUR: Final = LimitSpec("hourly", "requests", 10 * UNIT, "bucket", 3600.0, by=("caller",), shared=True)
DAY: Final = LimitSpec("daily", "requests", 5 * UNIT, "day", by=("caller",), shared=True)
SLOTS: Final = LimitSpec("calls", "concurrent", 3, "slots", shared=True)
OWN: Final = LimitSpec("fast", "requests", 4 * UNIT, "bucket", 60.0)
SPECS: Final = {identity(spec): spec for spec in (HOUR, DAY, SLOTS, OWN)}
SHARED: Final = {id: spec for id, spec in SPECS.items() if spec.shared}


def draw(spec: LimitSpec, amount: int, key: str = '["ci"]') -> Draw:
    return Draw(identity(spec), key, amount)


def told(found: Balances) -> list[tuple[str, str, int, float | None]]:
    """Name, key, drawn units, and seconds until all is available again."""
    return [
        (one.spec.name, one.key, one.drawn, None if one.refilled is None else round(one.refilled - NOW, 3))
        for one in found.fullest
    ]


@pytest.fixture
def drawn(tmp_path: Path) -> Iterator[Callable[..., SqliteLedger]]:
    """A ledger in the folder, with these draws."""
    made: list[SqliteLedger] = []

    def make(*draws: Draw) -> SqliteLedger:
        ledger = SqliteLedger(SPECS, tmp_path, lambda: NOW)
        made.append(ledger)
        for number, one in enumerate(draws):
            assert isinstance(ledger.reserve(f"r{number}", [one], time.monotonic() + 5), Reserved)
        return ledger

    yield make
    for one in made:
        one.close(time.monotonic() + 5)


def names(folder: Path) -> list[tuple[str, int, int]]:
    return sorted((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in folder.iterdir())


def test_the_fullest_accounts_come_first_with_the_time_of_their_reset(
    drawn: Callable[..., SqliteLedger], tmp_path: Path
) -> None:
    drawn(draw(HOUR, UNIT), draw(DAY, 4 * UNIT), draw(DAY, UNIT, '["ann"]'), draw(SLOTS, 1, "[]"), draw(SLOTS, 1, "[]"))
    midnight = 86_400.0 - NOW % 86_400
    found = read_balances(tmp_path, SHARED, NOW, 10)
    assert [
        ("daily", '["ci"]', 4 * UNIT, round(midnight, 3)),
        ("calls", "[]", 2, None),
        ("daily", '["ann"]', UNIT, round(midnight, 3)),
        ("hourly", '["ci"]', UNIT, 360.0),
    ] == told(found)
    assert 4 == found.total
    assert (2, 4) == (
        len(read_balances(tmp_path, SHARED, NOW, 2).fullest),
        read_balances(tmp_path, SHARED, NOW, 2).total,
    )


def test_what_has_drained_or_is_of_yesterday_is_not_there(drawn: Callable[..., SqliteLedger], tmp_path: Path) -> None:
    drawn(draw(HOUR, UNIT), draw(DAY, UNIT))
    later = read_balances(tmp_path, SHARED, NOW + 86_400, 10)
    assert ((), 0) == (later.fullest, later.total)


def test_a_process_knows_its_own_accounts_only(drawn: Callable[..., SqliteLedger]) -> None:
    ledger = drawn(draw(OWN, UNIT, "[]"), draw(HOUR, UNIT))
    assert [("fast", "[]", UNIT, 15.0)] == told(ledger.own(10))


def test_without_limits_what_is_used_is_known_and_how_much_there_is_not(
    drawn: Callable[..., SqliteLedger], tmp_path: Path
) -> None:
    drawn(draw(HOUR, UNIT), draw(DAY, UNIT), draw(SLOTS, 1, "[]"))
    found = read_balances(tmp_path, {identity(DAY): DAY}, NOW, 10, others=True)
    assert [("hourly", '["ci"]', UNIT, 3600.0), ("calls", "[]", 1, None)] == told(found)
    assert {False} == {one.known for one in found.fullest}
    assert [("calls", "[]", 1, None)] == told(read_balances(tmp_path, {}, NOW + 90_000, 10, others=True))


def test_slots_of_a_killed_process_do_not_count(tmp_path: Path) -> None:
    code = (
        "import sys, time\n"
        "from tests.unit.limits.test_balances import *\n"
        "ledger = SqliteLedger(SPECS, Path(sys.argv[1]), lambda: NOW)\n"
        "ledger.reserve('r', [draw(SLOTS, 1, '[]')], time.monotonic() + 5)\n"
        "print('drawn', flush=True)\n"
        "sys.stdin.read()\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PROXY), str(PROXY.parent)])}
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        assert b"drawn\n" == process.stdout.readline()
        assert [("calls", "[]", 1, None)] == told(read_balances(tmp_path, SHARED, NOW, 10))
        process.send_signal(signal.SIGKILL)
        process.wait(20)
    assert [] == told(read_balances(tmp_path, SHARED, NOW, 10))
    assert 1 == len(list((tmp_path / "holders").iterdir()))  # reading has removed nothing


def test_reading_creates_and_changes_nothing(drawn: Callable[..., SqliteLedger], tmp_path: Path) -> None:
    assert Balances() == read_balances(tmp_path, SHARED, NOW, 10)
    assert [] == list(tmp_path.iterdir())
    ledger = drawn(draw(DAY, UNIT))
    ledger.close(time.monotonic() + 5)
    before = names(tmp_path)
    assert [FILE] == [name for name, _, _ in before]
    assert 1 == read_balances(tmp_path, SHARED, NOW, 10).total
    assert before == names(tmp_path)
    (tmp_path / FILE).chmod(0o400)
    tmp_path.chmod(0o500)
    try:
        assert 1 == read_balances(tmp_path, SHARED, NOW, 10).total
    finally:
        tmp_path.chmod(0o700)


def test_a_writer_is_not_delayed_and_its_open_transaction_not_seen(
    drawn: Callable[..., SqliteLedger], tmp_path: Path
) -> None:
    ledger: Any = drawn(draw(DAY, UNIT))
    with ledger._transaction(time.monotonic() + 5, shared=True):
        ledger._rows.db.execute("UPDATE accounts SET level = level + 1000000")
        assert [UNIT] == [one.drawn for one in read_balances(tmp_path, SHARED, NOW, 10).fullest]
    assert [2 * UNIT] == [one.drawn for one in read_balances(tmp_path, SHARED, NOW, 10).fullest]


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("PRAGMA user_version=2", "its balances have version 2, but this samplegate supports 1; use a matching"),
        ("PRAGMA user_version=0", "it contains tables from another program; set --state to another folder"),
        ("DROP TABLE slots", "SQLITE_ERROR"),
        ("UPDATE accounts SET stamp = 'x'", "it contains an unreadable account"),
        ("UPDATE accounts SET level = 'x'", "it contains an unreadable account"),
    ],
)
def test_another_file_is_refused_and_left(
    drawn: Callable[..., SqliteLedger], tmp_path: Path, statement: str, why: str
) -> None:
    drawn(draw(DAY, UNIT)).close(time.monotonic() + 5)
    db = sqlite3.connect(tmp_path / FILE)
    db.execute(statement)
    db.commit()
    db.close()
    before = names(tmp_path)
    with pytest.raises(Unavailable) as refused:
        read_balances(tmp_path, SHARED, NOW, 10)
    assert str(refused.value).startswith(f"limits: {tmp_path / FILE}: ")
    assert why in str(refused.value)
    assert before == names(tmp_path)


@pytest.mark.parametrize("content", [b"", b"not a database" * 100])
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(Unavailable, match="limits"):
        read_balances(tmp_path, SHARED, NOW, 10)
    assert content == (tmp_path / FILE).read_bytes()


def test_many_accounts_are_looked_at_up_to_a_bound(drawn: Callable[..., SqliteLedger], tmp_path: Path) -> None:
    ledger: Any = drawn(draw(DAY, UNIT))
    with ledger._transaction(time.monotonic() + 5, shared=True):
        ledger._rows.db.executemany(
            "INSERT INTO accounts VALUES(?, ?, 1000000, ?, 0)",
            [(identity(DAY), json.dumps([f"x{number}"]), NOW) for number in range(EXAMINED + 500)],
        )
    found = read_balances(tmp_path, SHARED, NOW, 10)
    assert (EXAMINED, 10) == (found.total, len(found.fullest))
    other = read_balances(tmp_path, {}, NOW, 10, others=True)
    assert (EXAMINED, 10) == (other.total, len(other.fullest))


def test_an_identity_is_read_back_and_any_other_text_is_none() -> None:
    for spec in (HOUR, DAY, SLOTS):
        found = spec_of(identity(spec))
        assert found is not None
        assert identity(spec) == identity(found)
    for text in ("", "{}", "[]", '["a","usd"]', '["a","gold","day",0,"UTC"]', '["a","usd","day",0.0,"Nowhere"]', "[1"):
        assert spec_of(text) is None, text


@pytest.mark.parametrize(
    ("spec", "key", "values"),
    [
        (HOUR, '["ci"]', {"caller": "ci"}),
        (SLOTS, "[]", {}),
        (LimitSpec("c", "requests", 1, "call", by=("tool",)), '["work","s-1"]', {"tool": "work", "call": "s-1"}),
        (HOUR, "sha256:aa", {"key": "sha256:aa"}),
        (HOUR, '["a","b"]', {"key": '["a","b"]'}),
    ],
)
def test_the_values_of_a_key_have_their_names(spec: LimitSpec, key: str, values: dict[str, str]) -> None:
    assert values == key_values(spec, key)
