from __future__ import annotations

import asyncio
import os
import select
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from samplegate.reviews.notify import command
from samplegate.reviews.notify.command import environment_of, run
from samplegate.reviews.notify.webhook import Delivered, DeliveryRefused, DeliveryResult, RetryLater, VerdictReceived
from tests.fakes.loops import BOTH_LOOPS

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform == "win32", reason="process groups")]

TOLD: Final = b'{"id":"rv_1"}'
HERE: Final = {"PATH": os.environ.get("PATH", "")}


async def ran(
    script: str,
    folder: Path,
    *,
    told: bytes = TOLD,
    seconds: float = 20.0,
    environment: Mapping[str, str] = HERE,
    **more: Any,
) -> DeliveryResult:
    return await run(
        [sys.executable, "-Ic", script], told, environment=environment, folder=folder, seconds=seconds, **more
    )


@BOTH_LOOPS
async def test_a_command_reads_the_review_and_prints_the_verdict(tmp_path: Path) -> None:
    script = "import json, sys; print(json.dumps({'verdict': 'reject', 'reason': json.load(sys.stdin)['id']}))"
    assert VerdictReceived(b'{"verdict": "reject", "reason": "rv_1"}\n', "exit code 0") == await ran(script, tmp_path)


@pytest.mark.parametrize("script", ["", "print()", "print('  ')"])
async def test_nothing_said_and_code_0_means_later(script: str, tmp_path: Path) -> None:
    assert Delivered("exit code 0, no output") == await ran(script, tmp_path)


@pytest.mark.parametrize("code", [1, 255])
async def test_a_verdict_of_a_program_that_failed_counts_nothing(code: int, tmp_path: Path) -> None:
    script = f"""import sys; print('{{"verdict":"approve"}}', flush=True); sys.exit({code})"""
    assert RetryLater(f"the command exited with code {code}") == await ran(script, tmp_path)


@BOTH_LOOPS
async def test_a_program_that_is_killed_gives_no_verdict(tmp_path: Path) -> None:
    script = """import os; print('{"verdict":"approve"}', flush=True); os.kill(os.getpid(), 9)"""
    assert RetryLater("the command was killed by signal 9") == await ran(script, tmp_path)


@BOTH_LOOPS
async def test_too_much_output_is_none_and_is_not_read_to_its_end(tmp_path: Path) -> None:
    assert RetryLater("the command printed more than 1000 bytes") == await ran(
        "while True: print('x' * 100)", tmp_path, output=1000
    )


@BOTH_LOOPS
async def test_a_flood_on_stderr_stops_nothing(tmp_path: Path) -> None:
    script = """import sys; sys.stderr.write('x' * 10_000_000); print('{"verdict":"reject"}')"""
    assert isinstance(await ran(script, tmp_path), VerdictReceived)


@BOTH_LOOPS
async def test_a_program_that_does_not_read_is_no_fault(tmp_path: Path) -> None:
    assert isinstance(await ran("print(1)", tmp_path, told=b"x" * 10_000_000), VerdictReceived)


@BOTH_LOOPS
@pytest.mark.parametrize("argv", [["/no/such/program"], ["no-such-program-anywhere"], ["a\0b"]])
async def test_a_program_that_cannot_be_started_is_said(argv: list[str], tmp_path: Path) -> None:
    said = await run(argv, TOLD, environment=HERE, folder=tmp_path, seconds=5)
    assert isinstance(said, DeliveryRefused)
    assert said.said.startswith("the command could not be started: ")


async def test_no_shell_reads_its_arguments(tmp_path: Path) -> None:
    argv = [sys.executable, "-Ic", "import sys; print(sys.argv[1:])", "$HOME", "a b; echo c", "*"]
    assert VerdictReceived(b"['$HOME', 'a b; echo c', '*']\n", "exit code 0") == await run(
        argv, TOLD, environment=HERE, folder=tmp_path, seconds=20
    )


