"""The supervisor of the sampler's worker process: it starts the worker when it is needed and again after it ended. Not what the worker is asked.

The models of several policies may share one, as those before and after a reload do; the last of them to release it ends the worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import anyio

from samplegate.sampler.process import COMMAND, Child, Gone

FIRST_PAUSE: Final = 1.0  # seconds after a start that failed, doubling with each
LONGEST_PAUSE: Final = 60.0
_ENDED: Final = "its worker was ended, because the gate is shutting down or its environment has changed"


class Supervisor:
    """One worker at most. ``environment`` is the worker's whole environment."""

    def __init__(self, environment: Mapping[str, str], command: Sequence[str] = COMMAND) -> None:
        self.environment = dict(environment)
        self.command = tuple(command)
        self._users = 1
        self._child: Child | None = None
        self._starting: asyncio.Task[Child | Gone] | None = None
        self._failed_starts = 0
        self._last = ""
        self._not_before = 0.0
        self._prepared: Child | None = None
        self._preparing = anyio.Lock()

    @property
    def pid(self) -> int | None:
        """The worker's process ID, None while there is none."""
        return self._child.pid if self._child is not None and self._child.alive else None

    def shared(self) -> Supervisor:
        """The same supervisor for one more user."""
        self._users += 1
        return self

    async def release(self) -> None:
        """One user less. The last one ends the worker, which takes well under a second; calls in flight fail."""
        self._users -= 1
        if self._users > 0:
            return
        with anyio.CancelScope(shield=True):
            if self._starting is not None:
                self._starting.cancel()
                await asyncio.wait([self._starting])
            if self._child is not None:
                await self._child.aclose()

    async def running(self) -> Child:
        """The worker, started if there is none. Many callers share one start, and none of them ends it by giving up. Raises Gone."""
        if self._child is not None and self._child.alive:
            return self._child
        if self._users <= 0:
            raise Gone(_ENDED)
        if self._starting is None:
            wait = self._not_before - anyio.current_time()
            if wait > 0:
                raise Gone(f"{self._last} (start {self._failed_starts}; the next try is in {wait:.0f} s)")
            self._starting = asyncio.get_running_loop().create_task(self._start())
        starting = self._starting
        try:
            started = await asyncio.shield(starting)
        except asyncio.CancelledError:
            if starting.cancelled():
                raise Gone(_ENDED) from None
            raise
        if isinstance(started, Gone):
            raise started
        return started

    async def prepare(self, once: Callable[[Child], Awaitable[None]]) -> None:
        """Start the worker if there is none, and run ``once`` with it unless that was done before. Raises Gone."""
        async with self._preparing:
            child = await self.running()
            if self._prepared is not child:
                self._prepared = child
                await once(child)

    async def _start(self) -> Child | Gone:
        try:
            self._child = child = await Child.start(self.environment, self.command)
        except Gone as why:
            self._not_before = anyio.current_time() + min(FIRST_PAUSE * 2**self._failed_starts, LONGEST_PAUSE)
            self._failed_starts += 1
            self._last = str(why)
            return why
        else:
            self._failed_starts = 0
            return child
        finally:
            self._starting = None
