"""The ports through which the gate reaches the world: each a plain callable, so that a fake is a few lines. No behaviour."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from samplegate.core.decide import Rulebook
from samplegate.core.ledger import Draw, Refused, Reserved
from samplegate.core.record import Record
from samplegate.core.review.review import Delivery, Door, Event, Filter, Review, Stage, Verdict
from samplegate.core.review.states import Conflict
from samplegate.core.samples import SampleRequest, SampleResult
from samplegate.core.session.rounds import Note, Reply, Round


class Unavailable(Exception):
    """An edge could not work: the log cannot be written, the worker cannot be started. The message is for the operator."""


class Log(Protocol):
    """Where events go: structlog's bound logger has this shape."""

    def warning(self, event: str, **fields: object) -> object: ...
    def info(self, event: str, **fields: object) -> object: ...
    def error(self, event: str, **fields: object) -> object: ...


class Ports(msgspec.Struct, frozen=True):
    """What the gate needs of the world; each a plain callable, so that a fake is a few lines."""

    sample: Callable[[SampleRequest, Callable[[int], None]], Awaitable[SampleResult]]
    """Ask one model once. The second argument is told, from the first token on and some times a second at most, how many have come."""
    reserve: Callable[[Sequence[Draw], float | None], Awaitable[Reserved | Refused]]
    """Charge all of the draws or none. With seconds given it waits that long for room, first come first served; it never raises."""
    settle: Callable[[Reserved, Sequence[Draw]], Awaitable[None]]
    """Correct a reservation to what was really drawn (a missing draw: nothing) and free its slots. Never raises: what fails stays at worst case."""
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


class ReviewStore(Protocol):
    """Where reviews are kept, shared by all processes that name the same store. Each call is one transaction; all raise Unavailable.

    ``now`` is unix seconds. A waiter is a name of one wait in one process; its first 32 hexadecimal digits are the process's. What it holds is free
    again when ``held_until`` is over, or once its process has ended.
    """

    async def seek(
        self, lookup: str, *, stage: Stage, waiter: str, now: float, seconds: float, until: float | None = 0.0, own: str = ""
    ) -> Review | None:
        """The oldest verdict that this waiter may take, else the oldest pending review that it may wait for, held for it from here on; else None.

        ``until``: when whoever asks now gives up, which a pending review then says too; None: not before the review is over.
        ``own``: the review that the request waited for before it was put off; its verdict is never late for it.
        """
        ...

    async def open(self, review: Review, *, announce: bool, most: int) -> bool:
        """Keep a new one. ``announce``: put its first delivery into the outbox. False where ``most`` are pending already."""
        ...

    async def renew(self, waiters: Sequence[str], *, now: float, seconds: float) -> None:
        """These waiters are there: what they hold is theirs for so long again."""
        ...

    async def leave(self, id: str, *, waiter: str, now: float) -> None:
        """The waiter goes; review and verdict stay."""
        ...

    async def withdraw(self, id: str, *, waiter: str, now: float, why: str) -> bool:
        """Take it back while it is pending; else only leave it."""
        ...

    async def use(self, id: str, *, waiter: str, decision_id: str, now: float) -> bool:
        """The verdict is released by this waiter: once, or False."""
        ...

    async def use_all(self, uses: Sequence[tuple[str, str, str]], *, now: float) -> bool:
        """The verdicts of these (review, waiter, decision_id) are released, all of them or none."""
        ...

    async def ready(self, lookup: str, *, stage: Stage, waiter: str, now: float) -> bool:
        """Whether there is a verdict that this waiter may take. Changes nothing, and costs little."""
        ...

    async def decide(self, id: str, verdict: Verdict, *, who: str, door: Door, now: float) -> Review | Conflict | None:
        """Give a verdict; None where there is no such review."""
        ...

    def watch(self, nudge: Callable[[], None]) -> Callable[[], None]:
        """Be told in the event loop of every change that this process makes; what is returned ends it. Others' changes: ``last_change``."""
        ...

    async def key(self) -> bytes:
        """32 random bytes, made with the store: for what its processes sign."""
        ...

    async def get(self, id: str) -> Review | None: ...
    async def list(self, filter: Filter) -> Sequence[Review]: ...
    async def history(self, id: str) -> Sequence[Event]: ...
    async def last_change(self) -> int:
        """The number of the newest event, 0 for none: a cheap look whether anything has happened."""
        ...

    async def changes(self, after: int, limit: int) -> Sequence[Event]:
        """Events with a higher number, in order."""
        ...

    async def expire(self, now: float) -> Sequence[Review]:
        """Those whose time is over become ``expired``; which."""
        ...

    async def pending(self) -> Mapping[str, tuple[int, float]]:
        """By reviewer: how many are pending, and when the oldest was created."""
        ...

    async def purge(self, before: float) -> int:
        """Forget those that ended before; how many."""
        ...

    async def take_deliveries(self, reviewers: Sequence[str], *, taker: str, now: float, seconds: float, limit: int) -> Sequence[Delivery]:
        """Deliveries to these reviewers that are due and nobody's, held for the taker."""
        ...

    async def hold_delivery(self, delivery: Delivery, *, now: float, seconds: float) -> bool:
        """Its taker is still at it, for so long again; False: it is not this taker's any more. No event."""
        ...

    async def delivered(self, delivery: Delivery, *, said: str, now: float) -> None: ...
    async def postpone(self, delivery: Delivery, *, due: float, said: str, now: float) -> None: ...
    async def give_up(self, delivery: Delivery, *, said: str, now: float) -> None: ...


class Reviews(Protocol):
    """The gate's port to the people: asks one and waits. A review that it returns is held for us until it is used or given back."""

    async def find(self, lookup: str, *, stage: Stage, until: float | None = 0.0, own: str = "") -> Review | None:
        """A verdict that was given for the same before, or a review of the same that still waits and nobody waits for. Raises Unavailable.

        ``until``: when whoever asks now gives up (unix seconds); None: not before the review is over. ``own``: as in ``ReviewStore.seek``.
        """
        ...

    async def open(self, review: Review, *, announce: bool) -> Review:
        """Ask a person; the review with its id and times. ``announce``: there is a webhook or a command. Raises Unavailable."""
        ...

    async def wait(self, review: Review, seconds: float, *, comes_back: bool = False, gone: Callable[[], str | None] = lambda: None) -> Review:
        """Until there is a verdict or the review is over, at most so long; how it stands then. Raises Unavailable. Cancelled: it is withdrawn.

        ``comes_back``: the server or its client asks again later, so the end of the process is not delayed. ``gone``: why the policy in force does
        not ask for the review any more, None while it does; it is asked after each reload.
        """
        ...

    async def use(self, spent: Sequence[tuple[Review, str]]) -> bool:
        """The verdicts of these are about to be released under these decision_ids, all or none: True at most once ever. Raises Unavailable."""
        ...

    async def give_back(self, review: Review) -> None:
        """We do not wait any more, or did not use the verdict: the next same request may. Never raises."""
        ...
