"""What a call has drawn on limits per call travels with its sealed round to another gate."""

from __future__ import annotations

from pathlib import Path

import pytest

from samplegate.limits.shared_ledger import SharedLedger
from samplegate.policy.ledger import Refused, Reserved
from samplegate.protocol.outcomes import CallDrawn
from tests.fakes.limits import ONE, Desk, bucket, daily, one, per

pytestmark = pytest.mark.anyio

CALL = '["c1"]'


async def test_another_gate_counts_on_from_what_a_call_had_drawn() -> None:
    here, there = Desk(per("call", "few", 3)), Desk(per("call", "few", 3))
    for _ in range(2):
        await here.settle(await here.taken(one("few", CALL)), one("few", CALL))
    drawn = here.admission.call_drawn({("few", CALL)})
    assert (CallDrawn("few", CALL, 2 * ONE),) == drawn
    await there.admission.restore_drawn(drawn)
    assert isinstance(await there.reserve(one("few", CALL)), Reserved)
    assert isinstance(await there.reserve(one("few", CALL)), Refused)
    assert isinstance(await there.reserve(one("few", '["c2"]')), Reserved)


async def test_a_state_that_returns_twice_lowers_nothing() -> None:
    desk = Desk(per("call", "few", 3))
    for _ in range(3):
        await desk.taken(one("few", CALL))
    await desk.admission.restore_drawn([CallDrawn("few", CALL, ONE)])
    assert isinstance(await desk.reserve(one("few", CALL)), Refused)


async def test_only_limits_per_call_travel() -> None:
    desk = Desk(bucket("b", 3), per("process", "p", 3), per("call", "few", 3))
    await desk.taken(one("b"), one("p"), one("few", CALL))
    accounts = {("b", "[]"), ("p", "[]"), ("few", CALL), ("few", '["unknown"]'), ("gone", CALL)}
    assert (CallDrawn("few", CALL, ONE),) == desk.admission.call_drawn(accounts)
    await desk.admission.restore_drawn([CallDrawn("b", "[]", 3 * ONE), CallDrawn("gone", CALL, ONE)])
    assert isinstance(await desk.reserve(one("b")), Reserved)


async def test_it_is_restored_while_a_thread_uses_shared_accounts(tmp_path: Path) -> None:
    desk = Desk(daily("d", 3, shared=True), per("call", "few", 1), state=tmp_path)
    await desk.taken(one("d"))
    await desk.admission.restore_drawn([CallDrawn("few", CALL, ONE)])
    assert isinstance(await desk.reserve(one("d"), one("few", CALL)), Refused)
    backend = desk.admission._ledger._backend
    assert isinstance(backend, SharedLedger)
    assert 1 == len(backend)
    await desk.admission.aclose()
