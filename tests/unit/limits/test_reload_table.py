"""Draws that survive a reload, as a table: by the change, the account's store, and open reservations."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec
import pytest

from samplegate.policy.ledger import Draw, LimitSpec
from tests.fakes.limits import ONE, Desk

pytestmark = pytest.mark.anyio

DAY: Final = LimitSpec("l", "requests", 5 * ONE, "day", tz="UTC", by=("server",))
BUCKET: Final = LimitSpec("l", "requests", 5 * ONE, "bucket", 3600.0, by=("server",))
SLOTS: Final = LimitSpec("l", "concurrent", 5, "slots", by=("server",))
PROCESS: Final = LimitSpec("l", "requests", 5 * ONE, "process", by=("server",))
CALL: Final = LimitSpec("l", "requests", 5 * ONE, "call", by=("server",))
NOTHING: Final[dict[str, object]] = {"name": "another"}
BACK: Final[dict[str, object]] = {}

KEPT, ANEW = (2, 2), (0, 0)
TABLE: Final[dict[str, tuple[LimitSpec, tuple[dict[str, object], ...], tuple[int, int], tuple[int, int]]]] = {
    # changes, one reload after the other -> of 2 draws, how many are still drawn in memory and on disk: if all are
    # settled,
    # if all are still reserved
    "a day: nothing": (DAY, (BACK,), KEPT, KEPT),
    "a day: more": (DAY, ({"max_units": 9 * ONE},), KEPT, KEPT),
    "a day: less": (DAY, ({"max_units": 3 * ONE},), KEPT, KEPT),
    "a day: less than is drawn": (DAY, ({"max_units": ONE},), (1, 1), (1, 1)),
    "a day: less than is drawn, and back": (DAY, ({"max_units": ONE}, BACK), KEPT, KEPT),
    "a day: its warning": (DAY, ({"warn_at": 0.5},), KEPT, KEPT),
    "a day: its quantity": (DAY, ({"quantity": "output_tokens"},), ANEW, ANEW),
    "a day: a month": (DAY, ({"per": "month"},), ANEW, ANEW),
    "a day: a duration": (DAY, ({"per": "bucket", "period": 3600.0},), ANEW, ANEW),
    "a day: its time zone": (DAY, ({"tz": "Asia/Tokyo"},), ANEW, ANEW),
    "a day: its key": (DAY, ({"by": ("caller",)},), ANEW, ANEW),
    "a day: its name": (DAY, ({"name": "m"},), ANEW, ANEW),
    "a day: gone, and back": (DAY, (NOTHING, BACK), KEPT, KEPT),
    "a day: a month, and back": (DAY, ({"per": "month"}, BACK), KEPT, KEPT),
    "a day: its key, and back": (DAY, ({"by": ("caller",)}, BACK), KEPT, KEPT),
    "a bucket: more": (BUCKET, ({"max_units": 9 * ONE},), KEPT, KEPT),
    "a bucket: less": (BUCKET, ({"max_units": 3 * ONE},), KEPT, KEPT),
    "a bucket: its duration": (BUCKET, ({"period": 7200.0},), ANEW, ANEW),
    "a bucket: its duration, and back": (BUCKET, ({"period": 7200.0}, BACK), KEPT, KEPT),
    "slots: more": (SLOTS, ({"max_units": 9},), ANEW, KEPT),
    "slots: less": (SLOTS, ({"max_units": 3},), ANEW, KEPT),
    "slots: their key": (SLOTS, ({"by": ("caller",)},), ANEW, ANEW),
    "slots: gone, and back": (SLOTS, (NOTHING, BACK), ANEW, KEPT),
    "a process: more": (PROCESS, ({"max_units": 9 * ONE},), (2, 0), (2, 0)),
    "a process: gone, and back": (PROCESS, (NOTHING, BACK), (2, 0), (2, 0)),
    "a call: more": (CALL, ({"max_units": 9 * ONE},), (2, 0), (2, 0)),
    "a call: gone, and back": (CALL, (NOTHING, BACK), (2, 0), (2, 0)),
}


async def drawn(
    folder: Path, first: LimitSpec, changes: tuple[dict[str, object], ...], *, shared: bool, settled: bool
) -> int:
    """How many of two draws are still drawn after the reloads."""
    unit = ONE if first.quantity == "requests" else 1
    desk = Desk(msgspec.structs.replace(first, shared=shared), state=folder)
    held = [await desk.taken(Draw("l", '["x"]', unit)) for _ in range(2)]
    for reserved in held if settled else ():
        await desk.settle(reserved, *reserved.draws)
    last = first
    for change in changes:
        last = msgspec.structs.replace(first, **{"shared": shared, **change})
        desk.update_limits(last)
    left = await desk.room(Draw(last.name, '["x"]', unit))
    await desk.admission.aclose()
    assert [] == desk.log.events
    return last.max_units // unit - left


@pytest.mark.parametrize("name", TABLE)
async def test_what_a_reload_leaves_of_what_was_drawn(tmp_path: Path, name: str) -> None:
    first, changes, settled, reserved = TABLE[name]
    places = (False,) if first.per in ("process", "call") else (False, True)
    for shared in places:
        folders = tmp_path / f"settled {shared}", tmp_path / f"reserved {shared}"
        assert settled[shared] == await drawn(folders[0], first, changes, shared=shared, settled=True)
        assert reserved[shared] == await drawn(folders[1], first, changes, shared=shared, settled=False)


@pytest.mark.parametrize(
    ("before", "after"), [(False, True), (True, False)], ids=["into the state", "out of the state"]
)
@pytest.mark.parametrize("first", [DAY, BUCKET, SLOTS], ids=lambda spec: spec.per)
async def test_what_is_reserved_is_counted_on_where_the_place_changes(
    tmp_path: Path, first: LimitSpec, before: bool, after: bool
) -> None:
    assert 2 == await drawn(
        tmp_path, msgspec.structs.replace(first, shared=before), ({"shared": after},), shared=before, settled=False
    )
    other = Desk(msgspec.structs.replace(first, shared=True), state=tmp_path)
    left = await other.room(Draw("l", '["x"]', 1 if first.per == "slots" else ONE))
    assert (5 if first.per == "slots" else 0) == left, (
        "and the file has it: all that was drawn, but for the slots of a process that has ended"
    )
    await other.admission.aclose()
