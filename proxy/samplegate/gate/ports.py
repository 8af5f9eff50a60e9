"""The ports through which the gate reaches the world: each a plain callable, so that a fake is a few lines. And the
thread for what is long."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, ParamSpec, Protocol, TypeVar

import msgspec

from samplegate.audit.record import Record
from samplegate.errors import Log
from samplegate.policy.decide import CompiledPolicy
from samplegate.policy.ledger import Draw, Refused, Reserved
from samplegate.policy.prompt import SampleRequest, SampleResult
from samplegate.policy.schema import Stage
from samplegate.protocol.rounds import ClientReply, Note, Round
from samplegate.reviews.review import Review

P = ParamSpec("P")
T = TypeVar("T")


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
    ask_client: Callable[[Round], Awaitable[ClientReply]]
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
    in_force: Callable[[], CompiledPolicy] | None = None
    """The policy in force by now; a round runs under the one it began with."""
    realm: str = ""
    """What tells apart servers of one name that share a store, as wrapped ones do that nobody named."""
    reviews: ReviewPort | None = None
    """Where there is no store for reviews: None, and what is escalated stays Unanswered."""


class ReviewPort(Protocol):
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
