"""The ledger: this process's own accounts in memory, shared accounts in a database. A reservation on both is one
transaction.

Each limit is stored under its identity (``accounts.identity``). The rules are in ``policy/ledger.py``.
"""

from __future__ import annotations

import contextlib
import math
import sqlite3
import time
import weakref
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Final

import msgspec

from samplegate.limits.account_rows import AccountRows, make_tables
from samplegate.limits.accounts import Account, is_of_a_run, no_room, shares, sums, widen_rates
from samplegate.limits.backend import Call, Charge, LedgerUnavailable, Settlement, SharedAccounts, SharedRows
from samplegate.limits.balances import Balances, account_of, balances
from samplegate.policy import ledger
from samplegate.policy.ledger import Draw, LimitSpec, Refused, Reserved

MAX_ACCOUNTS: Final = 1_000_000  # in memory, about 150 MiB; bounded because keys come from clients and servers
SWEEP_EVERY: Final = 64  # draws between two searches for idle accounts; the first draw starts one
# accounts examined per draw: more than a draw can add, so idle accounts never outnumber the others for long
EXAMINED_PER_DRAW: Final = 4
EXAMINED_WHEN_FULL: Final = 1_000
# seconds until an unknown limit's shared account counts as abandoned: longer than any period
FORGOTTEN: Final = 400 * 86_400.0


