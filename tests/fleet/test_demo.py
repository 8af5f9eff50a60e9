"""The demo of many gates: one dollar, no review lost or released twice, while gates are killed in turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes import postgresql
from tests.fleet.fleet_demo import demo, faults, told

pytestmark = pytest.mark.anyio


async def test_clients_work_on_while_gates_are_killed_in_turn(tmp_path: Path) -> None:
    with postgresql.postgresql("fsync = off") as place:
        done = await demo(tmp_path, place, turns=3)
        found = told(place)
    assert [] == faults(done, found)
    assert done.samples > 0
    assert done.forms
