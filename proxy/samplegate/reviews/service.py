"""The review service of one process: opens reviews, waits for verdicts, and leases each verdict until it is used.

It also counts outcomes. The process renews its leases. A killed process renews none, so the next identical request gets
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
from samplegate.reviews.review import DECIDED, ENDED, Filter, Review, ReviewEvent, ReviewUi, opened
from samplegate.reviews.store import ReviewStore

Pause: TypeAlias = Callable[[asyncio.Event, float], Awaitable[None]]
"""Wait until the event is set or so many seconds have passed."""


async def pause(event: asyncio.Event, seconds: float) -> None:
    """Wait on the real clock."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


class Wakeups:
    """Events of all waiters; one call sets them all."""

    def __init__(self) -> None:
        self._events: set[asyncio.Event] = set()

    def __call__(self) -> None:
        for event in self._events:
            event.set()

    @contextmanager
    def woken(self) -> Iterator[asyncio.Event]:
        """An event that every call sets while the context lasts. The waiter clears it."""
        event = asyncio.Event()
        self._events.add(event)
        try:
            yield event
        finally:
            self._events.discard(event)


MAX_OPEN: Final = 100_000  # open reviews that are remembered to count their end; the oldest are dropped


class Meters(Protocol):
    """Where metrics are reported; ``telemetry.metrics.Metrics`` has this shape."""

    def count(self, name: str, amount: float = 1, /, **labels: object) -> None: ...
    def observe(self, name: str, value: float, /, **labels: object) -> None: ...
    def set(self, name: str, value: float, /, **labels: object) -> None: ...


class Counts:
    """The review metrics of one process."""

    def __init__(self, meters: Meters) -> None:
        self._meters = meters
        self._open: dict[str, tuple[str, float]] = {}
        self._seen: set[str] = set()

    @property
    def counting(self) -> bool:
        """Whether the end of any review is still to be counted."""
        return bool(self._open)

    def opened(self, review: Review) -> None:
        """Remember a new pending review."""
        self._open[review.id] = (review.reviewer, review.created)
        while len(self._open) > MAX_OPEN:
            del self._open[next(iter(self._open))]

    def failed(self) -> None:
        """Count a failure of the store."""
        self._meters.count("samplegate_review_store_failures_total")

    def waiting(self, pending: Mapping[str, tuple[int, float]], now: float) -> None:
        """Set the gauges of pending reviews and of the oldest one's age, by reviewer.

        A reviewer that was seen once keeps its gauges, at 0 if none is pending.
        """
        self._seen.update(pending)
        for reviewer in self._seen:
            number, oldest = pending.get(reviewer, (0, now))
            self._meters.set("samplegate_reviews_pending", number, reviewer=reviewer)
            self._meters.set("samplegate_review_oldest_seconds", max(now - oldest, 0.0), reviewer=reviewer)

    def joined(self, review: Review) -> None:
        """Remember a pending review of another process or an earlier run, now that this process waits for it."""
        if review.state == "pending" and review.id not in self._open:
            self.opened(review)

    def count_end(self, event: ReviewEvent) -> None:
        """Count the end of a review. The end of other processes' reviews is counted there."""
        if event.what not in ENDED or (found := self._open.pop(event.review, None)) is None:
            return
        reviewer, created = found
        self._meters.count("samplegate_reviews_total", reviewer=reviewer, door=event.door, outcome=event.what)
        if event.what in DECIDED:
            self._meters.observe("samplegate_review_duration_seconds", max(event.at - created, 0.0), reviewer=reviewer)


LEASE: Final = 10.0  # seconds without a renewal after which a process counts as dead
POLL: Final = 0.5  # seconds between two checks for other processes' changes, while a request waits here
# seconds that a withdrawal may take while its request is being cancelled: a little more than the store's own timeout
WITHDRAW_TIMEOUT: Final = 6.0
# leases between two checks for a verdict whose waiter has died, after the first two checks (which find those of before
# a restart)
LEASES_BETWEEN_CHECKS: Final = 6
IDLE_POLL: Final = 5.0  # seconds between two checks while no request waits and only ends are to be counted
PAGE: Final = 200  # reviews per query
EVENT_PAGE: Final = 1000  # events per query


