"""Several real processes on one ledger, some of which are killed: together they never exceed the limit."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from samplegate.policy.ledger import Refused
from tests.fakes.limits import Desk, daily, one, slot, slots
from tests.paths import PROGRAMS, ROOT

CHARGING = PROGRAMS / "charging.py"


class ChargingProcess:
    """A process that charges the limit."""

    def __init__(self, state: Path, mode: str, most: int) -> None:
        command = [sys.executable, str(CHARGING), str(state), mode, str(most)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "proxy"), str(ROOT)])}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.lines: list[str] = []

    def line(self) -> str:
        """The next line, printed after the reservation was made."""
        assert self.process.stdout is not None
        self.lines.append(self.process.stdout.readline().strip())
        return self.lines[-1]

    def rest(self) -> list[str]:
        """All lines until its end."""
        assert self.process.stdout is not None
        self.lines += self.process.stdout.read().split("\n")
        self.process.wait(30)
        return self.lines

    def kill(self) -> None:
        """Kill the process, so that it cannot clean up."""
        self.process.kill()
        self.process.wait(30)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def started() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def exhausting(stack: ExitStack, state: Path, most: int, count: int) -> list[ChargingProcess]:
    """Processes that exhaust a limit."""
    processes = [start(stack, state, "exhaust", most) for _ in range(count)]
    assert {"ready"} == {charging.line() for charging in processes}
    for charging in processes:
        assert charging.process.stdin is not None
        charging.process.stdin.write("go\n")
        charging.process.stdin.flush()
    return processes


def start(stack: ExitStack, state: Path, mode: str, most: int) -> ChargingProcess:
    charging = ChargingProcess(state, mode, most)
    stack.callback(charging.process.__exit__, None, None, None)
    stack.callback(charging.process.kill)
    return charging


def test_processes_that_begin_at_once_draw_the_limit_together_and_no_more(tmp_path: Path, started: ExitStack) -> None:
    processes = exhausting(started, tmp_path, 500, 5)
    drawn = [charging.rest().count("drawn") for charging in processes]
    assert [0] * 5 == [charging.process.returncode for charging in processes]
    assert 500 == sum(drawn), drawn


@pytest.mark.anyio
async def test_what_a_killed_process_has_reserved_stays_reserved(tmp_path: Path, started: ExitStack) -> None:
    doomed = exhausting(started, tmp_path, 1_500, 4)
    for number, charging in enumerate(doomed):
        for _ in range(10 + 7 * number):
            assert "drawn" == charging.line()
        charging.kill()
    said = sum(charging.rest().count("drawn") for charging in doomed)
    desk = Desk(daily("d", 1_500, shared=True), state=tmp_path)
    left = await desk.room(one("d"))
    assert 1_500 - said - len(doomed) <= left <= 1_500 - said  # each may have died between its commit and its line
    assert [] == desk.log.events
    await desk.admission.aclose()


@pytest.mark.anyio
async def test_the_slots_of_a_killed_process_are_free(tmp_path: Path, started: ExitStack) -> None:
    desk = Desk(slots("s", 3, shared=True), state=tmp_path)
    holder = start(started, tmp_path, "hold", 3)
    assert ["held"] * 3 + ["full"] == [holder.line() for _ in range(4)]
    assert isinstance(await desk.reserve(slot("s")), Refused)
    holder.kill()
    assert 3 == await desk.room(slot("s"))
    assert 1 == len(names(tmp_path / "holders"))
    await desk.admission.aclose()


@pytest.mark.anyio
async def test_the_slots_of_a_process_that_ends_are_free_and_its_file_is_gone(
    tmp_path: Path, started: ExitStack
) -> None:
    holder = start(started, tmp_path, "hold", 2)
    assert "held" == holder.line()
    holder.process.communicate("\n", timeout=30)
    assert [] == names(tmp_path / "holders")
    desk = Desk(slots("s", 2, shared=True), state=tmp_path)
    assert 2 == await desk.room(slot("s"))
    await desk.admission.aclose()


@pytest.mark.anyio
async def test_files_that_dead_holders_left_are_removed_by_the_next(tmp_path: Path, started: ExitStack) -> None:
    living = start(started, tmp_path, "hold", 1)
    assert "held" == living.line()
    for name in ("0" * 32, "1" * 32):
        (tmp_path / "holders" / f"{name}.lock").touch()
    (tmp_path / "holders" / "notes.txt").touch()
    desk = Desk(slots("t", 1, shared=True), state=tmp_path)
    await desk.taken(slot("t"))
    found = names(tmp_path / "holders")
    assert (3, True) == (len(found), "notes.txt" in found)
    await desk.admission.aclose()


@pytest.mark.anyio
async def test_a_living_process_keeps_its_slots_however_many_look(tmp_path: Path, started: ExitStack) -> None:
    holder = start(started, tmp_path, "hold", 1)
    assert "held" == holder.line()
    desks = [Desk(slots("s", 1, shared=True), slots("t", 9, shared=True), state=tmp_path) for _ in range(3)]
    for desk in desks:
        await desk.taken(slot("t"))
        assert isinstance(await desk.reserve(slot("s")), Refused)
    for desk in desks:
        await desk.admission.aclose()
    last = Desk(slots("s", 1, shared=True), state=tmp_path)
    assert "full" == (await last.refused(slot("s"))).why
    await last.admission.aclose()


def test_processes_that_wait_for_each_other_all_get_their_turn_and_never_together(
    tmp_path: Path, started: ExitStack
) -> None:
    processes = [start(started, tmp_path, "turns", 1) for _ in range(3)]
    lines = [line.split() for charging in processes for line in charging.rest() if line]
    assert [0] * 3 == [charging.process.returncode for charging in processes]
    assert ["+", "-"] * 60 == [what for _, what in sorted((int(at), what) for what, at in lines)]
