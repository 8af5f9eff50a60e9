"""The outbox: delivers due notifications by webhook or command, expires reviews, and purges ended ones.

Delivery is at least once: a delivery is leased, so another process repeats the deliveries of a killed one. A message
keeps its ID, so that the receiver recognizes a repetition. Processes of one machine that share a store share the work.
In a store that several machines share, one process at a time delivers to a reviewer, so that the limits below hold for
all of them together.

A reviewer whose endpoint is down gets one message at a time, with growing pauses. So 10,000 waiting messages do not
flood it, and no other reviewer waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from typing import Final, assert_never

import anyio
import msgspec

from samplegate.errors import Log, Unavailable
from samplegate.policy.schema import Reviewer, Show, Webhook, is_notified, seconds
from samplegate.reviews.notify import command, formats
from samplegate.reviews.notify import webhook as webhooks
from samplegate.reviews.notify.endpoint import SecretSources, WebhookNotReady
from samplegate.reviews.notify.formats import ReviewView
from samplegate.reviews.notify.webhook import (
    Delivered,
    DeliveryRefused,
    DeliveryResult,
    EndpointGone,
    NetworkAccess,
    RetryLater,
    VerdictReceived,
    send,
)
from samplegate.reviews.review import Delivery, Review
from samplegate.reviews.service import Pause, Wakeups, pause
from samplegate.reviews.store import ReviewStore
from samplegate.reviews.views import Clean

MAX_CONCURRENT: Final = 8  # concurrent messages or commands per reviewer


class ReviewerQueue:
    """The delivery state of one reviewer: concurrency, failures and backoff. A policy reload starts it afresh."""

    def __init__(self, name: str, reviewer: Reviewer) -> None:
        self.name, self.reviewer = name, reviewer
        self.under_way = 0
        self.gone = False
        """The endpoint answered 410 and gets no more messages."""
        self._failures = 0
        self._not_before = 0.0
        self._said = ""
        self._odd: str | None = None

    def room(self, now: float) -> int:
        """How many more deliveries may be taken."""
        if self.gone or now < self._not_before:
            return 0
        return max(0, (1 if self._failures else MAX_CONCURRENT) - self.under_way)

    @property
    def ready(self) -> float:
        """When the backoff ends."""
        return self._not_before

    def failed(self, said: str, *, now: float, after: float | None, chance: float) -> bool:
        """Record a failed delivery and start the backoff. Returns whether the failure is new and must be logged."""
        self._failures += 1
        self._not_before = max(self._not_before, now + max(webhooks.retry_wait(self._failures, chance), after or 0.0))
        return self.is_new_failure(said)

    def is_new_failure(self, said: str) -> bool:
        """Whether this failure differs from the last one that was logged."""
        before, self._said = self._said, said
        return said != before

    def is_new_oddity(self, odd: str | None) -> bool:
        """Whether a response is odd in another way than the previous one; None: it is not odd."""
        before, self._odd = self._odd, odd
        return odd not in (None, before)

    def worked(self) -> bool:
        """Record a delivery and end the backoff. Returns whether the last delivery had failed."""
        before, self._said = self._said, ""
        self._failures, self._not_before = 0, 0.0
        return bool(before)


# seconds of a delivery's lease: longer than any webhook takes, and the delay after a process was killed
LEASE: Final = 60.0
RENEW_INTERVAL: Final = 20.0  # seconds between two renewals while a command runs
OUTCOME_LIFETIME: Final = 3_600.0  # seconds during which a reviewer is notified of a review's outcome
OBSOLETE: Final = "no longer needed"


class OutboxContext(msgspec.Struct, frozen=True, kw_only=True):
    """The outbox's dependencies."""

    store: ReviewStore
    sources: SecretSources
    network: NetworkAccess
    url: str | None
    """The page's public base URL, without a slash at its end; None: no page, so no links and no callbacks."""
    clean: Callable[[Show], Clean | None]
    """The function that removes secrets from a text; looked up each time, so that a reload takes effect."""
    log: Log
    count: Callable[..., object]
    """Takes a metric's name, and labels as keywords."""
    waiting: Callable[[Mapping[str, tuple[int, float]], float], object] = lambda _pending, _now: None
    """Gets the pending reviews by reviewer, and the time, every second to every five seconds."""
    wall: Callable[[], float]
    """Unix seconds, for signatures."""
    clock: Callable[[], float]
    """Monotonic seconds, for all that waits: a clock that is set back must not stop deliveries, or prolong a lease."""
    random: Callable[[int], bytes]
    pause: Pause = pause

    def chance(self) -> float:
        """A random number from 0 to below 1."""
        return int.from_bytes(self.random(6), "big") / 2**48