class ReviewService:
    """The gate's port to reviews, for one process. ``run`` must be running beside the callers."""

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
        url: str | None = None,
    ) -> None:
        """``url``: the base URL of the page, for the log."""
        self._open_store = open_store
        self._url = url
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
        """By review: the waiter, and a function that returns why the current policy no longer asks for the review."""
        self._wakeup = anyio.Event()
        self._seen: int | None = None
        self._ending = False

    @property
    def store(self) -> ReviewStore:
        """The store, opened at first use. Raises Unavailable."""
        if self._store is None:
            self._store = self._open_store()
            self._store.watch(self._wake)
        return self._store

    # -- the gate's port
    # ------------------------------------------------------------------------------------------------------------------

    async def find(self, lookup: str, *, stage: Stage, until: float | None = 0.0, own: str = "") -> Review | None:
        """Lease an earlier verdict on the same request, or a pending review of it that has no waiter."""
        waiter = self._name()
        if self._seen is None or not (self._waiters or self._counts.counting):
            self._seen = await self.store.read(lambda store: store.last_change())
        gives_up = None if until is None else max(until - self._wall(), 0.0)
        found = await self.store.write(
            lambda store: store.seek(lookup, stage=stage, waiter=waiter, seconds=LEASE, gives_up=gives_up, own=own)
        )
        if found is not None:
            self._hold(waiter)
            self._counts.joined(found)
        return found

    async def open(self, review: Review, *, announce: bool, also: Sequence[str] = ()) -> Review:
        """Store a new review and lease it. Raises Unavailable if too many are pending."""
        waiter = self._name()
        now = self._wall()
        draft = msgspec.structs.replace(
            opened(review, now),
            id=f"rv_{self._random(12).hex()}",
            waiter=waiter,
            held_until=now + LEASE,
            answers_until=review.answers_until,  # however long the request has waited for its turn
        )
        fresh = await self.store.write(lambda store: store.open(draft, announce=announce, most=self._most, also=also))
        if fresh is None:
            raise Unavailable(f"{self._most} reviews are already pending; decide some, or raise max_pending_reviews")
        self._hold(waiter)
        self._counts.opened(fresh)
        page = {} if self._url is None else {"page": f"{self._url}/reviews/{fresh.id}"}
        self._log.info(
            "review.opened",
            review=fresh.id,
            reviewer=fresh.reviewer,
            rule=fresh.rule,
            decision_id=fresh.decision_id,
            **page,
        )
        return fresh

    async def show_ui(self, review: Review, ui: ReviewUi, body: bytes, kept_by: str = "") -> Review | None:
        """Add the server's UI, ready or failed, to a review that is still pending; None if it has ended meanwhile.

        ``kept_by``: another review that has the bytes. Raises Unavailable. See ``ReviewTransactions.attach_ui``.
        """
        if kept_by:
            kept = await self.store.read(lambda store: store.ui_body(kept_by))
            if kept is None:
                raise Unavailable(f"review {kept_by} no longer has the UI")
            body = kept
        return await self.store.write(lambda store: store.attach_ui(review.id, ui, body))

    async def wait(
        self, review: Review, seconds: float, *, comes_back: bool = False, gone: Callable[[], str | None] = lambda: None
    ) -> Review:
        """Wait for the end of a review, at most ``seconds``. Cancellation withdraws the review unless the process ends.

        ``comes_back``: the server or its client asks again later, so the wait does not delay the end of the process.
        ``gone``: see ``reloaded``.
        """
        assert review.waiter is not None
        self._gone[review.id] = (review.waiter, gone)
        # by the monotonic clock, because the wall clock may jump during the wait
        until = self._clock() + min(seconds, review.expires - self.store.wall())
        try:
            found = await self._wait_for_end(review, review.waiter, until, comes_back)
        except BaseException:  # cancelled: the peer that asked has no use for a verdict now
            with anyio.move_on_after(WITHDRAW_TIMEOUT, shield=True):
                await self._withdraw_or_leave(review)
            raise
        finally:
            self._bells.pop(review.id, None)
            self._gone.pop(review.id, None)
        if found.waiter != review.waiter:  # ended, or leased to another waiter
            self._waiters.discard(review.waiter)
        return found

    async def use(self, spent: Sequence[tuple[Review, str]]) -> bool:
        """Mark these verdicts as used, all or none, right before their release.

        Their leases are no longer renewed, even if this fails.
        """
        uses = [(review.id, review.waiter or "", decision_id) for review, decision_id in spent]
        try:
            return await self.store.write(lambda store: store.use(uses))
        finally:
            self._waiters.difference_update(waiter for _, waiter, _ in uses)

    async def supersede(self, id: str, why: str, *, waiter: str | None = None, now: str = "") -> bool:
        """End a review in favor of another one (``ReviewPort.supersede``)."""
        found = await self.store.read(lambda store: store.get(id))
        if found is None or found.used_by is not None or found.state in ("expired", "withdrawn"):
            return False
        if found.waiter not in (None, waiter) and self.store.wall() < found.held_until:
            return now not in ("", found.lookup)
        if found.state == "pending":
            await self._withdraw(id, found.waiter or "", why)
        return True

    async def give_back(self, review: Review) -> None:
        """Release the lease; the verdict stays for the next identical request."""
        waiter = review.waiter or ""
        self._waiters.discard(waiter)
        with anyio.move_on_after(WITHDRAW_TIMEOUT, shield=True):
            try:
                await self._leave(review.id, waiter)
            except Unavailable as problem:  # the lease expires by itself
                self._log.warning("review.not_left", review=review.id, problem=str(problem))
            except Exception:
                self._log.error("review.not_left", review=review.id, exc_info=True)

    async def reloaded(self, gone: Callable[[Review], str | None]) -> None:
        """Withdraw reviews that the current policy no longer asks for, so that every door refuses a verdict on them.

        Raises Unavailable. ``gone`` gets the pending reviews that no request waits for. Reviews that another process
        waits for are left to that process.
        """
        if self._store is None and not self._waiters:
            return
        for id, (waiter, why) in list(self._gone.items()):
            if (reason := why()) is not None:
                await self._withdraw(id, waiter, reason)
        for review in await self._unleased():
            if (reason := gone(review)) is not None:
                await self._withdraw(review.id, review.waiter or "", reason)

    async def _leave(self, id: str, waiter: str) -> None:
        await self.store.write(lambda store: store.leave(id, waiter=waiter))

    async def _withdraw(self, id: str, waiter: str, why: str) -> None:
        await self.store.write(lambda store: store.withdraw(id, waiter=waiter, why=why))

    async def _unleased(self) -> list[Review]:
        """The pending reviews that no request waits for."""
        now, wanted, found = self.store.wall(), Filter(states=("pending",), limit=PAGE), list[Review]()
        while some := await self._list_page(wanted):
            found += [review for review in some if review.waiter is None or now >= review.held_until]
            if len(some) < PAGE:
                break
            wanted = msgspec.structs.replace(wanted, before=some[-1].id)
        return found

    async def _list_page(self, wanted: Filter) -> Sequence[Review]:
        return await self.store.read(lambda store: store.list(wanted))

    def end(self) -> None:
        """The process ends: leave pending reviews to the next process instead of withdrawing them."""
        self._ending = True
        for bell in self._bells.values():
            bell.set()

    # -- waiting
    # ------------------------------------------------------------------------------------------------------------------

    async def _wait_for_end(self, review: Review, waiter: str, until: float, comes_back: bool) -> Review:
        older, looks = False, 0
        while True:
            bell = self._bells[review.id] = anyio.Event()
            rest = until - self._clock()
            last = rest <= 0 or (comes_back and self._ending)
            try:
                ended = await self._ended(review, waiter, older=older, last=last)
            # the store may recover: the wait goes on, and a verdict that has arrived by then still counts
            except Unavailable:
                ended = review if last else None
            if ended is not None:
                return ended
            with anyio.move_on_after(min(rest, LEASE if looks < 2 else LEASES_BETWEEN_CHECKS * LEASE)) as slept:
                await bell.wait()
            older = slept.cancelled_caught
            looks += older

    async def _ended(self, review: Review, waiter: str, *, older: bool, last: bool) -> Review | None:
        """The ended review; None while it is still pending."""
        if older and (other := await self._earlier_verdict(review, waiter)) is not None:
            return other
        found = await self.store.read(lambda store: store.get(review.id))
        if found is None or found.state != "pending":
            return review if found is None else await self._outcome_for(found, waiter)
        return await self._expired(found) if last else None

    async def _expired(self, found: Review) -> Review:
        """The review after the wait: still pending, or expired by its own deadline."""
        if self.store.wall() < found.expires:
            return found
        await self.store.write(lambda store: store.expire())
        return await self.store.read(lambda store: store.get(found.id)) or found

    async def _outcome_for(self, found: Review, waiter: str) -> Review:
        """The review after it left ``pending``. A verdict that this waiter has lost counts as withdrawn."""
        if found.state in DECIDED and (found.waiter != waiter or found.used_by is not None):
            return msgspec.structs.replace(found, state="withdrawn", verdict=None, waiter=None, held_until=0.0)
        return found

    async def _earlier_verdict(self, review: Review, waiter: str) -> Review | None:
        """An earlier verdict on the same request whose waiter has died since; this review is then withdrawn."""
        if not await self.store.read(lambda store: store.ready(review.lookup, stage=review.stage, waiter=waiter)):
            return None
        found = await self.store.write(
            lambda store: store.seek(review.lookup, stage=review.stage, waiter=waiter, seconds=LEASE)
        )
        if found is None or found.id == review.id:
            return None
        if found.state not in DECIDED:
            await self._leave(found.id, waiter)
            return None
        await self._withdraw(review.id, waiter, f"answered by the decision on review {found.id}")
        return found

    async def _withdraw_or_leave(self, review: Review) -> None:
        waiter = review.waiter or ""
        self._waiters.discard(waiter)
        try:
            if self._ending:
                await self._leave(review.id, waiter)
            else:
                await self._withdraw(review.id, waiter, "the request was cancelled")
        except Unavailable as problem:
            self._log.warning("review.not_withdrawn", review=review.id, problem=str(problem))

    def _name(self) -> str:
        self._process = self._process or self._random(16).hex()
        return self._process + self._random(12).hex()

    def _hold(self, waiter: str) -> None:
        self._waiters.add(waiter)
        self._wake()

    # -- background
    # ------------------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Renew the leases, and wake waiters after changes, also by other processes. Runs until cancelled."""
        renewed, failing = float("-inf"), False
        while True:
            if not (self._waiters or self._counts.counting):
                await self._wakeup.wait()
            try:
                if self._waiters and self._clock() - renewed >= LEASE / 3:
                    renewed = self._clock()
                    await self._renew(sorted(self._waiters))
                await self._poll_changes()
                failing = False
            except Unavailable as problem:
                self._counts.failed()
                if not failing:  # log once, not twice a second
                    self._log.warning("review.store_failed", problem=str(problem))
                failing = True
            except Exception:  # this task must survive, because nothing else renews the leases
                self._log.error("review.failed", exc_info=True)
            with anyio.move_on_after(POLL if self._waiters else IDLE_POLL):
                await self._wakeup.wait()
            self._wakeup = anyio.Event()

    async def _renew(self, waiters: Sequence[str]) -> None:
        await self.store.write(lambda store: store.renew(waiters, seconds=LEASE))

    async def _poll_changes(self) -> None:
        newest = await self.store.read(lambda store: store.last_change())
        if self._seen is None or newest == self._seen:
            return
        self._seen = min(self._seen, newest)  # another file has replaced the store: its numbers start again
        after = self._seen
        for event in await self.store.read(lambda store: store.changes(after, EVENT_PAGE)):
            self._seen = event.number
            self._handle_event(event)

    def _handle_event(self, event: ReviewEvent) -> None:
        self._counts.count_end(event)
        bell = self._bells.get(event.review)
        if bell is not None:
            bell.set()

    def _wake(self) -> None:
        self._wakeup.set()
