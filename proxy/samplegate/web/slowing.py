"""How often somebody may be wrong about a token: a budget of mistakes for each address and one for all, refilled by time. It holds no token."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from math import ceil
from typing import Final

import msgspec

MAX_ADDRESSES: Final = 4096  # that are remembered: the one unseen for longest goes first, and the budget for all holds without it


class Pace(msgspec.Struct, frozen=True):
    """``burst`` mistakes at once, and ``rate`` a second from there on."""

    burst: float
    rate: float


class Mistakes:
    """Token buckets over a clock in seconds. One that is set back refills nothing."""

    def __init__(self, each: Pace, all: Pace, clock: Callable[[], float]) -> None:
        self._each = each
        self._all = all
        self._clock = clock
        self._spent_by: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._spent = (0.0, clock())

    def wait(self, address: str) -> int:
        """Seconds until this address may send another wrong token, 0 for now."""
        now = self._clock()
        mine = _left(self._spent_by.get(address, (0.0, now)), self._each, now)
        theirs = _left(self._spent, self._all, now)
        return max(_wait(mine, self._each), _wait(theirs, self._all))

    def attempt(self, address: str) -> int:
        """Count a wrong token, unless this address has to wait; the seconds it has to."""
        wait = self.wait(address)
        if not wait:
            self.made(address)
        return wait

    def made(self, address: str) -> None:
        """It was wrong."""
        now = self._clock()
        self._spent = (_left(self._spent, self._all, now) + 1, now)
        self._spent_by[address] = (_left(self._spent_by.pop(address, (0.0, now)), self._each, now) + 1, now)
        if len(self._spent_by) > MAX_ADDRESSES:
            self._spent_by.popitem(last=False)


def _left(spent: tuple[float, float], pace: Pace, now: float) -> float:
    """The mistakes that are not made good yet."""
    count, since = spent
    return max(0.0, count - max(0.0, now - since) * pace.rate)


def _wait(spent: float, pace: Pace) -> int:
    over = spent + 1 - pace.burst
    return 0 if over <= 0 else ceil(over / pace.rate)