class SharedLedger:
    """A ``LedgerBackend``. ``specs`` are by identity. ``clock`` returns Unix seconds and is the time of the accounts in
    memory. ``most`` bounds them."""

    def __init__(
        self,
        specs: Mapping[str, LimitSpec],
        shared: SharedAccounts,
        clock: Callable[[], float],
        most: int = MAX_ACCOUNTS,
    ) -> None:
        self._specs = specs
        self._clock = clock
        self._most = most
        # The event loop reads (`exhausted`, `drawn`, `own`) while the limits' thread works. From Python 3.12 on, two
        # threads that run the same SQL share one cached statement and may get each other's parameters, so no statement
        # is cached.
        memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, cached_statements=0)
        weakref.finalize(self, memory.close)
        make_tables(memory)
        self._memory = AccountRows(memory)
        self._accounts = shared
        self._rows: SharedRows | None = None
        """The shared rows, within a transaction that uses them."""
        self._until = math.inf
        self._drawn = {False: SWEEP_EVERY, True: SWEEP_EVERY}
        self._owed: dict[int, Settlement] = {}
        self._numbers = count()
        self._moving: set[str] = set()
        self._size = 0

    def __len__(self) -> int:
        """The number of accounts and slots in memory."""
        return self._size

    @property
    def has_pending(self) -> bool:
        return bool(self._owed or self._moving)

    def update_limits(self, specs: Mapping[str, LimitSpec], deadline: float = math.inf) -> None:
        before, kept = self._specs, {limit: self._specs[limit] for owed in self._owed.values() for limit in owed.limits}
        self._specs = {**kept, **specs}
        for number, owed in self._owed.items():
            self._owed[number] = msgspec.structs.replace(
                owed, rates=widen_rates(owed.rates, owed.limits, before, self._specs)
            )
        self._moving = {limit for limit, one in self._specs.items() if one.shared and self._memory.has(limit)}

    def reserve(self, id: str, draws: Sequence[Draw], deadline: float) -> Reserved | Refused:
        (result,) = self.batch([Charge(id, tuple(draws))], deadline)
        assert not isinstance(result, bool)
        return result

    def settle(self, settlement: Settlement, deadline: float) -> bool:
        return self.batch([settlement], deadline) == [True]

    def batch(self, calls: Sequence[Call], deadline: float) -> list[Reserved | Refused | bool]:
        numbers = [next(self._numbers) for _ in calls]
        charges = [call for call in calls if isinstance(call, Charge)]
        settlements = {number: one for number, one in zip(numbers, calls, strict=True) if isinstance(one, Settlement)}
        self._owed.update(settlements)
        draws = [draw for charge in charges for draw in charge.draws]
        uses_shared = [
            self._is_shared(call)
            if isinstance(call, Settlement)
            else any(self._specs[draw.limit].shared for draw in call.draws)
            for call in calls
        ]
        results: list[Reserved | Refused | bool] = []
        try:
            with self._transaction(deadline, any(uses_shared), draws, settlements):
                if draws:
                    self._forget_idle(len(draws))
                for number, call, shared in zip(numbers, calls, uses_shared, strict=True):
                    if isinstance(call, Charge):
                        results.append(self._charge(call, shared))
                    else:
                        self._pay([number])
                        results.append(shared)
        except LedgerUnavailable as problem:
            if not problem.undone:
                for charge in charges:
                    self._owe_slots(charge)
            raise
        except BaseException:
            if len(calls) > 1:  # the caller repeats each, and a settlement must not be made twice
                for number in settlements:
                    self._owed.pop(number, None)
            raise
        return results

    def _charge(self, charge: Charge, shared: bool) -> Reserved | Refused:
        slots = sums(filter(self._is_slot, charge.draws))
        counted = [draw for draw in charge.draws if not self._is_slot(draw)]
        now = self._now(shared)
        refused = self._no_slots(slots)
        charged = refused or ledger.reserve(self._specs, self._lookup, counted, now)
        if not isinstance(charged, Refused):
            charged = self._too_many(charged[0], slots, now) or charged
        if isinstance(charged, Refused):
            self._write(ledger.set_back(self._specs, self._lookup, counted, now))
            return charged
        changes, warned = charged
        self._write(changes)
        for account, amount in slots.items():
            self._take(account, charge.id, amount)
        levels = [(limit, account.level) for (limit, _), account in changes.items()]
        levels += [(limit, self._taken(limit, key)) for limit, key in slots]
        return Reserved(charge.id, charge.draws, now, warned, shares(self._specs, levels))

    def _owe_slots(self, charge: Charge) -> None:
        """A charge that may have been made: its slots must be freed, and what it charged stays."""
        self._owed[next(self._numbers)] = Settlement(Reserved(charge.id, charge.draws, 0.0), slots_only=True)

    def exhausted(self, specs: Mapping[str, LimitSpec], draws: Sequence[Draw]) -> Refused | None:
        tried = ledger.reserve(specs, self._memory.find, draws, self._clock())
        return tried if isinstance(tried, Refused) else None

    def drawn(self) -> Mapping[Account, int]:
        now, db = self._clock(), self._memory.db
        accounts = db.execute("SELECT limit_name, key, level, stamp, warned FROM accounts").fetchall()
        slots = db.execute("SELECT limit_name, key, total(amount) FROM slots GROUP BY limit_name, key").fetchall()
        known = {
            (limit, key): ledger.drawn(self._specs[limit], account_of(*rest), now)
            for limit, key, *rest in accounts
            if limit in self._specs
        }
        return known | {(limit, key): int(amount) for limit, key, amount in slots}

    def level(self, limit: str, key: str) -> int:
        found = self._memory.find(limit, key)
        return 0 if found is None else found.level

    def restore(self, levels: Mapping[Account, int], deadline: float) -> bool:
        with self._transaction(deadline, False):
            now, raised = self._clock(), dict[Account, ledger.Account]()
            for account, level in levels.items():
                found = self._memory.look(*account)
                if account[0] in self._specs and (found is None or found.level < level):
                    warned = found is not None and found.warned
                    raised[account] = ledger.Account(min(level, ledger.MAX_UNITS), now, warned)
            self._memory.write(raised)
        return False

    def own(self, most: int) -> Balances:
        own = {identity: spec for identity, spec in self._specs.items() if not spec.shared}
        return balances(self._memory.db, own, self._clock(), most)

    def flush(self, deadline: float) -> bool:
        shared = bool(self._moving) or any(map(self._is_shared, self._owed.values()))
        with self._transaction(deadline, shared):
            return shared

    @property
    def lease(self) -> float | None:
        return self._accounts.lease

    def renew(self, deadline: float) -> bool:
        self._accounts.renew(partial(self._left, deadline))
        return True

    def set_shutdown_deadline(self, until: float) -> None:
        self._until = until

    def close(self, deadline: float) -> None:
        if self._moving or any(map(self._is_shared, self._owed.values())):
            with contextlib.suppress(LedgerUnavailable), self._transaction(deadline, True):
                pass
        self._accounts.close(partial(self._left, deadline))

    def _left(self, deadline: float) -> float:
        return min(deadline, self._until) - time.monotonic()

    @contextlib.contextmanager
    def _transaction(
        self, deadline: float, shared: bool, draws: Iterable[Draw] = (), later: Container[int] = ()
    ) -> Iterator[None]:
        """One transaction on memory and, if ``shared``, on the shared accounts, which is committed first. It starts
        with the owed corrections, except those that the block makes (``later``)."""
        memory = self._memory.db
        try:
            memory.execute("BEGIN")
            self._memory.begin()
            due = [number for number, owed in self._owed.items() if shared or not self._is_shared(owed)]
            with self._locked(deadline, due, draws) if shared else contextlib.nullcontext() as self._rows:
                if shared:
                    self._move()
                self._pay([number for number in due if number not in later])
                yield
            memory.commit()
        except LedgerUnavailable as problem:
            memory.rollback()
            if not problem.undone:
                for number in self._owed:
                    self._mark_uncertain(number)
            raise
        except BaseException:
            memory.rollback()
            raise
        self._size += self._memory.grown
        for number in due:
            del self._owed[number]
        if shared:
            self._moving.clear()

    def _locked(
        self, deadline: float, due: Iterable[int], draws: Iterable[Draw]
    ) -> contextlib.AbstractContextManager[SharedRows]:
        """Lock the shared accounts of these corrections and draws, and those that move."""

        def accounts() -> set[Account]:
            owed = [self._owed[number] for number in due]
            drawn = [*draws, *(draw for one in owed for draw in (*one.reserved.draws, *one.actual))]
            found = {(draw.limit, draw.key) for draw in drawn if self._specs[draw.limit].shared}
            return found | {(limit, key) for limit in self._moving for key in self._memory.keys(limit)}

        return self._accounts.transaction(partial(self._left, deadline), accounts)

    def _now(self, shared: bool) -> float:
        return self._shared.now() if shared else self._clock()

    # -- accounts
    # ------------------------------------------------------------------------------------------------------------------

    @property
    def _shared(self) -> SharedRows:
        assert self._rows is not None, "a transaction on shared accounts"
        return self._rows

    def _lookup(self, limit: str, key: str) -> ledger.Account | None:
        return self._shared.find(limit, key) if self._specs[limit].shared else self._memory.look(limit, key)

    def _write(self, changes: ledger.Changes) -> None:
        self._memory.write({account: one for account, one in changes.items() if not self._specs[account[0]].shared})
        if shared := {account: one for account, one in changes.items() if self._specs[account[0]].shared}:
            self._shared.write(shared)

    def _too_many(self, changes: ledger.Changes, slots: Mapping[Account, int], now: float) -> Refused | None:
        """Refuse if memory would have too many accounts."""

        def too_many() -> list[Account]:
            new = [account for account in changes if account in self._memory.missing]
            new += [account for account in slots if not self._specs[account[0]].shared]
            return new if self._size + self._memory.grown + len(new) > self._most else []

        if too_many():
            self._memory.forget(EXAMINED_WHEN_FULL, partial(self._is_idle, now, 0.0))
        refused = too_many()
        if not refused:
            return None
        limit = self._specs[refused[0][0]].name
        return Refused(
            limit, "unavailable", detail=f"limit {limit}: {self._most} accounts are in use; use fewer keys in `by`"
        )

    def _forget_idle(self, draws: int) -> None:
        """Look for idle accounts, from where the last search ended."""
        places: list[tuple[AccountRows | SharedRows, float]] = [(self._memory, ledger.FORGET_AFTER)]
        if self._rows is not None:
            places.append((self._rows, FORGOTTEN))
        for place, after in places:
            of_all = place is not self._memory
            self._drawn[of_all] += draws
            if self._drawn[of_all] >= SWEEP_EVERY:
                now = self._now(of_all)
                place.forget(self._drawn[of_all] * EXAMINED_PER_DRAW, partial(self._is_idle, now, after))
                self._drawn[of_all] = 0

    def _is_idle(self, now: float, after: float, limit: str, account: ledger.Account) -> bool:
        spec = self._specs.get(limit)
        if spec is None and is_of_a_run(limit):  # of another run
            after = ledger.FORGET_AFTER
        return account.stamp <= now - after if spec is None else ledger.idle(spec, account, now)

    # -- what is owed
    # ------------------------------------------------------------------------------------------------------------------

    def _is_shared(self, owed: Settlement) -> bool:
        return any(self._specs[limit].shared for limit in owed.limits)

    def _mark_uncertain(self, number: int) -> None:
        """Mark a correction as uncertain, because a charge must not be given back twice."""
        self._owed[number] = msgspec.structs.replace(self._owed[number], slots_only=True)

    def _pay(self, due: Sequence[int]) -> None:
        for number in due:
            try:
                self._correct(self._owed[number])
            except Exception as problem:
                if not isinstance(problem, (sqlite3.Error, *self._accounts.errors)):
                    self._mark_uncertain(number)  # a fault of ours must not block all later corrections
                raise

    def _correct(self, owed: Settlement) -> None:
        reserved = owed.reserved
        for limit, key in sums(filter(self._is_slot, reserved.draws)):
            if self._specs[limit].shared:
                self._shared.free(limit, key, reserved.id)
            else:
                self._memory.free(limit, key, "", reserved.id)
        counted = tuple(draw for draw in reserved.draws if not self._is_slot(draw))
        if owed.slots_only or not counted:
            return
        actual = [draw for draw in owed.actual if not self._is_slot(draw)]
        charged = msgspec.structs.replace(reserved, draws=counted)
        now = self._now(self._is_shared(owed))
        changes = ledger.settle(self._specs, self._lookup, charged, actual, now, rates=owed.rates)
        if owed.undo:
            for account, one in changes.items():
                changes[account] = msgspec.structs.replace(one, warned=one.warned and account[0] not in reserved.warned)
        self._write(changes)

    def _move(self) -> None:
        """Move accounts of newly shared limits from memory into the database. If in doubt, move them again: charging
        twice is less harmful than not charging."""
        for limit in self._moving:
            accounts, slots = self._memory.leave(limit)
            now = self._shared.now()
            self._shared.write(
                {
                    (limit, key): ledger.merged(self._specs[limit], self._shared.find(limit, key), one, now)
                    for key, one in accounts
                }
            )
            for key, id, amount in slots:
                self._shared.take(limit, key, id, amount)

    # -- slots
    # ------------------------------------------------------------------------------------------------------------------

    def _is_slot(self, draw: Draw) -> bool:
        return self._specs[draw.limit].per == "slots"

    def _taken(self, limit: str, key: str) -> int:
        return (self._shared if self._specs[limit].shared else self._memory).taken(limit, key)

    def _no_slots(self, wanted: Mapping[Account, int]) -> Refused | None:
        """Refuse if there is no room after the slots of dead processes were freed."""
        while (full := no_room(self._specs, self._taken, wanted)) is not None and full[0].why == "full":
            if not self._specs[full[1][0]].shared or not self._shared.free_dead(*full[1]):
                break
        return None if full is None else full[0]

    def _take(self, account: Account, id: str, amount: int) -> None:
        if self._specs[account[0]].shared:
            self._shared.take(*account, id, amount)
        else:
            self._memory.take(*account, "", id, amount)
