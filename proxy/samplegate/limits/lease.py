"""The lease of this process's slots in a database that gates on other machines share.

Other gates take the slots of a process whose lease has ended. So a process that cannot renew it gives its slots up
before that, and ends the requests that hold them: it fences itself. The time is taken before a renewal is sent, so the
process always thinks that its lease ends earlier than the database does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from samplegate.limits.accounts import Reservation
from samplegate.limits.async_ledger import AsyncLedger
from samplegate.limits.queue import Later, Timer, after

RENEWED_AFTER: Final = 1 / 3
LOST_AFTER: Final = 2 / 3
"""Shares of the lease. The rest is for a loop that runs late."""
LOOKS: Final = 6
"""Looks at the lease while it lasts."""


class SlotLease:
    """The lease, from the first reservation of a slot until none is held. ``clock`` is monotonic.

    ``held`` returns the reservations with slots; ``lost`` gets them when they must end.
    """

    def __init__(
        self,
        ledger: AsyncLedger,
        held: Callable[[], Sequence[Reservation]],
        lost: Callable[[Sequence[Reservation]], None],
        clock: Callable[[], float],
        later: Later | None,
    ) -> None:
        self._ledger, self._held, self._lost, self._clock, self._later = ledger, held, lost, clock, later
        self._timer: Timer | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._renewed = 0.0

    def begin(self, asked: float) -> None:
        """Keep the lease, which a reservation has taken or renewed. ``asked``: when it was sent."""
        self._renewed = max(self._renewed, asked)
        if self._timer is None and self._ledger.lease is not None:
            self._schedule(self._ledger.lease)

    def close(self) -> None:
        """Give up looking."""
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self, lease: float) -> None:
        self._timer = after(lease / LOOKS, lambda: self._look(lease), self._later)

    def _look(self, lease: float) -> None:
        self._timer = None
        held = self._held()
        age = self._clock() - self._renewed
        if not held:
            return
        self._schedule(lease)
        if age >= lease * LOST_AFTER:
            self._lost(held)
        if age >= lease * RENEWED_AFTER and self._renewing is None:
            self._renewing = asyncio.get_running_loop().create_task(self._renew())

    async def _renew(self) -> None:
        try:
            begun = self._clock()
            if await self._ledger.renew():
                self._renewed = max(self._renewed, begun)
        finally:
            self._renewing = None
