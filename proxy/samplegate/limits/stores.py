"""This process's memory and the shared state as one: a reservation charges all of its draws or none. Not waiting: ``admission.py``.

Inside, a limit goes by the id of its edition (``editions.py``); outside, by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from samplegate.core.ledger import Draw, Refused, Reserved, Terms
from samplegate.limits.asked import Asked, Held, placed, ready
from samplegate.limits.editions import NONE
from samplegate.limits.memory import Memory
from samplegate.limits.slots import Account
from samplegate.limits.waiting import Later
from samplegate.ports import Log

if TYPE_CHECKING:
    from samplegate.limits.state import State


class Stores:
    """Where the accounts of all limits are. ``freed`` is told which accounts something was given back to."""

    def __init__(
        self,
        terms: Mapping[str, Terms],
        state: Path,
        clock: Callable[[], float],
        log: Log,
        *,
        freed: Callable[[Iterable[Account]], None],
        later: Later | None,
    ) -> None:
        self._terms = terms
        self._folder = state
        self._clock = clock
        self._log = log
        self._freed = freed
        self._later = later
        self._editions = NONE.amended(terms, ())
        self._memory = Memory(self._editions.where(shared=False))
        self._state: State | None = None
        self._held: dict[str, Held] = {}
        self._trying: dict[str, Held] = {}
        self._made = 0

    def amend(self, terms: Mapping[str, Terms]) -> None:
        """Other terms are in force. What is held stays charged to the editions that it was charged to."""
        open = [*self._held.values(), *self._trying.values()]
        before = self._editions
        now = before.amended(terms, {id for held in open for id in held.ids.values()})
        for held in open:
            held.changed(before.terms, now.terms)
        arrival = self._memory.leave(before.moved(now))
        self._memory.amend(now.where(shared=False))
        self._terms, self._editions = terms, now
        if self._state is not None or arrival.accounts or arrival.slots:
            self._shared().amend(now.where(shared=True), arrival if arrival.accounts or arrival.slots else None)

    def terms_of(self, limit: str) -> Terms | None:
        """What is in force under this name."""
        return self._terms.get(limit)

    def name_of(self, account: Account) -> str:
        """The name of its limit."""
        return self._editions.terms[account[0]].name

    def drawn(self) -> Mapping[Account, int]:
        """By limit and key as they are kept in this process's memory, how many units are drawn."""
        return {(self.name_of(account), account[1]): units for account, units in self._memory.drawn(self._clock()).items()}

    def asked(self, draws: Sequence[Draw], under: Mapping[str, Terms] | None) -> Asked | Refused:
        """A reservation that can be tried, any number of times; refused for a limit that there is not, or that counts something else now."""
        self._made += 1
        return ready(draws, self._terms if under is None else under, self._editions, self._made)

    def is_stale(self, asked: Asked) -> bool:
        """Whether other terms were put in force since."""
        return asked.editions is not self._editions

    def renewed(self, asked: Asked) -> Asked | Refused:
        """The same for what is in force now; refused where that can never have room for it."""
        again = ready(asked.draws, asked.under, self._editions, asked.number, asked.id)
        return again if isinstance(again, Refused) else self.hopeless(again) or again

    def stands_at(self, old: Asked, account: Account) -> Account:
        """The account that is now what this one was for a reservation before it was renewed."""
        return self._editions.ids[old.editions.terms[account[0]].name], account[1]

    async def take(self, asked: Asked) -> Reserved | Refused:
        """Charge it. Memory first: that can be taken back without a file."""
        held = Held({draw.limit: asked.editions.ids[draw.limit] for draw in asked.draws})
        self._trying[asked.id] = held
        try:
            refused = await self._charge(asked, held)
        finally:
            del self._trying[asked.id]
        if refused is not None:
            return self._named(refused)
        if not held.over:
            self._held[asked.id] = held
        return self._granted(asked, [one for one in (held.here, held.there) if one is not None])

    def hopeless(self, asked: Asked) -> Refused | None:
        """Why no waiting will ever make room for it: it wants more than a whole limit, or its call or this process has drawn what it may."""
        for account in asked.accounts:
            terms, wanted = (
                asked.editions.terms[account[0]],
                sum(draw.amount for draw in (*asked.here, *asked.there) if (draw.limit, draw.key) == account),
            )
            if wanted > terms.most:
                return Refused(terms.name, "never", detail=f"limit {terms.name}: one request is more than the whole limit")
        lasting = [draw for draw in asked.here if lasts(asked.editions.terms[draw.limit])]
        tried = self._memory.reserve(asked.id, lasting, self._clock())
        if isinstance(tried, Refused):
            return self._named(tried)
        self._memory.undo(tried, self._clock())
        return None

    async def settle(self, reserved: Reserved, actual: Sequence[Draw]) -> None:
        """Correct a reservation, or those of its draws that are given; what was settled already is not settled again."""
        held = self._held.get(reserved.id)
        if held is None:
            return
        parts = held.part(reserved.draws)
        if held.over:
            del self._held[reserved.id]
        true = [placed(draw, held.ids[draw.limit]) for draw in actual if draw.limit in held.ids]
        for here in self._where(parts, shared=False):
            self._memory.settle(here, self._among(true, shared=False), self._clock(), held.rates)
            self._freed(_accounts(here))
        for there in self._where(parts, shared=True):
            try:
                await self._shared().settle(there, self._among(true, shared=True), held.rates)
            finally:
                self._freed(_accounts(there))

    def hurry(self, seconds: float) -> None:
        """The end has begun: the file, if it was ever opened, gets so many seconds, all together."""
        if self._state is not None:
            self._state.hurry(seconds)

    async def aclose(self) -> None:
        """Free this process's slots and close the file, if it was ever opened."""
        if self._state is not None:
            await self._state.aclose()

    async def _charge(self, asked: Asked, held: Held) -> Refused | None:
        here = self._memory.reserve(asked.id, asked.here, self._clock()) if asked.here else None
        if isinstance(here, Refused):
            return here
        held.here = here
        if not asked.there:
            return None
        there: Reserved | Refused | None = None
        try:
            there = await self._shared().reserve(asked.id, asked.there, lambda: held.rates)
        finally:
            if here is not None and not isinstance(there, Reserved):
                self._undo(here, held)
        if isinstance(there, Refused):
            return there
        held.there = there
        return None

    def _undo(self, here: Reserved, held: Held) -> None:
        """Give back what was charged in memory, wherever that is now."""
        for mine in self._where([here], shared=False):
            self._memory.undo(mine, self._clock(), held.rates)
        for moved in self._where([here], shared=True):
            self._shared().undo(moved, held.rates)
        self._freed(_accounts(here))

    def _where(self, parts: Iterable[Reserved], *, shared: bool) -> list[Reserved]:
        """Those of the draws whose accounts are in one of both stores now: one reservation, as of the earliest, or none."""
        found = [(one, draws) for one in parts if (draws := self._among(one.draws, shared=shared))]
        if not found:
            return []
        first = min((one for one, _ in found), key=lambda one: one.at)
        return [msgspec.structs.replace(first, draws=tuple(draw for _, draws in found for draw in draws))]

    def _among(self, draws: Iterable[Draw], *, shared: bool) -> tuple[Draw, ...]:
        return tuple(draw for draw in draws if self._editions.terms[draw.limit].shared == shared)

    def _granted(self, asked: Asked, charged: Sequence[Reserved]) -> Reserved:
        at = max((one.at for one in charged), default=self._clock())
        terms = asked.editions.terms
        warned = tuple(terms[id].name for one in charged for id in one.warned)
        fill = {terms[id].name: share for one in charged for id, share in one.fill.items()}
        return Reserved(asked.id, asked.draws, at, warned, fill)

    def _named(self, refused: Refused) -> Refused:
        """By the limit's name, as it goes outside."""
        terms = self._editions.terms.get(refused.limit)
        return refused if terms is None else msgspec.structs.replace(refused, limit=terms.name)

    def _shared(self) -> State:
        """Made by the first draw on a shared limit: until then there is no file, no thread, and SQLite is not imported."""
        if self._state is None:
            from samplegate.limits.shared import Shared
            from samplegate.limits.state import State

            shared = self._editions.where(shared=True)
            self._state = State(Shared(shared, self._folder, self._clock), self._folder, self._log, later=self._later)
        return self._state


def lasts(terms: Terms) -> bool:
    """Whether what is drawn stays drawn: of a call, of this process."""
    return terms.per in {"call", "process"}


def _accounts(reserved: Reserved) -> list[Account]:
    return [(draw.limit, draw.key) for draw in reserved.draws]
