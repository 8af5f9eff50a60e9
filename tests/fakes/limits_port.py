"""The limits port as a few lines over the pure ledger, for tests of the gate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from samplegate.policy import ledger
from samplegate.policy.ledger import Account, Draw, LimitSpec, Refused, Reserved


class FakeLimits:
    """Accounts in a dict, with counted slots. ``out``, if set, refuses every reservation."""

    def __init__(self) -> None:
        self.specs: Mapping[str, LimitSpec] = {}
        self.now = 1e9
        self.accounts: dict[tuple[str, str], Account] = {}
        self.slots: dict[tuple[str, str], int] = {}
        self.waits: list[float | None] = []
        self.out: Refused | None = None

    def drawn(self, limit: str, key: str = "[]") -> int:
        """Units that are charged. Open reservations count at their upper bound."""
        return self.accounts[limit, key].level if (limit, key) in self.accounts else 0

    def taken(self, limit: str, key: str = "[]") -> int:
        """Slots that are in use."""
        return self.slots.get((limit, key), 0)

    def _look(self, limit: str, key: str) -> Account | None:
        return self.accounts.get((limit, key))

    async def reserve(self, draws: Sequence[Draw], wait: float | None) -> Reserved | Refused:
        self.waits.append(wait)
        if self.out is not None:
            return self.out
        slots = [draw for draw in draws if self.specs[draw.limit].per == "slots"]
        for draw in slots:
            if self.slots.get((draw.limit, draw.key), 0) >= self.specs[draw.limit].max_units:
                return Refused(draw.limit, "full")
        answer = ledger.reserve(self.specs, self._look, draws, self.now)
        if isinstance(answer, Refused):
            return answer
        changes, warned = answer
        self.accounts.update(changes)
        for draw in slots:
            self.slots[draw.limit, draw.key] = self.slots.get((draw.limit, draw.key), 0) + 1
        return Reserved("r", tuple(draws), self.now, warned)

    async def settle(self, reserved: Reserved, actual: Sequence[Draw]) -> None:
        for draw in reserved.draws:
            if self.specs[draw.limit].per == "slots":
                self.slots[draw.limit, draw.key] -= 1
        self.accounts.update(ledger.settle(self.specs, self._look, reserved, actual, self.now))
