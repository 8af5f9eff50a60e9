"""A worker process as the gate sees it: start, calls, cancellation and shutdown.

Its output is not trusted: lines are bounded and have known shapes. Its stderr is discarded, because litellm logs keys
and content. Why it could not start is reported in a frame, in our own words.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from samplegate.durations import duration_text
from samplegate.policy.prompt import Sampled, SampleFailed

COMMAND: Final = (sys.executable, "-P", "-W", "ignore", "-m", "samplegate.sampler.worker.__main__")
"""``-P``: nothing is imported from the working folder, which is the wrapped server's."""
START_TIMEOUT: Final = 60.0  # seconds; the import takes 3 on an idle machine, and tens if ten workers start at once
# a cancelled task ends in milliseconds, but litellm blocks its loop for one or two seconds at its first call
CANCEL_GRACE: Final = 10.0
END_GRACE: Final = 0.3  # the gate has 1.8 s to end everything (R90)
MAX_LINE: Final = 128 * 1024 * 1024  # the largest answer with every character escaped
MAX_FRAME: Final = 64 * 1024 * 1024  # the largest frame of a request of 32 MiB


class WorkerGone(Exception):
    """The process cannot be asked, or ended before it answered. The message has the reason and a remedy."""


class FrameTooLarge(Exception):
    """The frame is larger than MAX_FRAME."""


class WorkerReply(msgspec.Struct):
    """One line of the worker's output."""

    id: int | None = None
    ready: bool = False
    died: str | None = None
    sampled: Sampled | None = None
    failed: SampleFailed | None = None
    cancelled: bool = False
    heard: int | None = None
    """Progress: the number of pieces so far."""


_replies: Final = msgspec.json.Decoder(WorkerReply)


