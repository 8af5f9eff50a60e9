"""The decision log on real files."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from samplegate.audit import jsonl
from samplegate.audit.decision_log import AsyncDecisionLog, DecisionLog, NoDecisionLog, decision_log, readable_name
from samplegate.audit.jsonl import LogFile, file_name, one_file
from samplegate.audit.record import content_hash
from samplegate.errors import Unavailable
from tests.fakes.records import NOON, RECORD, ids, names, numbers, record


def opened(path: Path, *, patience: float = 5.0, queue: float = 10.0, **more: Any) -> AsyncDecisionLog:
    """A decision log in one file."""
    return AsyncDecisionLog(LogFile(*one_file(path), **more), patience=patience, queue=queue)


@pytest.mark.anyio
async def test_the_first_record_makes_the_file_and_its_folder_for_the_owner_alone(tmp_path: Path) -> None:
    log = decision_log(None, state=tmp_path / "deep" / "state", server="db", content="hash")
    log.check_writable(NOON)
    assert [] == names(tmp_path)
    await log.write(RECORD)
    path = tmp_path / "deep/state/decisions/db-2026-11-18.jsonl"
    assert (path, ["d1"]) == (log.last, ids(path))
    assert (0o600, 0o700) == (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777)


@pytest.mark.anyio
async def test_the_date_is_the_records_own(tmp_path: Path) -> None:
    log: DecisionLog = decision_log(None, state=tmp_path, server="db", content="hash")
    await log.write(replace(RECORD, time=NOON + 86_400))
    assert "db-2026-11-19.jsonl" == Path(log.last or "").name


@pytest.mark.anyio
async def test_a_path_is_taken_as_it_is_and_none_keeps_nothing(tmp_path: Path) -> None:
    path = tmp_path / "all.jsonl"
    await decision_log(str(path), state=tmp_path, server="db", content="none").write(RECORD)
    nothing = decision_log("none", state=tmp_path, server="db", content="full")
    await nothing.write(RECORD)
    assert (["d1"], [path]) == (ids(path), [tmp_path / name for name in names(tmp_path)])
    assert isinstance(nothing, NoDecisionLog)


@pytest.mark.anyio
async def test_the_key_of_the_hashes_is_random_and_stays_beside_the_log(tmp_path: Path) -> None:
    asked = replace(RECORD, request={"a": 1})
    for _ in range(2):
        await opened(tmp_path / "x.jsonl").write(asked)
    key = (tmp_path / "x.jsonl.key").read_bytes()
    hashes = {json.loads(line)["request_hash"] for line in (tmp_path / "x.jsonl").read_text().splitlines()}
    assert (32, {content_hash({"a": 1}, key)}) == (len(key), hashes)


@pytest.mark.anyio
async def test_a_half_line_of_a_crashed_writer_is_ended_first(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"decision_id":"d0"}\n{"decision_id":"cut')
    await opened(path, content="none").write(RECORD)
    first, half, last = path.read_text().splitlines()
    assert ("d0", '{"decision_id":"cut', "d1") == (
        json.loads(first)["decision_id"],
        half,
        json.loads(last)["decision_id"],
    )


@pytest.mark.anyio
async def test_records_of_one_process_written_at_once_all_arrive_whole(tmp_path: Path) -> None:
    log = opened(tmp_path / "x.jsonl", content="none")
    async with anyio.create_task_group() as group:
        for number in range(50):
            group.start_soon(log.write, replace(RECORD, decision_id=f"d{number}"))
    assert sorted(f"d{number}" for number in range(50)) == sorted(ids(tmp_path / "x.jsonl"))


@pytest.mark.anyio
async def test_a_lock_that_is_never_free_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    with path.open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(Unavailable, match="could not be written in time"):
            await opened(path, content="none", patience=0.05).write(RECORD)


@pytest.mark.anyio
async def test_once_the_end_has_begun_no_lock_is_waited_for_long_by_all_records_together(tmp_path: Path) -> None:
    path, refused = tmp_path / "x.jsonl", []
    log = opened(path, content="none", patience=50, queue=50)

    async def write() -> None:
        with pytest.raises(Unavailable, match="could not be written in time"):
            await log.write(RECORD)
        refused.append(1)

    with path.open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with anyio.fail_after(10):
            async with anyio.create_task_group() as group:
                for _ in range(20):
                    group.start_soon(write)
                await anyio.lowlevel.checkpoint()
                log.set_shutdown_deadline(0.1)
    assert 20 == len(refused)


@pytest.mark.anyio
async def test_records_of_the_end_are_written_where_nothing_is_in_the_way(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    log = opened(path, content="none")
    log.set_shutdown_deadline(5)
    await log.write(RECORD)
    assert ["d1"] == ids(path)


@pytest.mark.anyio
async def test_a_place_that_went_away_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    log = opened(tmp_path / "file" / "x.jsonl")
    with pytest.raises(Unavailable, match=r"decision log: .*x\.jsonl cannot be written"):
        await log.write(RECORD)


def test_a_place_that_cannot_be_written_is_an_error_at_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path, problem in {
        tmp_path / "file" / "x.jsonl": (
            "cannot be reached: Not a directory; set --decision-log to a writable path, or to none"
        ),
        tmp_path: "is a folder; set",
    }.items():
        with pytest.raises(Unavailable, match=f"decision log: {path} {problem}"):
            opened(path).check_writable(NOON)


@pytest.mark.parametrize(
    ("setting", "name"),
    [("none", None), (os.devnull, None), ("/no/such/log", "/no/such/log"), ("sqlite:/d", "sqlite:/d")],
)
def test_what_can_be_read_again_has_a_name_for_reports(setting: str, name: str | None) -> None:
    assert name == readable_name(setting, state=Path(), server="a")


def test_a_servers_name_stays_inside_the_folder() -> None:
    assert ("_.._etc_passwd", "_", "db-1.x") == (file_name("/../etc/passwd"), file_name(".."), file_name("db-1.x"))


class Disk:
    """A fake disk that counts fsyncs, delays them and fails as often as the test asks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.synced, self.fails = 0, 0
        self.go, self.begun = threading.Event(), threading.Event()
        self.go.set()
        monkeypatch.setattr(jsonl, "sync_file", self._sync)

    def _sync(self, fd: int) -> None:
        self.synced += 1
        self.begun.set()
        assert self.go.wait(30)
        if self.fails:
            self.fails -= 1
            raise OSError(5, "Input/output error")
        os.fsync(fd)


