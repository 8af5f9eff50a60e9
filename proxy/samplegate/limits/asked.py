"""A reservation as it is tried, and what is held of one that was granted: each draw under the edition that it was charged to. No accounts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from samplegate.core.claims import bounded
from samplegate.core.ledger import Draw, Rates, Refused, Reserved, Terms
from samplegate.limits.editions import Editions, measured_alike, widened
from samplegate.limits.slots import Account

LONGEST_KEY: Final = 300  # bytes; a longer one is kept as its hash


class Asked(msgspec.Struct, frozen=True):
    """A reservation as it is tried. ``here`` (in memory) and ``there`` (in the state) name editions, with keys that can be stored."""

    id: str
    number: int
    """Who came first."""
    draws: tuple[Draw, ...]
    """As they came."""
    here: tuple[Draw, ...]
    there: tuple[Draw, ...]
    editions: Editions
    """Those in force when it was made ready."""
    under: Mapping[str, Terms]
    """The terms that its draws were measured for."""

    @property
    def accounts(self) -> list[Account]:
        """All that it draws on."""
        return [(draw.limit, draw.key) for draw in (*self.here, *self.there) if draw.amount > 0]


class Held(msgspec.Struct):
    """What was charged where and is not settled yet."""

    ids: Mapping[str, str]
    """The editions that it is charged to, by the names of their limits."""
    here: Reserved | None = None
    there: Reserved | None = None
    rates: Rates = {}
    """By edition whose amount was changed since, the least and the greatest."""

    @property
    def over(self) -> bool:
        """Whether nothing of it is left."""
        return self.here is None and self.there is None

    def part(self, draws: Iterable[Draw]) -> list[Reserved]:
        """Those of these draws that are held; they are held no longer."""
        wanted = [placed(draw, self.ids[draw.limit]) for draw in draws if draw.limit in self.ids]
        here, self.here = _part(self.here, wanted)
        there, self.there = _part(self.there, wanted)
        return [one for one in (here, there) if one is not None]

    def changed(self, before: Mapping[str, Terms], now: Mapping[str, Terms]) -> None:
        """Other terms are in force: keep in mind what is needed to give back no more than is due."""
        self.rates = widened(self.rates, self.ids.values(), before, now)


def ready(draws: Sequence[Draw], under: Mapping[str, Terms], editions: Editions, number: int, id: str = "") -> Asked | Refused:
    """A reservation that can be tried any number of times; refused where what was measured cannot be drawn on what is in force."""
    here: list[Draw] = []
    there: list[Draw] = []
    for draw in draws:
        edition = editions.ids.get(draw.limit)
        if edition is None:
            return Refused(draw.limit, "unavailable", detail=f"limit {draw.limit}: the policy has none of this name")
        terms = editions.terms[edition]
        if not measured_alike(under.get(draw.limit, terms), terms):
            return Refused(draw.limit, "unavailable", detail=f"limit {draw.limit}: another policy is in force, where it counts something else")
        (there if terms.shared else here).append(placed(draw, edition))
    return Asked(id or os.urandom(12).hex(), number, tuple(draws), tuple(here), tuple(there), editions, under)


def placed(draw: Draw, id: str) -> Draw:
    """On an edition, with a key that can be stored."""
    return Draw(id, bounded(draw.key, LONGEST_KEY), draw.amount)


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
