"""The ports through which the gate reaches the world: each a plain callable, so that a fake is a few lines. And the
thread for what is long."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, ParamSpec, Protocol, TypeVar

import msgspec

from samplegate.audit.record import Record
from samplegate.policy.decide import Rulebook
from samplegate.policy.ledger import Draw, Refused, Reserved
from samplegate.policy.prompt import SampleRequest, SampleResult
from samplegate.protocol.rounds import Note, Reply, Round
from samplegate.reviews.review import Conflict, Delivery, Door, Event, Filter, Review, Stage, Verdict

P = ParamSpec("P")
T = TypeVar("T")


class Unavailable(Exception):
    """An edge could not work: the log cannot be written, the worker cannot be started. The message is for the
    operator."""


class Log(Protocol):
    """Where events go: structlog's bound logger has this shape."""

    def debug(self, event: str, **fields: object) -> object: ...
    def warning(self, event: str, **fields: object) -> object: ...
    def info(self, event: str, **fields: object) -> object: ...
    def error(self, event: str, **fields: object) -> object: ...


class Ports(msgspec.Struct, frozen=True):
    """What the gate needs of the world; each a plain callable, so that a fake is a few lines."""

    sample: Callable[[SampleRequest, Callable[[int], None]], Awaitable[SampleResult]]
    """Ask one model once. The second argument is told, from the first token on and some times a second at most, how
    many have come."""
    reserve: Callable[[Sequence[Draw], float | None], Awaitable[Reserved | Refused]]
    """Charge all of the draws or none. With seconds given it waits that long for room, first come first served; it
    never raises."""
    settle: Callable[[Reserved, Sequence[Draw]], Awaitable[None]]
    """Correct a reservation to what was really drawn (a missing draw: nothing) and free its slots. Never raises: what
    fails stays at worst case."""
    progress: Callable[[str, int], None]
    """A round's model has written so many tokens: tell the peers that gave a progress token."""
    ask_client: Callable[[Round], Awaitable[Reply]]
    """Forward a pushed request; ends with the client's reply, or is cancelled."""
    record: Callable[[Record], Awaitable[None]]
    """Raises Unavailable where the record could not be made durable."""
    note: Callable[[Note], None]
    """Something for the log and the counters: never content."""
    clock: Callable[[], float]
    """Monotonic seconds, the same as the session is told."""
    wall: Callable[[], float]
    """Unix seconds."""
    random: Callable[[int], bytes]
    log: Log
    in_force: Callable[[], Rulebook] | None = None
    """The policy in force by now; a round runs under the one it began with."""
    realm: str = ""
    """What tells apart servers of one name that share a store, as wrapped ones do that nobody named."""
    reviews: Reviews | None = None
    """Where there is no store for reviews: None, and what is escalated stays Unanswered."""


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


class Reviews(Protocol):
    """The gate's port to the people: asks one and waits. A review that it returns is held for us until it is used or
    given back."""

    async def find(self, lookup: str, *, stage: Stage, until: float | None = 0.0, own: str = "") -> Review | None:
        """A verdict that was given for the same before, or a review of the same that still waits and nobody waits for.
        Raises Unavailable.

        ``until``: when whoever asks now gives up (unix seconds); None: not before the review is over. ``own``: as in
        ``ReviewTransactions.seek``.
        """
        ...

    async def open(self, review: Review, *, announce: bool) -> Review:
        """Ask a person; the review with its id and times. ``announce``: there is a webhook or a command. Raises
        Unavailable."""
        ...

    async def wait(
        self, review: Review, seconds: float, *, comes_back: bool = False, gone: Callable[[], str | None] = lambda: None
    ) -> Review:
        """Until there is a verdict or the review is over, at most so long; how it stands then. Raises Unavailable.
        Cancelled: it is withdrawn.

        ``comes_back``: the server or its client asks again later, so the end of the process is not delayed. ``gone``:
        why the policy in force does not ask for the review any more, None while it does; it is asked after each reload.
        """
        ...

    async def use(self, spent: Sequence[tuple[Review, str]]) -> bool:
        """The verdicts of these are about to be released under these decision_ids, all or none: True at most once ever.
        Raises Unavailable."""
        ...

    async def give_back(self, review: Review) -> None:
        """We do not wait any more, or did not use the verdict: the next same request may. Never raises."""
        ...


IN_PLACE: Final = 64 * 1024
"""Bytes of input up to which a computation takes some milliseconds, less than a busy machine may take to switch
threads."""


async def offload(size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The function's result; ``size`` is how many bytes of a peer's it reads. A cancellation waits for the thread, so
    nothing is half done."""
    if size <= IN_PLACE:
        return function(*args, **kwargs)
    from anyio import to_thread  # here: commands import this module for the errors alone

    return await to_thread.run_sync(lambda: function(*args, **kwargs))
