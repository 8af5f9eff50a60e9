"""The protocols of the ledger: what the event loop uses (``LedgerBackend``), and a database of accounts that processes
share (``SharedAccounts``), with their guarantees.

Draws name limits by their identity (``accounts.identity``), and amounts are whole units (``policy.ledger.SCALE``). The
rules are in ``policy/ledger.py``: ``shared_ledger.py`` reads accounts, applies the rules and writes the result, in one
transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

from samplegate.limits.accounts import Account
from samplegate.policy import ledger
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


class Charge(msgspec.Struct, frozen=True):
    """A reservation to try."""

    id: str
    draws: tuple[Draw, ...]


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


Call: TypeAlias = Charge | Settlement


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

    @property
    def lease(self) -> float | None:
        """Seconds for which slots stay taken without ``renew``; None: as long as this process runs."""
        ...

    def renew(self, deadline: float) -> bool:
        """Renew the lease of this process's slots. Returns whether the shared accounts were used."""
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

    def level(self, limit: str, key: str) -> int:
        """The units drawn on an account of this process that never refills. Does not block."""
        ...

    def restore(self, levels: Mapping[Account, int], deadline: float) -> bool:
        """Raise accounts of this process to these levels. Returns False: no shared account was used."""
        ...

    def own(self, most: int) -> Balances:
        """The fullest accounts of this process. Blocks for a bounded number of rows."""
        ...

    def batch(self, calls: Sequence[Call], deadline: float) -> list[Reserved | Refused | bool]:
        """``reserve`` for each charge and ``settle`` for each settlement, in their order and in one transaction. If it
        raises, it has failed for all of them. After LedgerUnavailable, the settlements are owed; after another error,
        which is a bug that one of several calls may cause, nothing is, and the caller repeats each call alone."""
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


class SharedRows(Protocol):
    """Shared accounts and slots within a transaction, locked for this process. Values of damaged rows raise the
    database's fault."""

    def now(self) -> float:
        """The database's time after the accounts were locked, in Unix seconds."""
        ...

    def find(self, limit: str, key: str) -> ledger.Account | None:
        """An account; None if nothing was ever drawn on it."""
        ...

    def write(self, changes: ledger.Changes) -> None:
        """Write accounts."""

    def forget(self, most: int, is_idle: Callable[[str, ledger.Account], bool]) -> None:
        """Delete idle accounts among the next ``most`` accounts, from where the last search ended."""

    def taken(self, limit: str, key: str) -> int:
        """The slots in use."""
        ...

    def free_dead(self, limit: str, key: str) -> bool:
        """Free the slots of dead processes. Returns whether there were any."""
        ...

    def take(self, limit: str, key: str, id: str, amount: int) -> None:
        """Take slots for this process."""

    def free(self, limit: str, key: str, id: str) -> None:
        """Free slots of this process. There may be none."""


class SharedAccounts(Protocol):
    """A database of accounts and slots that processes share. One thread uses it."""

    errors: tuple[type[Exception], ...]
    """What its rows raise for faults of the database, within a transaction."""
    lease: float | None
    """Seconds for which slots stay taken without ``renew``; None: as long as this process runs."""

    def transaction(
        self, left: Callable[[], float], accounts: Callable[[], Set[Account]]
    ) -> AbstractContextManager[SharedRows]:
        """One transaction, in which ``accounts`` are locked: committed at the end of the block, rolled back if the
        block raises. ``left``: the seconds until its deadline. Raises LedgerUnavailable for every fault of the
        database."""
        ...

    def renew(self, left: Callable[[], float]) -> None:
        """Renew the lease of this process's slots. Raises LedgerUnavailable."""

    def close(self, left: Callable[[], float]) -> None:
        """Free the slots of this process, and close. Never raises."""