async def test_it_runs_in_the_policy_s_folder(tmp_path: Path) -> None:
    (tmp_path / "decide").write_text(f"#!{sys.executable}\nimport os; print(os.getcwd())\n")
    (tmp_path / "decide").chmod(0o700)
    assert VerdictReceived(f"{tmp_path}\n".encode(), "exit code 0") == await run(
        ["./decide"], TOLD, environment=HERE, folder=tmp_path, seconds=20
    )


async def test_none_of_the_gate_s_secrets_are_in_its_environment(tmp_path: Path) -> None:
    secret = {"OPENAI_API_KEY": "sk-1", "SAMPLEGATE_STORE": "x", "HOOK_SECRET": "y", "HTTPS_PROXY": "http://me:pw@p"}
    said = await ran(
        "import os; print(sorted(os.environ))",
        tmp_path,
        environment={**HERE, **secret, "HOME": "/", "LC_ALL": "C.UTF-8"},
    )
    assert isinstance(said, VerdictReceived)
    assert {"'PATH'", "'HOME'", "'LC_ALL'"} <= set(said.raw.decode().strip("[]\n").split(", "))
    assert not any(name in said.raw.decode() for name in secret)
    assert {"LC_TIME": "C", "TZ": "UTC"} == environment_of({"LC_TIME": "C", "TZ": "UTC", "LCD_KEY": "s", "PATHS": "s"})


class Group:
    """Whether the whole process group of a command has ended: its members hold a FIFO open."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "alive"
        os.mkfifo(self.path)
        self._fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)

    def script(self, end: str) -> str:
        """Starts a child that never ends, and then does ``end``."""
        child = f"import time; f = open({str(self.path)!r}, 'w'); f.write('up'); f.flush(); time.sleep(1000)"
        return f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-Ic', {child!r}]); {end}"

    async def said(self) -> bytes:
        """The next bytes, and b"" once no process holds the FIFO open."""
        readable = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(self._fd, readable.set)
        try:
            async with asyncio.timeout(20):
                await readable.wait()
            return os.read(self._fd, 100)
        finally:
            loop.remove_reader(self._fd)

    def said_now(self) -> bytes:
        """The next bytes, read while the event loop is blocked, as it may be on a busy machine."""
        found, _, _ = select.select([self._fd], [], [], 20)
        assert found
        return os.read(self._fd, 100)

    def close(self) -> None:
        os.close(self._fd)


@pytest.fixture
def group(tmp_path: Path) -> Any:
    one = Group(tmp_path)
    yield one
    one.close()


async def test_when_its_time_is_over_it_is_killed_with_all_that_it_started(
    group: Group, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = asyncio.create_task(ran(group.script("time.sleep(1000)"), tmp_path, seconds=1000.0))
    assert b"up" == await group.said()
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "time", lambda now=loop.time: now() + 1000.0)
    assert RetryLater("the command was killed after its timeout") == await running
    assert b"" == await group.said()


@BOTH_LOOPS
async def test_cancelled_it_is_killed_with_all_that_it_started(group: Group, tmp_path: Path) -> None:
    running = asyncio.create_task(ran(group.script("time.sleep(1000)"), tmp_path))
    assert b"up" == await group.said()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert b"" == await group.said()


@BOTH_LOOPS
async def test_cancelled_while_it_starts_it_is_killed_with_all_that_it_started(group: Group, tmp_path: Path) -> None:
    running = asyncio.create_task(ran(group.script("time.sleep(1000)"), tmp_path))
    for _ in range(2):  # wait until the program has started, although its start is not complete
        await asyncio.sleep(0)
    assert b"up" == group.said_now()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert b"" == await group.said()


@BOTH_LOOPS
async def test_what_it_leaves_behind_does_not_outlive_it_nor_hold_up_the_verdict(
    group: Group, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "OUTPUT_GRACE", 0.05)  # output from before the end is already in the pipe
    script = group.script("""print('{"verdict":"approve"}', flush=True); open('go').read()""")
    os.mkfifo(tmp_path / "go")
    running = asyncio.create_task(ran(script, tmp_path))
    assert b"up" == await group.said()
    (tmp_path / "go").write_text("")
    assert VerdictReceived(b'{"verdict":"approve"}\n', "exit code 0") == await running
    assert b"" == await group.said()
