"""This process's memory and the shared state as one: a reservation charges all of its draws or none. Not waiting: ``admission.py``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from samplegate.core.claims import bounded
from samplegate.core.ledger import Draw, Refused, Reserved, Terms
from samplegate.limits.memory import Memory
from samplegate.limits.slots import Account
from samplegate.limits.waiting import Later
from samplegate.ports import Log

if TYPE_CHECKING:
    from samplegate.limits.state import State

LONGEST_KEY: Final = 300  # bytes; a longer one is kept as its hash


class Asked(msgspec.Struct, frozen=True):
    """A reservation as it is tried. The keys of ``here`` and ``there`` are bounded and can be stored; ``draws`` are as they came."""

    id: str
    number: int
    """Who came first."""
    draws: tuple[Draw, ...]
    here: tuple[Draw, ...]
    there: tuple[Draw, ...]

    @property
    def accounts(self) -> list[Account]:
        """All that it draws on."""
        return [(draw.limit, draw.key) for draw in (*self.here, *self.there) if draw.amount > 0]


class Held(msgspec.Struct, frozen=True):
    """What was charged where and is not settled yet."""

    here: Reserved | None
    there: Reserved | None


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
        self._memory = Memory({name: one for name, one in terms.items() if not one.shared})
        self._state: State | None = None
        self._held: dict[str, Held] = {}
        self._made = 0

    def amend(self, terms: Mapping[str, Terms]) -> None:
        """Other terms from here on."""
        self._terms = terms

    def asked(self, draws: Sequence[Draw]) -> Asked:
        """A reservation that can be tried, any number of times. All limits must be known."""
        self._made += 1
        bounded = [_bounded(draw) for draw in draws]
        return Asked(os.urandom(12).hex(), self._made, tuple(draws), self._here(bounded), self._there(bounded))

    async def take(self, asked: Asked) -> Reserved | Refused:
        """Charge it. Memory first: that can be taken back without a file."""
        here = self._memory.reserve(asked.id, asked.here, self._clock()) if asked.here else None
        if isinstance(here, Refused):
            return here
        there: Reserved | Refused | None = None
        try:
            there = await self._shared().reserve(asked.id, asked.there) if asked.there else None
        finally:
            if here is not None and asked.there and not isinstance(there, Reserved):
                self._undo(here)
        if isinstance(there, Refused):
            return there
        if asked.draws:
            self._held[asked.id] = Held(here, there)
        charged = [one for one in (here, there) if one is not None]
        at = max((one.at for one in charged), default=self._clock())
        warned = tuple(name for one in charged for name in one.warned)
        fill = {name: share for one in charged for name, share in one.fill.items()}
        return Reserved(asked.id, asked.draws, at, warned, fill)

    def hopeless(self, asked: Asked) -> Refused | None:
        """Why no waiting will ever make room for it: it wants more than a whole limit, or its call or this process has drawn what it may."""
        for limit, key in asked.accounts:
            most, wanted = self._terms[limit].most, sum(draw.amount for draw in (*asked.here, *asked.there) if (draw.limit, draw.key) == (limit, key))
            if wanted > most:
                return Refused(limit, "never", detail=f"limit {limit}: one request is more than the whole limit")
        lasting = [draw for draw in asked.here if lasts(self._terms[draw.limit])]
        tried = self._memory.reserve(asked.id, lasting, self._clock())
        if isinstance(tried, Refused):
            return tried
        self._memory.undo(tried, self._clock())
        return None

    async def settle(self, reserved: Reserved, actual: Sequence[Draw]) -> None:
        """Correct a reservation, or those of its draws that are given; what was settled already is not settled again."""
        held = self._held.pop(reserved.id, None)
        if held is None:
            return
        asked = [_bounded(draw) for draw in reserved.draws]
        here, here_left = _part(held.here, asked)
        there, there_left = _part(held.there, asked)
        if here_left is not None or there_left is not None:
            self._held[reserved.id] = Held(here_left, there_left)
        true = [_bounded(draw) for draw in actual if draw.limit in self._terms]
        if here is not None:
            self._memory.settle(here, self._here(true), self._clock())
            self._freed(_accounts(here))
        if there is not None:
            try:
                await self._shared().settle(there, self._there(true))
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

    def _here(self, draws: Iterable[Draw]) -> tuple[Draw, ...]:
        return tuple(draw for draw in draws if not self._terms[draw.limit].shared)

    def _there(self, draws: Iterable[Draw]) -> tuple[Draw, ...]:
        return tuple(draw for draw in draws if self._terms[draw.limit].shared)

    def _undo(self, here: Reserved) -> None:
        self._memory.undo(here, self._clock())
        self._freed(_accounts(here))

    def _shared(self) -> State:
        """Made by the first draw on a shared limit: until then there is no file, no thread, and SQLite is not imported."""
        if self._state is None:
            from samplegate.limits.shared import Shared
            from samplegate.limits.state import State

            shared = {name: one for name, one in self._terms.items() if one.shared}
            self._state = State(Shared(shared, self._folder, self._clock), self._folder, self._log, later=self._later)
        return self._state


def lasts(terms: Terms) -> bool:
    """Whether what is drawn stays drawn: of a call, of this process."""
    return terms.per in {"call", "process"}


def _part(held: Reserved | None, draws: Sequence[Draw]) -> tuple[Reserved | None, Reserved | None]:
    """Of what is held, these draws, and the others."""
    if held is None:
        return None, None
    found, left = [], list(held.draws)
    for draw in draws:
        if draw in left:
            left.remove(draw)
            found.append(draw)
    parts = [msgspec.structs.replace(held, draws=tuple(part)) if part else None for part in (found, left)]
    return parts[0], parts[1]


def _accounts(reserved: Reserved) -> list[Account]:
    return [(draw.limit, draw.key) for draw in reserved.draws]


def _bounded(draw: Draw) -> Draw:
    """With a key that can be stored."""
    key = bounded(draw.key, LONGEST_KEY)
    return draw if key == draw.key else msgspec.structs.replace(draw, key=key)
