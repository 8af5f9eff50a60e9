"""Limits across a policy reload: a limit with the same meaning keeps its balance, a changed one starts anew, and no
waiting request is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio
import msgspec
import pytest

from samplegate.limits import async_ledger as state_module
from samplegate.limits.shared_ledger import SWEEP_EVERY
from samplegate.limits.sqlite_ledger import SqliteLedger
from samplegate.policy.ledger import FORGET_AFTER, Draw, LimitSpec, Refused, Reserved
from tests.fakes.limits import ONE, Desk, all_blocked, bucket, daily, one, per, slot, slots
from tests.unit.limits.test_queue import crowd

pytestmark = pytest.mark.anyio
both = pytest.mark.parametrize("shared", [False, True], ids=["memory", "state"])
KEY = '["x"]'


def usd(name: str, most: int, **more: object) -> LimitSpec:
    return msgspec.structs.replace(daily(name, most), quantity="usd", **more)


# -- what goes on
# ----------------------------------------------------------------------------------------------------------------------


@both
async def test_a_limit_of_the_same_terms_goes_on_where_it_stands(tmp_path: Path, shared: bool) -> None:
    same = daily("d", 3, shared=shared), slots("s", 2, shared=shared), per("process", "p", 2)
    desk = Desk(*same, state=tmp_path)
    held = await desk.taken(one("d"), slot("s"), one("p"))
    await desk.taken(one("d"))
    desk.update_limits(*same, bucket("new", 1, shared=shared))
    assert 1 == await desk.room(one("d"))
    assert 1 == await desk.room(slot("s"))
    await desk.settle(held)
    assert (1, 1, 2) == (await desk.room(one("d")), await desk.room(slot("s")), await desk.room(one("p")))
    await desk.admission.aclose()


@both
@pytest.mark.parametrize("most", [1, 2, 5])
@pytest.mark.parametrize("make", [daily, bucket])
async def test_an_account_goes_on_under_another_amount(
    tmp_path: Path, shared: bool, most: int, make: Callable[..., LimitSpec]
) -> None:
    desk = Desk(make("d", 3, shared=shared), state=tmp_path)
    held = await desk.taken(one("d"), one("d"))
    desk.update_limits(make("d", most, shared=shared))
    assert max(0, most - 2) == await desk.room(one("d"))
    desk.clock.now += 1.0
    await desk.settle(held, one("d"))
    tenths = await desk.room(Draw("d", "[]", ONE // 10))  # a bucket drains by itself, so that much less is returned
    assert tenths == 0 if most == 1 else 9 <= tenths <= 10
    await desk.admission.aclose()


@both
@pytest.mark.parametrize("most", [1, 2, 4])
async def test_slots_that_are_held_stay_held_under_another_number(tmp_path: Path, shared: bool, most: int) -> None:
    desk = Desk(slots("s", 3, shared=shared), state=tmp_path)
    held = [await desk.taken(slot("s")) for _ in range(3)]
    desk.update_limits(slots("s", most, shared=shared))
    assert max(0, most - 3) == await desk.room(slot("s"))
    for each in held:
        await desk.settle(each)
    assert min(most, 3) == await desk.room(slot("s"))
    await desk.admission.aclose()


async def test_what_drained_at_a_faster_rate_is_not_given_back_at_a_slower_one() -> None:
    desk = Desk(LimitSpec("b", "requests", 1000, "bucket", period=60.0))
    first = await desk.taken(Draw("b", "[]", 600))
    desk.clock.now += 30.0
    await desk.taken(Draw("b", "[]", 100))  # 500 of the 600 have drained
    desk.update_limits(LimitSpec("b", "requests", 100, "bucket", period=60.0))
    await desk.settle(first)
    await desk.refused(Draw("b", "[]", 2))
    desk.update_limits(LimitSpec("b", "requests", 1000, "bucket", period=60.0))
    assert 880 <= await desk.room(Draw("b", "[]", 1)) <= 900, "what was drawn second still is"


# -- what begins anew
# ----------------------------------------------------------------------------------------------------------------------

ORIGINAL = LimitSpec("d", "requests", 2 * ONE, "day", tz="UTC", by=("server",))
OTHERS = [
    msgspec.structs.replace(ORIGINAL, quantity="usd"),
    msgspec.structs.replace(ORIGINAL, per="month"),
    msgspec.structs.replace(ORIGINAL, per="bucket", period=60.0),
    msgspec.structs.replace(ORIGINAL, tz="Asia/Tokyo"),
    msgspec.structs.replace(ORIGINAL, by=("caller",)),
]


@both
@pytest.mark.parametrize("other", OTHERS, ids=lambda spec: f"{spec.quantity} {spec.per} {spec.tz} {','.join(spec.by)}")
async def test_a_limit_that_counts_something_else_begins_anew_and_old_reservations_leave_it_alone(
    tmp_path: Path, shared: bool, other: LimitSpec
) -> None:
    old, new = (msgspec.structs.replace(spec, shared=shared) for spec in (ORIGINAL, other))
    desk = Desk(old, state=tmp_path)
    held = [await desk.taken(one("d", KEY)) for _ in range(2)]
    desk.update_limits(new)
    assert 2 == await desk.room(one("d", KEY))
    await desk.settle(held[0])
    await desk.refused(one("d", KEY))
    desk.update_limits(old)
    assert 1 == await desk.room(one("d", KEY)), "the settlement was the old account's, which was kept for what was open"
    await desk.settle(held[1])
    assert 1 == await desk.room(one("d", KEY))
    await desk.admission.aclose()


@both
async def test_an_account_that_nothing_was_open_under_is_remembered(tmp_path: Path, shared: bool) -> None:
    desk = Desk(daily("d", 1, shared=shared), state=tmp_path)
    await desk.settle(await desk.taken(one("d")), one("d"))
    desk.update_limits(bucket("d", 1, shared=shared))
    desk.update_limits(daily("d", 1, shared=shared))
    assert 0 == await desk.room(one("d"))
    await desk.admission.aclose()


@both
async def test_slots_that_become_a_count_are_freed_where_they_were_taken(tmp_path: Path, shared: bool) -> None:
    desk = Desk(slots("x", 1, shared=shared), state=tmp_path)
    held = await desk.taken(slot("x"))
    desk.update_limits(daily("x", 1, shared=shared))
    await desk.taken(one("x"))
    await desk.settle(held)
    await desk.refused(one("x"))
    desk.update_limits(slots("x", 1, shared=shared))
    assert 1 == await desk.room(slot("x"))
    await desk.admission.aclose()


@both
async def test_what_was_measured_for_other_terms_is_refused_where_it_means_something_else(
    tmp_path: Path, shared: bool
) -> None:
    old = {"d": daily("d", 2, shared=shared), "e": daily("e", 2, shared=shared), "f": daily("f", 2, shared=shared)}
    desk = Desk(*old.values(), state=tmp_path)
    desk.update_limits(usd("d", 10**9, shared=shared), daily("e", 3, shared=shared), bucket("f", 2, shared=shared))
    refused = await desk.admission.reserve([one("d")], 10.0, old)
    assert isinstance(refused, Refused)
    assert ("d", "unavailable") == (refused.limit, refused.why)
    assert "counts something else" in refused.detail
    assert isinstance(await desk.admission.reserve([one("e"), one("f")], None, old), Reserved)
    assert (2, 1) == (await desk.room(one("e")), await desk.room(one("f")))
    await desk.admission.aclose()


# -- what comes and goes
# ----------------------------------------------------------------------------------------------------------------------


@both
async def test_a_limit_that_is_gone_is_refused_and_what_was_reserved_on_it_settles(
    tmp_path: Path, shared: bool
) -> None:
    kept = daily("kept", 2, shared=shared)
    desk = Desk(daily("gone", 1, shared=shared), slots("s", 1, shared=shared), kept, state=tmp_path)
    held = await desk.taken(one("gone"), slot("s"), one("kept"))
    desk.update_limits(kept)
    refused = await desk.refused(one("gone"), wait=10.0)
    assert ("gone", "unavailable") == (refused.limit, refused.why)
    assert "not defined in the current policy" in refused.detail
    await desk.settle(held)
    assert 2 == await desk.room(one("kept"))
    desk.update_limits(kept, daily("gone", 1, shared=shared), slots("s", 1, shared=shared))
    assert (1, 1) == (await desk.room(one("gone")), await desk.room(slot("s")))
    await desk.admission.aclose()
    assert [] == desk.log.events


async def test_a_shared_limit_that_comes_works_though_no_folder_was_ever_needed(tmp_path: Path) -> None:
    desk = Desk(per("process", "p", 1), state=tmp_path / "deep" / "state")
    desk.update_limits(daily("d", 1, shared=True), slots("s", 1, shared=True))
    assert not desk.state.parent.exists()
    await desk.taken(one("d"), slot("s"))
    desk.update_limits(daily("d", 1, shared=True), slots("s", 1, shared=True), daily("e", 1, shared=True))
    await desk.taken(one("e"))
    await desk.refused(one("d"))
    await desk.admission.aclose()


async def test_one_process_that_reloads_and_one_that_does_not_count_together(tmp_path: Path) -> None:
    ours, theirs = (Desk(daily("d", 4, shared=True), slots("s", 3, shared=True), state=tmp_path) for _ in range(2))
    mine, other = await ours.taken(one("d"), slot("s")), await theirs.taken(one("d"), slot("s"))
    ours.update_limits(daily("d", 3, shared=True), slots("s", 4, shared=True))
    await ours.taken(one("d"), slot("s"))
    await ours.refused(one("d"))
    await theirs.taken(one("d"))
    await theirs.refused(slot("s"))
    await ours.taken(slot("s"))
    ours.update_limits(usd("d", 1, shared=True), slots("s", 4, shared=True))
    await ours.settle(mine)
    assert 1 == await theirs.room(one("d")), (
        "what ours had reserved is given back to the account that theirs still draws on"
    )
    await theirs.settle(other)
    assert 1 == await theirs.room(one("d"))
    for desk in (ours, theirs):
        await desk.admission.aclose()


# -- from memory into the state
# ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opened", [False, True], ids=["new", "open"])
async def test_limits_that_the_new_policy_shares_take_what_is_drawn_along(tmp_path: Path, opened: bool) -> None:
    first = [daily("open", 1, shared=True)] if opened else []
    desk = Desk(bucket("b", 3), slots("s", 2), *first, state=tmp_path)
    if opened:
        await desk.taken(one("open"))
    held = await desk.taken(one("b"), one("b"), slot("s"))
    await desk.taken(slot("s"))
    shared = bucket("b", 3, shared=True), slots("s", 2, shared=True), daily("d", 9, shared=True)
    desk.update_limits(*shared)
    other = Desk(*shared, state=tmp_path)
    await desk.refused(slot("s"))
    await other.refused(slot("s"))
    assert 1 == await other.room(one("b"))
    await desk.settle(held)
    assert (2, 1) == (await other.room(one("b")), await other.room(slot("s")))
    await desk.admission.aclose()
    assert 1 == await other.room(slot("s")), "the end frees what came along"
    await other.admission.aclose()


async def test_what_is_shared_stays_in_the_state_when_the_new_policy_would_not_share_it(tmp_path: Path) -> None:
    desk = Desk(bucket("b", 2, shared=True), slots("s", 1, shared=True), state=tmp_path)
    held = await desk.taken(one("b"), slot("s"))
    desk.update_limits(bucket("b", 2), slots("s", 1))
    other = Desk(bucket("b", 2, shared=True), slots("s", 1, shared=True), state=tmp_path)
    await desk.refused(slot("s"))
    await desk.taken(one("b"))
    await other.refused(one("b"))
    await desk.settle(held, one("b"))
    assert 1 == await other.room(slot("s"))
    for each in (desk, other):
        await each.admission.aclose()


async def test_a_reservation_on_both_is_taken_back_where_its_account_has_gone_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_module, "PATIENCE", 0.5)
    (tmp_path / "holders").touch()  # makes it impossible to take a slot
    desk = Desk(bucket("b", 1), slots("s", 1, shared=True), state=tmp_path)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(desk.refused, one("b"), slot("s"))
            await anyio.lowlevel.checkpoint()
            desk.update_limits(bucket("b", 1, shared=True), slots("s", 1, shared=True))
    assert 1 == await desk.room(one("b"))
    await desk.admission.aclose()


# -- who waits
# ----------------------------------------------------------------------------------------------------------------------


async def test_who_waits_is_served_at_once_when_there_is_more_room_and_in_the_order_of_coming() -> None:
    async with crowd(Desk(slots("s", 1))) as all:
        for name in "abcd":
            await all.comes(name, slot("s"))
        all.desk.update_limits(slots("s", 3))
        await all_blocked()
        assert list("abc") == all.got
        await all.done("b")
        assert list("abcd") == all.got


async def test_who_waits_goes_on_waiting_under_the_same_terms_in_the_same_order() -> None:
    async with crowd(Desk(slots("s", 1), bucket("b", 5))) as all:
        for name in "abc":
            await all.comes(name, slot("s"), one("b"))
        all.desk.update_limits(slots("s", 1))
        await all_blocked()
        assert ["a", "b", "c"] == all.got
        assert [("b", "unavailable")] * 2 == [all.refusal(name) for name in "bc"]
    async with crowd(Desk(slots("s", 1))) as all:
        for name in "abc":
            await all.comes(name, slot("s"))
        for _ in range(3):
            all.desk.update_limits(slots("s", 1))
            await all_blocked()
        await all.comes("d", slot("s"))
        assert ["a"] == all.got
        for name in "abc":
            await all.done(name)
        assert list("abcd") == all.got


async def test_who_waits_for_a_limit_that_is_gone_is_refused_and_holds_nobody_up() -> None:
    async with crowd(Desk(slots("s", 1), slots("gone", 1))) as all:
        await all.comes("holder", slot("gone"))
        await all.comes("s", slot("s"))
        await all.comes("both", slot("s"), slot("gone"))
        await all.comes("gone", slot("gone"))
        await all.comes("next", slot("s"))
        all.desk.update_limits(slots("s", 1))
        await all_blocked()
        assert [("gone", "unavailable")] * 2 == [all.refusal(name) for name in ("both", "gone")]
        await all.done("s")
        assert "next" == all.got[-1]


async def test_who_waits_for_more_than_there_will_ever_be_is_told_never() -> None:
    async with crowd(Desk(slots("s", 3))) as all:
        await all.comes("a", Draw("s", "[]", 2))
        await all.comes("three", Draw("s", "[]", 3))
        await all.comes("one", slot("s"))
        all.desk.update_limits(slots("s", 2))
        await all_blocked()
        assert ("s", "never") == all.refusal("three")
        assert ["a", "three"] == all.got
        await all.done("a")
        assert "one" == all.got[-1]


async def test_who_waits_for_a_limit_that_counts_something_else_is_refused() -> None:
    async with crowd(Desk(daily("d", 1))) as all:
        await all.comes("a", one("d"))
        await all.comes("b", one("d"))
        all.desk.update_limits(usd("d", 1_000))
        await all_blocked()
        assert ("d", "unavailable") == all.refusal("b")


async def test_who_waits_draws_on_the_new_account_where_only_the_window_is_another() -> None:
    async with crowd(Desk(daily("d", 1))) as all:
        for name in "abc":
            await all.comes(name, one("d"))
        all.desk.update_limits(bucket("d", 1))
        await all_blocked()
        assert ["a", "b"] == all.got
        await all.desk.timers.pass_(61.0)
        assert ["a", "b", "c"] == all.got


async def test_who_is_being_tried_at_the_state_tries_again_under_the_new_terms(tmp_path: Path) -> None:
    desk = Desk(slots("s", 1, shared=True), state=tmp_path)
    held = await desk.taken(slot("s"))
    got: list[Reserved] = []

    async def wait() -> None:
        got.append(await desk.taken(slot("s"), wait=1_000.0))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await anyio.lowlevel.checkpoint()  # it has been requested but not answered
            desk.update_limits(slots("s", 2, shared=True))
    assert 1 == len(got)
    await desk.settle(held)
    await desk.settle(got[0])
    assert 2 == await desk.room(slot("s"))
    await desk.admission.aclose()


# -- for how long
# ----------------------------------------------------------------------------------------------------------------------


@both
async def test_a_thousand_reloads_leave_nothing_behind(tmp_path: Path, shared: bool) -> None:
    desk = Desk(daily("d", 1), state=tmp_path)
    for number in range(1_000):
        desk.update_limits(bucket("d", 1, seconds=60.0 + number, shared=shared), slots(f"s{number}", 1, shared=shared))
        if number % 100 == 0:
            held = await desk.taken(one("d"), slot(f"s{number}"))
            desk.update_limits(slots("s", 1, shared=shared))
            await desk.settle(held)
    desk.update_limits(daily("d", 1_000, shared=shared))
    desk.clock.now += FORGET_AFTER
    for _ in range(SWEEP_EVERY):
        await desk.taken(one("d"))
    assert {"d"} == {one.name for one in desk.admission._limits.specs.values()}
    backend = desk.admission._ledger._backend
    assert isinstance(backend, SqliteLedger)
    assert (1, 0 if shared else 1) == (len(backend._specs), len(backend))
    await desk.admission.aclose()


async def test_a_reload_with_a_fault_of_ours_leaves_the_limits_as_they_were() -> None:
    desk = Desk(daily("d", 1))
    desk.admission.update_limits({"d": None})  # type: ignore[dict-item]
    assert [("limits.failed", {"exc_info": True})] == desk.log.events
    assert 1 == await desk.room(one("d"))
