"""The asynchronous review store: one worker thread for writes and one for reads, so that reads do not wait for writes.

A call that has begun is never interrupted: a cancellation takes effect when the call has ended.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

import anyio
import anyio.to_thread

from samplegate.durations import duration_text
from samplegate.errors import Unavailable
from samplegate.reviews import sql_database
from samplegate.reviews.sql_store import SqlReviewStore
from samplegate.reviews.store import ReviewTransactions, T

CLOSE_TIMEOUT: Final = 1.0  # seconds that closing waits for a running call
# seconds in which no call ends, after which queued calls give up; a running call gives up earlier
STALL_TIMEOUT: Final = 8.0


class _Connection:
    """One connection, whose calls run one after the other in a worker thread.

    A burst of calls may take long, as long as each ends. If a call times out on the file's lock, the calls queued
    behind it try the lock only once. If a call does not end at all, the queued calls raise Unavailable.
    """

    def __init__(self, url: str, clock: Callable[[], float] | None, file_key: bytes | None) -> None:
        self.reviews = SqlReviewStore(url, clock=clock, file_key=file_key)
        self._turn = anyio.Lock()
        self._limiter = anyio.CapacityLimiter(1)
        self._ended = 0
        self._busy = threading.Lock()
        self._failed = float("-inf")

    async def run(self, call: Callable[[ReviewTransactions], T]) -> T:
        queued = time.monotonic()

        def work() -> T:
            with self._busy:
                self.reviews.database.until = time.monotonic() + (
                    sql_database.PATIENCE if self._failed < queued else 0.0
                )
                try:
                    return call(self.reviews)
                except Unavailable:
                    self._failed = time.monotonic()
                    raise

        await self._queue()
        try:
            return await anyio.to_thread.run_sync(work, limiter=self._limiter)
        finally:
            self._ended += 1
            self._turn.release()

    async def _queue(self) -> None:
        while True:
            ended = self._ended
            with anyio.move_on_after(STALL_TIMEOUT):
                return await self._turn.acquire()
            if ended == self._ended:
                raise Unavailable(
                    f"review store: a call has not finished within {duration_text(STALL_TIMEOUT)}; check the disk"
                )

    def close(self) -> None:
        if self._busy.acquire(timeout=CLOSE_TIMEOUT):
            try:
                self.reviews.close()
            finally:
                self._busy.release()


class AsyncReviewStore:
    """The review store at a URL. Create it in the event loop that uses it; the first call opens the database.

    ``clock`` and ``file_key``: see ``SqlReviewStore``."""

    def __init__(self, url: str, *, clock: Callable[[], float] | None = None, file_key: bytes | None = None) -> None:
        self._writer = _Connection(url, clock, file_key)
        self._reader = _Connection(url, clock, file_key)
        self._nudges: list[Callable[[], None]] = []
        self._seen = 0

    def close(self) -> None:
        """Close both connections, except one whose call does not end in time. A later call opens them again."""
        self._writer.close()
        self._reader.close()

    def wall(self) -> float:
        """The store's time now, in Unix seconds: this machine's."""
        return self._reader.reviews.wall()

    def watch(self, nudge: Callable[[], None]) -> Callable[[], None]:
        """Call ``nudge`` in the event loop after each change by this process, until the returned function is called."""

        def callback() -> None:
            nudge()

        def end() -> None:
            if callback in self._nudges:
                self._nudges.remove(callback)

        self._nudges.append(callback)
        return end

    async def read(self, call: Callable[[ReviewTransactions], T]) -> T:
        """Run a read-only call, which does not wait for writes."""
        return await self._reader.run(call)

    async def write(self, call: Callable[[ReviewTransactions], T]) -> T:
        """Run a call that may change something, then notify the watchers."""
        try:
            return await self._writer.run(call)
        finally:
            if self._seen != self._writer.reviews.changed:
                self._seen = self._writer.reviews.changed
                for nudge in tuple(self._nudges):
                    nudge()