@pytest.mark.anyio
async def test_records_that_come_while_the_disk_works_share_the_next_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, path = Disk(monkeypatch), tmp_path / "x.jsonl"
    log = decision_log(str(path), state=tmp_path, server="db", content="none", durability="synced")
    stood: list[str] = []

    async def write(id: str) -> None:
        await log.write(record(id))
        stood.append(id)

    disk.go.clear()
    async with anyio.create_task_group() as group:
        group.start_soon(write, "first")
        assert await anyio.to_thread.run_sync(disk.begun.wait, 30)
        for number in range(50):
            group.start_soon(write, str(number))
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        assert (["first"], []) == (ids(path), stood), "a line that is not on the disk yet is nobody's answer"
        disk.go.set()
    assert (2, ["first", *numbers(range(50))]) == (disk.synced, ids(path))
    assert 51 == len(stood)


@pytest.mark.anyio
async def test_a_sync_that_fails_fails_all_that_waited_for_it_and_none_of_them_is_on_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, path = Disk(monkeypatch), tmp_path / "x.jsonl"
    log = decision_log(str(path), state=tmp_path, server="db", content="none", durability="synced")
    refused: list[str] = []

    async def write(id: str) -> None:
        try:
            await log.write(record(id))
        except Unavailable as problem:
            refused.append(str(problem))

    disk.go.clear()
    async with anyio.create_task_group() as group:
        group.start_soon(write, "first")
        assert await anyio.to_thread.run_sync(disk.begun.wait, 30)
        for number in range(5):
            group.start_soon(write, str(number))
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        disk.fails = 2
        disk.go.set()
    assert [f"decision log: {path} cannot be written: Input/output error"] * 6 == refused
    assert refused[0] == log.problem()
    await write("after")
    assert (["after"], None) == (ids(path), log.problem())


@pytest.mark.anyio
async def test_a_folder_that_is_removed_is_made_again_and_the_key_stays_what_it_was(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "x.jsonl"
    log, asked = opened(path), replace(RECORD, request={"a": 1})
    await log.write(asked)
    key = (tmp_path / "logs" / "x.jsonl.key").read_bytes()
    shutil.rmtree(path.parent)
    await log.write(asked)
    assert (["d1"], key) == (ids(path), (tmp_path / "logs" / "x.jsonl.key").read_bytes())
    assert [content_hash({"a": 1}, key)] == [json.loads(line)["request_hash"] for line in path.read_text().splitlines()]


@pytest.mark.anyio
async def test_a_file_that_is_put_aside_and_a_new_one_are_one_log(tmp_path: Path) -> None:
    log = decision_log(str(tmp_path / "x.jsonl"), state=tmp_path, server="db", content="none", max_bytes=300, keep=2)
    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(log.write, record(number))
    parts = [tmp_path / name for name in names(tmp_path)]
    assert ["x.jsonl", "x.jsonl.000018", "x.jsonl.000019"] == [part.name for part in parts]
    assert ["17", "18", "19"] == ids(*parts[1:], parts[0])


@pytest.mark.parametrize("more", [{"durability": "synced"}, {"max_bytes": 1_000}], ids=["synced", "turned over"])
def test_what_is_no_file_can_be_neither_synced_nor_turned_over(tmp_path: Path, more: dict[str, Any]) -> None:
    os.mkfifo(tmp_path / "pipe")
    decision_log(str(tmp_path / "pipe"), state=tmp_path, server="db", content="hash").check_writable(NOON)
    with pytest.raises(Unavailable, match="is not a regular file"):
        decision_log(str(tmp_path / "pipe"), state=tmp_path, server="db", content="hash", **more).check_writable(NOON)


@pytest.mark.anyio
async def test_a_log_that_is_not_to_be_kept_is_never_at_fault(tmp_path: Path) -> None:
    log = decision_log("none", state=tmp_path, server="db", content="hash")
    log.check_writable(NOON)
    log.set_shutdown_deadline(0)
    await log.write(RECORD)
    await log.aclose()
    assert (None, None, []) == (log.problem(), log.last, names(tmp_path))
