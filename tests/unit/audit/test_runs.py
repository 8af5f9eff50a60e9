"""Files of runs: true at each moment, locked as long as the gate runs, and read with suspicion."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from samplegate.audit.runs import KEPT, MAX_SIZE, GateFile, new_state, read_gates, remove_old_runs
from samplegate.audit.verdict import GateState, RunCounts
from samplegate.errors import Unavailable

NOW = 1_795_003_200.0


def state(server: str = "docs", now: float = NOW) -> GateState:
    return new_state(
        "7-1", command="run", server=server, wrapped="", policy=Path("/p.yaml"), decision_log="/log", now=now
    )


def read(folder: Path) -> tuple[list[GateState], list[bool], list[str]]:
    gates, problems = read_gates(folder, "7-1", seconds=0.0)
    return [gate.state for gate in gates], [gate.runs for gate in gates], problems


def test_a_gate_is_seen_from_its_start_to_its_end(tmp_path: Path) -> None:
    gate = GateFile.create(tmp_path, state())
    assert ([gate.state], [True], []) == read(tmp_path)
    assert gate.update(open=1)
    assert gate.update(open=0, counts=RunCounts(requests=1, denied=1))
    assert (0, RunCounts(requests=1, denied=1), [True]) == (
        (seen := read(tmp_path))[0][0].open,
        seen[0][0].counts,
        seen[1],
    )
    gate.close(NOW + 1, 3)
    ((ended,), runs, problems) = read(tmp_path)
    assert ("2026-11-18T12:00:01.000Z", 3, [False], []) == (ended.ended, ended.exit_code, runs, problems)
    assert gate.update(open=1), "after the end nothing is written"
    assert [ended] == read(tmp_path)[0]


def test_a_shorter_text_leaves_nothing_of_a_longer_one(tmp_path: Path) -> None:
    gate = GateFile.create(tmp_path, state())
    assert gate.update(policy="x" * 3_000)
    assert gate.update(policy="y")
    assert "y" == read(tmp_path)[0][0].policy
    gate.close(NOW, 0)


def test_gates_come_in_the_order_of_their_start(tmp_path: Path) -> None:
    late, early = (GateFile.create(tmp_path, state(name, NOW + more)) for name, more in (("b", 5.0), ("a", 0.0)))
    assert ["a", "b"] == [one.server for one in read(tmp_path)[0]]
    for gate in (late, early):
        gate.close(NOW, 0)


def test_a_gate_that_is_just_ending_is_waited_for(tmp_path: Path) -> None:
    gate = GateFile.create(tmp_path, state())
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            gate.close(NOW, 0)

    gates, _ = read_gates(tmp_path, "7-1", seconds=60.0, sleep=sleep)
    assert ([False], 3) == ([one.runs for one in gates], len(waits))


def test_a_daemon_is_not_waited_for(tmp_path: Path) -> None:
    gate = GateFile.create(tmp_path, msgspec.structs.replace(state(), command="serve"))
    gates, _ = read_gates(tmp_path, "7-1", seconds=60.0, sleep=lambda _: pytest.fail("it waited"))
    assert [True] == [one.runs for one in gates]
    gate.close(NOW, 0)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "it is damaged"),
        (b"{", "it is damaged"),
        (b"\xff\xfe", "it is damaged"),
        (b"[]", "it is damaged"),
        (b'{"version":2}', "it has version 2, and this samplegate reads version 1"),
        (b'{"version":1}', "it is damaged"),
        (b" " * (MAX_SIZE + 1), f"it is larger than {MAX_SIZE} bytes, so no gate wrote it"),
        (msgspec.json.encode(msgspec.structs.replace(state(), run="8-1")), "it is the file of another run"),
        (b"[" * 5_000, "it is damaged"),
    ],
)
def test_a_file_that_no_gate_of_this_version_wrote_is_a_problem(tmp_path: Path, content: bytes, problem: str) -> None:
    file = tmp_path / "runs" / "7-1" / "x.json"
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    assert ([], [], [f"{file}: {problem}"]) == read(tmp_path)


def test_a_link_and_a_pipe_are_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "7-1"
    folder.mkdir(parents=True)
    (folder / "a.json").symlink_to("/dev/zero")
    os.mkfifo(folder / "b.json")
    gates, _, problems = read(tmp_path)
    assert ([], 2) == (gates, len(problems))


def test_a_run_without_a_folder_has_no_gates(tmp_path: Path) -> None:
    assert ([], [], []) == read(tmp_path)


def test_a_folder_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "7-1").write_text("a file")
    assert [f"{tmp_path / 'runs' / '7-1'}: cannot be read: not a directory"] == read(tmp_path)[2]


def test_a_state_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(Unavailable, match=r"^run: .*/runs/7-1 cannot be written: .*set --state to another folder"):
        GateFile.create(tmp_path, state())


def test_a_write_that_fails_is_told_once(tmp_path: Path) -> None:
    gate = GateFile.create(tmp_path, state())
    os.dup2(fd := os.open(tmp_path, os.O_RDONLY), gate._fd)
    assert [False, True] == [gate.update(open=1), gate.update(open=2)]
    os.close(fd)
    gate.close(NOW, 0)


def test_runs_of_last_week_are_removed(tmp_path: Path) -> None:
    for name, age in (("old", KEPT + 10), ("new", KEPT - 10)):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        (folder / "x.json").write_text("{}")
        os.utime(folder / "x.json", (NOW - age, NOW - age))
        os.utime(folder, (NOW - age, NOW - age))
    (tmp_path / "runs" / "a file").write_text("")
    remove_old_runs(tmp_path, NOW)
    assert ["a file", "new"] == sorted(path.name for path in (tmp_path / "runs").iterdir())
    remove_old_runs(tmp_path / "none", NOW)


def test_a_gate_that_runs_longer_than_a_week_keeps_its_file(tmp_path: Path) -> None:
    gate = GateFile.create(tmp_path, state())
    for path in (tmp_path / "runs" / "7-1", next((tmp_path / "runs" / "7-1").iterdir())):
        os.utime(path, (NOW - 2 * KEPT, NOW - 2 * KEPT))
    remove_old_runs(tmp_path, NOW)
    assert ([gate.state], [True], []) == read(tmp_path)
    gate.close(NOW, 0)


def test_a_text_that_outgrows_the_file_leaves_nothing_behind(tmp_path: Path) -> None:
    gate = GateFile.create(tmp_path, state("\U0001f600" * 999))
    for number in (10**18, 0):
        assert gate.update(open=number)
        assert ([gate.state], []) == ((found := read(tmp_path))[0], found[2])
    gate.close(NOW, 0)
