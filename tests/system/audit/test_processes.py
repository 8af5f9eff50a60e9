"""Decision logs, stderr logs and metrics of real processes: several writers of one log, killed writers, a full disk,
the imports of a start, and the end of a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from samplegate.audit.jsonl import Appender
from samplegate.audit.sqlite_log import lines as rows
from tests.fakes.records import ids, lines, log_files

APPENDER = """
import sys
from pathlib import Path
from samplegate.audit.jsonl import Appender
from samplegate.files import shared_secret
path, letter, count, max_bytes = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
key = shared_secret(Path(sys.argv[1] + ".key"), 32)
appender = Appender(max_bytes=max_bytes, synced=sys.argv[5] == "synced")
print(key.hex(), flush=True)
for number in range(count):
    appender.append(path, [f"{letter}{number}:".encode() + letter.encode() * 3000], patience=lambda: 60)
    print(number, flush=True)
"""

DATABASE = """
import sys, anyio
from pathlib import Path
from samplegate.audit.decision_log import AsyncDecisionLog
from samplegate.audit.sqlite_log import SqliteLog
from tests.fakes.records import record
async def main(path, letter, count):
    log = AsyncDecisionLog(SqliteLog(path), patience=60)
    for number in range(count):
        await log.write(record(f"{letter}{number}", request={"text": "x" * 2000}))
        print(number, flush=True)
    await log.aclose()
