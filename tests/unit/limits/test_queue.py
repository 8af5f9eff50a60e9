"""Waiting for capacity: first come, first served for each account, bounded in time and number, with cleanup however the
wait ends."""

from __future__ import annotations

import math
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.abc import TaskGroup

from samplegate.policy.ledger import Draw, Refused, Reserved
from tests.fakes.limits import Desk, all_blocked, bucket, daily, one, per, slot, slots
from tests.profiles import share

pytestmark = pytest.mark.anyio


class Crowd:
    """Named requests that wait; ``got`` has the names in the order of their answers."""

    def __init__(self, desk: Desk, group: TaskGroup) -> None:
        self.desk = desk
        self.got: list[str] = []
        self.answers: dict[str, Reserved | Refused] = {}
        self.scopes: dict[str, anyio.CancelScope] = {}
        self._group = group

    async def comes(self, name: str, *draws: Draw, wait: float = 1_000.0) -> None:
        self._group.start_soon(self._reserve, name, draws, wait)
        await all_blocked()

    async def leaves(self, name: str) -> None:
        """Cancel the request."""
        self.scopes[name].cancel()
        await all_blocked()

    async def done(self, name: str) -> None:
        """Settle the reservation of a request that got its answer."""
        answer = self.answers[name]
        assert isinstance(answer, Reserved), answer
        await self.desk.settle(answer)
        await all_blocked()

    def refusal(self, name: str) -> tuple[str, str]:
        answer = self.answers[name]
        assert isinstance(answer, Refused), answer
        return answer.limit, answer.why

    async def _reserve(self, name: str, draws: tuple[Draw, ...], wait: float) -> None:
        with anyio.CancelScope() as self.scopes[name]:
            self.answers[name] = await self.desk.reserve(*draws, wait=wait)
            self.got.append(name)


@asynccontextmanager
async def crowd(desk: Desk) -> AsyncIterator[Crowd]:
    async with anyio.create_task_group() as group:
        yield Crowd(desk, group)
        group.cancel_scope.cancel()
    assert 0 == desk.timers.left, "timers were left behind"


async def test_first_come_is_first_served() -> None:
    async with crowd(Desk(slots("s", 1))) as all:
        for name in "abc":
            await all.comes(name, slot("s"))
        for so_far in (["a"], ["a", "b"], ["a", "b", "c"]):
            assert so_far == all.got
            await all.done(so_far[-1])
        assert isinstance(await all.desk.reserve(slot("s")), Reserved)


async def test_who_does_not_wait_does_not_go_before_those_who_do() -> None:
    async with crowd(Desk(slots("s", 2))) as all:
        await all.comes("a", slot("s"))
        await all.comes("both", Draw("s", "[]", 2))
        refused = await all.desk.refused(slot("s"))
        assert ("s", "waiting") == (refused.limit, refused.why)
        await all.done("a")
        assert ["a", "both"] == all.got


async def test_a_newcomer_that_waits_stands_behind_the_others_even_if_it_would_fit() -> None:
    async with crowd(Desk(slots("s", 2))) as all:
        await all.comes("a", slot("s"))
        await all.comes("both", Draw("s", "[]", 2))
        await all.comes("late", slot("s"))
        assert ["a"] == all.got
        await all.done("a")
        await all.done("both")
        assert ["a", "both", "late"] == all.got


async def test_other_accounts_are_not_held_up() -> None:
    async with crowd(Desk(slots("s", 1), bucket("b", 5))) as all:
        for name in "ab":
            await all.comes(name, slot("s"), one("b"))
        assert isinstance(await all.desk.reserve(one("b")), Reserved)
        assert isinstance(await all.desk.reserve(slot("s", '["other"]')), Reserved)


async def test_time_makes_room_in_a_bucket() -> None:
    async with crowd(Desk(bucket("b", 2, seconds=10.0))) as all:
        for name in "abcd":
            await all.comes(name, one("b"))
        assert ["a", "b"] == all.got
        await all.desk.timers.pass_(4.9)
        assert ["a", "b"] == all.got
        await all.desk.timers.pass_(0.2)
        assert ["a", "b", "c"] == all.got
        await all.desk.timers.pass_(5.0)
        assert ["a", "b", "c", "d"] == all.got


