"""What is still to be written into the state's file: settlements, and what comes from this process's memory. Not the writing: ``shared.py``."""

from __future__ import annotations

import msgspec

from samplegate.core.ledger import Draw, Rates, Reserved
from samplegate.limits.slots import Arrival


class Correction(msgspec.Struct, frozen=True):
    """A settlement that is to be written."""

    reserved: Reserved
    actual: tuple[Draw, ...] = ()
    undo: bool = False
    """As if it had never been: a warning that nobody got is due again."""
    slots_only: bool = False
    """Whether its charge was corrected is not known, so it is not corrected again; to free slots twice does no harm."""
    rates: Rates = {}

    @property
    def limits(self) -> set[str]:
        """The limits that it touches."""
        return {draw.limit for draw in (*self.reserved.draws, *self.actual)}

    def in_doubt(self) -> Correction:
        """What is left to be done once it may have been done: a charge must not be given back twice."""
        return msgspec.structs.replace(self, slots_only=True)


class Arriving(msgspec.Struct, frozen=True):
    """Accounts and slots of this process that are to be added to those of the file."""

    arrival: Arrival

    @property
    def limits(self) -> set[str]:
        """The limits that it touches."""
        return {limit for limit, _ in (*self.arrival.accounts, *self.arrival.slots)}

    def in_doubt(self) -> Arriving:
        """All of it: to charge twice does less harm than not at all, and slots are there once only."""
        return self
