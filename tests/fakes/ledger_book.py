"""The ledger of one process, without its thread, over any database of shared accounts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from samplegate.limits.accounts import identity, on_identity
from samplegate.limits.backend import Charge, Settlement
from samplegate.limits.shared_ledger import SharedLedger
from samplegate.policy.ledger import Draw, LimitSpec, Refused, Reserved
from tests.fakes.limits import Clock

PATIENCE = 5.0


class Place(Protocol):
    """Where the shared accounts are."""

    def ledger(self, specs: dict[str, LimitSpec], clock: Clock, **more: Any) -> SharedLedger: ...
    def rows(self, table: str) -> int: ...


class Book:
    """A ledger whose limits are named as in a policy, and shared by default."""

    def __init__(
        self, place: Place, *specs: LimitSpec, clock: Clock | None = None, shared: bool = True, **more: Any
    ) -> None:
        self.place = place
        self.clock = clock or Clock()
        self.specs = {each.name: msgspec.structs.replace(each, shared=shared) for each in specs}
        self.ledger = place.ledger({identity(each): each for each in self.specs.values()}, self.clock, **more)
        self._made = 0

    def charge(self, *draws: Draw) -> Charge:
        self._made += 1
        return Charge(str(self._made), self.on(draws))

    def reserve(self, *draws: Draw, seconds: float = PATIENCE) -> Reserved | Refused:
        charge = self.charge(*draws)
        return self.ledger.reserve(charge.id, charge.draws, time.monotonic() + seconds)

    def taken(self, *draws: Draw) -> Reserved:
        got = self.reserve(*draws)
        assert isinstance(got, Reserved), got
        return got

    def refused(self, *draws: Draw) -> Refused:
        got = self.reserve(*draws)
        assert isinstance(got, Refused), got
        return got

    def room(self, draw: Draw) -> int:
        got = 0
        while isinstance(self.reserve(draw), Reserved):
            got += 1
        return got

    def settlement(self, reserved: Reserved, *actual: Draw, undo: bool = False) -> Settlement:
        return Settlement(reserved, self.on(actual), undo=undo)

    def settle(self, reserved: Reserved, *actual: Draw, undo: bool = False) -> None:
        self.ledger.settle(self.settlement(reserved, *actual, undo=undo), time.monotonic() + PATIENCE)

    def on(self, draws: Sequence[Draw]) -> tuple[Draw, ...]:
        return tuple(on_identity(draw, identity(self.specs[draw.limit])) for draw in draws)

    def close(self) -> None:
        self.ledger.close(time.monotonic() + PATIENCE)

    def rows(self, table: str = "accounts") -> int:
        return self.place.rows(table)


Open = Callable[..., Book]
