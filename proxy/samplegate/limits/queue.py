"""Who waits for room, and who is next: first come, first served at each account. It asks nothing and knows no clock.

A request that waits stands at one account: the one that had no room for it, or one that it draws on and where somebody
stands who came before. The first at an account has been refused by it and tries again when woken; those behind it wait
until it has left.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

from samplegate.limits.accounts import Account

MOST_WAITING: Final = 1_000
LONGEST: Final = 86_400.0  # seconds; no loop takes an endless timer


class Timer(Protocol):
    """What a loop's ``call_later`` returns."""

    def cancel(self) -> None: ...


Later: TypeAlias = Callable[[float, Callable[[], None]], Timer]
"""A loop's ``call_later``."""


class Waiter:
    """One request that waits. ``number`` says who came first."""

    def __init__(self, number: int, accounts: Sequence[Account], at: Account) -> None:
        self.number = number
        self.accounts = accounts
        self.at = at
        self.over = False
        """Its time is up, or the gate ends."""
        self.stands = False
        """Whether it is in the line."""
        self.retry_after: float | None = None
        """Seconds until there may be room, as the account that refused it last could tell."""
        self._event = asyncio.Event()
        self._timer: Timer | None = None

    def __lt__(self, other: Waiter) -> bool:
        return self.number < other.number

    async def woken(self) -> None:
        """Wait; whoever wakes it from now on wakes it for the next time."""
        await self._event.wait()
        self._event.clear()

    def wake(self) -> None:
        """There may be room."""
        self._event.set()

    def end(self) -> None:
        """It waits no longer."""
        self.over = True
        self._event.set()

    def wake_by(self, timer: Timer | None) -> None:
        """The one timer that is to wake it."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = timer


class WaitQueue:
    """All that wait, by account."""

    def __init__(self, most: int = MOST_WAITING) -> None:
        self.most = most
        self._at: dict[Account, list[Waiter]] = {}
        self._count = 0

    @property
    def full(self) -> bool:
        """Whether nobody more may wait."""
        return self._count >= self.most

    def before(self, number: int, accounts: Iterable[Account]) -> Account | None:
        """An account of these at which somebody stands who came before."""
        return next(
            (account for account in accounts if account in self._at and self._at[account][0].number < number), None
        )

    def is_first(self, waiter: Waiter) -> bool:
        """Whether it is its turn."""
        return self._at[waiter.at][0] is waiter

    def join(self, waiter: Waiter) -> None:
        """It waits from now on, until it leaves."""
        insort(self._at.setdefault(waiter.at, []), waiter)
        waiter.stands = True
        self._count += 1

    def move(self, waiter: Waiter, account: Account) -> None:
        """It stands at another account, according to when it came; those it stood before are no longer held up by
        it."""
        if account != waiter.at:
            self.leave(waiter)
            waiter.at = account
            self.join(waiter)

    def leave(self, waiter: Waiter) -> None:
        """It waits no longer; the next at its account may try."""
        waiter.wake_by(None)
        if not waiter.stands:
            return
        waiter.stands = False
        here = self._at[waiter.at]
        here.remove(waiter)
        self._count -= 1
        if here:
            here[0].wake()
        else:
            del self._at[waiter.at]

    def replace(self, places: Mapping[Waiter, tuple[Sequence[Account], Account] | None]) -> None:
        """Other accounts for all that wait, and where each stands from now on; None for those that wait no longer. All
        of them are woken."""
        self._at.clear()
        self._count = 0
        for waiter, place in places.items():
            waiter.stands = False
            if place is not None:
                waiter.accounts, waiter.at = place
                self.join(waiter)
            waiter.wake()

    def wake(self, accounts: Iterable[Account]) -> None:
        """Something was given back to these."""
        for account in accounts:
            if account in self._at:
                self._at[account][0].wake()

    def end(self) -> None:
        """Nobody waits any longer."""
        for waiter in [waiter for here in self._at.values() for waiter in here]:
            waiter.end()


def after(seconds: float, what: Callable[[], None], later: Later | None) -> Timer:
    """Call something in so many seconds, by the running loop where nothing else is given."""
    return (later or asyncio.get_running_loop().call_later)(max(0.0, min(seconds, LONGEST)), what)
