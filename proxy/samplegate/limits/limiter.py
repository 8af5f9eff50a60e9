"""The limiter: reserves and settles draws on the limits in force, and queues requests that wait for room."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from samplegate.durations import duration_text
from samplegate.errors import Log
from samplegate.limits.accounts import (
    MAX_KEY_BYTES,
    Account,
    LimitVersions,
    Reservation,
    ReservationRequest,
    is_never_given_back,
    on_identity,
    prepare,
    sums,
    widen_rates,
)
from samplegate.limits.async_ledger import AsyncLedger
from samplegate.limits.backend import LedgerBackend, Settlement
from samplegate.limits.lease import SlotLease
from samplegate.limits.queue import MAX_WAITING, Later, Waiter, WaitQueue, after
from samplegate.policy.claims import bounded
from samplegate.policy.ledger import Draw, LimitSpec, Refused, Reserved
from samplegate.postgres.url import shown
from samplegate.protocol.outcomes import CallDrawn

if TYPE_CHECKING:
    from samplegate.limits.balances import Balances

UNKNOWN_PAUSE: Final = 0.5  # seconds until the next try if it is unknown when there will be room
LONGEST_PAUSE: Final = 5.0  # seconds: other processes give back without notice, and clocks are adjusted
SHORTEST_PAUSE: Final = 0.01


MAX_SEALED: Final = 200
"""Accounts of limits per call that travel with a call."""


class Limiter:
    """The limits of the policy in force. ``clock`` returns Unix seconds. The first draw on a shared limit creates the
    state's file, or connects to the shared ``database`` (a URL). Limits per run have no room if ``run``, the ID of the
    process's run, is empty.

    ``later`` replaces the loop's ``call_later`` in all waiting. ``most_waiting`` is how many requests may wait at a
    time.
    """

    def __init__(
        self,
        specs: Mapping[str, LimitSpec],
        *,
        state: Path,
        clock: Callable[[], float],
        log: Log,
        run: str = "",
        database: str | None = None,
        later: Later | None = None,
        most_waiting: int = MAX_WAITING,
    ) -> None:
        self._specs = specs
        self._folder = state
        self._database = database
        self._clock = clock
        self._log = log
        self._later = later
        self._queue = WaitQueue(most_waiting)
        self._waiting: dict[Waiter, ReservationRequest | Refused] = {}
        """In the order of joining; Refused if a policy that came into force meanwhile refuses the request."""
        self._limits = LimitVersions({}, {}, run).amended(specs, ())
        place = str(state / "limits.sqlite3") if database is None else shown(database)
        self._ledger = AsyncLedger(self._backend, place, log, later=later)
        self._ledger.update_limits(self._limits.specs)
        self._held: dict[str, Reservation] = {}
        self._lease = SlotLease(self._ledger, self._with_slots, self._lost, time.monotonic, later)
        self._made = 0
        self._closed = False

    def update_limits(self, specs: Mapping[str, LimitSpec]) -> None:
        """Put another policy's limits in force, also for requests that wait. Never raises or blocks; must be called in
        the event loop.

        A limit keeps its balance while its identity stays the same (its amount may change); otherwise it starts at zero
        (``accounts.py``).
        """
        try:
            before = self._limits
            now = before.amended(specs, {id for held in self._held.values() for id in held.ids.values()})
            for held in self._held.values():
                held.rates = widen_rates(held.rates, held.ids.values(), before.specs, now.specs)
            self._specs, self._limits = specs, now
            self._ledger.update_limits(now.specs)
            self._queue.replace({waiter: self._place(waiter) for waiter in list(self._waiting)})
        except Exception:
            self._log.error("limits.failed", exc_info=True)

    async def reserve(
        self, draws: Sequence[Draw], wait: float | None, under: Mapping[str, LimitSpec] | None = None
    ) -> Reserved | Refused:
        """Charge all of the draws, or none. With ``wait`` seconds, the request waits for room, first come, first
        served. Never raises.

        ``under`` are the limits for which the draws were measured, if they may no longer be in force: draws in other
        units or for other keys are refused. One try at the state takes up to five seconds, so the wait may be that much
        longer.
        """
        try:
            self._made += 1
            asked = prepare(
                draws, self._specs if under is None else under, self._limits, self._made, os.urandom(12).hex()
            )
            return asked if isinstance(asked, Refused) else await self._admit(asked, wait)
        except Exception:
            self._log.error("limits.failed", exc_info=True)
            return Refused(
                draws[0].limit if draws else "", "unavailable", detail="internal error in the gate; see the log"
            )

    async def settle(self, reserved: Reserved, actual: Sequence[Draw]) -> None:
        """Correct a reservation to its actual draws (a missing draw is zero) and free its slots. Never raises; a
        cancellation does not stop it.

        ``reserved`` may have only some of its draws: the others stay reserved. Settling a draw again changes nothing.
        """
        try:
            await self._settle(reserved, actual)
        except Exception:
            self._log.error("limits.failed", exc_info=True)

    def call_drawn(self, accounts: Collection[tuple[str, str]]) -> tuple[CallDrawn, ...]:
        """What is drawn now on limits per call among these accounts (limit's name and key). Does not block."""
        ids, specs = self._limits.ids, self._limits.specs
        per_call = sorted((name, key) for name, key in accounts if name in ids and specs[ids[name]].per == "call")
        levels = [(name, key, self._ledger.level(ids[name], bounded(key, MAX_KEY_BYTES))) for name, key in per_call]
        return tuple(CallDrawn(name, key, units) for name, key, units in levels[:MAX_SEALED] if units)

    async def restore_drawn(self, drawn: Sequence[CallDrawn]) -> None:
        """Raise accounts of limits per call to what a call had drawn at another gate. Never raises."""
        ids, specs = self._limits.ids, self._limits.specs
        levels = {
            (ids[one.limit], bounded(one.key, MAX_KEY_BYTES)): one.units
            for one in drawn
            if one.limit in ids and specs[ids[one.limit]].per == "call"
        }
        try:
            if levels:
                await self._ledger.restore(levels)
        except Exception:
            self._log.error("limits.failed", exc_info=True)

    def when_lost(self, reserved: Reserved, lost: Callable[[], object]) -> None:
        """Call ``lost`` if the slots of a reservation are lost before it is settled: the shared database could not be
        reached for so long that other gates may take them. It is called at once if that has happened already."""
        held = self._held.get(reserved.id)
        if held is not None:
            held.when_lost(lost)

    async def drawn(self) -> Callable[[str, str], int]:
        """The units drawn now on a limit for a key, for limits that are not shared with other processes."""
        ids, drawn = self._limits.ids, self._ledger.drawn()
        return lambda limit, key: drawn.get((ids[limit], bounded(key, MAX_KEY_BYTES)), 0)

    def own(self, most: int) -> Balances | None:
        """The fullest accounts of this process that no other shares; None if nothing was drawn."""
        return self._ledger.own(most)

    @property
    def specs_in_force(self) -> Mapping[str, LimitSpec]:
        """The limits in force, by the identity of their accounts."""
        return {id: self._limits.specs[id] for id in self._limits.ids.values()}

    def waiting(self) -> Mapping[Account, int]:
        """How many requests wait for room, by account."""
        return Counter(waiter.at for waiter in self._waiting)

    def set_shutdown_deadline(self, seconds: float) -> None:
        """Begin the shutdown: refuse the waiting requests, and use the state for at most ``seconds`` in all."""
        self._closed = True
        self._queue.end()
        self._ledger.set_shutdown_deadline(seconds)

    async def aclose(self) -> None:
        """Refuse the waiting requests, free this process's slots and close the file. What is not settled stays charged
        at its max cost."""
        self._closed = True
        self._queue.end()
        self._lease.close()
        await self._ledger.aclose()

    async def _admit(self, asked: ReservationRequest, wait: float | None) -> Reserved | Refused:
        """Reserve unless earlier requests wait for the same accounts."""
        before = self._queue.before(asked.number, asked.accounts)
        if before is not None:
            refused = self._unsatisfiable(asked)
            if refused is None and wait is not None:
                return await self._wait(asked, before, None, wait)
            limit = self._name_of(before)
            return refused or Refused(limit, "waiting", detail=f"limit {limit}: requests are already waiting for it")
        got = await self._take(asked)
        if wait is None or isinstance(got, Reserved):
            return got
        if asked.limits is self._limits:
            return await self._wait(asked, _refused_at(asked, got), got, wait) if self._worth_waiting(got) else got
        renewed = self._renewed(asked)  # it was refused by a policy that is not in force any more
        return renewed if isinstance(renewed, Refused) else await self._admit(renewed, wait)

    async def _wait(
        self, asked: ReservationRequest, at: Account, refused: Refused | None, seconds: float
    ) -> Reserved | Refused:
        if self._queue.full:
            limit = self._name_of(at)
            return Refused(limit, "waiting", detail=f"limit {limit}: {self._queue.most} requests are already waiting")
        waiter = Waiter(asked.number, asked.accounts, at)
        self._waiting[waiter] = asked
        self._queue.join(waiter)
        end = after(seconds, waiter.end, self._later)
        try:
            if refused is not None:
                self._schedule_retry(waiter, refused)
            got = await self._turns(waiter)
        finally:
            end.cancel()
            self._queue.leave(waiter)
            del self._waiting[waiter]
        return got or self._timed_out(waiter, seconds)

    async def _turns(self, waiter: Waiter) -> Reserved | Refused | None:
        """Try whenever it is the request's turn, until it has an answer; None after its timeout."""
        while True:
            await waiter.woken()
            asked = self._waiting[waiter]
            if isinstance(asked, Refused):
                return asked
            if waiter.over:
                return None
            if not self._queue.is_first(waiter):
                continue
            before = self._queue.before(waiter.number, waiter.accounts)
            if before is not None:
                self._queue.move(waiter, before)
                continue
            got = await self._take(asked)
            if isinstance(got, Reserved):
                return got
            if asked.limits is not self._limits:  # the change of limits has already woken it
                continue
            if not self._worth_waiting(got):
                return got
            self._queue.move(waiter, _refused_at(asked, got))
            self._schedule_retry(waiter, got)

    def _place(self, waiter: Waiter) -> tuple[Sequence[Account], Account] | None:
        """The position of a waiting request under new limits, or None if they refuse it."""
        asked = self._waiting[waiter]
        if isinstance(asked, Refused):
            return None
        again = self._waiting[waiter] = self._renewed(asked)
        return None if isinstance(again, Refused) else (again.accounts, self._account_under(asked, waiter.at))

    def _account_under(self, old: ReservationRequest, account: Account) -> Account:
        """The account under the new limits that corresponds to an account of the old request."""
        return self._limits.ids[old.limits.specs[account[0]].name], account[1]

    def _renewed(self, asked: ReservationRequest) -> ReservationRequest | Refused:
        """The request under the limits in force; Refused if they can never have room for it."""
        again = prepare(asked.draws, asked.under, self._limits, asked.number, asked.id)
        return again if isinstance(again, Refused) else self._unsatisfiable(again) or again

    def _unsatisfiable(self, asked: ReservationRequest) -> Refused | None:
        """Why waiting cannot help: the request is larger than a limit, or its call or this process has used up its
        limit."""
        specs = asked.limits.specs
        for (limit, _), wanted in sums(asked.charged).items():
            if wanted > specs[limit].max_units:
                name = specs[limit].name
                return Refused(name, "never", detail=f"limit {name}: one request exceeds the whole limit")
        return self._ledger.exhausted([draw for draw in asked.charged if is_never_given_back(specs[draw.limit])])

    async def _take(self, asked: ReservationRequest) -> Reserved | Refused:
        """Charge the request. It stays reserved until it is settled."""
        if self._closed:
            return Refused(
                asked.draws[0].limit if asked.draws else "", "unavailable", detail="the gate is shutting down"
            )
        held = Reservation(
            {draw.limit: asked.limits.ids[draw.limit] for draw in asked.draws}, Reserved(asked.id, asked.charged, 0.0)
        )
        if not asked.charged:
            return Reserved(asked.id, (), self._clock())
        self._held[asked.id] = held
        sent = time.monotonic()
        try:
            got = await self._ledger.reserve(asked.id, asked.charged, lambda: held.rates)
        except BaseException:
            del self._held[asked.id]
            raise
        specs = asked.limits.specs
        if isinstance(got, Refused):
            del self._held[asked.id]
            return msgspec.structs.replace(got, limit=specs[got.limit].name) if got.limit in specs else got
        held.reserved = got
        if any(specs[draw.limit].per == "slots" and specs[draw.limit].shared for draw in got.draws):
            self._lease.begin(sent)
        fill = {specs[limit].name: share for limit, share in got.fill.items()}
        return Reserved(asked.id, asked.draws, got.at, tuple(specs[limit].name for limit in got.warned), fill)

    async def _settle(self, reserved: Reserved, actual: Sequence[Draw]) -> None:
        held = self._held.get(reserved.id)
        if held is None:
            return
        part = held.part(reserved.draws)
        if not held.reserved.draws:
            del self._held[reserved.id]
        true = tuple(on_identity(draw, held.ids[draw.limit]) for draw in actual if draw.limit in held.ids)
        try:
            if part.draws:
                await self._ledger.settle(Settlement(part, true, rates=held.rates))
        finally:
            self._queue.wake([(draw.limit, draw.key) for draw in part.draws])

    def _with_slots(self) -> list[Reservation]:
        """The reservations that hold shared slots. One that is being charged does not yet."""
        specs = self._ledger.specs
        return [
            held
            for held in self._held.values()
            if held.reserved.at
            and any(specs[draw.limit].per == "slots" and specs[draw.limit].shared for draw in held.reserved.draws)
        ]

    def _lost(self, reservations: Sequence[Reservation]) -> None:
        if lost := sum(held.lose() for held in reservations):
            self._log.error("limits.slots_lost", requests=lost)

    def _backend(self, specs: Mapping[str, LimitSpec]) -> LedgerBackend:
        """Create the backend at the first draw, because it imports a database driver."""
        if self._database is not None:
            from samplegate.limits.postgres_ledger import PostgresLedger

            return PostgresLedger(specs, self._database, self._clock)
        from samplegate.limits.sqlite_ledger import SqliteLedger

        return SqliteLedger(specs, self._folder, self._clock)

    def _name_of(self, account: Account) -> str:
        """The name of the account's limit."""
        return self._limits.specs[account[0]].name

    def _worth_waiting(self, got: Refused) -> bool:
        spec = self._specs.get(got.limit)
        return got.why == "full" and spec is not None and not is_never_given_back(spec)

    def _schedule_retry(self, waiter: Waiter, refused: Refused) -> None:
        pause = (
            UNKNOWN_PAUSE
            if refused.retry_after is None
            else max(SHORTEST_PAUSE, min(refused.retry_after, LONGEST_PAUSE))
        )
        waiter.retry_after = refused.retry_after
        waiter.wake_by(after(pause, waiter.wake, self._later))

    def _timed_out(self, waiter: Waiter, seconds: float) -> Refused:
        limit = self._name_of(waiter.at)
        if self._closed:
            return Refused(limit, "unavailable", detail="the gate is shutting down")
        return Refused(limit, "full", waiter.retry_after, f"limit {limit}: no capacity within {duration_text(seconds)}")


def _refused_at(asked: ReservationRequest, refused: Refused) -> Account:
    limit = asked.limits.ids[refused.limit]
    return next(account for account in asked.accounts if account[0] == limit)
