"""Admission over both stores, in memory and on disk: the file is created on first use, all or none, cancellation,
unusual keys, clock jumps."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path

import anyio
import msgspec
import pytest

from samplegate.errors import Unavailable
from samplegate.files import check_writable
from samplegate.policy.ledger import Draw, Refused, Reserved
from tests.fakes.limits import NOON, ONE, Clock, Desk, all_blocked, bucket, daily, one, per, slot, slots
from tests.fakes.loops import BOTH_LOOPS

pytestmark = pytest.mark.anyio
DAY = 86_400.0


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_limits_of_this_process_touch_no_file(tmp_path: Path) -> None:
    desk = Desk(bucket("b", 2), per("call", "c", 2), per("process", "p", 2), slots("s", 2), state=tmp_path / "state")
    held = await desk.taken(one("b"), one("c"), one("p"), slot("s"))
    await desk.settle(held, one("b"))
    await desk.admission.aclose()
    assert [] == names(tmp_path)


async def test_the_first_draw_on_a_shared_limit_makes_the_file_for_its_owner_alone(tmp_path: Path) -> None:
    desk = Desk(
        daily("d", 2, shared=True), slots("s", 2, shared=True), bucket("b", 2), state=tmp_path / "deep" / "state"
    )
    await desk.taken(one("b"))
    assert [] == names(tmp_path)
    await desk.taken(one("d"), slot("s"))
    (holder,) = (desk.state / "holders").iterdir()
    modes = {
        path.name: oct(path.stat().st_mode & 0o777)
        for path in (desk.file, desk.state, desk.state.parent, holder.parent, holder)
    }
    assert {
        "limits.sqlite3": "0o600",
        "state": "0o700",
        "deep": "0o700",
        "holders": "0o700",
        holder.name: "0o600",
    } == modes
    await desk.admission.aclose()
    assert ["holders", "limits.sqlite3"] == names(desk.state)
    assert [] == names(holder.parent)


async def test_all_are_charged_or_none_over_both_stores(tmp_path: Path) -> None:
    desk = Desk(
        per(
            "process",
            "p",
            2,
        ),
        daily("d", 1, shared=True),
        slots("s", 1),
        state=tmp_path,
    )
    await desk.taken(one("p"), one("d"))
    refused = await desk.refused(one("p"), slot("s"), one("d"))
    assert ("d", "full") == (refused.limit, refused.why)
    await desk.taken(one("p"), slot("s"))
    await desk.admission.aclose()


async def test_a_warning_that_nobody_got_is_due_again(tmp_path: Path) -> None:
    desk = Desk(per("process", "p", 2), daily("w", 2, warn_at=0.5), daily("d", 0, shared=True), state=tmp_path)
    await desk.refused(one("w"), one("d"))
    assert ("w",) == (await desk.taken(one("w"))).warned
    await desk.admission.aclose()


@pytest.mark.parametrize("shared", [True, False])
async def test_what_was_not_drawn_is_given_back_once(tmp_path: Path, shared: bool) -> None:
    desk = Desk(daily("d", 2, shared=shared), slots("s", 2, shared=shared), state=tmp_path)
    held = await desk.taken(one("d"), one("d"), slot("s"))
    await desk.refused(one("d"))
    await desk.settle(held, one("d"))
    await desk.settle(held)
    assert 1 == await desk.room(one("d"))
    assert 2 == await desk.room(slot("s"))
    await desk.admission.aclose()


@pytest.mark.parametrize("shared", [True, False])
async def test_the_draws_of_one_reservation_can_be_settled_in_parts(tmp_path: Path, shared: bool) -> None:
    desk = Desk(
        daily("d", 2, shared=shared),
        daily("e", 2, shared=shared),
        bucket("b", 2),
        slots("s", 1, shared=shared),
        state=tmp_path,
    )
    draws = (one("d"), one("d"), one("b"), one("e", key := '["' + "x" * 1_000 + '"]'), slot("s"))
    held = await desk.taken(*draws)
    parts = [msgspec.structs.replace(held, draws=part) for part in (draws[:2], draws[2:4], draws[4:])]
    for _ in range(2):
        await desk.settle(parts[0], one("d"))
    await desk.refused(slot("s"))
    assert 1 == await desk.room(one("d"))
    await desk.settle(parts[1])
    await desk.refused(slot("s"))
    assert 2 == await desk.room(one("b"))
    assert 2 == await desk.room(one("e", key))
    await desk.settle(parts[2])
    await desk.settle(held)
    assert 1 == await desk.room(slot("s"))
    await desk.refused(one("d"))
    await desk.admission.aclose()


@pytest.mark.parametrize("shared", [True, False])
async def test_how_full_the_limits_are_is_told(tmp_path: Path, shared: bool) -> None:
    desk = Desk(daily("d", 4, shared=shared), bucket("b", 2), slots("s", 5, shared=shared), state=tmp_path)
    await desk.taken(one("d", '["x"]'), one("d", '["x"]'), slot("s"))
    held = await desk.taken(one("d", '["x"]'), one("d", '["y"]'), one("b"), slot("s"))
    assert {"d": 0.75, "b": 0.5, "s": 0.4} == held.fill
    await desk.admission.aclose()


@pytest.mark.parametrize("shared", [True, False])
async def test_an_overrun_is_booked(tmp_path: Path, shared: bool) -> None:
    desk = Desk(daily("d", 4, shared=shared), state=tmp_path)
    await desk.settle(await desk.taken(one("d")), Draw("d", "[]", 3 * ONE))
    assert 1 == await desk.room(one("d"))
    await desk.admission.aclose()


@pytest.mark.parametrize("shared", [True, False])
async def test_what_is_settled_after_its_window_gives_nothing_to_the_next(tmp_path: Path, shared: bool) -> None:
    desk = Desk(daily("d", 2, shared=shared), state=tmp_path)
    held = await desk.taken(one("d"), one("d"))
    desk.clock.now += DAY
    await desk.taken(one("d"), one("d"))
    await desk.settle(held)
    await desk.refused(one("d"))
    await desk.admission.aclose()


@pytest.mark.parametrize("shared", [True, False])
async def test_a_full_account_recovers_after_a_clock_that_ran_ahead_was_set_back(tmp_path: Path, shared: bool) -> None:
    desk = Desk(bucket("b", 1, shared=shared), clock=Clock(NOON + 30 * DAY), state=tmp_path)
    assert isinstance(await desk.admission.reserve((one("b"),), None), Reserved)
    desk.clock.now = NOON
    assert isinstance(await desk.admission.reserve((one("b"),), None), Refused), "nothing is freed"
    desk.clock.now = NOON + 60
    assert isinstance(await desk.admission.reserve((one("b"),), None), Reserved), "and it drains from then on"
    await desk.admission.aclose()


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("back", [1.0, 3_600.0])
async def test_a_clock_that_is_set_back_frees_nothing(tmp_path: Path, shared: bool, back: float) -> None:
    desk = Desk(bucket("b", 2, seconds=600.0, shared=shared), daily("d", 2, shared=shared), state=tmp_path)
    held = await desk.taken(one("b"), one("b"), one("d"), one("d"))
    desk.clock.now -= back
    await desk.refused(one("b"))
    await desk.refused(one("d"))
    desk.clock.now += back
    if back < 600.0:  # in a longer time the bucket drains, whatever the clock showed before
        await desk.refused(one("b"))
    await desk.settle(held, one("b"), one("b"), one("d"), one("d"))
    await desk.refused(one("d"))
    await desk.admission.aclose()


KEYS = [
    "[]",
    "",
    '["' + "ä" * 10_000 + '"]',
    "x" * 10_000,
    "nul \0 in it",
    "half \ud800",
    "'; DROP TABLE accounts; --",
    "sha256:0",
    "🦊\n",
]


@pytest.mark.parametrize("shared", [True, False])
async def test_any_text_is_a_key_of_its_own(tmp_path: Path, shared: bool) -> None:
    desk = Desk(daily("d", 1, shared=shared), slots("s", 1, shared=shared), state=tmp_path)
    for key in KEYS:
        draws = [one("d", key), slot("s", key)]
        held = await desk.taken(*draws)
        assert tuple(draws) == held.draws
        await desk.refused(draws[0])
        await desk.settle(held, draws[0])
        await desk.taken(draws[1])
        await desk.refused(draws[0])
    await desk.admission.aclose()


async def test_a_limit_that_the_policy_lacks_is_refused() -> None:
    refused = await Desk().refused(one("gone"))
    assert ("gone", "unavailable") == (refused.limit, refused.why)
    assert "not defined in the current policy" in refused.detail


async def test_drawing_on_nothing_is_free() -> None:
    desk = Desk()
    held = await desk.taken()
    await desk.settle(held)
    assert ((), ()) == (held.draws, held.warned)


async def test_a_fault_of_ours_is_refused_and_logged_whole() -> None:
    def clock() -> float:
        raise RuntimeError("no time")

    desk = Desk(daily("d", 1), clock=clock)  # type: ignore[arg-type]
    assert "unavailable" == (await desk.refused(one("d"))).why
    assert [("limits.failed", {"exc_info": True})] == desk.log.events


# -- cancellations
# ----------------------------------------------------------------------------------------------------------------------


class Locked:
    """The state file, with its write lock held by another process."""

    def __init__(self, file: Path) -> None:
        self._db = sqlite3.connect(file, isolation_level=None)

    def __enter__(self) -> Locked:
        self._db.execute("BEGIN IMMEDIATE")
        return self

    def __exit__(self, *_: object) -> None:
        self._db.execute("ROLLBACK")
        self._db.close()


@BOTH_LOOPS
@pytest.mark.parametrize("how", ["a scope", "the task"])
async def test_a_reservation_that_is_cancelled_in_the_middle_is_given_back(tmp_path: Path, how: str) -> None:
    desk = Desk(
        daily("d", 2, shared=True),
        daily("w", 2, shared=True, warn_at=0.5),
        slots("s", 1, shared=True),
        bucket("b", 3),
        state=tmp_path,
    )
    await desk.settle(await desk.taken(one("d")), one("d"))
    draws = one("d"), one("w"), slot("s"), one("b")
    with Locked(desk.file):
        if how == "a scope":
            async with anyio.create_task_group() as group:
                for _ in range(3):  # the first is in the thread, the others are queued behind it
                    group.start_soon(desk.reserve, *draws)
                await all_blocked()
                group.cancel_scope.cancel()
        else:
            tasks = [asyncio.create_task(desk.reserve(*draws)) for _ in range(3)]
            await all_blocked()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            assert all(task.cancelled() for task in tasks)
    held = await desk.taken(*draws)
    assert ("w",) == held.warned
    await desk.refused(one("d"))
    assert 2 == await desk.room(one("b"))
    await desk.admission.aclose()
    assert [] == desk.log.events


@BOTH_LOOPS
async def test_a_reservation_whose_answer_meets_a_cancellation_is_given_back(tmp_path: Path) -> None:
    desk = Desk(daily("d", 1, shared=True), state=tmp_path)
    for turns in range(60):  # one of them cancels between the answer and the next turn of the task
        task = asyncio.create_task(desk.reserve(one("d")))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            await desk.settle(task.result())  # type: ignore[arg-type]
    await desk.taken(one("d"))
    await desk.admission.aclose()


@BOTH_LOOPS
async def test_a_settlement_that_is_cancelled_is_carried_out(tmp_path: Path) -> None:
    desk = Desk(daily("d", 2, shared=True), slots("s", 1, shared=True), state=tmp_path)
    held = await desk.taken(one("d"), one("d"), slot("s"))
    with anyio.CancelScope() as scope:
        scope.cancel()
        await desk.settle(held, one("d"))
    await desk.taken(one("d"), slot("s"))
    await desk.admission.aclose()


@BOTH_LOOPS
async def test_a_round_that_is_cancelled_while_it_waits_for_the_state_draws_nothing(tmp_path: Path) -> None:
    desk = Desk(slots("s", 1, shared=True), state=tmp_path)
    held = await desk.taken(slot("s"))
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: desk.reserve(slot("s"), wait=100.0))
        await all_blocked()
        group.cancel_scope.cancel()
    await desk.settle(held)
    assert 1 == await desk.room(slot("s"))
    assert 0 == desk.timers.left
    await desk.admission.aclose()


# -- waiting for what is shared
# ----------------------------------------------------------------------------------------------------------------


async def test_another_process_that_gives_back_is_noticed(tmp_path: Path) -> None:
    ours, theirs = (Desk(slots("s", 1, shared=True), state=tmp_path) for _ in range(2))
    held = await theirs.taken(slot("s"))
    got: list[Reserved | Refused] = []
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:

            async def wait() -> None:
                got.append(await ours.reserve(slot("s"), wait=100.0))

            group.start_soon(wait)
            while not ours.timers.left > 1:  # the end of the wait, and the next try
                await anyio.lowlevel.checkpoint()
            await theirs.settle(held)
            assert [] == got
            await ours.timers.pass_(0.5)
    assert isinstance(got[0], Reserved)
    for desk in (ours, theirs):
        await desk.admission.aclose()


async def test_a_place_that_becomes_free_here_is_given_on_at_once(tmp_path: Path) -> None:
    desk = Desk(slots("s", 1, shared=True), state=tmp_path)
    order: list[str] = []

    async def use(name: str) -> None:
        held = await desk.taken(slot("s"), wait=1_000.0)
        order.append(name)
        await desk.settle(held)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            for name in "abcdefgh":
                group.start_soon(use, name)
    assert list("abcdefgh") == order
    await desk.admission.aclose()


async def test_the_end_frees_the_slots_and_a_settlement_after_it_does_nothing(tmp_path: Path) -> None:
    ours, theirs = (Desk(slots("s", 1, shared=True), daily("d", 2, shared=True), state=tmp_path) for _ in range(2))
    held = await ours.taken(slot("s"), one("d"))
    await ours.admission.aclose()
    await ours.settle(held)
    await ours.admission.aclose()
    await theirs.taken(slot("s"), one("d"))
    await theirs.refused(one("d"))
    await theirs.admission.aclose()


# -- the place
# ----------------------------------------------------------------------------------------------------------------------


def make_file(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda state: make_file(state.parent), "cannot be created: {parent} is not a folder"),
        (make_file, "is not a folder"),
        (lambda state: (state / "limits.sqlite3").mkdir(parents=True), "has a limits.sqlite3 that cannot be written"),
        (lambda state: make_file(state / "holders"), "has a holders that cannot be written"),
    ],
    ids=["a file above", "a file", "a folder for the file", "a file for the folder"],
)
def test_a_folder_that_cannot_be_written_is_told_before_the_start(
    tmp_path: Path, make: Callable[[Path], None], reason: str
) -> None:
    state = tmp_path / "above" / "state"
    make(state)
    with pytest.raises(Unavailable) as problem:
        check_writable(state)
    expected = f"limits: state folder {state} {reason.format(parent=state.parent)}; set --state to a writable folder"
    assert expected == str(problem.value)


async def test_a_time_before_the_epoch_or_far_ahead_is_a_time(tmp_path: Path) -> None:
    for shared, now in [(True, 0.0), (False, 0.0), (True, 2**31), (False, NOON * 2)]:
        desk = Desk(
            bucket("b", 1, shared=shared),
            daily("d", 1, shared=shared),
            clock=Clock(now),
            state=tmp_path / f"{shared}{now}",
        )
        await desk.taken(one("b"), one("d"))
        await desk.refused(one("b"))
        await desk.admission.aclose()
