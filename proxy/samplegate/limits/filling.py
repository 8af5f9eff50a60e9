"""How full limits are, for whoever watches them. It decides nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from samplegate.core import ledger
from samplegate.core.ledger import Terms
from samplegate.limits.slots import Account


def levels(changes: ledger.Changes, slots: Mapping[Account, int]) -> Iterable[tuple[str, int]]:
    """By limit, what is drawn on each of the accounts that a reservation changed, and how many slots of each are taken."""
    yield from ((limit, account.level) for (limit, _), account in changes.items())
    yield from ((limit, taken) for (limit, _), taken in slots.items())


def shares(terms: Mapping[str, Terms], drawn: Iterable[tuple[str, int]]) -> dict[str, float]:
    """By limit, the share of it that is drawn; of several accounts the fullest."""
    out: dict[str, float] = {}
    for limit, level in drawn:
        out[limit] = max(out.get(limit, 0.0), level / max(1, terms[limit].most))
    return out
