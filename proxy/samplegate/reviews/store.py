"""``ports.ReviewStore`` over a database: what changes goes through one thread, what is only read through another, so
that neither waits for both.

A call that has begun is not broken off: whoever is cancelled meanwhile is so when it has ended. No rule is here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

import anyio
import anyio.to_thread

from samplegate.errors import Unavailable
from samplegate.policy.schema import Stage
from samplegate.reviews import sql_schema
from samplegate.reviews.review import Conflict, Delivery, Door, Event, Filter, Review, Verdict
from samplegate.reviews.sql_store import Reviews

T = TypeVar("T")


class ReviewTransactions(Protocol):
    """The reviews that all processes naming the same store share. Each method is one transaction and may raise
    Unavailable.

    ``now`` is unix seconds. A waiter is the name of one wait in one process; its first 32 hexadecimal digits are the
    process's. A waiter's verdict becomes free at ``held_until``, or once its process has ended.
    """

    def seek(
        self,
        lookup: str,
        *,
        stage: Stage,
        waiter: str,
        now: float,
        seconds: float,
        until: float | None = 0.0,
        own: str = "",
    ) -> Review | None:
        """The oldest verdict that this waiter may use, else the oldest pending review that it may wait for. It is held
        for the waiter; None: none.

        ``until``: when the caller of the request gives up, which a pending review then shows; None: not before the
        review expires.
        ``own``: the review that the request waited for before it was put off; its verdict is never too late for it.
        """
        ...

    def open(self, review: Review, *, announce: bool, most: int) -> bool:
        """Store a new review. ``announce``: put its first delivery into the outbox. False if ``most`` are pending
        already."""
        ...

    def renew(self, waiters: Sequence[str], *, now: float, seconds: float) -> None:
        """Extend the leases of these waiters by so many seconds."""
        ...

    def leave(self, id: str, *, waiter: str, now: float) -> None:
        """The waiter stops waiting; review and verdict stay."""
        ...

    def withdraw(self, id: str, *, waiter: str, now: float, why: str) -> bool:
        """Withdraw a pending review; any other is only left."""
        ...

    def use(self, uses: Sequence[tuple[str, str, str]], *, now: float) -> bool:
        """The verdicts of these (review, waiter, decision_id) are released, all of them or none, and each only once."""
        ...

    def ready(self, lookup: str, *, stage: Stage, waiter: str, now: float) -> bool:
        """Whether there is a verdict that this waiter may use. Changes nothing and costs little."""
        ...

    def decide(self, id: str, verdict: Verdict, *, who: str, door: Door, now: float) -> Review | Conflict | None:
        """Give a verdict; None: no such review. A verdict after the review's time leaves it expired."""
        ...

    def expire(self, now: float) -> Sequence[Review]:
        """Pending reviews whose time is over become ``expired``; returns them."""
        ...

    def purge(self, before: float) -> int:
        """Delete reviews that ended before this time, with their history and deliveries; returns how many."""
        ...

    def key(self) -> bytes:
        """The store's key: 32 random bytes, with which its processes sign."""
        ...

    def get(self, id: str) -> Review | None: ...
    def list(self, filter: Filter) -> Sequence[Review]:
        """A page of reviews, newest first unless the filter says otherwise."""
        ...

    def history(self, id: str) -> Sequence[Event]:
        """The events of one review, in order."""
        ...

    def last_change(self) -> int:
        """The number of the newest event, 0 for none: a cheap way to see whether anything has changed."""
        ...

    def changes(self, after: int, limit: int) -> Sequence[Event]:
        """Events with a higher number, in order."""
        ...

    def pending(self) -> Mapping[str, tuple[int, float]]:
        """By reviewer: how many reviews are pending, and when the oldest was created."""
        ...

    def take_deliveries(
        self, reviewers: Sequence[str], *, taker: str, now: float, seconds: float, limit: int
    ) -> Sequence[Delivery]:
        """Deliveries to these reviewers that are due and free, now held for the taker."""
        ...

    def hold_delivery(self, delivery: Delivery, *, now: float, seconds: float) -> bool:
        """Extend the taker's lease on it; False: it is no longer this taker's. No event."""
        ...

    def delivered(self, delivery: Delivery, *, said: str, now: float) -> None: ...
    def postpone(self, delivery: Delivery, *, due: float, said: str, now: float) -> None: ...
    def give_up(self, delivery: Delivery, *, said: str, now: float) -> None: ...


class ReviewStore(Protocol):
    """Asynchronous access to a store of reviews: ``await store.write(lambda reviews: reviews.decide(...))``. Raises
    Unavailable.

    A call is carried out in another thread: take the time and whatever else may change before it, not inside the
    lambda.
    """

    async def write(self, call: Callable[[ReviewTransactions], T]) -> T:
        """One call that may change something."""
        ...

    async def read(self, call: Callable[[ReviewTransactions], T]) -> T:
        """One call that changes nothing and does not wait for those that do."""
        ...

    def watch(self, nudge: Callable[[], None]) -> Callable[[], None]:
        """Call ``nudge`` in the event loop after every change by this process, until the returned function is called.
        Others': ``last_change``."""
        ...


ENDING: Final = 1.0  # seconds that closing waits for a call under way
# seconds without a single call ended, after which those in the queue give up; a call under way gives up earlier
STALLED: Final = 8.0


class _Lane:
    """One connection, and calls on it one after the other in worker threads.

    A burst of calls may take its time, as long as one after the other ends. Where one of them has waited for the file
    in vain, those that queued behind it do not wait as long again; where one does not end at all, they raise
    Unavailable.
    """

    def __init__(self, url: str) -> None:
        self.reviews = Reviews(url)
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


class KeptReviews:
    """The store of one URL. Made in the event loop that it serves; nothing is opened before the first call."""

    def __init__(self, url: str) -> None:
        self._writer = _Lane(url)
        self._reader = _Lane(url)
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
