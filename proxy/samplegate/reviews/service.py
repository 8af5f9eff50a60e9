"""The desk, the gate's side of reviews: opens them, waits for verdicts, holds each verdict until it is used, and counts
their outcomes.

A process holds verdicts by a lease that it renews; a killed process renews nothing, and the next identical request gets
the verdict.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final, Protocol, TypeAlias

import anyio
import msgspec

from samplegate.errors import Log, Unavailable
from samplegate.policy.schema import Stage
from samplegate.reviews.review import DECIDED, ENDED, Filter, Review, ReviewEvent
from samplegate.reviews.store import ReviewStore

Pause: TypeAlias = Callable[[asyncio.Event, float], Awaitable[None]]
"""Until the event is set or so many seconds are over."""


async def pause(event: asyncio.Event, seconds: float) -> None:
    """The real one."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


class Wakeups:
    """Events of all that wait; one call wakes them."""

    def __init__(self) -> None:
        self._events: set[asyncio.Event] = set()

    def __call__(self) -> None:
        for event in self._events:
            event.set()

    @contextmanager
    def woken(self) -> Iterator[asyncio.Event]:
        """An event that is set at every call while this lasts; whoever waits clears it."""
        event = asyncio.Event()
        self._events.add(event)
        try:
            yield event
        finally:
            self._events.discard(event)


MOST: Final = 100_000  # reviews whose end is still to be counted; what was asked before those is not


class Meters(Protocol):
    """Where numbers go: ``records.metrics.Metrics`` has this shape."""

    def count(self, name: str, amount: float = 1, /, **labels: object) -> None: ...
    def observe(self, name: str, value: float, /, **labels: object) -> None: ...
    def set(self, name: str, value: float, /, **labels: object) -> None: ...


class Counts:
    """Of one process."""

    def __init__(self, meters: Meters) -> None:
        self._meters = meters
        self._open: dict[str, tuple[str, float]] = {}
        self._seen: set[str] = set()

    @property
    def counting(self) -> bool:
        """Whether the end of any is still to be counted."""
        return bool(self._open)

    def opened(self, review: Review) -> None:
        """It was put before its reviewer."""
        self._open[review.id] = (review.reviewer, review.created)
        while len(self._open) > MOST:
            del self._open[next(iter(self._open))]

    def failed(self) -> None:
        """The store could not be asked."""
        self._meters.count("samplegate_review_store_failures_total")

    def waiting(self, pending: Mapping[str, tuple[int, float]], now: float) -> None:
        """How many wait in the store by reviewer, and when the oldest was opened. A reviewer once seen goes on being
        told of, with none."""
        self._seen.update(pending)
        for reviewer in self._seen:
            number, oldest = pending.get(reviewer, (0, now))
            self._meters.set("samplegate_reviews_pending", number, reviewer=reviewer)
            self._meters.set("samplegate_review_oldest_seconds", max(now - oldest, 0.0), reviewer=reviewer)

    def took(self, review: Review) -> None:
        """One of another process, or of before a restart, is ours now."""
        if review.state == "pending" and review.id not in self._open:
            self.opened(review)

    def happened(self, event: ReviewEvent) -> None:
        """Something was said of a review; what is not of ours is counted elsewhere."""
        if event.what not in ENDED or (found := self._open.pop(event.review, None)) is None:
            return
        reviewer, created = found
        self._meters.count("samplegate_reviews_total", reviewer=reviewer, door=event.door, outcome=event.what)
        if event.what in DECIDED:
            self._meters.observe("samplegate_review_duration_seconds", max(event.at - created, 0.0), reviewer=reviewer)


LEASE: Final = 10.0  # seconds after which a process that says nothing is taken for dead
POLL: Final = 0.5  # seconds between two looks at what other processes did, while somebody waits here
# seconds that taking a review back may take while its request is being cancelled: a little over the store's own
# patience
CLOSING: Final = 6.0
# leases between two looks for a verdict whose taker has died, once those of before a restart are over
RARELY: Final = 6
SELDOM: Final = 5.0  # the same while nobody waits, and only ends are to be counted
PAGE: Final = 200  # reviews that are read at once
MANY: Final = 1000  # events that are read at once


