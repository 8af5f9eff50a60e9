"""The ledger's backend: what keeps the accounts of limits and the slots of concurrent requests, as a protocol with its guarantees.

Draws name limits by their identity (``accounts.identity``) and amounts are whole units (``core.ledger.SCALE``). The rules are those of
``core.ledger``: a backend reads accounts, asks the rules, and writes what they say, in one transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from samplegate.core.ledger import Draw, Rates, Refused, Reserved, Terms
from samplegate.limits.accounts import Account


class LedgerUnavailable(Exception):
    """The accounts cannot be asked. The message has a remedy and no path: a server may be shown it. ``undone``: certainly nothing was changed."""

    def __init__(self, kind: str, words: str, *, undone: bool = True) -> None:
        super().__init__(words)
        self.kind = kind
        self.undone = undone


class Settlement(msgspec.Struct, frozen=True):
    """What a reservation came to."""

    reserved: Reserved
    actual: tuple[Draw, ...] = ()
    """An account without an actual draw: nothing was drawn on it."""
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
    """Accounts and slots. Blocking; for one thread at a time, but for ``hurry``, ``exhausted`` and ``drawn``.

    ``deadline`` is of ``time.monotonic``, and bounds all that a call waits for; after it the call raises LedgerUnavailable. A killed process
    loses nothing that a call has returned, and what it held is free for others: slots at once, reservations stay at their worst case.
    """

    @property
    def owes(self) -> bool:
        """Whether something is still to be written that could not be written yet."""
        ...

    def amend(self, terms: Mapping[str, Terms], deadline: float) -> None:
        """Other limits, by identity: those in force, and those that something is still reserved on. Asks nothing that could fail.

        An account of an identity that is known stays as it is; one of a limit that is shared from now on is moved by the next call that can.
        """

    def reserve(self, id: str, draws: Sequence[Draw], deadline: float) -> Reserved | Refused:
        """Charge all of the draws, or none, at once for all who share the accounts. ``warned`` and ``fill`` are by identity.

        Raising LedgerUnavailable that is not ``undone``, it may have charged them: that stays, and slots are freed by a later call.
        """
        ...

    def exhausted(self, terms: Mapping[str, Terms], draws: Sequence[Draw]) -> Refused | None:
        """Why draws on limits of a call or of this process have no room, which no waiting changes. Waits for nothing."""
        ...

    def drawn(self) -> Mapping[Account, int]:
        """How many units are drawn at this moment on each account of this process alone, or how many slots are held. Waits for nothing."""
        ...

    def settle(self, settlement: Settlement, deadline: float) -> bool:
        """Correct what was charged, and free the slots; whether the shared accounts were asked.

        What fails is owed: each later call tries it again, and never corrects twice.
        """
        ...

    def pay(self, deadline: float) -> bool:
        """Write what is owed; whether the shared accounts were asked."""
        ...

    def hurry(self, until: float) -> None:
        """No call waits beyond ``until``, of ``time.monotonic``. From any thread."""

    def close(self, deadline: float) -> None:
        """Write what is owed, free what this process holds, close. Raises nothing."""
