"""The interface of the review store: its transactions, and their asynchronous access from the event loop.

SQL and the tests' fakes implement the same transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol, TypeVar

from samplegate.policy.schema import Stage
from samplegate.reviews.review import (
    Conflict,
    Delivery,
    Door,
    Filter,
    Review,
    ReviewEvent,
    ReviewUi,
    Verdict,
    VoteRefused,
)

T = TypeVar("T")


class ReviewTransactions(Protocol):
    """The transactions of a review store, which all processes with the same store share.

    Each method is one transaction and may raise Unavailable.

    A transaction reads the store's own clock when it has its locks, because the clocks of its processes may differ.
    Times of reviews are by that clock, in Unix seconds; callers pass spans. Transactions that change reviews take
    effect one after the other, in the order of their events' numbers.

    A waiter is the name of one wait in one process; its first 32 hexadecimal digits identify the process. The lease of
    a waiter ends at ``held_until`` or with its process. Others may then use its verdict.
    """

    def seek(
        self,
        lookup: str,
        *,
        stage: Stage,
        waiter: str,
        seconds: float,
        gives_up: float | None = 0.0,
        own: str = "",
    ) -> Review | None:
        """Lease to this waiter the oldest verdict that it may use, else the oldest pending review that it may wait for.

        None if there is neither.

        ``gives_up``: seconds until the caller of the request gives up, which a pending review then shows; None: not
        before the review expires.

        ``own``: the review that the request waited for before it was put off; its verdict is never too late for this
        request.
        """
        ...

    def open(self, review: Review, *, announce: bool, most: int, also: Sequence[str] = ()) -> Review | None:
        """Store a new review with the store's time as its creation; its other times move with it. None if ``most``
        reviews are already pending.

        ``announce``: also put the review's first delivery into the outbox. ``also``: those of ``review.also`` who get
        one, which is due at ``review.also_from``, and cancelled if the review ends before.
        """
        ...

    def renew(self, waiters: Sequence[str], *, seconds: float) -> None:
        """Extend the leases of these waiters to ``seconds`` from now."""
        ...

    def leave(self, id: str, *, waiter: str) -> None:
        """Release the waiter's lease; the review and its verdict stay."""
        ...

    def withdraw(self, id: str, *, waiter: str, why: str) -> bool:
        """Withdraw a pending review. For any other review, only release the waiter's lease."""
        ...

    def use(self, uses: Sequence[tuple[str, str, str]]) -> bool:
        """Mark the verdicts of these (review, waiter, decision_id) as used, all or none. A verdict can be used once.

        The same uses again change nothing and are True, so a caller that does not know the outcome may repeat the
        call.
        """
        ...

    def ready(self, lookup: str, *, stage: Stage, waiter: str) -> bool:
        """Whether there is a verdict that this waiter may use. Cheap and read-only."""
        ...

    def decide(
        self,
        id: str,
        verdict: Verdict,
        *,
        who: str,
        door: Door,
        seen: str | None = None,
        callers: Collection[str] = (),
        subject: str = "",
    ) -> Review | Conflict | VoteRefused | None:
        """Record a verdict, or a vote: the review is then still pending. None if there is no such review. A verdict
        after the deadline leaves the review expired.

        ``seen``: the digest of the version that was decided on; None: the request without edits. ``callers`` and
        ``subject``: see ``votes.voted``.
        """
        ...

    def attach_ui(self, id: str, ui: ReviewUi, body: bytes) -> Review | None:
        """Add the server's UI that was read for a pending review, or the reason why it could not be.

        None if nothing changed: there is no such review, it has ended, it shows no UI, or it has one. Raises ValueError
        if ``ui`` does not describe ``body``, or for more than ``review.MAX_UI`` bytes.
        """
        ...

    def ui_body(self, id: str) -> bytes | None:
        """The bytes of the server's UI, also after the review's end; None if there are none."""
        ...

    def open_ui(self, id: str, sha256: str, *, token: str, until: float) -> bytes | None:
        """The bytes of a UI that can be shown now (``review.ready_ui``), once for each ``token``, whichever process is
        asked. None for another hash, a token that was used, or after ``until``, when tokens expire."""
        ...

    def expire(self) -> Sequence[Review]:
        """Mark pending reviews as ``expired`` if their deadline has passed, and return them."""
        ...

    def purge(self, keep: float) -> int:
        """Delete reviews that ended more than ``keep`` seconds ago, with their history, UIs and deliveries.

        Return their number."""
        ...

    def key(self) -> bytes:
        """The store's key: 32 random bytes, with which its processes sign."""
        ...

    def get(self, id: str) -> Review | None: ...
    def list(self, filter: Filter) -> Sequence[Review]:
        """A page of reviews, newest first unless the filter has ``oldest_first``."""
        ...

    def history(self, id: str) -> Sequence[ReviewEvent]:
        """The events of one review, in order."""
        ...

    def last_change(self) -> int:
        """The number of the newest event, 0 if there is none: a cheap check for changes."""
        ...

    def changes(self, after: int, limit: int) -> Sequence[ReviewEvent]:
        """At most ``limit`` events with a number above ``after``, in order."""
        ...

    def pending(self) -> Mapping[str, tuple[int, float]]:
        """By reviewer: how many reviews are pending, and when the oldest was created."""
        ...

    def end_session(self, id: str, *, token: str, until: float) -> None:
        """End a session of the page before it expires (``until``). ``token`` is the hash of its token."""

    def ended_sessions(self) -> Sequence[tuple[str, str, float]]:
        """Sessions that were ended and have not expired: ID, token and expiry. The last ones, if there are many."""
        ...

    def failed_sign_in(self, buckets: Mapping[str, tuple[float, float]]) -> float:
        """Count a wrong token on each of these buckets (burst, and rate per second), unless one of them has no room.
        Returns the seconds to wait, 0 if it was counted."""
        ...

    def lead(self, roles: Sequence[str], *, holder: str, seconds: float) -> Sequence[str]:
        """Take or renew the lease of these roles: one process at a time delivers to a reviewer, and one expires
        reviews. Returns the roles that ``holder`` has now. In a store of one machine, every process has them all."""
        ...

    def resign(self, *, holder: str) -> None:
        """End the leases of ``holder``."""

    def take_deliveries(
        self, reviewers: Sequence[str], *, taker: str, seconds: float, limit: int
    ) -> Sequence[Delivery]:
        """Lease to the taker the deliveries to these reviewers that are due and free."""
        ...

    def hold_delivery(self, delivery: Delivery, *, seconds: float) -> bool:
        """Extend the taker's lease on a delivery, without an event. False if another taker has it now."""
        ...

    def delivered(self, delivery: Delivery, *, said: str) -> None: ...
    def postpone(self, delivery: Delivery, *, wait: float, said: str) -> None:
        """Repeat the delivery in ``wait`` seconds."""
        ...

    def give_up(self, delivery: Delivery, *, said: str) -> None: ...


class ReviewStore(Protocol):
    """Asynchronous access to a review store: ``await store.write(lambda reviews: reviews.decide(...))``.

    Raises Unavailable. A call runs in another thread: read anything that may change before the call, not inside the
    lambda.
    """

    def wall(self) -> float:
        """The store's time now, in Unix seconds, to compare with times of reviews. Does not block."""
        ...

    async def write(self, call: Callable[[ReviewTransactions], T]) -> T:
        """Run a call that may change something."""
        ...

    async def read(self, call: Callable[[ReviewTransactions], T]) -> T:
        """Run a read-only call, which does not wait for writes."""
        ...

    def watch(self, nudge: Callable[[], None]) -> Callable[[], None]:
        """Call ``nudge`` in the event loop after every change by this process, until the returned function is called.

        For changes by other processes, poll ``last_change``.
        """
        ...
