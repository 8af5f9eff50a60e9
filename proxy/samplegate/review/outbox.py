"""Tells reviewers by webhook or command: takes from the store what is due, several at once, and lets reviews expire. Not what is told or how.

At least once: what is taken is held for a while only, so whatever a killed process had taken is taken again; a message keeps its id, so that the
receiver knows it again. Every process with the store open may run one; they share the work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from samplegate.core.policy import Reviewer
from samplegate.core.review.review import Delivery
from samplegate.ports import Unavailable
from samplegate.review.errand import LEASE, Errand, World
from samplegate.review.lanes import Lane
from samplegate.review.waking import Waking

GLANCE: Final = 2.0  # seconds between two cheap looks whether another process has changed anything
SWEEP: Final = 15.0  # seconds between two looks for what is due though nobody said so, such as what a killed process had taken
TICK: Final = 1.0  # seconds between two looks for what has expired, while anything is pending
IDLE: Final = 5.0  # the same while nothing is
PURGE: Final = 3_600.0


class Outbox:
    """One process's deliveries. ``reviewers``: of the policy in force, the same objects until it is loaded anew.

    ``keep``: seconds that a review is kept after it ended.
    """

    def __init__(self, world: World, reviewers: Callable[[], Mapping[str, Reviewer]], *, keep: float) -> None:
        self._world, self._reviewers, self._keep = world, reviewers, keep
        self._taker = f"outbox_{world.random(8).hex()}"
        self._waking = Waking()
        self._lanes: dict[str, Lane] = {}
        self._under_way: set[str] = set()
        self._look_at = 0.0
        self._seen = -1
        self._store_fails = False

    async def run(self) -> None:
        """Until it is cancelled: then commands are killed, and what was taken is given to others by time."""
        stop = self._world.store.watch(self._waking)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._deliver(tasks))
                tasks.create_task(self._tidy())
        finally:
            stop()

    async def _deliver(self, tasks: asyncio.TaskGroup) -> None:
        with self._waking.woken() as event:
            while True:
                event.clear()
                try:
                    await self._look(tasks)
                    self._store_works()
                except Unavailable as problem:
                    self._store_failed(problem)
                except Exception as problem:
                    self._broke(problem)
                await self._world.pause(event, max(0.0, min(GLANCE, self._look_at - self._world.wall())))

    async def _look(self, tasks: asyncio.TaskGroup) -> None:
        now, newest = self._world.wall(), await self._world.store.read(lambda store: store.last_change())
        if newest == self._seen and now < self._look_at:
            return
        if newest != self._seen:
            self._waking()  # commands look whether they are still wanted
        self._look_at = now + SWEEP
        await self._take(tasks, now)
        self._seen = newest

    async def _take(self, tasks: asyncio.TaskGroup, now: float) -> None:
        for name, reviewer in self._reviewers().items():
            if reviewer.webhook is None and reviewer.command is None:
                continue
            lane = self._lane(name, reviewer)
            if lane.ready > now and not lane.gone:
                self._look_at = min(self._look_at, lane.ready)
            if (room := lane.room(now)) > 0:
                for delivery in await self._taken(name, now, room):
                    self._start(tasks, lane, delivery)

    async def _taken(self, reviewer: str, now: float, limit: int) -> Sequence[Delivery]:
        take, taker = [reviewer], self._taker
        return await self._world.store.write(lambda store: store.take_deliveries(take, taker=taker, now=now, seconds=LEASE, limit=limit))

    def _lane(self, name: str, reviewer: Reviewer) -> Lane:
        lane = self._lanes.get(name)
        if lane is None or lane.reviewer is not reviewer:
            lane = self._lanes[name] = Lane(name, reviewer)
        return lane

    def _start(self, tasks: asyncio.TaskGroup, lane: Lane, delivery: Delivery) -> None:
        if delivery.id in self._under_way:  # its lease ran out while the store was away: it is ours again
            return
        self._under_way.add(delivery.id)
        lane.under_way += 1
        tasks.create_task(self._carry(lane, delivery))

    async def _carry(self, lane: Lane, delivery: Delivery) -> None:
        next_look = 0.0
        try:
            next_look = await Errand(self._world, self._waking, lane, delivery).run() or 0.0
        except Unavailable as problem:
            self._store_failed(problem)
        except Exception:
            self._world.log.error("review.delivery_broke", review=delivery.review, reviewer=delivery.reviewer, exc_info=True)  # noqa: G201
        finally:
            lane.under_way -= 1
            self._under_way.discard(delivery.id)
        self._look_at = min(self._look_at, next_look)
        self._waking()

    async def _tidy(self) -> None:
        """Reviews expire by time, and ended ones are forgotten."""
        purge_at, never = 0.0, asyncio.Event()
        with self._waking.woken() as event:
            while True:
                event.clear()
                now, waiting = self._world.wall(), False
                try:
                    waiting = await self._expire(now)
                    if now >= purge_at:
                        await self._purge(now - self._keep)
                        purge_at = now + PURGE
                except Unavailable as problem:
                    self._store_failed(problem)
                except Exception as problem:
                    self._broke(problem)
                await self._world.pause(never if waiting else event, TICK if waiting else IDLE)

    async def _purge(self, before: float) -> None:
        await self._world.store.write(lambda store: store.purge(before))

    async def _expire(self, now: float) -> bool:
        """Whether anything is pending."""
        pending = await self._world.store.read(lambda store: store.pending())
        self._world.waiting(pending, now)
        if pending:
            await self._world.store.write(lambda store: store.expire(now))
        return bool(pending)

    def _broke(self, problem: Exception) -> None:
        """A fault of ours: nobody else would tell anybody anything again."""
        self._look_at = max(self._look_at, self._world.wall() + IDLE)
        self._world.log.error("review.outbox_broke", exc_info=problem)

    def _store_failed(self, problem: Unavailable) -> None:
        self._look_at = max(self._look_at, self._world.wall() + IDLE)
        if not self._store_fails:
            self._world.log.error("review.store_failed", why=str(problem))
        self._store_fails = True

    def _store_works(self) -> None:
        if self._store_fails:
            self._world.log.info("review.store_works")
        self._store_fails = False
