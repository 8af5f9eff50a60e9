"""The pool of workers: which worker gets a call, and when workers start, are replaced and end.

A call goes to the worker with the fewest calls in flight. The first worker starts with the first call. Another starts
when all are busy, one at a time, and gets no call until it is ready. A worker that has ended is replaced by the next
start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio

from samplegate.durations import duration_text
from samplegate.sampler.process import COMMAND, WorkerGone, WorkerProcess

if TYPE_CHECKING:
    from samplegate.status.snapshot import WorkerStatus

BUSY: Final = 4  # calls in flight at each worker, from which another is started
MAX_CALLS: Final = 64  # in flight at each worker; further calls wait within their own timeouts
FIRST_PAUSE: Final = 1.0  # seconds after a failed start, doubled after each
MAX_PAUSE: Final = 60.0
_ENDED: Final = "the worker process was stopped because the gate is shutting down or a reload has replaced it"

Rehearsal: TypeAlias = Callable[[WorkerProcess], Awaitable[None]]
"""Calls that prepare a new worker for its first real one."""


class WorkerPool:
    """Starts and shares at most ``count`` workers. ``environment`` is the whole environment of each."""

    def __init__(self, environment: Mapping[str, str], command: Sequence[str] = COMMAND, count: int = 1) -> None:
        self.environment = dict(environment)
        self.command = tuple(command)
        self.count = count
        self.slots = anyio.CapacityLimiter(MAX_CALLS)
        """One for each call in flight; a caller holds it from before ``running`` until its answer."""
        self.on_failed_start: Callable[[str], None] = lambda problem: None
        """Called if a worker cannot start while others run. Otherwise the callers get the problem."""
        self._users = 1
        self._children: list[WorkerProcess] = []
        """Those that have ended stay until the next start."""
        self._starting: asyncio.Task[WorkerProcess | WorkerGone] | None = None
        self._failed_starts = 0
        self._last = ""
        self._not_before = 0.0
        self._rehearsed: WorkerProcess | None = None
        self._preparing = anyio.Lock()

    @property
    def pids(self) -> tuple[int, ...]:
        """The process IDs of the workers that are ready."""
        return tuple(child.pid for child in self._ready())

    def states(self) -> tuple[WorkerStatus, ...]:
        """What the workers do now. One is listed even if none was started."""
        from samplegate.status.snapshot import WorkerStatus

        found = [WorkerStatus(state="ready", pid=child.pid, calls=child.calls) for child in self._ready()]
        if self._starting is not None:
            found.append(WorkerStatus(state="starting"))
        elif self._failed_starts:
            wait = max(0.0, self._not_before - anyio.current_time())
            found.append(WorkerStatus(state="failed", problem=self._last, retry_in=wait))
        else:
            ended = [child for child in self._children if not child.alive]
            found += [WorkerStatus(state="not started", problem=child.end_reason) for child in ended]
        return tuple(found) or (WorkerStatus(state="not started"),)

    def shared(self) -> WorkerPool:
        """Add a user to this pool."""
        self._users += 1
        return self

    async def release(self) -> None:
        """Remove a user. The last one ends the workers in well under a second; calls in flight fail."""
        self._users -= 1
        if self._users > 0:
            return
        with anyio.CancelScope(shield=True):
            if self._starting is not None:
                self._starting.cancel()
                await asyncio.wait([self._starting])
            async with anyio.create_task_group() as group:
                for child in self._children:
                    group.start_soon(child.aclose)

    async def running(self, rehearse: Rehearsal) -> WorkerProcess:
        """The worker for the next call, started if there is none. Concurrent callers share one start, which a cancelled
        caller does not end. Raises WorkerGone.

        If all workers are busy, another one starts in the background, and runs ``rehearse`` before its first call.
        """
        ready = self._ready()
        if not ready:
            started = await self._started(rehearse)
            ready = self._ready() or [started]
        least = min(ready, key=lambda child: child.calls)
        may_start = self._users > 0 and anyio.current_time() >= self._not_before
        if least.calls >= BUSY and len(ready) < self.count and self._starting is None and may_start:
            self._begin(rehearse)
        return least

    async def prepare(self, rehearse: Rehearsal) -> None:
        """Start the first worker if there is none, and run ``rehearse`` once for it. Raises WorkerGone."""
        async with self._preparing:
            child = next(iter(self._ready()), None) or await self._started(rehearse)
            if self._rehearsed is not child:
                self._rehearsed = child
                await rehearse(child)

    def _ready(self) -> list[WorkerProcess]:
        return [child for child in self._children if child.alive]

    def _begin(self, rehearse: Rehearsal) -> asyncio.Task[WorkerProcess | WorkerGone]:
        self._starting = asyncio.get_running_loop().create_task(self._start(rehearse))
        return self._starting

    async def _started(self, rehearse: Rehearsal) -> WorkerProcess:
        """The next worker that starts. Raises WorkerGone."""
        if self._users <= 0:
            raise WorkerGone(_ENDED)
        starting = self._starting
        if starting is None:
            wait = self._not_before - anyio.current_time()
            if wait > 0:
                raise WorkerGone(
                    f"{self._last} (failed start {self._failed_starts}; the next attempt is in {duration_text(wait)})"
                )
            starting = self._begin(rehearse)
        try:
            started = await asyncio.shield(starting)
        except asyncio.CancelledError:
            if starting.cancelled():
                raise WorkerGone(_ENDED) from None
            raise
        if isinstance(started, WorkerGone):
            raise started
        return started

    async def _start(self, rehearse: Rehearsal) -> WorkerProcess | WorkerGone:
        try:
            child = await WorkerProcess.start(self.environment, self.command, self._resize)
            try:
                if self._ready() and self._users > 0:
                    await rehearse(child)
                    if child.end_reason is not None:
                        raise WorkerGone(child.end_reason)
            except BaseException:
                await child.aclose()
                raise
        except WorkerGone as why:
            self._not_before = anyio.current_time() + min(FIRST_PAUSE * 2**self._failed_starts, MAX_PAUSE)
            self._failed_starts += 1
            self._last = str(why)
            if self._ready():
                self.on_failed_start(self._last)
            return why
        else:
            self._failed_starts = 0
            self._children = [*self._ready(), child]
            self._resize()
            return child
        finally:
            self._starting = None

    def _resize(self) -> None:
        self.slots.total_tokens = MAX_CALLS * max(1, len(self._ready()))
