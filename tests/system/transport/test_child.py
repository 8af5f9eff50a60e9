"""A server as a child process: its start, its end, and that nothing of it is left."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from samplegate.transport import subprocess as child_module
from samplegate.transport.lines import MAX_LINE
from samplegate.transport.stdio import CannotStart
from samplegate.transport.subprocess import ServerProcess, Watcher, exit_code, start_child, watch
from tests.fakes.loops import BOTH_LOOPS
from tests.fakes.recorder import BOUND, PYTHON, Recorder, members

pytestmark = pytest.mark.anyio
Start = Callable[..., Awaitable[ServerProcess]]

ECHO = [*PYTHON, "import sys\nfor line in sys.stdin.buffer: sys.stdout.buffer.write(line); sys.stdout.buffer.flush()"]
DEAF = (
    "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True);"
    " time.sleep(600)"
)
SLEEPER = "import time; print('ready', flush=True); time.sleep(600)"


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts child processes and stops every one at the end."""
    children: list[ServerProcess] = []

    async def start_one(
        command: list[str], recorder: Recorder, *, max_line: int = MAX_LINE, cwd: Path | None = None, **env: str
    ) -> ServerProcess:
        child = await start_child(command, recorder, env={**os.environ, **env}, cwd=cwd, max_line=max_line)
        children.append(child)
        return child

    yield start_one
    for child in children:
        await child.stop()


def open_descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


async def within_bound(awaitable: Awaitable[int]) -> int:
    async with asyncio.timeout(BOUND):
        return await awaitable


async def stop_in_time(child: ServerProcess) -> int:
    """Stop a child and check that its group is empty. The maximum time is added up below."""
    code = await within_bound(child.stop())
    assert [] == members(child.pid)
    return code


@BOTH_LOOPS
async def test_a_child_answers_and_ends_with_its_input(start: Start) -> None:
    recorder = Recorder()
    child = await start(ECHO, recorder)
    child.link.send(b'{"id":1}')
    assert [b'{"id":1}'] == await recorder.until_lines(1)
    assert 0 == await stop_in_time(child)
    assert 1 == recorder.ends
    assert 0 == await child.stop()


@BOTH_LOOPS
async def test_ten_thousand_lines_and_twenty_mebibytes_come_back(start: Start) -> None:
    recorder = Recorder()
    child = await start(ECHO, recorder)
    expected = [*(b"%d" % n for n in range(10_000)), b"\xff" * (20 << 20), b"last"]
    for line in expected:
        child.link.send(line)
    assert expected == await recorder.until_lines(len(expected))


async def test_what_a_child_says_when_its_input_ends_is_still_heard(start: Start) -> None:
    recorder = Recorder()
    child = await start(
        [
            *PYTHON,
            "import sys; sys.stdin.read(); sys.stdout.write('x' * 150000 + '\\nbye'); sys.stdout.flush(); sys.exit(5)",
        ],
        recorder,
    )
    assert 5 == await stop_in_time(child)
    assert [150_000, 3] == [len(line) for line in recorder.lines]
    assert 1 == recorder.ends


async def test_banners_and_bytes_that_are_no_text_are_passed_as_they_are(start: Start) -> None:
    recorder = Recorder()
    await start([*PYTHON, r"import os; os.write(1, b'\x1b[1mWelcome!\x00\n\n\xff\xfe\r\n{}\n')"], recorder)
    await recorder.until_ended()
    assert [b"\x1b[1mWelcome!\x00", b"\xff\xfe", b"{}"] == recorder.lines


@BOTH_LOOPS
async def test_a_child_that_exits_at_once(start: Start) -> None:
    recorder = Recorder()
    child = await start(["/bin/sh", "-c", "exit 7"], recorder)
    assert 7 == await within_bound(child.exited())
    await recorder.until_ended()
    child.link.send(b"x" * 1_000_000)
    assert 1 == child.link.dropped
    assert 7 == await stop_in_time(child)


@BOTH_LOOPS
async def test_a_child_that_a_signal_ends(start: Start) -> None:
    child = await start(["/bin/sh", "-c", "kill -SEGV $$"], Recorder())
    code = await within_bound(child.exited())
    assert (-signal.SIGSEGV, 128 + signal.SIGSEGV, 3) == (code, exit_code(code), exit_code(3))


