"""The lease of slots in a shared database: a process that cannot renew it ends the requests that hold them."""

from __future__ import annotations

from typing import Any

import pytest

from samplegate.limits.accounts import Reservation
from samplegate.limits.lease import LOST_AFTER, SlotLease
from samplegate.policy.ledger import Reserved
from tests.fakes.limits import Clock, Timers

pytestmark = pytest.mark.anyio
LEASE = 30.0


class Ledger:
    """Renewals succeed while ``reachable``."""

    lease = LEASE

    def __init__(self) -> None:
        self.reachable = True

    async def renew(self) -> bool:
        return self.reachable


class Desk:
    ledger: Any

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.timers = Timers(Clock())
        self.held: list[Reservation] = []
        self.given_up: list[Reservation] = []
        self.lease = SlotLease(
            self.ledger, lambda: self.held, self.given_up.extend, lambda: self.timers.now, self.timers
        )

    def hold(self) -> Reservation:
        held = Reservation({}, Reserved("r", (), 0.0))
        self.held.append(held)
        self.lease.begin(self.timers.now)
        return held


async def test_slots_stay_while_the_lease_is_renewed() -> None:
    desk = Desk()
    desk.hold()
    await desk.timers.pass_(10 * LEASE)
    assert [] == desk.given_up


async def test_slots_are_given_up_before_the_lease_ends() -> None:
    desk = Desk()
    held = desk.hold()
    desk.ledger.reachable = False
    await desk.timers.pass_(LEASE * LOST_AFTER - 0.1)
    assert [] == desk.given_up
    await desk.timers.pass_(LEASE / 6)
    assert held in desk.given_up


async def test_a_reservation_of_a_moment_ago_is_not_given_up_with_earlier_ones() -> None:
    desk = Desk()
    desk.hold()
    desk.ledger.reachable = False
    await desk.timers.pass_(LEASE * LOST_AFTER - 1)
    desk.held.clear()
    desk.hold()  # the reservation itself has renewed the lease
    await desk.timers.pass_(LEASE / 6)
    assert [] == desk.given_up


async def test_nothing_is_scheduled_without_slots() -> None:
    desk = Desk()
    desk.hold()
    desk.held.clear()
    await desk.timers.pass_(LEASE)
    assert 0 == desk.timers.left


def test_a_loss_is_told_once() -> None:
    held, told = Reservation({}, Reserved("r", (), 0.0)), []
    held.when_lost(lambda: told.append(1))
    assert held.lose()
    assert not held.lose()
    assert [1] == told


def test_a_request_that_asks_after_the_loss_learns_of_it_at_once() -> None:
    held, told = Reservation({}, Reserved("r", (), 0.0)), []
    assert held.lose()
    held.when_lost(lambda: told.append(1))
    assert [1] == told