class DeliveryAttempt:
    """One attempt at a leased delivery. Call ``run`` once."""

    def __init__(self, context: OutboxContext, waking: Wakeups, queue: ReviewerQueue, delivery: Delivery) -> None:
        self._context, self._waking, self._queue, self._delivery = context, waking, queue, delivery

    async def run(self) -> float | None:
        """Deliver and record the result. Returns when the next attempt is due, or None.

        Raises Unavailable; the delivery is then repeated after its lease.
        """
        review = await self._review()
        if review is None or self._is_obsolete(review):
            await self._given_up(OBSOLETE)
            return None
        said: DeliveryResult | WebhookNotReady | None = None
        if self._queue.reviewer.webhook is not None:
            said = await self._webhook(review, self._queue.reviewer.webhook)
        if self._queue.reviewer.command is not None and not (isinstance(said, VerdictReceived)):
            ran = await self._command(review, self._queue.reviewer.command)
            said = ran if said is None or isinstance(said, Delivered) or isinstance(ran, VerdictReceived) else said
        if said is None:
            await self._given_up(OBSOLETE)
            return None
        return await self._record_result(review, said)

    def _is_obsolete(self, review: Review) -> bool:
        now = self._context.store.wall()
        return now >= self._end(review) or (self._delivery.event == "review.opened" and review.state != "pending")

    def _end(self, review: Review) -> float:
        return review.expires if self._delivery.event == "review.opened" else self._delivery.created + OUTCOME_LIFETIME

    async def _view(self, review: Review) -> ReviewView:
        context = self._context
        return ReviewView(
            context.store.wall(),
            context.url,
            context.clean(review.show),
            await context.store.write(lambda store: store.key()),
        )

    async def _webhook(self, review: Review, webhook: Webhook) -> DeliveryResult | WebhookNotReady:
        message = await asyncio.to_thread(
            webhooks.message,
            self._delivery,
            review,
            webhook,
            view=await self._view(review),
            sources=self._context.sources,
        )  # reads files and writes up to 256 KiB
        if message is None:
            return Delivered(webhooks.UNWANTED)
        if isinstance(message, WebhookNotReady):
            return message
        said = await send(message, self._context.network, now=self._context.wall())
        if isinstance(said, VerdictReceived | Delivered):
            self._log_odd_response(review, said)
        if not isinstance(said, VerdictReceived):
            return said
        if self._delivery.event != "review.opened" or webhook.format not in webhooks.ANSWERING:
            return Delivered(said.said)
        return await self._record_verdict(review, said, "webhook")

    def _log_odd_response(self, review: Review, said: VerdictReceived | Delivered) -> None:
        """Log once if a successful response looks like that of a page that no reviewer sees."""
        odd = said.odd if isinstance(said, Delivered) else None
        if self._queue.is_new_oddity(odd):
            self._context.log.warning(
                "review.delivery_odd", reviewer=self._queue.name, review=review.id, content_type=odd
            )

    async def _record_verdict(self, review: Review, said: VerdictReceived, door: command.AnswerDoor) -> DeliveryResult:
        context = self._context
        given = await command.record_verdict(
            context.store, context.log, review, said.raw, door=door, reviewer=self._delivery.reviewer
        )
        return (
            RetryLater(f"{said.said}, with an invalid decision")
            if given is None
            else VerdictReceived(b"", f"{said.said}, {given}")
        )

    async def _command(self, review: Review, argv: list[str]) -> DeliveryResult | None:
        """Run the command. None: it was stopped because the review has ended or another process has the delivery."""
        if self._delivery.event != "review.opened":
            return Delivered("commands are not notified of this event")
        context = self._context
        data = await asyncio.to_thread(formats.data, review, await self._view(review), callback=True)
        running = asyncio.create_task(
            command.run(
                argv,
                formats.encoded(data),
                environment=context.sources.environment,
                folder=context.sources.folder,
                seconds=review.expires - context.store.wall(),
            )
        )
        holding = asyncio.create_task(self._keep_lease())
        try:
            await asyncio.wait([running, holding], return_when=asyncio.FIRST_COMPLETED)
            said = running.result() if running.done() else None
        finally:
            for task in (running, holding):
                task.cancel()
            await asyncio.gather(running, holding, return_exceptions=True)
        return await self._record_verdict(review, said, "command") if isinstance(said, VerdictReceived) else said

    async def _keep_lease(self) -> None:
        """Renew the lease while the command runs. Returns when the command is no longer needed."""
        context = self._context
        with self._waking.woken() as event:
            while True:
                await context.pause(event, RENEW_INTERVAL)
                event.clear()
                with suppress(Unavailable):  # the command goes on; the lease may expire
                    review = await self._review()
                    if review is None or self._is_obsolete(review) or not await self._renew_lease():
                        return

    async def _review(self) -> Review | None:
        return await self._context.store.read(lambda store: store.get(self._delivery.review))

    async def _renew_lease(self) -> bool:
        return await self._context.store.write(lambda store: store.hold_delivery(self._delivery, seconds=LEASE))

    async def _record_result(self, review: Review, said: DeliveryResult | WebhookNotReady) -> float | None:
        match said:
            case VerdictReceived(said=words):
                await self._done(words, "answered")
            case Delivered(said=words):
                await self._done(words, "delivered")
            case RetryLater(said=words, after=after):
                return await self._failed(review, words, after)
            case DeliveryRefused(said=words) | WebhookNotReady(what=words):
                return await self._failed(review, words, None)
            case EndpointGone(said=words):
                self._queue.gone = True
                return await self._failed(
                    review, f"{words}: the endpoint gets no more messages until the policy is reloaded", None
                )
            case _ as never:
                assert_never(never)
        return None

    async def _done(self, words: str, result: str) -> None:
        context, delivery = self._context, self._delivery
        if self._queue.worked():
            context.log.info("review.delivery_works", reviewer=self._queue.name)
        self._count(result)
        await context.store.write(lambda store: store.delivered(delivery, said=words))

    async def _failed(self, review: Review, words: str, after: float | None) -> float | None:
        context, delivery, now = self._context, self._delivery, self._context.clock()
        if self._queue.failed(words, now=now, after=after, chance=context.chance()):
            context.log.warning(
                "review.delivery_failed", reviewer=self._queue.name, review=review.id, of=delivery.event, why=words
            )
        wait = max(webhooks.retry_wait(delivery.tries + 1, context.chance()), after or 0.0)
        if context.store.wall() + wait >= self._end(review):
            self._count("failed")
            await self._given_up(words)
            return None
        self._count("again")
        await context.store.write(lambda store: store.postpone(delivery, wait=wait, said=words))
        return context.clock() + wait  # the store's time is later than that before the write

    async def _given_up(self, words: str) -> None:
        await self._context.store.write(lambda store: store.give_up(self._delivery, said=words))

    def _count(self, result: str) -> None:
        self._context.count("samplegate_review_deliveries_total", reviewer=self._queue.name, result=result)


