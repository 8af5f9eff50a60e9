"""The asynchronous ``ReviewStore`` over a database: what changes goes through one thread, what is only read through
another, so that neither waits for both.

A call that has begun is not broken off: whoever is cancelled meanwhile is so when it has ended. No rule is here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

import anyio
import anyio.to_thread

from samplegate.errors import Unavailable
from samplegate.reviews import sql_schema
from samplegate.reviews.sql_store import SqlReviewStore
from samplegate.reviews.store import ReviewTransactions, T

ENDING: Final = 1.0  # seconds that closing waits for a call under way
# seconds without a single call ended, after which those in the queue give up; a call under way gives up earlier
STALLED: Final = 8.0


class _Stream:
    """One connection, and calls on it one after the other in worker threads.

    A burst of calls may take its time, as long as one after the other ends. Where one of them has waited for the file
    in vain, those that queued behind it do not wait as long again; where one does not end at all, they raise
    Unavailable.
    """

    def __init__(self, url: str) -> None:
        self.reviews = SqlReviewStore(url)
        self._turn = anyio.Lock()
        self._limiter = anyio.CapacityLimiter(1)
        self._ended = 0
        self._busy = threading.Lock()
        self._failed = float("-inf")

    async def run(self, call: Callable[[ReviewTransactions], T]) -> T:
        queued = time.monotonic()

        def work() -> T:
            with self._busy:
                self.reviews.database.until = time.monotonic() + (sql_schema.PATIENCE if self._failed < queued else 0.0)
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
            with anyio.move_on_after(STALLED):
                return await self._turn.acquire()
            if ended == self._ended:
                raise Unavailable(f"store of reviews: a call has not ended for {STALLED:g} s; look at its disk")

    def close(self) -> None:
        if self._busy.acquire(timeout=ENDING):
            try:
                self.reviews.close()
            finally:
                self._busy.release()


class AsyncReviewStore:
    """The store of one URL. Made in the event loop that it serves; nothing is opened before the first call."""

    def __init__(self, url: str) -> None:
        self._writer = _Stream(url)
        self._reader = _Stream(url)
        self._nudges: list[Callable[[], None]] = []
        self._seen = 0

    def close(self) -> None:
        """Close both connections, each unless a call goes on too long: then the end of the process does. A later call
        opens them again."""
        self._writer.close()
        self._reader.close()

    def watch(self, nudge: Callable[[], None]) -> Callable[[], None]:
        """Be told in the event loop of every change that this process makes; what is returned ends it."""

        def told() -> None:
            nudge()

        def end() -> None:
            if told in self._nudges:
                self._nudges.remove(told)

        self._nudges.append(told)
        return end

    async def read(self, call: Callable[[ReviewTransactions], T]) -> T:
        """One call that changes nothing and does not wait for those that do."""
        return await self._reader.run(call)

    async def write(self, call: Callable[[ReviewTransactions], T]) -> T:
        """One call that may change something; watchers are notified."""
        try:
            return await self._writer.run(call)
        finally:
            if self._seen != self._writer.reviews.changed:
                self._seen = self._writer.reviews.changed
                for nudge in tuple(self._nudges):
                    nudge()
