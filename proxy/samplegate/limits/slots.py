"""Whether there is room for concurrent requests: the one rule of ``per: slots``, for both stores. It keeps nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import msgspec

from samplegate.core.ledger import Changes, Draw, Refused, Terms

Account: TypeAlias = tuple[str, str]
"""A limit, by the id of its edition, and a key."""


class Arrival(msgspec.Struct, frozen=True):
    """What one store hands to the other: accounts, and by account and reservation the slots that are held."""

    accounts: Changes
    slots: Mapping[Account, Mapping[str, int]]


def sums(draws: Iterable[Draw]) -> dict[Account, int]:
    """What the draws come to, by account; a draw of nothing takes nothing."""
    out: dict[Account, int] = {}
    for draw in draws:
        if draw.amount > 0:
            out[draw.limit, draw.key] = out.get((draw.limit, draw.key), 0) + draw.amount
    return out


def no_room(terms: Mapping[str, Terms], taken: Callable[[str, str], int], wanted: Mapping[Account, int]) -> tuple[Refused, Account] | None:
    """The first account that has no room, None where all have. ``taken`` tells how many slots of an account are held."""
    for (limit, key), amount in wanted.items():
        most, name = terms[limit].most, terms[limit].name
        if amount > most:
            return Refused(name, "never", detail=f"limit {name}: one request takes {amount} slots of {most}"), (limit, key)
        if taken(limit, key) + amount > most:
            return Refused(name, "full", detail=f"limit {name}: all {most} slots are held"), (limit, key)
    return None
