"""The ledger's backend: the protocol of a store for accounts of limits and slots of concurrent requests, with its
guarantees.

Draws name limits by their identity (``accounts.identity``) and amounts are whole units (``core.ledger.SCALE``). The
rules are in ``core.ledger``: a backend reads accounts, applies the rules and writes the result, in one transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from samplegate.limits.accounts import Account
from samplegate.policy.ledger import Draw, LimitSpec, Rates, Refused, Reserved


class LedgerUnavailable(Exception):
    """The accounts are not available. The message has a remedy and no path, because a server may see it. ``undone``:
    certainly nothing was changed."""

    def __init__(self, kind: str, words: str, *, undone: bool = True) -> None:
        super().__init__(words)
        self.kind = kind
        self.undone = undone


class Settlement(msgspec.Struct, frozen=True):
    """The settlement of a reservation: its actual draws."""

    reserved: Reserved
    actual: tuple[Draw, ...] = ()
    """Accounts that are missing here had no actual draw."""
    undo: bool = False
    """As if it had never been: a warning that nobody got is due again."""
    slots_only: bool = False
    """Whether its charge was corrected is not known, so it is not corrected again; to free slots twice does no harm."""
    rates: Rates = {}

    @property
    def limits(self) -> set[str]:
        """The identities that it touches."""
        return {draw.limit for draw in (*self.reserved.draws, *self.actual)}


class LedgerBackend(Protocol):
    """Accounts and slots. Blocking; for one thread at a time, except ``set_shutdown_deadline``, ``exhausted`` and
    ``drawn``.

    ``deadline``, by ``time.monotonic``, bounds all waiting of a call; after it the call raises LedgerUnavailable. A
    killed process loses nothing that a call has returned. Its slots are free at once; its reservations stay charged at
    their max cost.
    """

    @property
    def owes(self) -> bool:
        """Whether corrections are still to be written."""
        ...

    def update_limits(self, terms: Mapping[str, LimitSpec], deadline: float) -> None:
        """Replace the limits, by identity: those in force, and those with open reservations. It never fails.

        An account of a known identity stays as it is; that of a limit which is now shared is moved by the next call
        that can.
        """

    def reserve(self, id: str, draws: Sequence[Draw], deadline: float) -> Reserved | Refused:
        """Charge all of the draws, or none, in one step for all processes that share the accounts. ``warned`` and
        ``fill`` are by identity.

        If it raises LedgerUnavailable that is not ``undone``, it may have charged them: charges stay, and a later call
        frees slots.
        """
        ...

    def exhausted(self, terms: Mapping[str, LimitSpec], draws: Sequence[Draw]) -> Refused | None:
        """Why draws on limits of a call or of this process have no room, where waiting does not help. Waits for
        nothing."""
        ...

    def drawn(self) -> Mapping[Account, int]:
        """The units drawn now on each account of this process alone, or the slots held. Waits for nothing."""
        ...

    def settle(self, settlement: Settlement, deadline: float) -> bool:
        """Correct the charges and free the slots; returns whether the shared accounts were asked.

        A failed correction is owed: each later call tries it again, and never corrects twice.
        """
        ...

    def pay(self, deadline: float) -> bool:
        """Write what is owed; returns whether the shared accounts were asked."""
        ...

    def set_shutdown_deadline(self, until: float) -> None:
        """No call waits beyond ``until``, by ``time.monotonic``. From any thread."""

    def close(self, deadline: float) -> None:
        """Write what is owed, free what this process holds, close. Raises nothing."""
