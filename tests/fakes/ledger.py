"""An in-memory ledger for the tests of its rules: a store as the gate sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from samplegate.policy.ledger import SCALE, Account, Draw, LimitSpec, Refused, Reserved, reserve, set_back, settle

ONE: Final = SCALE["requests"]


def bucket(most: int, period: float, name: str = "l", **more: object) -> LimitSpec:
    return LimitSpec(name, "requests", most * ONE, "bucket", period, **more)  # type: ignore[arg-type]


class Accounts:
    """Limit specs and what is charged to them."""

    def __init__(self, *specs: LimitSpec) -> None:
        self.specs: Mapping[str, LimitSpec] = {each.name: each for each in specs}
        self.kept: dict[tuple[str, str], Account] = {}

    def look(self, limit: str, key: str) -> Account | None:
        return self.kept.get((limit, key))

    def reserve(self, now: float, *draws: Draw) -> Reserved | Refused:
        answer = reserve(self.specs, self.look, draws, now)
        if isinstance(answer, Refused):
            self.kept |= set_back(self.specs, self.look, draws, now)
            return answer
        self.kept |= answer[0]
        return Reserved("r", draws, now, answer[1])

    def settle(self, now: float, reserved: Reserved, actual: Sequence[Draw] = ()) -> None:
        self.kept |= settle(self.specs, self.look, reserved, actual, now)

    def takes(self, now: float, amount: int, name: str = "l", key: str = "[]") -> bool:
        """Whether this many whole units are admitted."""
        return isinstance(self.reserve(now, Draw(name, key, amount * ONE)), Reserved)

    def level(self, name: str = "l", key: str = "[]") -> float:
        found = self.kept.get((name, key))
        return 0 if found is None else found.level / SCALE[self.specs[name].quantity]
