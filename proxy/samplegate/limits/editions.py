"""Which terms are in force, and which earlier ones something is still reserved under. Not the accounts: those are kept under an edition's id.

A limit of a policy that replaces another is the same edition as long as what its accounts say means the same: another amount or warning changes
nothing about that, another quantity, period, time zone or ``by`` begins a new edition. So no settlement ever meets an account of another meaning.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from samplegate.core.ledger import Rates, Terms

_APART: Final = "\0"  # between a name and a number; no name of a policy has it


class Editions(msgspec.Struct, frozen=True, eq=False):
    """The limits of one policy, and what is left of those before it."""

    ids: Mapping[str, str]
    """In force, by name."""
    terms: Mapping[str, Terms]
    """By id, those that are not in force any more included."""
    made: int
    """How many policies there have been: with a name, what no other edition is called, not even one that is dropped."""

    def amended(self, wanted: Mapping[str, Terms], used: Collection[str]) -> Editions:
        """With other terms in force. Of those that are not, only the ``used`` ids are kept, for what is still reserved under them.

        What lives in the state stays there while the process runs, whatever the new terms say: its accounts cannot be read at once, and to begin
        anew would admit a second time.
        """
        kept = {id: one for id, one in self.terms.items() if id in used or self.ids.get(one.name) == id}
        same = {stored_name(one): id for id, one in kept.items()}
        ids: dict[str, str] = {}
        terms = {id: one for id, one in kept.items() if id in used}
        for name, one in wanted.items():
            id = same.get(stored_name(one)) or (f"{name}{_APART}{self.made}" if self.made else name)
            ids[name] = id
            stays = id in kept and kept[id].shared
            terms[id] = msgspec.structs.replace(one, shared=True) if stays else one
        return Editions(ids, terms, self.made + 1)

    def moved(self, to: Editions) -> list[str]:
        """The ids whose accounts have lived in this process and belong in the state from now on."""
        return [id for id, one in to.terms.items() if one.shared and id in self.terms and not self.terms[id].shared]

    def where(self, *, shared: bool) -> dict[str, Terms]:
        """The terms of one of both stores, by id."""
        return {id: one for id, one in self.terms.items() if one.shared == shared}


NONE: Final = Editions({}, {}, 0)


def stored_name(terms: Terms) -> str:
    """What a limit's accounts are stored under: its name with what its numbers mean."""
    meaning = [terms.name, terms.quantity, terms.per, terms.period, terms.tz if terms.per in {"day", "month"} else "", *terms.by]
    return json.dumps(meaning, separators=(",", ":"))


def measured_alike(one: Terms, other: Terms) -> bool:
    """Whether what was measured for one can be drawn on the other: the same units, and keys of the same things."""
    return (one.quantity, one.by, one.per == "call") == (other.quantity, other.by, other.per == "call")


def widened(rates: Rates, ids: Iterable[str], before: Mapping[str, Terms], now: Mapping[str, Terms]) -> Rates:
    """The least and the greatest amounts since a reservation on these editions, now that other terms are in force."""
    out = dict(rates)
    for id in ids:
        was, most = before[id].most, now[id].most
        if was != most:
            least, greatest = out.get(id, (was, was))
            out[id] = min(least, most), max(greatest, most)
    return out
