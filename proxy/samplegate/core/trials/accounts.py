"""A ledger in memory for one case: its accounts and its open requests. The arithmetic is ``core/ledger.py``'s, the clock the case's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec.structs

from samplegate.core import ledger
from samplegate.core.ledger import Account, Draw, Refused, Reserved, Terms

_ENDLESS: Final = float("inf")
_DOLLARS: Final = 9  # decimals: far below one token's price, and above what the ledger rounds up
_OTHERS: Final = 4


class Accounts:
    """What is drawn on the limits of one policy."""

    def __init__(self, terms: Mapping[str, Terms]) -> None:
        self._terms = terms
        self._accounts: dict[tuple[str, str], Account] = {}
        self._slots: Counter[tuple[str, str]] = Counter()
        self._open: list[tuple[float, Reserved, tuple[Draw, ...]]] = []

    def reserve(self, draws: Sequence[Draw], now: float) -> Reserved | Refused:
        """Charge all of the draws, or none."""
        slots, rest = self._sorted(draws)
        charged = ledger.reserve(self._terms, self._look, rest, now)
        if isinstance(charged, Refused):
            return charged
        for draw in slots:
            if self._slots[draw.limit, draw.key] + draw.amount > self._terms[draw.limit].most:
                return Refused(draw.limit, "full")
        self._slots.update({(draw.limit, draw.key): draw.amount for draw in slots})
        changes, warned = charged
        self._accounts.update(changes)
        return Reserved("", tuple(draws), now, warned)

    def settle(self, reserved: Reserved, actual: Iterable[Draw], now: float) -> None:
        """Correct a reservation and free its slots."""
        slots, rest = self._sorted(reserved.draws)
        self._slots.subtract({(draw.limit, draw.key): draw.amount for draw in slots})
        charged = msgspec.structs.replace(reserved, draws=tuple(rest))
        self._accounts.update(ledger.settle(self._terms, self._look, charged, self._sorted(actual)[1], now))

    def hold(self, reserved: Reserved, actual: tuple[Draw, ...], until: float | None) -> None:
        """Settle it later; ``until`` None: never."""
        self._open.append((_ENDLESS if until is None else until, reserved, actual))

    def advance(self, now: float) -> None:
        """Settle all that has ended by now, each at its own time."""
        ended = sorted((one for one in self._open if one[0] <= now), key=lambda one: one[0])
        self._open = [one for one in self._open if one[0] > now]
        for at, reserved, actual in ended:
            self.settle(reserved, actual, at)

    def drawn(self, limit: str, key: str, now: float) -> float:
        """How much of a limit is drawn, in its own unit."""
        terms = self._terms[limit]
        if terms.per == "slots":
            return float(self._slots[limit, key])
        account = self._accounts.get((limit, key))
        if account is None or (terms.per in ("day", "month") and ledger.idle(terms, account, now + ledger.SKEW)):  # a case has one clock
            return 0.0
        drained = terms.most * (now - account.stamp) / terms.period if terms.per == "bucket" else 0.0
        return round(max(0.0, account.level - drained) / ledger.SCALE[terms.quantity], _DOLLARS if terms.quantity == "usd" else _OTHERS)

    def _look(self, limit: str, key: str) -> Account | None:
        return self._accounts.get((limit, key))

    def _sorted(self, draws: Iterable[Draw]) -> tuple[list[Draw], list[Draw]]:
        """The draws of slots, and the others."""
        slots: list[Draw] = []
        rest: list[Draw] = []
        for draw in draws:
            (slots if self._terms[draw.limit].per == "slots" else rest).append(draw)
        return slots, rest