GLANCE: Final = 2.0  # seconds between two cheap checks for other processes' changes
# seconds between two checks for due deliveries without a change, such as those of a killed process
SWEEP: Final = 15.0
TICK: Final = 1.0  # seconds between two checks for expired reviews while any is pending
IDLE: Final = 5.0  # the same while none is pending
PURGE: Final = 3_600.0
LEADER_LEASE: Final = 15.0
"""Seconds after which another gate takes over from one that was killed, in a store that several machines share."""
EXPIRY: Final = ""
"""The role of the process that expires reviews; the others are reviewers' names."""


class Outbox:
    """The outbox of one process.

    ``reviewers`` returns the current policy's reviewers, as the same objects until a reload. ``keep``: seconds that a
    review is kept after its end.
    """

    def __init__(self, context: OutboxContext, reviewers: Callable[[], Mapping[str, Reviewer]], *, keep: float) -> None:
        self._context, self._reviewers, self._keep = context, reviewers, keep
        self._taker = f"outbox_{context.random(8).hex()}"
        self._led: Set[str] = frozenset()
        self._wanted: Set[str] = frozenset()
        self._lead_until = 0.0
        self._waking = Wakeups()
        self._queues: dict[str, ReviewerQueue] = {}
        self._under_way: set[str] = set()
        self._next_check = 0.0
        self._seen = -1
        self._store_fails = False

    async def run(self) -> None:
        """Run until cancelled. Then commands are killed, and the leases of deliveries expire."""
        stop = self._context.store.watch(self._waking)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._deliver(tasks))
                tasks.create_task(self._tidy())
        finally:
            stop()
            if self._led and not self._store_fails:
                with anyio.CancelScope(shield=True), suppress(Unavailable):
                    taker = self._taker
                    await self._context.store.write(lambda store: store.resign(holder=taker))

    async def _deliver(self, tasks: asyncio.TaskGroup) -> None:
        with self._waking.woken() as event:
            while True:
                event.clear()
                try:
                    await self._start_due(tasks)
                    self._store_works()
                except Unavailable as problem:
                    self._store_failed(problem)
                except Exception as problem:
                    self._log_bug(problem)
                await self._context.pause(event, max(0.0, min(GLANCE, self._next_check - self._context.clock())))

    async def _start_due(self, tasks: asyncio.TaskGroup) -> None:
        now, newest = self._context.clock(), await self._context.store.read(lambda store: store.last_change())
        if newest == self._seen and now < self._next_check:
            return
        if newest != self._seen:
            self._waking()  # running commands check whether they are still needed
        self._next_check = now + self._sweep()
        await self._take(tasks, now)
        self._seen = newest

    def _sweep(self) -> float:
        """The time between two checks, short enough for those who are notified ``after`` a time."""
        soonest = min(
            (seconds(one.after) for one in self._reviewers().values() if one.after is not None), default=SWEEP
        )
        return min(SWEEP, max(TICK, soonest / 4))

    async def _lead(self, now: float) -> Set[str]:
        """The reviewers to whom this process delivers, and ``EXPIRY`` if it expires reviews. A lease is renewed long
        before it ends, and at once when a reload has added a reviewer."""
        wanted = [EXPIRY, *(name for name, reviewer in self._reviewers().items() if is_notified(reviewer))]
        if now >= self._lead_until or not self._wanted >= set(wanted):
            taker, sent = self._taker, now
            self._led = frozenset(
                await self._context.store.write(lambda store: store.lead(wanted, holder=taker, seconds=LEADER_LEASE))
            )
            self._wanted, self._lead_until = frozenset(wanted), sent + LEADER_LEASE / 3
        if any(is_notified(one) and name not in self._led for name, one in self._reviewers().items()):
            self._next_check = min(self._next_check, self._lead_until)  # another process may end
        return self._led

    async def _take(self, tasks: asyncio.TaskGroup, now: float) -> None:
        led = await self._lead(now)
        for name, reviewer in self._reviewers().items():
            if not is_notified(reviewer) or name not in led:
                continue
            queue = self._queue(name, reviewer)
            if queue.ready > now and not queue.gone:
                self._next_check = min(self._next_check, queue.ready)
            if (room := queue.room(now)) > 0:
                for delivery in await self._taken(name, room):
                    self._start(tasks, queue, delivery)

    async def _taken(self, reviewer: str, limit: int) -> Sequence[Delivery]:
        take, taker = [reviewer], self._taker
        return await self._context.store.write(
            lambda store: store.take_deliveries(take, taker=taker, seconds=LEASE, limit=limit)
        )

    def _queue(self, name: str, reviewer: Reviewer) -> ReviewerQueue:
        queue = self._queues.get(name)
        if queue is None or queue.reviewer is not reviewer:
            queue = self._queues[name] = ReviewerQueue(name, reviewer)
        return queue

    def _start(self, tasks: asyncio.TaskGroup, queue: ReviewerQueue, delivery: Delivery) -> None:
        if delivery.id in self._under_way:  # its lease expired during a store failure, and this process took it again
            return
        self._under_way.add(delivery.id)
        queue.under_way += 1
        tasks.create_task(self._carry(queue, delivery))

    async def _carry(self, queue: ReviewerQueue, delivery: Delivery) -> None:
        next_attempt = 0.0
        try:
            next_attempt = await DeliveryAttempt(self._context, self._waking, queue, delivery).run() or 0.0
        except Unavailable as problem:
            self._store_failed(problem)
        except Exception:
            self._context.log.error(  # noqa: G201
                "review.delivery_broke", review=delivery.review, reviewer=delivery.reviewer, exc_info=True
            )
        finally:
            queue.under_way -= 1
            self._under_way.discard(delivery.id)
        self._next_check = min(self._next_check, next_attempt)
        self._waking()

    async def _tidy(self) -> None:
        """Expire reviews and purge ended ones."""
        purge_at, never = 0.0, asyncio.Event()
        with self._waking.woken() as event:
            while True:
                event.clear()
                now, waiting = self._context.clock(), False
                try:
                    waiting = await self._expire()
                    if now >= purge_at:
                        await self._context.store.write(lambda store: store.purge(self._keep))
                        purge_at = now + PURGE
                except Unavailable as problem:
                    self._store_failed(problem)
                except Exception as problem:
                    self._log_bug(problem)
                await self._context.pause(never if waiting else event, TICK if waiting else IDLE)

    async def _expire(self) -> bool:
        """Expire reviews. Returns whether any were pending."""
        pending = await self._context.store.read(lambda store: store.pending())
        self._context.waiting(pending, self._context.store.wall())
        if pending and EXPIRY in await self._lead(self._context.clock()):
            await self._context.store.write(lambda store: store.expire())
        return bool(pending)

    def _log_bug(self, problem: Exception) -> None:
        """Log a bug and go on after a pause, because a dead outbox would notify no one."""
        self._next_check = max(self._next_check, self._context.clock() + IDLE)
        self._context.log.error("review.outbox_broke", exc_info=problem)

    def _store_failed(self, problem: Unavailable) -> None:
        self._next_check = max(self._next_check, self._context.clock() + IDLE)
        if not self._store_fails:
            self._context.log.error("review.store_failed", why=str(problem))
        self._store_fails = True

    def _store_works(self) -> None:
        if self._store_fails:
            self._context.log.info("review.store_works")
        self._store_fails = False