async def test_a_child_that_outlives_its_input_is_terminated(start: Start) -> None:
    recorder = Recorder()
    child = await start([*PYTHON, SLEEPER], recorder)
    await recorder.until_lines(1)
    assert -signal.SIGTERM == await stop_in_time(child)
    assert 1 == recorder.ends


async def test_a_child_that_ignores_being_terminated_is_killed(start: Start) -> None:
    recorder = Recorder()
    child = await start([*PYTHON, DEAF], recorder)
    await recorder.until_lines(1)
    assert -signal.SIGKILL == await stop_in_time(child)


async def test_a_stopped_child_is_killed(start: Start) -> None:
    child = await start([*PYTHON, "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"], Recorder())
    assert -signal.SIGKILL == await stop_in_time(child)


async def test_a_grandchild_ends_with_its_group(start: Start) -> None:
    recorder = Recorder()
    child = await start(["/bin/sh", "-c", f'"{sys.executable}" -S -c "{DEAF}" & wait'], recorder)
    await recorder.until_lines(1)
    assert -signal.SIGTERM == await stop_in_time(child)


async def test_a_grandchild_that_its_parent_left_behind_ends_too(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder, watchers = Recorder(), list[Watcher]()

    def watched(group: int) -> Watcher | None:
        watchers.extend(filter(None, [watch(group)]))
        return watchers[-1]

    monkeypatch.setattr(child_module, "watch", watched)
    child = await start(["/bin/sh", "-c", f'"{sys.executable}" -S -c "{DEAF}" & read line; exit 3'], recorder)
    await recorder.until_lines(1)
    child.link.send(b"go")
    assert 3 == await within_bound(child.exited())
    assert 1 == len(members(child.pid))
    assert [None] == [watcher.exit for watcher in watchers], "what is left of the group is still watched"
    assert 3 == await stop_in_time(child)
    assert [0] == [await within_bound(watcher.exit) for watcher in watchers if watcher.exit is not None]
    assert 1 == recorder.ends


async def test_a_child_that_closes_its_stdout_goes_on(start: Start, tmp_path: Path) -> None:
    recorder = Recorder()
    target = tmp_path / "heard"
    child = await start(
        ["/bin/sh", "-c", 'exec >&-; read line; echo "$line" > "$TARGET"; exit 4'], recorder, TARGET=str(target)
    )
    await recorder.until_ended()
    child.link.send(b"are you there")
    assert 4 == await within_bound(child.exited())
    assert "are you there\n" == target.read_text()
    assert 1 == recorder.ends


async def test_a_child_that_closes_its_stdin_goes_on(start: Start) -> None:
    recorder = Recorder()
    child = await start([*PYTHON, f"import os; os.close(0); {SLEEPER}"], recorder)
    await recorder.until_lines(1)
    child.link.send(b"lost")
    assert 1 == child.link.dropped
    assert 0 == recorder.ends
    assert -signal.SIGTERM == await stop_in_time(child)


async def test_a_child_that_does_not_read_cannot_hold_the_end_up(start: Start) -> None:
    recorder = Recorder()
    child = await start([*PYTHON, SLEEPER], recorder)
    pressure: list[bool] = []
    child.link.pressure = pressure.append
    await recorder.until_lines(1)
    child.link.send(b"x" * (2 << 20))
    assert [True] == pressure
    assert -signal.SIGTERM == await stop_in_time(child)
    assert [True, False] == pressure


@BOTH_LOOPS
async def test_a_child_that_floods_a_paused_link_cannot_hold_the_end_up(start: Start) -> None:
    recorder = Recorder()
    child = await start(["/bin/sh", "-c", "while :; do echo line; done"], recorder)
    await recorder.until_lines(1)
    child.link.pause_reading()
    assert await stop_in_time(child) in {-signal.SIGTERM, -signal.SIGPIPE}
    assert recorder.ends <= 1, "its going is noticed at the next look, which may be too late to be told"


async def test_stopping_may_be_asked_for_twice_and_goes_on_without_the_first_to_ask(start: Start) -> None:
    recorder = Recorder()
    child = await start([*PYTHON, SLEEPER], recorder)
    await recorder.until_lines(1)
    first = asyncio.create_task(child.stop())
    await asyncio.sleep(0)
    first.cancel()
    assert -signal.SIGTERM == await stop_in_time(child)
    assert first.cancelled()


@BOTH_LOOPS
async def test_the_loop_going_down_kills_the_group_at_once(start: Start) -> None:
    recorder = Recorder()
    child = await start([*PYTHON, DEAF], recorder)
    await recorder.until_lines(1)
    before = asyncio.all_tasks()
    waiting = asyncio.create_task(child.stop())
    await asyncio.sleep(0)
    for task in asyncio.all_tasks() - before:  # as asyncio.run does at the end
        task.cancel()
    assert -signal.SIGKILL == await within_bound(child.exited())
    await asyncio.wait([waiting], timeout=BOUND)


async def test_a_child_leads_a_session_of_its_own_and_has_the_environment_and_folder_it_was_given(
    start: Start, tmp_path: Path
) -> None:
    recorder = Recorder()
    program = (
        "import os; print(os.getsid(0), os.getpgid(0), os.getcwd(), os.environ['COLOUR'], os.getppid(), sep='\\n')"
    )
    child = await start([*PYTHON, program], recorder, cwd=tmp_path, COLOUR="blue")
    session, group, folder, colour, parent = await recorder.until_lines(5)
    assert (child.pid, child.pid, os.getpid()) == (int(session), int(group), int(parent))
    assert os.path.samefile(tmp_path, folder)  # noqa: ASYNC240, PTH121
    assert b"blue" == colour


async def test_a_child_holds_no_descriptor_but_its_own_three(start: Start) -> None:
    inherited, other = os.pipe()
    os.set_inheritable(inherited, True)
    recorder = Recorder()
    program = "import os; print(len(os.listdir('/dev/fd')))"
    await start([*PYTHON, program], recorder)
    assert [b"4"] == await recorder.until_lines(1)  # the fourth belongs to the listing itself
    os.close(inherited)
    os.close(other)


async def test_its_stderr_is_ours(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    child = await start(["/bin/sh", "-c", "echo trouble >&2"], Recorder())
    await within_bound(child.exited())
    assert "trouble\n" == capfd.readouterr().err


@BOTH_LOOPS
async def test_no_descriptor_and_no_thread_stay_behind(start: Start) -> None:
    async def once() -> None:
        recorder = Recorder()
        child = await start(ECHO, recorder)
        child.link.send(b"x")
        await recorder.until_lines(1)
        await child.stop()

    await once()
    before = open_descriptors()
    for _ in range(3):
        await once()
    assert before == open_descriptors()


def test_the_phases_of_the_end_fit_in_what_clients_leave_us() -> None:
    phases = ("END_OF_INPUT_GRACE", "TERMINATE_GRACE", "KILL_GRACE", "TAIL_GRACE", "TAIL_GRACE")
    assert sum(getattr(child_module, name) for name in phases) < 1.65


def refusals(tmp_path: Path) -> dict[str, tuple[list[str], str]]:
    plain, script, folder = tmp_path / "plain", tmp_path / "script", tmp_path / "folder"
    plain.write_text("data")
    script.write_text("#!/nowhere/python\n")
    script.chmod(0o755)
    folder.mkdir()
    return {
        "empty": ([], "command: missing; give the server's command after --"),
        "missing": (
            ["no-such-program-here"],
            "command: 'no-such-program-here' was not found in PATH; install it, or give its full path",
        ),
        "no file": ([str(tmp_path / "gone")], f"command: '{tmp_path}/gone' does not exist; correct the path"),
        "not executable": (
            [str(plain)],
            f"command: '{plain}' is not executable; make it executable, or run it with its interpreter",
        ),
        "folder": ([str(folder)], f"command: '{folder}' is a folder; give the path of the program in it"),
        "interpreter": (
            [str(script)],
            (
                f"command: '{script}' has a shebang with a missing interpreter; install the interpreter,"
                " or correct the shebang"
            ),
        ),
        "nul": (
            ["a\0b"],
            "command: 'a\\x00b' or its environment has a NUL character, or a variable name has an '='; remove it",
        ),
    }


@pytest.mark.parametrize("case", ["empty", "missing", "no file", "not executable", "folder", "interpreter", "nul"])
async def test_what_cannot_be_started_is_told_with_a_remedy(start: Start, tmp_path: Path, case: str) -> None:
    command, message = refusals(tmp_path)[case]
    with pytest.raises(CannotStart) as caught:
        await start(command, Recorder())
    assert message == str(caught.value)


async def test_a_missing_working_folder_is_told_with_a_remedy(start: Start, tmp_path: Path) -> None:
    with pytest.raises(CannotStart) as caught:
        await start(ECHO, Recorder(), cwd=tmp_path / "gone")
    assert ("working folder", str(tmp_path / "gone")) == (caught.value.place, caught.value.value)
