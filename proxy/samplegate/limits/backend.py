"""The ledger's backend: the protocol of a store for accounts of limits and slots of concurrent requests, with its
guarantees.

Draws name limits by their identity (``accounts.identity``), and amounts are whole units (``policy.ledger.SCALE``). The
rules are in ``policy/ledger.py``: a backend reads accounts, applies the rules and writes the result, in one
transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from samplegate.limits.accounts import Account
from samplegate.policy.ledger import Draw, LimitSpec, Rates, Refused, Reserved

if TYPE_CHECKING:
    from samplegate.limits.balances import Balances


class LedgerUnavailable(Exception):
    """The accounts are not available. The message has a remedy, and no path because a server may see it. ``undone``:
    it is certain that nothing was changed."""

    def __init__(self, kind: str, words: str, *, undone: bool = True) -> None:
        super().__init__(words)
        self.kind = kind
        self.undone = undone


class Settlement(msgspec.Struct, frozen=True):
    """The settlement of a reservation: its actual draws."""

    reserved: Reserved
    actual: tuple[Draw, ...] = ()
    """Accounts without an entry had no actual draw."""
    undo: bool = False
    """Undo the reservation completely: a warning that was not delivered is due again."""
    slots_only: bool = False
    """It is unknown whether the charge was corrected, so it is not corrected again. Freeing slots twice is harmless."""
    rates: Rates = {}

    @property
    def limits(self) -> set[str]:
        """The identities that it affects."""
        return {draw.limit for draw in (*self.reserved.draws, *self.actual)}


class LedgerBackend(Protocol):
    """Accounts and slots. Methods block and are called from one thread at a time, except ``set_shutdown_deadline``,
    ``exhausted`` and ``drawn``.

    ``deadline``, by ``time.monotonic``, bounds all waiting of a call. After the deadline, the call raises
    LedgerUnavailable. A killed process loses nothing that a call has returned. Its slots are free at once; its
    reservations stay charged at their max cost.
    """

    @property
    def has_pending(self) -> bool:
        """Whether corrections have still to be written."""
        ...

    def update_limits(self, specs: Mapping[str, LimitSpec], deadline: float) -> None:
        """Replace the limits, by identity: those in force and those with open reservations. It never fails.

        An account of a known identity stays as it is. If a limit is now shared, the next successful transaction moves
        its account.
        """

    def reserve(self, id: str, draws: Sequence[Draw], deadline: float) -> Reserved | Refused:
        """Charge all of the draws, or none, in one step for all processes that share the accounts. ``warned`` and
        ``fill`` are by identity.

        If LedgerUnavailable is not ``undone``, the draws may have been charged: charges stay, and a later call frees
        the slots.
        """
        ...

    def exhausted(self, specs: Mapping[str, LimitSpec], draws: Sequence[Draw]) -> Refused | None:
        """Why draws on limits per call or per process have no room, if waiting does not help. Does not block."""
        ...

    def drawn(self) -> Mapping[Account, int]:
        """The units drawn now on each account of this process, or the slots in use. Does not block."""
        ...

    def own(self, most: int) -> Balances:
        """The fullest accounts of this process. Blocks for a bounded number of rows."""
        ...

    def settle(self, settlement: Settlement, deadline: float) -> bool:
        """Correct the charges and free the slots. Returns whether the shared accounts were used.

        A failed correction is owed: each later call retries it, and never corrects twice.
        """
        ...

    def flush(self, deadline: float) -> bool:
        """Write what is owed. Returns whether the shared accounts were used."""
        ...

    def set_shutdown_deadline(self, until: float) -> None:
        """No call waits beyond ``until``, by ``time.monotonic``. Callable from any thread."""

    def close(self, deadline: float) -> None:
        """Write what is owed, free what this process holds, and close. Never raises."""
