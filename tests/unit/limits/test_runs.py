"""Limits per run: shared by the processes of a run, apart from other runs, and forgotten after a day."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec
import pytest

from samplegate.limits.limiter import Limiter
from samplegate.policy.ledger import FORGET_AFTER, LimitSpec, Refused, Reserved
from tests.fakes.limits import ONE, Clock, bucket, daily, one

pytestmark = pytest.mark.anyio

RUN = LimitSpec("r", "requests", 2 * ONE, "run", shared=True)


class Log:
    """A log that raises: nothing may fail."""

    def error(self, event: str, **fields: object) -> None:
        raise RuntimeError(f"{event}: {fields}")

    debug = warning = info = error


def limiter(state: Path, run: str, clock: Clock, *more: LimitSpec) -> Limiter:
    return Limiter({spec.name: spec for spec in (RUN, *more)}, state=state, clock=clock, log=Log(), run=run)


async def test_two_processes_of_a_run_share_it_and_another_run_does_not(tmp_path: Path) -> None:
    clock = Clock()
    first, second, other = (limiter(tmp_path, run, clock) for run in ("1", "1", "2"))
    assert isinstance(await first.reserve([one("r")], None), Reserved)
    assert isinstance(await second.reserve([one("r")], None), Reserved)
    for full in (first, second):
        refused = await full.reserve([one("r")], None)
        assert isinstance(refused, Refused)
        assert ("full", None) == (refused.why, refused.retry_after)
    assert isinstance(await other.reserve([one("r")], None), Reserved)
    for each in (first, second, other):
        await each.aclose()


async def test_it_is_not_waited_for_because_it_does_not_refill(tmp_path: Path) -> None:
    desk = limiter(tmp_path, "1", Clock(), bucket("b", 9, shared=True))
    assert isinstance(await desk.reserve([one("r"), one("r")], None), Reserved)
    refused = await desk.reserve([one("r"), one("b")], 3600.0)
    assert isinstance(refused, Refused)
    assert "r" == refused.limit
    await desk.aclose()


async def test_without_a_run_it_has_no_room(tmp_path: Path) -> None:
    desk = limiter(tmp_path, "", Clock(), daily("d", 1, shared=True))
    refused = await desk.reserve([one("d"), one("r")], None)
    assert isinstance(refused, Refused)
    assert (
        "unavailable",
        "limit r: it counts per run, but this process has no run ID; set SAMPLEGATE_RUN or --run",
    ) == (
        refused.why,
        refused.detail,
    )
    assert isinstance(await desk.reserve([one("d")], None), Reserved)
    await desk.aclose()


@pytest.mark.parametrize(("later", "left"), [(FORGET_AFTER - 60, 2), (FORGET_AFTER + 60, 1)])
async def test_the_account_of_an_earlier_run_is_forgotten_after_a_day(tmp_path: Path, later: float, left: int) -> None:
    clock = Clock()
    early = limiter(tmp_path, "1", clock)
    assert isinstance(await early.reserve([one("r")], None), Reserved)
    await early.aclose()
    clock.now += later
    late = limiter(tmp_path, "2", clock)  # its first draw looks for idle accounts
    assert isinstance(await late.reserve([one("r")], None), Reserved)
    await late.aclose()
    with sqlite3.connect(tmp_path / "limits.sqlite3") as state:
        assert [(left,)] == state.execute("SELECT count(*) FROM accounts").fetchall()


async def test_a_limit_that_becomes_one_per_run_begins_anew(tmp_path: Path) -> None:
    desk = Limiter({"r": msgspec.structs.replace(RUN, per="day")}, state=tmp_path, clock=Clock(), log=Log(), run="1")
    assert isinstance(await desk.reserve([one("r"), one("r")], None), Reserved)
    desk.update_limits({"r": RUN})
    assert isinstance(await desk.reserve([one("r"), one("r")], None), Reserved)
    await desk.aclose()
