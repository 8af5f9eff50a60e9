"""The decision log on real files."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from samplegate.core.decisions import Reason
from samplegate.core.record import Record, content_hash
from samplegate.ports import Unavailable
from samplegate.records.decisions import DecisionLog, NoDecisionLog, decision_log, file_name

NOON = 1_795_003_200.0
RECORD = Record(
    decision_id="d1",
    time=NOON,
    server="db",
    caller="local",
    era="legacy",
    revision="2025-11-25",
    door="push",
    kind="sampling",
    effect="deny",
    reason=Reason.RULE,
    outcome="denied",
    policy_hash="abc",
)


def ids(path: Path) -> list[str]:
    return [json.loads(line)["decision_id"] for line in path.read_text().splitlines()]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


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
    log = DecisionLog.daily(tmp_path, "db")
    await log.write(replace(RECORD, time=NOON + 86_400))
    assert "db-2026-11-19.jsonl" == (log.last or Path()).name


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
        await DecisionLog.open(tmp_path / "x.jsonl").write(asked)
    key = (tmp_path / "x.jsonl.key").read_bytes()
    hashes = {json.loads(line)["request_hash"] for line in (tmp_path / "x.jsonl").read_text().splitlines()}
    assert (32, {content_hash({"a": 1}, key)}) == (len(key), hashes)


@pytest.mark.anyio
async def test_a_half_line_of_a_crashed_writer_is_ended_first(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"decision_id":"d0"}\n{"decision_id":"cut')
    await DecisionLog.open(path, content="none").write(RECORD)
    first, half, last = path.read_text().splitlines()
    assert ("d0", '{"decision_id":"cut', "d1") == (json.loads(first)["decision_id"], half, json.loads(last)["decision_id"])


@pytest.mark.anyio
async def test_records_of_one_process_written_at_once_all_arrive_whole(tmp_path: Path) -> None:
    log = DecisionLog.open(tmp_path / "x.jsonl", content="none")
    async with anyio.create_task_group() as group:
        for number in range(50):
            group.start_soon(log.write, replace(RECORD, decision_id=f"d{number}"))
    assert sorted(f"d{number}" for number in range(50)) == sorted(ids(tmp_path / "x.jsonl"))


WRITER = """
import sys
from pathlib import Path
from samplegate.records.appending import append, secret
key = secret(Path(sys.argv[1] + ".key"), 32)
for number in range(200):
    append(Path(sys.argv[1]), (sys.argv[2] * 3000).encode(), patience=lambda: 60)
print(key.hex())
"""


def test_several_processes_append_whole_lines_and_agree_on_the_key(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), letter], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": "proxy"})
        for letter in "abc"
    ]
    keys = {writer.communicate(timeout=50)[0] for writer in writers}
    lines = path.read_bytes().split(b"\n")
    assert (1, [0, 0, 0]) == (len(keys), [writer.returncode for writer in writers])
    assert dict.fromkeys("abc", 200) == {letter: lines.count(letter.encode() * 3000) for letter in "abc"}
    assert (601, b"") == (len(lines), lines[-1])


@pytest.mark.anyio
async def test_a_lock_that_is_never_free_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    with path.open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(Unavailable, match="was not free in time"):
            await DecisionLog.open(path, content="none", patience=0.05).write(RECORD)


@pytest.mark.anyio
async def test_a_record_waits_only_so_long_for_earlier_ones(tmp_path: Path) -> None:
    path, refused = tmp_path / "x.jsonl", []
    log = DecisionLog.open(path, content="none", patience=0.5, queue=0.1)

    async def write() -> None:
        try:
            await log.write(RECORD)
        except Unavailable as problem:
            refused.append(str(problem))

    with path.open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        async with anyio.create_task_group() as group:
            group.start_soon(write)
            group.start_soon(write)
    assert 1 == len([problem for problem in refused if "earlier records wait" in problem])
    assert 2 == len(refused)


@pytest.mark.anyio
async def test_once_the_end_has_begun_no_lock_is_waited_for_long_by_all_records_together(tmp_path: Path) -> None:
    path, refused = tmp_path / "x.jsonl", []
    log = DecisionLog.open(path, content="none", patience=50, queue=50)

    async def write() -> None:
        with pytest.raises(Unavailable, match="was not free in time"):
            await log.write(RECORD)
        refused.append(1)

    with path.open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with anyio.fail_after(10):
            async with anyio.create_task_group() as group:
                for _ in range(20):
                    group.start_soon(write)
                await anyio.lowlevel.checkpoint()
                log.hurry(0.1)
    assert 20 == len(refused)


@pytest.mark.anyio
async def test_records_of_the_end_are_written_where_nothing_is_in_the_way(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    log = DecisionLog.open(path, content="none")
    log.hurry(5)
    await log.write(RECORD)
    assert ["d1"] == ids(path)


@pytest.mark.anyio
async def test_a_place_that_went_away_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    log = DecisionLog.open(tmp_path / "file" / "x.jsonl")
    with pytest.raises(Unavailable, match=r"decision log: .*x\.jsonl cannot be written"):
        await log.write(RECORD)


def test_a_place_that_cannot_be_written_is_an_error_at_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path, problem in {
        tmp_path / "file" / "x.jsonl": "cannot be reached: Not a directory; give --decision-log a place that can be written, or none",
        tmp_path: "is a folder; give",
    }.items():
        with pytest.raises(Unavailable, match=f"decision log: {path} {problem}"):
            DecisionLog.open(path).check_writable(NOON)


STDOUT = """
from samplegate.records.decisions import DecisionLog
from pathlib import Path
DecisionLog.open(Path("/dev/stdout")).check_writable(0)
"""


def test_stdout_is_no_place_for_records() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", STDOUT], capture_output=True, env={**os.environ, "PYTHONPATH": "proxy"}, timeout=50, text=True, check=False
    )
    assert "is stdout, which belongs to the protocol" in ended.stderr


def test_a_servers_name_stays_inside_the_folder() -> None:
    assert ("_.._etc_passwd", "_", "db-1.x") == (file_name("/../etc/passwd"), file_name(".."), file_name("db-1.x"))