class ReviewService:
    """The reviews of one process. ``run`` must be running beside whoever asks."""

    def __init__(
        self,
        open_store: Callable[[], ReviewStore],
        *,
        wall: Callable[[], float],
        clock: Callable[[], float],
        random: Callable[[int], bytes],
        log: Log,
        counts: Counts,
        most: int,
    ) -> None:
        self._open_store = open_store
        self._wall = wall
        self._clock = clock
        self._random = random
        self._log = log
        self._counts = counts
        self._most = most
        self._store: ReviewStore | None = None
        self._bells: dict[str, anyio.Event] = {}
        self._process = ""
        self._waiters: set[str] = set()
        self._gone: dict[str, tuple[str, Callable[[], str | None]]] = {}
        """What is waited for: its waiter, and why the policy in force does not ask for it any more."""
        self._stirred = anyio.Event()
        self._seen: int | None = None
        self._ending = False

    @property
    def store(self) -> ReviewStore:
        """The store, opened by whoever needs it first. Raises Unavailable."""
        if self._store is None:
            self._store = self._open_store()
            self._store.watch(self._stir)
        return self._store

    # -- the gate's port
    # ------------------------------------------------------------------------------------------------------------------

    async def find(self, lookup: str, *, stage: Stage, until: float | None = 0.0, own: str = "") -> Review | None:
        """A verdict on the same that was given before, or a review of the same that nobody waits for."""
        waiter = self._name()
        if self._seen is None or not (self._waiters or self._counts.counting):
            self._seen = await self.store.read(lambda store: store.last_change())
        now = self._wall()
        found = await self.store.write(
            lambda store: store.seek(lookup, stage=stage, waiter=waiter, now=now, seconds=LEASE, until=until, own=own)
        )
        if found is not None:
            self._hold(waiter)
            self._counts.took(found)
        return found

    async def open(self, review: Review, *, announce: bool) -> Review:
        """Put a new one before its reviewer."""
        waiter, now = self._name(), self._wall()
        fresh = msgspec.structs.replace(
            review, id=f"rv_{self._random(12).hex()}", waiter=waiter, held_until=now + LEASE
        )
        if not await self.store.write(lambda store: store.open(fresh, announce=announce, most=self._most)):
            raise Unavailable(f"reviews: {self._most} wait already; decide some, or raise max_pending_reviews")
        self._hold(waiter)
        self._counts.opened(fresh)
        self._log.info(
            "review.opened", review=fresh.id, reviewer=fresh.reviewer, rule=fresh.rule, decision_id=fresh.decision_id
        )
        return fresh

    async def wait(
        self, review: Review, seconds: float, *, comes_back: bool = False, gone: Callable[[], str | None] = lambda: None
    ) -> Review:
        """Until it is decided or over, at most so long. Cancelled: it is taken back, unless the process ends.

        ``comes_back``: the server or its client asks again later, so the end of the process is not delayed. ``gone``:
        see ``reloaded``.
        """
        assert review.waiter is not None
        self._gone[review.id] = (review.waiter, gone)
        until = self._clock() + min(seconds, review.expires - self._wall())  # whatever becomes of the clock on the wall
        try:
            found = await self._waited(review, review.waiter, until, comes_back)
        except BaseException:  # cancelled: whoever asked has no use for a verdict now
            with anyio.move_on_after(CLOSING, shield=True):
                await self._take_back(review)
            raise
        finally:
            self._bells.pop(review.id, None)
            self._gone.pop(review.id, None)
        if found.waiter != review.waiter:  # it is over, or somebody else's
            self._waiters.discard(review.waiter)
        return found

    async def use(self, spent: Sequence[tuple[Review, str]]) -> bool:
        """These verdicts are about to be released, all or none. Whatever comes of it, they are ours no more: a lease
        that is left runs out."""
        uses, now = [(review.id, review.waiter or "", decision_id) for review, decision_id in spent], self._wall()
        try:
            return await self.store.write(lambda store: store.use(uses, now=now))
        finally:
            self._waiters.difference_update(waiter for _, waiter, _ in uses)

    async def give_back(self, review: Review) -> None:
        """Whatever was said stays for the next same request."""
        waiter = review.waiter or ""
        self._waiters.discard(waiter)
        with anyio.move_on_after(CLOSING, shield=True):
            try:
                await self._leave(review.id, waiter)
            except Unavailable as problem:  # the lease runs out by itself
                self._log.warning("review.not_left", review=review.id, problem=str(problem))
            except Exception:
                self._log.error("review.not_left", review=review.id, exc_info=True)

    async def reloaded(self, gone: Callable[[Review], str | None]) -> None:
        """Withdraw what the policy in force does not ask for any more, so that every door refuses a verdict on it.
        Raises Unavailable.

        ``gone`` is asked of pending reviews that no request waits for. What another process waits for is left to that
        process.
        """
        if self._store is None and not self._waiters:
            return
        for id, (waiter, why) in list(self._gone.items()):
            if (reason := why()) is not None:
                await self._withdraw(id, waiter, reason)
        for review in await self._unheld():
            if (reason := gone(review)) is not None:
                await self._withdraw(review.id, review.waiter or "", reason)

    async def _leave(self, id: str, waiter: str) -> None:
        now = self._wall()
        await self.store.write(lambda store: store.leave(id, waiter=waiter, now=now))

    async def _withdraw(self, id: str, waiter: str, why: str) -> None:
        now = self._wall()
        await self.store.write(lambda store: store.withdraw(id, waiter=waiter, now=now, why=why))

    async def _unheld(self) -> list[Review]:
        """The pending reviews that no request waits for."""
        now, wanted, found = self._wall(), Filter(states=("pending",), limit=PAGE), list[Review]()
        while some := await self._listed(wanted):
            found += [review for review in some if review.waiter is None or now >= review.held_until]
            if len(some) < PAGE:
                break
            wanted = msgspec.structs.replace(wanted, before=some[-1].id)
        return found

    async def _listed(self, wanted: Filter) -> Sequence[Review]:
        return await self.store.read(lambda store: store.list(wanted))

    def end(self) -> None:
        """The process ends: what still waits is left to the next one, not taken back."""
        self._ending = True
        for bell in self._bells.values():
            bell.set()

    # -- waiting
    # ------------------------------------------------------------------------------------------------------------------

    async def _waited(self, review: Review, waiter: str, until: float, comes_back: bool) -> Review:
        older, looks = False, 0
        while True:
            bell = self._bells[review.id] = anyio.Event()
            rest = until - self._clock()
            last = rest <= 0 or (comes_back and self._ending)
            try:
                ended = await self._ended(review, waiter, older=older, last=last)
            # for a moment, it may be: whoever waits goes on waiting, and a verdict that is there by then still counts
            except Unavailable:
                ended = review if last else None
            if ended is not None:
                return ended
            with anyio.move_on_after(min(rest, LEASE if looks < 2 else RARELY * LEASE)) as slept:
                await bell.wait()
            older = slept.cancelled_caught
            looks += older

    async def _ended(self, review: Review, waiter: str, *, older: bool, last: bool) -> Review | None:
        """What it came to; None as long as it is waited for."""
        if older and (other := await self._older(review, waiter)) is not None:
            return other
        found = await self.store.read(lambda store: store.get(review.id))
        if found is None or found.state != "pending":
            return review if found is None else await self._over(found, waiter)
        return await self._expired(found) if last else None

    async def _expired(self, found: Review) -> Review:
        """It still waits for a verdict, or its own time is over too."""
        now = self._wall()
        if now < found.expires:
            return found
        await self.store.write(lambda store: store.expire(now))
        return await self.store.read(lambda store: store.get(found.id)) or found

    async def _over(self, found: Review, waiter: str) -> Review:
        """It left ``pending``: a verdict that is not ours to take any more is as good as taken back."""
        if found.state in DECIDED and (found.waiter != waiter or found.used_by is not None):
            return msgspec.structs.replace(found, state="withdrawn", verdict=None, waiter=None, held_until=0.0)
        return found

    async def _older(self, review: Review, waiter: str) -> Review | None:
        """A verdict on the same whose taker has died meanwhile; ours is then taken back."""
        now = self._wall()
        if not await self.store.read(
            lambda store: store.ready(review.lookup, stage=review.stage, waiter=waiter, now=now)
        ):
            return None
        now = self._wall()
        found = await self.store.write(
            lambda store: store.seek(review.lookup, stage=review.stage, waiter=waiter, now=now, seconds=LEASE)
        )
        if found is None or found.id == review.id:
            return None
        if found.state not in DECIDED:
            await self._leave(found.id, waiter)
            return None
        await self._withdraw(review.id, waiter, f"the verdict on {found.id} answers it")
        return found

    async def _take_back(self, review: Review) -> None:
        waiter = review.waiter or ""
        self._waiters.discard(waiter)
        try:
            if self._ending:
                await self._leave(review.id, waiter)
            else:
                await self._withdraw(review.id, waiter, "whoever asked took it back")
        except Unavailable as problem:
            self._log.warning("review.not_withdrawn", review=review.id, problem=str(problem))

    def _name(self) -> str:
        self._process = self._process or self._random(16).hex()
        return self._process + self._random(12).hex()

    def _hold(self, waiter: str) -> None:
        self._waiters.add(waiter)
        self._stir()

    # -- beside
    # ------------------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Renew what is held, and wake those for whom something has happened, also in other processes. Until
        cancelled."""
        renewed, failing = float("-inf"), False
        while True:
            if not (self._waiters or self._counts.counting):
                await self._stirred.wait()
            try:
                if self._waiters and self._clock() - renewed >= LEASE / 3:
                    renewed = self._clock()
                    await self._renew(sorted(self._waiters), self._wall())
                await self._look()
                failing = False
            except Unavailable as problem:
                self._counts.failed()
                if not failing:  # it is told once, not twice a second
                    self._log.warning("review.store_failed", problem=str(problem))
                failing = True
            except Exception:  # nobody else would renew anything again
                self._log.error("review.failed", exc_info=True)
            with anyio.move_on_after(POLL if self._waiters else SELDOM):
                await self._stirred.wait()
            self._stirred = anyio.Event()

    async def _renew(self, waiters: Sequence[str], now: float) -> None:
        await self.store.write(lambda store: store.renew(waiters, now=now, seconds=LEASE))

    async def _look(self) -> None:
        newest = await self.store.read(lambda store: store.last_change())
        if self._seen is None or newest == self._seen:
            return
        self._seen = min(self._seen, newest)  # another file has taken the store's place: its numbers begin again
        after = self._seen
        for event in await self.store.read(lambda store: store.changes(after, MANY)):
            self._seen = event.number
            self._happened(event)

    def _happened(self, event: ReviewEvent) -> None:
        self._counts.happened(event)
        bell = self._bells.get(event.review)
        if bell is not None:
            bell.set()

    def _stir(self) -> None:
        self._stirred.set()