anyio.run(main, Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
"""


def started(program: str, *told: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, told)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": "proxy:."},
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> list[str]:
    """The lines that a process printed. It must have exited with 0."""
    out, err = process.communicate(timeout=50)
    assert (0, "") == (process.returncode, err)
    return out.splitlines()


def killed(process: subprocess.Popen[str]) -> int:
    """Kill a process after 20 lines, and return how many it printed."""
    assert process.stdout is not None
    for _ in range(20):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    return 20 + len(process.communicate(timeout=50)[0].splitlines())


def whole(letter: str, count: int) -> list[str]:
    return [f"{letter}{number}:{letter * 3000}" for number in range(count)]


@pytest.mark.parametrize(
    ("max_bytes", "durability"), [(0, "written"), (10_000, "synced"), (10_000, "written")], ids=str
)
def test_processes_that_fill_a_log_in_files_lose_nothing_tear_nothing_and_agree_on_the_key(
    tmp_path: Path, max_bytes: int, durability: str
) -> None:
    path = tmp_path / "x.jsonl"
    writers = [started(APPENDER, path, letter, 100, max_bytes, durability) for letter in "abc"]
    assert 1 == len({ended(writer)[0] for writer in writers})
    parts = log_files(path)
    found = lines(*parts)
    assert 300 == len(found)
    for letter in "abc":
        told = [line for line in found if line[0] == letter]
        assert whole(letter, 100) == told, "in the order in which they were written"
    if not max_bytes:
        assert [path] == parts
        return
    assert len(parts) >= 100
    assert max(part.stat().st_size for part in parts) <= max_bytes
    assert [f"x.jsonl.{number:06d}" for number in range(1, len(parts))] == [part.name for part in parts[:-1]]


@pytest.mark.parametrize("max_bytes", [0, 50_000], ids=["one file", "turned over"])
def test_a_killed_writer_of_files_leaves_at_most_a_half_line_that_the_next_one_ends(
    tmp_path: Path, max_bytes: int
) -> None:
    path = tmp_path / "x.jsonl"
    stands = {letter: killed(started(APPENDER, path, letter, 100_000, max_bytes, "written")) - 1 for letter in "abc"}
    Appender(max_bytes=max_bytes).append(path, [b"last"])
    found = lines(*log_files(path))
    assert "last" == found.pop()
    for letter, least in stands.items():
        told = [line for line in found if line.endswith(letter * 3000)]
        assert len(told) >= least
        assert whole(letter, len(told)) == told
    assert sum(len(line) < 3000 for line in found) <= len(stands)


def test_processes_that_make_and_fill_one_database_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    for writer in [started(DATABASE, path, letter, 50) for letter in "abc"]:
        ended(writer)
    for letter in "abc":
        assert [f"{letter}{number}" for number in range(50)] == [id for id in told_in(path) if id[0] == letter]


def test_a_killed_writer_of_a_database_leaves_all_that_it_was_told_of(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    for letter in "ab":
        least = killed(started(DATABASE, path, letter, 100_000))
        stands = [id for id in told_in(path) if id[0] == letter]
        assert [f"{letter}{number}" for number in range(len(stands))] == stands
        assert len(stands) >= least


def told_in(path: Path) -> list[str]:
    return [json.loads(line)["decision_id"] for line in rows(path)]


LIMITED = """
import anyio, resource, signal, sys
from pathlib import Path
from samplegate.errors import Unavailable
from samplegate.audit import decision_log as decisions
from samplegate.audit.decision_log import decision_log
from samplegate.audit.jsonl import Appender
from tests.fakes.records import record

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
decisions.PROBES = 0.0
folder = Path(sys.argv[1])

def room(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

def appended(path):
    appender, stood = Appender(synced=True), 0
    room(1000)
    try:
        while True:
            stood += appender.append(path, [b"x" * 98, b"y" * 98])
    except OSError as problem:
        print(stood, problem.strerror, path.stat().st_size)
    try:
        appender.probe(path, 198)
    except OSError as problem:
        print("no room:", problem.strerror)
    room(2000)
    appender.probe(path, 198)
    print(appender.append(path, [b"z"]), path.stat().st_size)

async def written(durability):
    path = str(folder / f"{durability}.jsonl")
    log = decision_log(path, state=Path(), server="db", content="none", durability=durability, max_bytes=0)
    room(1500)
    try:
        for number in range(100):
            await log.write(record(f"{number:03d}", detail="x" * 300))
    except Unavailable as problem:
        print(durability, number, str(problem).split(": ")[-1])
    for _ in range(3):
        assert log.problem(), "there is no room yet"
        await anyio.lowlevel.checkpoint()
    room(100_000)
    with anyio.fail_after(30):
        while log.problem():
            await anyio.lowlevel.checkpoint()
    await log.write(record("after"))
    await log.aclose()

appended(folder / "x")
anyio.run(written, "written")
anyio.run(written, "synced")
"""


def test_a_full_disk_refuses_leaves_whole_lines_and_is_over_when_there_is_room(tmp_path: Path) -> None:
    first, second, third, *logs = ended(started(LIMITED, tmp_path))
    assert ("10 File too large 990", "no room: File too large", "1 992") == (first, second, third)
    for durability, line in zip(("written", "synced"), logs, strict=True):
        name, stood, why = line.split(maxsplit=2)
        assert (durability, "File too large") == (name, why)
        assert [*(f"{number:03d}" for number in range(int(stood))), "after"] == ids(tmp_path / f"{durability}.jsonl")


QUIET = """
import sys
from pathlib import Path
from samplegate.telemetry.log import EventLog

log = EventLog()
log.debug("a.b")
assert "structlog" not in sys.modules
log.warning("a.b")
assert "rich" not in sys.modules

from samplegate.telemetry.metrics import Metrics

unread = Metrics(read=False)
unread.count("samplegate_rounds_total", server="a", door="push")
unread.set("samplegate_draining", 1)
unread.only("samplegate_policy_info", hash="a")
unread.forget(server="a")
assert "prometheus_client" not in sys.modules

from samplegate.audit.decision_log import decision_log

decision_log(None, state=Path("x"), server="db", content="hash")
assert not {"sqlalchemy", "sqlite3"} & set(sys.modules)
decision_log("/dev/stdout", state=Path(), server="db", content="hash").check_writable(0)
"""


def test_a_quiet_start_imports_nothing_that_it_does_not_use_and_stdout_belongs_to_the_protocol() -> None:
    """The logging packages are imported with the first line, the metrics client with a reader, and the database with a
    log in one."""
    quiet = started(QUIET)
    out, err = quiet.communicate(timeout=50)
    assert (1, "") == (quiet.returncode, out)
    assert '"a.b"' in err
    assert "is stdout, which carries the protocol" in err.splitlines()[-1]


CRASH = """
import asyncio, sys
from samplegate.telemetry.log import LineWriter

async def main():
    LineWriter(sys.stderr).collect("collected before the end")
    raise LookupError("a fault that nobody caught")

asyncio.run(main())
"""


def test_a_process_that_ends_by_a_fault_writes_what_was_collected() -> None:
    crash = started(CRASH)
    _, err = crash.communicate(timeout=50)
    assert 1 == crash.returncode
    assert "collected before the end" in err.splitlines()


BLOCKED = """
import asyncio, sys
from samplegate.telemetry.log import LineWriter

async def main():
    outlet = LineWriter(sys.stderr)
    for _ in range(3000):
        outlet.collect("x" * 99)

asyncio.run(main())
"""


def test_a_process_whose_stderr_nobody_reads_ends_all_the_same() -> None:
    with started(BLOCKED) as process:
        assert 0 == process.wait(50)
        assert process.stderr is not None
        assert process.stderr.read().startswith("x" * 99 + "\n")