async def test_the_wait_is_bounded_and_names_the_limit() -> None:
    async with crowd(Desk(daily("d", 1))) as all:
        await all.comes("a", one("d"))
        await all.comes("b", one("d"), wait=30.0)
        await all.desk.timers.pass_(29.9)
        assert ["a"] == all.got
        await all.desk.timers.pass_(0.2)
        assert ("d", "full") == all.refusal("b")
        answer = all.answers["b"]
        assert isinstance(answer, Refused)
        assert 43_000 < (answer.retry_after or 0) <= 43_200
        assert "30s" in answer.detail


async def test_no_time_to_wait_is_full_at_once() -> None:
    async with crowd(Desk(slots("s", 1))) as all:
        await all.comes("a", slot("s"))
        await all.comes("b", slot("s"), wait=0.0)
        await all.desk.timers.pass_(0.0)
        assert ("s", "full") == all.refusal("b")


async def test_one_may_wait_without_an_end() -> None:
    desk = Desk(slots("s", 1), later=None)
    held = await desk.taken(slot("s"))
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: desk.taken(slot("s"), wait=math.inf))
            await all_blocked()
            await desk.settle(held)


async def test_who_is_cancelled_leaves_its_place_to_the_next() -> None:
    async with crowd(Desk(slots("s", 2))) as all:
        await all.comes("a", slot("s"))
        await all.comes("both", Draw("s", "[]", 2))
        await all.comes("late", slot("s"))
        await all.leaves("both")
        assert ["a", "late"] == all.got
        await all.done("a")
        await all.done("late")
        assert isinstance(await all.desk.reserve(Draw("s", "[]", 2)), Reserved)


async def test_who_is_cancelled_behind_others_is_forgotten() -> None:
    async with crowd(Desk(slots("s", 1))) as all:
        for name in "abc":
            await all.comes(name, slot("s"))
        await all.leaves("b")
        await all.done("a")
        assert ["a", "c"] == all.got


async def test_whose_time_is_up_leaves_its_place_to_the_next() -> None:
    async with crowd(Desk(slots("s", 2))) as all:
        await all.comes("a", slot("s"))
        await all.comes("both", Draw("s", "[]", 2), wait=10.0)
        await all.comes("late", slot("s"))
        await all.desk.timers.pass_(11.0)
        assert ["a", "both", "late"] == all.got
        assert ("s", "full") == all.refusal("both")


async def test_only_so_many_wait() -> None:
    async with crowd(Desk(slots("s", 1), slots("t", 1), most_waiting=2)) as all:
        await all.comes("a", slot("s"), slot("t"))
        await all.comes("b", slot("s"))
        await all.comes("c", slot("t"))
        await all.comes("d", slot("s"))
        assert ("s", "waiting") == all.refusal("d")
        await all.leaves("b")
        await all.comes("e", slot("s"))
        assert ["a", "d"] == all.got


@pytest.mark.parametrize("what", ["call", "process"])
async def test_nobody_waits_for_what_stays_drawn(what: str) -> None:
    desk = Desk(per(what, "p", 1), slots("s", 1))
    held = await desk.taken(one("p"))
    refused = await desk.refused(one("p"), wait=1_000.0)
    assert ("p", "full") == (refused.limit, refused.why)
    await desk.settle(held, one("p"))
    async with crowd(desk) as all:
        for name in "ab":
            await all.comes(name, slot("s"))
        await all.comes("c", one("p"), slot("s"))
        assert ("p", "full") == all.refusal("c"), "not even behind others"


async def test_nobody_waits_for_more_than_a_whole_limit() -> None:
    async with crowd(Desk(slots("s", 1), bucket("b", 1))) as all:
        await all.comes("a", Draw("b", "[]", 2_000_000))
        assert ("b", "never") == all.refusal("a")
        await all.comes("b", slot("s"))
        await all.comes("c", slot("s"))
        await all.comes("d", Draw("s", "[]", 2))
        assert ("s", "never") == all.refusal("d")


