"""Pure. Accounts of limits: the account of a draw, reservations to try and to hold, and room for concurrent requests.

An account belongs to a limit's identity, which gives its numbers their meaning: name, quantity, period, time zone and
``by``. Its amount is not part of that, so an account keeps what was drawn when the amount changes, and no settlement
ever meets an account of another meaning.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from samplegate.policy.claims import bounded
from samplegate.policy.ledger import Draw, LimitSpec, Rates, Refused, Reserved

LONGEST_KEY: Final = 300  # bytes; a longer one is kept as its hash
Account: TypeAlias = tuple[str, str]
"""The identity of a limit, and a key."""


def identity(terms: LimitSpec) -> str:
    """What a limit's accounts are stored under: its name with what its numbers mean."""
    meaning = [
        terms.name,
        terms.quantity,
        terms.per,
        terms.period,
        terms.tz if terms.per in {"day", "month"} else "",
        *terms.by,
    ]
    return json.dumps(meaning, separators=(",", ":"))


def lasts(terms: LimitSpec) -> bool:
    """Whether what is drawn stays drawn: of a call, of this process."""
    return terms.per in {"call", "process"}


class LimitVersions(msgspec.Struct, frozen=True, eq=False):
    """The limits in force, and those before them on which something is still reserved."""

    ids: Mapping[str, str]
    """The identities of the limits in force, by name."""
    terms: Mapping[str, LimitSpec]
    """By identity."""

    def amended(self, wanted: Mapping[str, LimitSpec], used: Iterable[str]) -> LimitVersions:
        """The versions after a change of the limits in force; of the old ones, the ``used`` identities are kept. A
        shared limit stays shared while the process runs: others may have drawn on it."""
        terms = {id: self.terms[id] for id in used}
        ids = {name: identity(one) for name, one in wanted.items()}
        for name, id in ids.items():
            stays = id in self.terms and self.terms[id].shared
            terms[id] = msgspec.structs.replace(wanted[name], shared=True) if stays else wanted[name]
        return LimitVersions(ids, terms)


class ReservationRequest(msgspec.Struct, frozen=True):
    """A reservation to try, any number of times."""

    id: str
    number: int
    """Who came first."""
    draws: tuple[Draw, ...]
    """As they came."""
    charged: tuple[Draw, ...]
    """The draws on identities, with keys that can be stored."""
    limits: LimitVersions
    """Those in force when it was made ready."""
    under: Mapping[str, LimitSpec]
    """The terms that its draws were measured for."""

    @property
    def accounts(self) -> list[Account]:
        """All that it draws on."""
        return [(draw.limit, draw.key) for draw in self.charged if draw.amount > 0]


class Reservation(msgspec.Struct):
    """A reservation that was charged, or is being charged, and is not settled yet."""

    ids: Mapping[str, str]
    """The charged identities, by the names of their limits."""
    reserved: Reserved
    rates: Rates = {}
    """The least and the greatest amount by identity, if it changed since."""

    def part(self, draws: Iterable[Draw]) -> Reserved:
        """Releases and returns those of these draws that are held."""
        found, left = [], list(self.reserved.draws)
        for draw in (placed(draw, self.ids[draw.limit]) for draw in draws if draw.limit in self.ids):
            if draw in left:
                left.remove(draw)
                found.append(draw)
        part = msgspec.structs.replace(self.reserved, draws=tuple(found))
        self.reserved = msgspec.structs.replace(self.reserved, draws=tuple(left))
        return part


def ready(
    draws: Sequence[Draw], under: Mapping[str, LimitSpec], limits: LimitVersions, number: int, id: str
) -> ReservationRequest | Refused:
    """A reservation to try; Refused if the measured draws do not fit the limits in force."""
    for draw in draws:
        if draw.limit not in limits.ids:
            return Refused(draw.limit, "unavailable", detail=f"limit {draw.limit}: the policy has none of this name")
        terms = limits.terms[limits.ids[draw.limit]]
        was = under.get(draw.limit, terms)
        if (was.quantity, was.by, was.per == "call") != (terms.quantity, terms.by, terms.per == "call"):
            return Refused(
                draw.limit,
                "unavailable",
                detail=f"limit {draw.limit}: another policy is in force, where it counts something else",
            )
    charged = tuple(placed(draw, limits.ids[draw.limit]) for draw in draws)
    return ReservationRequest(id, number, tuple(draws), charged, limits, under)


def placed(draw: Draw, id: str) -> Draw:
    """The draw on an identity, with a key that can be stored."""
    return Draw(id, bounded(draw.key, LONGEST_KEY), draw.amount)


def widened(rates: Rates, ids: Iterable[str], before: Mapping[str, LimitSpec], now: Mapping[str, LimitSpec]) -> Rates:
    """The least and the greatest amounts since a reservation on these identities, updated for new terms."""
    out = dict(rates)
    for id in ids:
        was, most = before[id].most, now[id].most
        if was != most:
            least, greatest = out.get(id, (was, was))
            out[id] = min(least, most), max(greatest, most)
    return out


def sums(draws: Iterable[Draw]) -> dict[Account, int]:
    """What the draws come to, by account; a draw of nothing takes nothing."""
    out: dict[Account, int] = {}
    for draw in draws:
        if draw.amount > 0:
            out[draw.limit, draw.key] = out.get((draw.limit, draw.key), 0) + draw.amount
    return out


def no_room(
    terms: Mapping[str, LimitSpec], taken: Callable[[str, str], int], wanted: Mapping[Account, int]
) -> tuple[Refused, Account] | None:
    """The first account without room for concurrent requests, None if all have room. ``taken`` tells how many slots of
    an account are held."""
    for (limit, key), amount in wanted.items():
        most, name = terms[limit].most, terms[limit].name
        if amount > most:
            return Refused(name, "never", detail=f"limit {name}: one request takes {amount} slots of {most}"), (
                limit,
                key,
            )
        if taken(limit, key) + amount > most:
            return Refused(name, "full", detail=f"limit {name}: all {most} slots are held"), (limit, key)
    return None


def shares(terms: Mapping[str, LimitSpec], drawn: Iterable[tuple[str, int]]) -> dict[str, float]:
    """By limit, the share of it that is drawn; of several accounts the fullest."""
    out: dict[str, float] = {}
    for limit, level in drawn:
        out[limit] = max(out.get(limit, 0.0), level / max(1, terms[limit].most))
    return out
