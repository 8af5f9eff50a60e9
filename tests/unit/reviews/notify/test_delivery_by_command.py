"""Deliveries to a reviewer's program: its output, its exit and its verdict."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from samplegate.reviews.notify.outbox import LEASE, OBSOLETE, RENEW_INTERVAL
from samplegate.reviews.review import Verdict
from tests.fakes.outbox import Outside, running
from tests.fakes.reviews import NOW
from tests.fakes.webhook_endpoint import answer, endpoint

pytestmark = pytest.mark.anyio

APPROVE: Final = b'{"verdict":"approve"}'


@pytest.fixture
async def out(tmp_path: Path) -> Outside:
    return Outside(tmp_path)


def script(text: str) -> list[str]:
    return [sys.executable, "-Ic", text]


async def test_a_command_decides(out: Outside) -> None:
    out.run_by(
        "ops",
        *script(
            "import json, sys; d = json.load(sys.stdin); print(json.dumps({'verdict': 'reject', 'reason':"
            " d['server']}))"
        ),
    )
    asked = await out.ask()
    async with running(out.outbox()):
        await out.store.until(lambda: out.store.one.state == "done")
    decided = out.store.reviews[asked.id]
    assert ("rejected", "ops", "command", "docs") == (
        decided.state,
        decided.who,
        decided.door,
        decided.verdict and decided.verdict.reason,
    )


async def test_a_command_that_says_nothing_leaves_it_to_others_and_has_the_callback(out: Outside) -> None:
    out.run_by("ops", *script("import json, sys; open('told', 'w').write(json.load(sys.stdin)['callback']['token'])"))
    asked = await out.ask()
    async with running(out.outbox()):
        await out.store.until(lambda: out.store.one.state == "done")
    assert "pending" == out.store.reviews[asked.id].state
    assert (out.folder / "told").read_text().startswith("cb1.")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("""print('{"verdict":"approve"}'); raise SystemExit(3)""", "the command exited with code 3"),
        ("print('approve')", "exit code 0, with an invalid decision"),
        ("print('{}')", "exit code 0, with an invalid decision"),
        ("""print('{"verdict":"approve","edits":{"maxTokens":99999}}')""", "exit code 0, with an invalid decision"),
    ],
)
async def test_a_command_that_fails_decides_nothing_and_is_run_again(out: Outside, text: str, why: str) -> None:
    out.run_by("ops", *script(text))
    asked = await out.ask()
    async with running(out.outbox()):
        await out.store.until(lambda: out.store.one.tries == 1)
        out.clock.move(2)
        await out.store.until(lambda: out.store.one.tries == 2)
    assert "pending" == out.store.reviews[asked.id].state
    assert why == out.store.one.said


async def test_what_became_of_it_is_no_command_s_business(out: Outside) -> None:
    out.run_by("ops", *script("open('ran', 'a').write('x')"))
    asked = await out.ask()
    async with running(out.outbox()):
        await out.store.until(lambda: out.store.one.state == "done")
        out.store.withdraw(asked.id, waiter="w", why="")
        await out.store.until(lambda: all(one.state == "done" for one in out.store.deliveries.values()))
    assert "x" == (out.folder / "ran").read_text()


class BlockingCommand:
    """A command that waits until something is written to its FIFO. The test can wait for its start and its end."""

    def __init__(self, out: Outside) -> None:
        self.here, self.go = out.folder / "here", out.folder / "go"
        for path in (self.here, self.go):
            os.mkfifo(path)
        out.run_by(
            "ops",
            *script(
                f"f = open({str(self.here)!r}, 'w'); f.write('up'); f.flush(); open({str(self.go)!r}).read();"
                f" print({APPROVE.decode()!r})"
            ),
        )
        self._fd = os.open(self.here, os.O_RDONLY | os.O_NONBLOCK)

    def again(self) -> None:
        """Prepare for the next run of the command."""
        os.close(self._fd)
        self._fd = os.open(self.here, os.O_RDONLY | os.O_NONBLOCK)

    async def read_state(self) -> bytes:
        """``up`` once the command runs, b"" once it has ended."""
        readable, loop = asyncio.Event(), asyncio.get_running_loop()
        loop.add_reader(self._fd, readable.set)
        try:
            async with asyncio.timeout(20):
                await readable.wait()
            return os.read(self._fd, 10)
        finally:
            loop.remove_reader(self._fd)

    def close(self) -> None:
        os.close(self._fd)


@pytest.fixture
async def blocking(out: Outside) -> Any:
    one = BlockingCommand(out)
    yield one
    one.close()


async def test_a_command_is_its_process_s_for_as_long_as_it_runs(out: Outside, blocking: BlockingCommand) -> None:
    asked = await out.ask(expires=NOW + 900)
    async with running(out.outbox()), running(out.outbox(random=lambda n: b"\x01" * n)):
        assert b"up" == await blocking.read_state()
        for _ in range(20):
            out.clock.move(RENEW_INTERVAL)
            held = out.clock.now + LEASE
            await out.store.until(lambda held=held: out.store.one.held_until >= held)  # type: ignore[misc]
        assert [("ops", 1)] == out.store.taken
        await asyncio.to_thread(blocking.go.write_text, "")
        await out.store.until(lambda: out.store.one.state == "done")
    assert ("approved", "command") == (out.store.reviews[asked.id].state, out.store.reviews[asked.id].door)


@pytest.mark.parametrize("how", ["withdrawn", "decided", "expired"])
async def test_a_command_that_nobody_waits_for_any_more_is_killed(
    out: Outside, blocking: BlockingCommand, how: str
) -> None:
    asked = await out.ask(expires=NOW + 900)
    async with running(out.outbox()):
        assert b"up" == await blocking.read_state()
        match how:
            case "withdrawn":
                out.store.withdraw(asked.id, waiter="w", why="")
            case "decided":
                out.store.decide(asked.id, Verdict(word="reject"), who="ann", door="page")
            case _:
                out.clock.move(901)
        assert b"" == await blocking.read_state()
        await out.store.until(lambda: out.store.one.state == "failed")
    assert OBSOLETE == out.store.one.said


async def test_a_command_is_killed_at_shutdown_and_run_again_by_the_next_process(
    out: Outside, blocking: BlockingCommand
) -> None:
    asked = await out.ask(expires=NOW + 900)
    async with running(out.outbox()):
        assert b"up" == await blocking.read_state()
    assert b"" == await blocking.read_state()
    assert "waiting" == out.store.one.state
    blocking.again()
    async with running(out.outbox(random=lambda n: b"\x01" * n)):
        out.clock.move(LEASE)
        assert b"up" == await blocking.read_state()
        await asyncio.to_thread(blocking.go.write_text, "")
        await out.store.until(lambda: out.store.reviews[asked.id].state == "approved")


async def test_a_reviewer_with_both_is_told_by_both(out: Outside) -> None:
    async with endpoint(answer("202 Accepted")) as hook:
        out.tell(hook)
        out.reviewers = {"ops": replace(out.reviewers["ops"], command=script(f"print({APPROVE.decode()!r})"))}
        asked = await out.ask()
        async with running(out.outbox()):
            await out.store.until(lambda: out.store.one.state == "done")
    assert 1 == len(hook.seen)
    assert "command" == out.store.reviews[asked.id].door


async def test_a_hook_that_is_down_does_not_keep_the_command_from_deciding(out: Outside) -> None:
    async with endpoint(answer("503 Unavailable")) as hook:
        out.tell(hook)
        out.reviewers = {"ops": replace(out.reviewers["ops"], command=script(f"print({APPROVE.decode()!r})"))}
        asked = await out.ask()
        async with running(out.outbox()):
            await out.store.until(lambda: out.store.one.state == "done")
    assert "approved" == out.store.reviews[asked.id].state