async def test_who_waits_for_one_limit_holds_nothing_of_another() -> None:
    async with crowd(Desk(slots("s", 1), slots("t", 1))) as all:
        await all.comes("a", slot("s"))
        await all.comes("both", slot("t"), slot("s"))
        assert isinstance(await all.desk.reserve(slot("t")), Reserved)


async def test_two_that_wait_for_each_others_limits_do_not_block_each_other() -> None:
    async with crowd(Desk(slots("s", 1), slots("t", 1))) as all:
        await all.comes("s", slot("s"))
        await all.comes("t", slot("t"))
        await all.comes("st", slot("s"), slot("t"))
        await all.comes("ts", slot("t"), slot("s"))
        await all.done("s")
        await all.done("t")
        await all.done("st")
        assert ["s", "t", "st", "ts"] == all.got


async def test_who_came_first_stays_first_when_it_turns_to_another_limit() -> None:
    async with crowd(Desk(slots("s", 1), slots("t", 1))) as all:
        await all.comes("s", slot("s"))
        await all.comes("t", slot("t"))
        await all.comes("early", slot("s"), slot("t"))
        await all.comes("late", slot("t"))
        await all.done("s")  # early is now first in line for t, ahead of late
        await all.done("t")
        assert ["s", "t", "early"] == all.got


async def test_whose_turn_it_is_goes_before_nobody_who_waits_for_its_other_limit() -> None:
    async with crowd(Desk(slots("s", 1), slots("t", 2), slots("u", 1))) as all:
        for name in "stu":
            await all.comes(name, slot(name))
        await all.comes("early", slot("u"), Draw("t", "[]", 2))
        await all.comes("late", slot("s"), slot("t"))
        await all.comes("last", slot("s"))
        await all.done("u")  # early is first in line for t
        await all.done("s")  # late is first in line for s, and t has capacity for it
        assert ["s", "t", "u", "last"] == all.got, "late stands behind early, and keeps nobody at s"
        for name in ("last", "t", "early"):
            await all.done(name)
        assert ["s", "t", "u", "last", "early", "late"] == all.got


async def test_the_end_refuses_those_who_wait() -> None:
    async with crowd(Desk(slots("s", 1))) as all:
        for name in "abc":
            await all.comes(name, slot("s"))
        await all.desk.admission.aclose()
        await all_blocked()
        assert [("s", "unavailable")] * 2 == [all.refusal(name) for name in "bc"]
        refused = await all.desk.refused(slot("s"), wait=10.0)
        assert "unavailable" == refused.why


@pytest.mark.parametrize("seed", range(share(0.1)))
async def test_everybody_is_served_whatever_is_drawn_cancelled_and_settled(seed: int) -> None:
    chance = random.Random(seed)
    most = {"s": 3, "t": 2, "u": 1}
    async with crowd(Desk(*(slots(name, amount) for name, amount in most.items()), bucket("b", 3, seconds=5.0))) as all:
        holding: dict[str, tuple[Draw, ...]] = {}
        waiting: dict[str, tuple[Draw, ...]] = {}
        for number in range(120):
            name = str(number)
            draws = [
                Draw(limit, "[]", chance.randint(1, most[limit]))
                for limit in chance.sample("stu", chance.randint(1, 3))
            ]
            waiting[name] = (*draws, *([one("b")] if chance.random() < 0.3 else []))
            await all.comes(name, *waiting[name], wait=1e6)
            if chance.random() < 0.1 and name not in all.answers:
                await all.leaves(name)
                del waiting[name]
            await all.desk.timers.pass_(chance.random())
            for served in [name for name in waiting if name in all.answers]:
                holding[served] = waiting.pop(served)
            for limit, amount in most.items():
                assert amount >= sum(draw.amount for draws in holding.values() for draw in draws if draw.limit == limit)
            if holding and chance.random() < 0.5:
                await all.done(ended := chance.choice(list(holding)))
                del holding[ended]
        for _ in range(500):
            for served in [name for name in {**waiting, **holding} if name in all.answers]:
                await all.done(served)
                waiting.pop(served, None)
                holding.pop(served, None)
            await all.desk.timers.pass_(1.0)
            if not waiting:
                break
        assert {} == waiting