class WorkerProcess:
    """A running worker, created by ``start``. ``on_end`` is called once, before the calls in flight fail."""

    def __init__(self, process: asyncio.subprocess.Process, on_end: Callable[[], None]) -> None:
        assert process.stdin is not None
        self._process = process
        self._on_end = on_end
        self._stdin = process.stdin
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[WorkerReply]] = {}
        self._listening: dict[int, Callable[[int], None]] = {}
        self._overdue: dict[int, asyncio.TimerHandle] = {}
        loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = loop.create_future()
        self._end_reason: str | None = None
        self._reader = loop.create_task(self._read())

    @property
    def pid(self) -> int:
        """The process ID."""
        return self._process.pid

    @property
    def calls(self) -> int:
        """Calls that the worker has not answered."""
        return len(self._waiting)

    @property
    def end_reason(self) -> str | None:
        """Why the worker has ended; None while it runs."""
        return self._end_reason

    @property
    def alive(self) -> bool:
        """False once the worker has ended or is being ended."""
        return self._end_reason is None

    @staticmethod
    async def start(
        environment: Mapping[str, str], command: Sequence[str], on_end: Callable[[], None]
    ) -> WorkerProcess:
        """Start a worker and wait until it is ready. Raises WorkerGone."""
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env=_importable(environment),
                limit=MAX_LINE,
            )
        except OSError as problem:
            raise WorkerGone(
                f"the worker process cannot be started ({problem.strerror or type(problem).__name__}); check the"
                " installation"
            ) from None
        child = WorkerProcess(process, on_end)
        try:
            await asyncio.wait_for(asyncio.shield(child._ready), START_TIMEOUT)
        except TimeoutError:
            await child.aclose()
            raise WorkerGone(
                f"the worker process was not ready after {duration_text(START_TIMEOUT)}; the machine may be overloaded"
            ) from None
        except BaseException:
            await child.aclose()
            raise
        return child

    async def call(self, frame: Mapping[str, Any], on_progress: Callable[[int], None]) -> WorkerReply:
        """Ask the worker. The reply has ``sampled`` or ``failed``. ``on_progress`` is called with the number of pieces.
        Cancelling this ends the HTTP call.

        Raises WorkerGone if the process ends first, and FrameTooLarge.
        """
        if self._end_reason is not None:
            raise WorkerGone(self._end_reason)
        id = next(self._ids)
        line = msgspec.json.encode({"id": id, **frame}) + b"\n"
        if len(line) > MAX_FRAME:
            raise FrameTooLarge
        answer: asyncio.Future[WorkerReply] = asyncio.get_running_loop().create_future()
        self._waiting[id] = answer
        self._listening[id] = on_progress
        try:
            self._stdin.write(line)
            with contextlib.suppress(ConnectionError):  # the reader notices the end too, and has the reason
                await self._stdin.drain()
            return await answer
        finally:
            self._listening.pop(id, None)
            if self._waiting.pop(id, None) is not None:
                self._cancel(id)

    async def aclose(self) -> None:
        """End the worker: close its input, which it obeys at once; otherwise kill it. Takes about END_GRACE seconds at
        most."""
        self._fail_calls("the worker process was stopped because the gate is shutting down")
        self._stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._reader), END_GRACE)
        self.kill()
        with contextlib.suppress(ConnectionError):
            await self._stdin.wait_closed()
        await self._reader

    def kill(self) -> None:
        """Kill the worker."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    def _cancel(self, id: int) -> None:
        """Cancel a call without waiting, because its caller is being cancelled. A worker that does not confirm hangs
        and is killed."""
        if not self.alive:
            return
        self._stdin.write(b'{"cancel":%d}\n' % id)
        self._overdue[id] = asyncio.get_running_loop().call_later(CANCEL_GRACE, self._kill_unresponsive)

    def _kill_unresponsive(self) -> None:
        self._fail_calls(
            f"the worker process did not cancel a call within {duration_text(CANCEL_GRACE)} and was killed; try again"
        )
        self.kill()

    def _fail_calls(self, why: str) -> None:
        """Fail all waiting calls. The first reason counts."""
        if self._end_reason is not None:
            return
        self._end_reason = why
        self._on_end()
        waiting: list[asyncio.Future[WorkerReply] | asyncio.Future[None]] = [*self._waiting.values(), self._ready]
        for one in waiting:
            if not one.done():
                one.set_exception(WorkerGone(why))
                one.exception()  # marks it as retrieved, since its caller may be gone
        self._waiting.clear()
        for timer in self._overdue.values():
            timer.cancel()
        self._overdue.clear()

    async def _read(self) -> None:
        try:
            await self._read_lines()
        except (ValueError, msgspec.MsgspecError):
            self._fail_calls("the worker process sent an invalid reply and was killed; try again")
            self.kill()
        code = await self._ended()
        self._fail_calls(f"the worker process exited with code {code}; try again, the next request uses another one")

    async def _ended(self) -> int:
        """The exit code of a worker whose output has ended. It is not killed at once, because a kill polls the exit
        code first, and asyncio then cannot find it."""
        try:
            return await asyncio.wait_for(self._process.wait(), END_GRACE)
        except TimeoutError:
            self.kill()
            return await self._process.wait()

    async def _read_lines(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            reply = _replies.decode(line)
            if reply.died is not None:
                self._fail_calls(f"the worker process cannot start: {reply.died}")
                return
            if reply.ready and not self._ready.done():
                self._ready.set_result(None)
            if reply.id is not None and reply.heard is not None:
                self._report_progress(reply.id, reply.heard)
            elif reply.id is not None:
                self._answered(reply.id, reply)

    def _report_progress(self, id: int, pieces: int) -> None:
        """Report progress. A listener's exception must not stop the reader, which serves all calls."""
        listener = self._listening.get(id)
        if listener is not None:
            with contextlib.suppress(Exception):
                listener(pieces)

    def _answered(self, id: int, reply: WorkerReply) -> None:
        waiting = self._waiting.pop(id, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(reply)
        timer = self._overdue.pop(id, None)
        if timer is not None:
            timer.cancel()


def _importable(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment in which the worker can import this package, even from a source tree."""
    root = Path(__file__).resolve().parents[2]
    if root.name in ("site-packages", "dist-packages"):
        return dict(environment)
    paths = [str(root), *filter(None, [environment.get("PYTHONPATH")])]
    return {**environment, "PYTHONPATH": os.pathsep.join(paths)}
