"""The ports ``reserve`` and ``settle``: who may draw now, and who waits for room. Not what is drawn: ``stores.py``, ``core/ledger.py``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from samplegate.core.claims import bounded
from samplegate.core.ledger import Draw, Refused, Reserved, Terms
from samplegate.limits.asked import LONGEST_KEY, Asked
from samplegate.limits.slots import Account
from samplegate.limits.stores import Stores, lasts
from samplegate.limits.waiting import MOST_WAITING, Later, Line, Waiter, after
from samplegate.ports import Log

UNKNOWN_PAUSE: Final = 0.5  # seconds until the next try where nobody can tell when there will be room
LONGEST_PAUSE: Final = 5.0  # what another process gives back is not told to us, and clocks are set
SHORTEST_PAUSE: Final = 0.01


class Admission:
    """The limits of the policy in force. ``clock`` is Unix seconds; the state's file is made by the first draw on a shared limit, never before.

    ``later`` stands in for the loop's ``call_later`` in all waiting; ``most_waiting`` is how many requests may wait at a time.
    """

    def __init__(
        self,
        terms: Mapping[str, Terms],
        *,
        state: Path,
        clock: Callable[[], float],
        log: Log,
        later: Later | None = None,
        most_waiting: int = MOST_WAITING,
    ) -> None:
        self._log = log
        self._later = later
        self._line = Line(most_waiting)
        self._waiting: dict[Waiter, Asked | Refused] = {}
        """In the order of joining; refused where a policy that was put in force meanwhile refuses it."""
        self._stores = Stores(terms, state, clock, log, freed=self._line.wake, later=later)
        self._closed = False

    def amend(self, terms: Mapping[str, Terms]) -> None:
        """Another policy is in force, from now on and for all that wait. Never raises, and returns at once; to be called from the event loop.

        A limit goes on where it stands as long as it counts the same (its amount may change), else it begins anew (``editions.py``).
        """
        try:
            self._stores.amend(terms)
            self._line.replace({waiter: self._place(waiter) for waiter in list(self._waiting)})
        except Exception:
            self._log.error("limits.failed", exc_info=True)

    async def reserve(self, draws: Sequence[Draw], wait: float | None, under: Mapping[str, Terms] | None = None) -> Reserved | Refused:
        """Charge all of the draws, or none. With ``wait`` seconds it waits for room, in the order of coming; never raises.

        ``under`` are the terms that the draws were measured for, where those may not be in force any more: what was measured in other units, or
        for other keys, is refused. A try at the state takes up to five seconds by itself, so it may end that much later.
        """
        try:
            asked = self._stores.asked(draws, under)
            return asked if isinstance(asked, Refused) else await self._admit(asked, wait)
        except Exception:
            self._log.error("limits.failed", exc_info=True)
            return Refused(draws[0].limit if draws else "", "unavailable", detail="a fault while reserving; the log has it")

    async def settle(self, reserved: Reserved, actual: Sequence[Draw]) -> None:
        """Correct to what was really drawn (a missing draw: nothing), free the slots. Never raises; a cancellation does not stop it.

        ``reserved`` may have some of its draws only: the others stay held. A draw is settled once; a second time changes nothing.
        """
        try:
            await self._stores.settle(reserved, actual)
        except Exception:
            self._log.error("limits.failed", exc_info=True)

    async def drawn(self) -> Callable[[str, str], int]:
        """How many units of a limit, by its name, are drawn for a key at this moment; of limits that are not shared with other processes."""
        drawn = self._stores.drawn()
        return lambda limit, key: drawn.get((limit, bounded(key, LONGEST_KEY)), 0)

    def hurry(self, seconds: float) -> None:
        """The end has begun: who waits for room is refused, and the state is asked for no longer than ``seconds``, all together."""
        self._closed = True
        self._line.end()
        self._stores.hurry(seconds)

    async def aclose(self) -> None:
        """Refuse those who wait, free this process's slots, close the file. What is not settled stays at its worst case."""
        self._closed = True
        self._line.end()
        await self._stores.aclose()

    async def _admit(self, asked: Asked, wait: float | None) -> Reserved | Refused:
        """Nobody goes before those who wait for what it draws on."""
        before = self._line.before(asked.number, asked.accounts)
        if before is not None:
            refused = self._stores.hopeless(asked)
            if refused is None and wait is not None:
                return await self._wait(asked, before, None, wait)
            limit = self._stores.name_of(before)
            return refused or Refused(limit, "waiting", detail=f"limit {limit}: others wait for it already")
        got = await self._take(asked)
        if wait is None or isinstance(got, Reserved):
            return got
        if not self._stores.is_stale(asked):
            return await self._wait(asked, _refused_at(asked, got), got, wait) if self._worth_waiting(got) else got
        renewed = self._stores.renewed(asked)  # it was refused by a policy that is not in force any more
        return renewed if isinstance(renewed, Refused) else await self._admit(renewed, wait)

    async def _wait(self, asked: Asked, at: Account, refused: Refused | None, seconds: float) -> Reserved | Refused:
        if self._line.full:
            limit = self._stores.name_of(at)
            return Refused(limit, "waiting", detail=f"limit {limit}: {self._line.most} requests wait already")
        waiter = Waiter(asked.number, asked.accounts, at)
        self._waiting[waiter] = asked
        self._line.join(waiter)
        end = after(seconds, waiter.end, self._later)
        try:
            if refused is not None:
                self._again(waiter, refused)
            got = await self._turns(waiter)
        finally:
            end.cancel()
            self._line.leave(waiter)
            del self._waiting[waiter]
        return got or self._over(waiter, seconds)

    async def _turns(self, waiter: Waiter) -> Reserved | Refused | None:
        """Try whenever it is its turn, until it is answered; None where its time was up first."""
        while True:
            await waiter.woken()
            asked = self._waiting[waiter]
            if isinstance(asked, Refused):
                return asked
            if waiter.over:
                return None
            if not self._line.is_first(waiter):
                continue
            before = self._line.before(waiter.number, waiter.accounts)
            if before is not None:
                self._line.move(waiter, before)
                continue
            got = await self._take(asked)
            if isinstance(got, Reserved):
                return got
            if self._stores.is_stale(asked):  # whoever put others in force has woken it already
                continue
            if not self._worth_waiting(got):
                return got
            self._line.move(waiter, _refused_at(asked, got))
            self._again(waiter, got)

    def _place(self, waiter: Waiter) -> tuple[Sequence[Account], Account] | None:
        """Where it stands under other terms; None where it is refused by them."""
        asked = self._waiting[waiter]
        if isinstance(asked, Refused):
            return None
        again = self._waiting[waiter] = self._stores.renewed(asked)
        return None if isinstance(again, Refused) else (again.accounts, self._stores.stands_at(asked, waiter.at))

    async def _take(self, asked: Asked) -> Reserved | Refused:
        if self._closed:
            return Refused(asked.draws[0].limit if asked.draws else "", "unavailable", detail="the gate is ending")
        return await self._stores.take(asked)

    def _worth_waiting(self, got: Refused) -> bool:
        terms = self._stores.terms_of(got.limit)
        return got.why == "full" and terms is not None and not lasts(terms)

    def _again(self, waiter: Waiter, refused: Refused) -> None:
        pause = UNKNOWN_PAUSE if refused.retry_after is None else max(SHORTEST_PAUSE, min(refused.retry_after, LONGEST_PAUSE))
        waiter.retry_after = refused.retry_after
        waiter.wake_by(after(pause, waiter.wake, self._later))

    def _over(self, waiter: Waiter, seconds: float) -> Refused:
        limit = self._stores.name_of(waiter.at)
        if self._closed:
            return Refused(limit, "unavailable", detail="the gate is ending")
        return Refused(limit, "full", waiter.retry_after, f"limit {limit}: no room within {seconds:g} s")


def _refused_at(asked: Asked, refused: Refused) -> Account:
    edition = asked.editions.ids[refused.limit]
    return next(account for account in asked.accounts if account[0] == edition)
