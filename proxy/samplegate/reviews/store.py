"""The store of reviews as its users see it: transactions that are the same in SQL and in a fake, and their calls from
the event loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from samplegate.policy.schema import Stage
from samplegate.reviews.review import Conflict, Delivery, Door, Filter, Review, ReviewEvent, Verdict

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

    def history(self, id: str) -> Sequence[ReviewEvent]:
        """The events of one review, in order."""
        ...

    def last_change(self) -> int:
        """The number of the newest event, 0 for none: a cheap way to see whether anything has changed."""
        ...

    def changes(self, after: int, limit: int) -> Sequence[ReviewEvent]:
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
