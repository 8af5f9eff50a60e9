"""``ports.ReviewStore`` over a database: what changes goes through one thread, what is only read through another, so that neither waits for both.

A call that has begun is not broken off: whoever is cancelled meanwhile is so when it has ended. No rule is here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

import anyio
import anyio.to_thread

from samplegate.core.review.review import Delivery, Door, Event, Filter, Review, Stage, Verdict
from samplegate.core.review.states import Conflict
from samplegate.ports import Unavailable
from samplegate.store import engine
from samplegate.store.reviews import Reviews

T = TypeVar("T")

ENDING: Final = 1.0  # seconds that closing waits for a call under way
STALLED: Final = 8.0  # seconds without a single call ended, after which those in the queue give up; a call under way gives up earlier


class _Lane:
    """One connection, and calls on it one after the other in worker threads.

    A burst of calls may take its time, as long as one after the other ends. Where one of them has waited for the file in vain, those that queued
    behind it do not wait as long again; where one does not end at all, they raise Unavailable.
    """

    def __init__(self, url: str) -> None:
        self.reviews = Reviews(url)
        self._turn = anyio.Lock()
        self._limiter = anyio.CapacityLimiter(1)
        self._ended = 0
        self._busy = threading.Lock()
        self._failed = float("-inf")

    async def run(self, what: Callable[[Reviews], T]) -> T:
        queued = time.monotonic()

        def work() -> T:
            with self._busy:
                self.reviews.database.until = time.monotonic() + (engine.PATIENCE if self._failed < queued else 0.0)
                try:
                    return what(self.reviews)
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


class KeptReviews:
    """The store of one URL. Made in the event loop that it serves; nothing is opened before the first call."""

    def __init__(self, url: str) -> None:
        self._writer = _Lane(url)
        self._reader = _Lane(url)
        self._nudges: list[Callable[[], None]] = []
        self._seen = 0

    def close(self) -> None:
        """Close both connections, each unless a call goes on too long: then the end of the process does. A later call opens them again."""
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

    async def _write(self, what: Callable[[Reviews], T]) -> T:
        try:
            return await self._writer.run(what)
        finally:
            if self._seen != self._writer.reviews.changed:
                self._seen = self._writer.reviews.changed
                for nudge in tuple(self._nudges):
                    nudge()

    async def seek(
        self, lookup: str, *, stage: Stage, waiter: str, now: float, seconds: float, until: float | None = 0.0, own: str = ""
    ) -> Review | None:
        return await self._write(lambda store: store.seek(lookup, stage=stage, waiter=waiter, now=now, seconds=seconds, until=until, own=own))

    async def open(self, review: Review, *, announce: bool, most: int) -> bool:
        return await self._write(lambda store: store.open(review, announce=announce, most=most))

    async def renew(self, waiters: Sequence[str], *, now: float, seconds: float) -> None:
        await self._write(lambda store: store.renew(waiters, now=now, seconds=seconds))

    async def leave(self, id: str, *, waiter: str, now: float) -> None:
        await self._write(lambda store: store.leave(id, waiter=waiter, now=now))

    async def withdraw(self, id: str, *, waiter: str, now: float, why: str) -> bool:
        return await self._write(lambda store: store.withdraw(id, waiter=waiter, now=now, why=why))

    async def use(self, id: str, *, waiter: str, decision_id: str, now: float) -> bool:
        return await self._write(lambda store: store.use(id, waiter=waiter, decision_id=decision_id, now=now))

    async def use_all(self, uses: Sequence[tuple[str, str, str]], *, now: float) -> bool:
        return await self._write(lambda store: store.use_all(uses, now=now))

    async def ready(self, lookup: str, *, stage: Stage, waiter: str, now: float) -> bool:
        return await self._reader.run(lambda store: store.ready(lookup, stage=stage, waiter=waiter, now=now))

    async def decide(self, id: str, verdict: Verdict, *, who: str, door: Door, now: float) -> Review | Conflict | None:
        return await self._write(lambda store: store.decide(id, verdict, who=who, door=door, now=now))

    async def expire(self, now: float) -> Sequence[Review]:
        return await self._write(lambda store: store.expire(now))

    async def purge(self, before: float) -> int:
        return await self._write(lambda store: store.purge(before))

    async def take_deliveries(self, reviewers: Sequence[str], *, taker: str, now: float, seconds: float, limit: int) -> Sequence[Delivery]:
        return await self._write(lambda store: store.take_deliveries(reviewers, taker=taker, now=now, seconds=seconds, limit=limit))

    async def hold_delivery(self, delivery: Delivery, *, now: float, seconds: float) -> bool:
        return await self._write(lambda store: store.hold_delivery(delivery, now=now, seconds=seconds))

    async def delivered(self, delivery: Delivery, *, said: str, now: float) -> None:
        await self._write(lambda store: store.delivered(delivery, said=said, now=now))

    async def postpone(self, delivery: Delivery, *, due: float, said: str, now: float) -> None:
        await self._write(lambda store: store.postpone(delivery, due=due, said=said, now=now))

    async def give_up(self, delivery: Delivery, *, said: str, now: float) -> None:
        await self._write(lambda store: store.give_up(delivery, said=said, now=now))

    async def key(self) -> bytes:
        return await self._write(lambda store: store.key())

    async def get(self, id: str) -> Review | None:
        return await self._reader.run(lambda store: store.get(id))

    async def list(self, filter: Filter) -> Sequence[Review]:
        return await self._reader.run(lambda store: store.list(filter))

    async def history(self, id: str) -> Sequence[Event]:
        return await self._reader.run(lambda store: store.history(id))

    async def last_change(self) -> int:
        return await self._reader.run(lambda store: store.last_change())

    async def changes(self, after: int, limit: int) -> Sequence[Event]:
        return await self._reader.run(lambda store: store.changes(after, limit))

    async def pending(self) -> Mapping[str, tuple[int, float]]:
        return await self._reader.run(lambda store: store.pending())
