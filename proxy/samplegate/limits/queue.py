"""The wait queue: requests that wait for room in a limit, first come, first served at each account.

A request waits at one account: the one without room for it, or one where an earlier request waits. The first at an
account has been refused by it and retries when woken. The others wait until the first has left. The queue has no clock.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

from samplegate.limits.accounts import Account

MAX_WAITING: Final = 1_000
LONGEST: Final = 86_400.0  # seconds; a loop's timer must be finite


class Timer(Protocol):
    """The handle that a loop's ``call_later`` returns."""

    def cancel(self) -> None: ...


Later: TypeAlias = Callable[[float, Callable[[], None]], Timer]
"""A loop's ``call_later``."""


class Waiter:
    """A waiting request. ``number`` is the order of arrival."""

    def __init__(self, number: int, accounts: Sequence[Account], at: Account) -> None:
        self.number = number
        self.accounts = accounts
        self.at = at
        self.over = False
        """Its wait has timed out, or the gate is shutting down."""
        self.queued = False
        """Whether it is in the queue."""
        self.retry_after: float | None = None
        """Seconds until there may be room, according to the account that refused it last."""
        self._event = asyncio.Event()
        self._timer: Timer | None = None

    def __lt__(self, other: Waiter) -> bool:
        return self.number < other.number

    async def woken(self) -> None:
        """Wait for the next wake-up."""
        await self._event.wait()
        self._event.clear()

    def wake(self) -> None:
        """Wake it, because there may be room."""
        self._event.set()

    def end(self) -> None:
        """End its wait."""
        self.over = True
        self._event.set()

    def wake_by(self, timer: Timer | None) -> None:
        """Replace the timer that wakes it."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = timer


class WaitQueue:
    """The waiting requests by account."""

    def __init__(self, most: int = MAX_WAITING) -> None:
        self.most = most
        self._at: dict[Account, list[Waiter]] = {}
        self._count = 0

    @property
    def full(self) -> bool:
        """Whether the queue accepts no more requests."""
        return self._count >= self.most

    def before(self, number: int, accounts: Iterable[Account]) -> Account | None:
        """The first of these accounts at which an earlier request waits."""
        return next(
            (account for account in accounts if account in self._at and self._at[account][0].number < number), None
        )

    def is_first(self, waiter: Waiter) -> bool:
        """Whether it is the request's turn."""
        return self._at[waiter.at][0] is waiter

    def join(self, waiter: Waiter) -> None:
        """Add a request to the queue."""
        insort(self._at.setdefault(waiter.at, []), waiter)
        waiter.queued = True
        self._count += 1

    def move(self, waiter: Waiter, account: Account) -> None:
        """Move a request to another account, by its order of arrival. It no longer blocks the requests behind it at
        the old account."""
        if account != waiter.at:
            self.leave(waiter)
            waiter.at = account
            self.join(waiter)

    def leave(self, waiter: Waiter) -> None:
        """Remove a request from the queue; the next one at its account may try."""
        waiter.wake_by(None)
        if not waiter.queued:
            return
        waiter.queued = False
        here = self._at[waiter.at]
        here.remove(waiter)
        self._count -= 1
        if here:
            here[0].wake()
        else:
            del self._at[waiter.at]

    def replace(self, places: Mapping[Waiter, tuple[Sequence[Account], Account] | None]) -> None:
        """Replace the accounts and the position of every waiting request; None removes it. All requests are woken."""
        self._at.clear()
        self._count = 0
        for waiter, place in places.items():
            waiter.queued = False
            if place is not None:
                waiter.accounts, waiter.at = place
                self.join(waiter)
            waiter.wake()

    def wake(self, accounts: Iterable[Account]) -> None:
        """Wake the first request at each account, because units were given back."""
        for account in accounts:
            if account in self._at:
                self._at[account][0].wake()

    def end(self) -> None:
        """End the wait of every request."""
        for waiter in [waiter for here in self._at.values() for waiter in here]:
            waiter.end()


def after(seconds: float, what: Callable[[], None], later: Later | None) -> Timer:
    """Schedule a call after some seconds, with ``later`` or the running loop's ``call_later``."""
    return (later or asyncio.get_running_loop().call_later)(max(0.0, min(seconds, LONGEST)), what)
