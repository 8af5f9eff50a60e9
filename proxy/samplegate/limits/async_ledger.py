"""The ledger for the event loop: every call ends within a bounded time, and every kind of fault is logged once.

Until a shared limit is drawn on, calls run in place. From then on, one thread runs them all (``ledger_thread.py``). If
a caller is cancelled during a reservation, the reservation is undone in the background. A settlement is always carried
out. A backend has the transactions.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio

from samplegate.errors import Log
from samplegate.limits.accounts import Account
from samplegate.limits.backend import Call, Charge, LedgerBackend, LedgerUnavailable, Settlement
from samplegate.limits.queue import Later, Timer, after
from samplegate.policy.ledger import Draw, LimitSpec, Rates, Refused, Reserved

if TYPE_CHECKING:
    from concurrent.futures import Future

    from samplegate.limits.balances import Balances
    from samplegate.limits.ledger_thread import LedgerThread

T = TypeVar("T")

FIRST_RETRY: Final = 1.0
LAST_RETRY: Final = 60.0
GRACE: Final = 2.0  # seconds beyond its patience for a thread that waits for the disk
LAST_PATIENCE: Final = 1.0  # seconds at shutdown; slots still held after that are freed by other processes
LAST_GRACE: Final = 0.2  # seconds for the disk once the shutdown deadline is set
LAST_TRY: Final = 0.3  # seconds for the last transaction if all patience is used up

PATIENCE: Final = 5.0
"""Seconds that a call may take in all: for earlier calls of this process, for the file's lock, and for SQLite."""


class AsyncLedger:
    """One backend, which ``make`` creates for the first draw. No method raises if the backend fails. ``place`` of
    the shared accounts is for the log."""

    def __init__(
        self,
        make: Callable[[Mapping[str, LimitSpec]], LedgerBackend],
        place: str,
        log: Log,
        *,
        patience: float | None = None,
        later: Later | None = None,
    ) -> None:
        self._make = make
        self._place = place
        self._log = log
        self._patience = PATIENCE if patience is None else patience
        self._later = later
        self._specs: Mapping[str, LimitSpec] = {}
        self._backend: LedgerBackend | None = None
        self._thread: LedgerThread | None = None
        self._logged: set[str] = set()
        self._retry: Timer | None = None
        self._failed = 0
        self._closed = False
        self._shutting_down = False
        self._end: asyncio.Future[None] | None = None

    def update_limits(self, specs: Mapping[str, LimitSpec]) -> None:
        """Replace the limits, by identity, for all later calls. Does not block."""
        self._specs = specs
        if self._closed or self._backend is None:
            return
        if self._thread is not None:
            self._run(partial(self._backend.update_limits, specs))
            self._carry_out(self._run(self._backend.flush))
            return
        self._backend.update_limits(specs, self._deadline)
        if self._backend.has_pending:
            self._carry_out(self._run(self._backend.flush))

    async def reserve(self, id: str, draws: Sequence[Draw], rates: Callable[[], Rates]) -> Reserved | Refused:
        """Charge all of the draws, or none. If the result is not known in time, the charge is undone; ``rates`` is
        called then."""
        if self._closed:
            return Refused(draws[0].limit, "unavailable", detail="the gate is shutting down")
        if not self._is_threaded(draws):
            try:
                return self._ledger.reserve(id, draws, self._deadline)
            except LedgerUnavailable as full:
                return Refused(draws[0].limit, "unavailable", detail=self._log_failure(full))
        given = self._call(Charge(id, tuple(draws)))
        answer = asyncio.wrap_future(given)
        # asyncio would log an exception that is never retrieved
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            await self._answered(answer)
        except asyncio.CancelledError:
            self._undo(given, rates())
            raise
        if not answer.done():
            self._undo(given, rates())
            late = LedgerUnavailable(
                "busy",
                "limits: the shared state did not respond in time; check for a slow disk or a held lock",
            )
            return Refused(draws[0].limit, "unavailable", detail=self._log_failure(late))
        problem = answer.exception()
        if isinstance(problem, Exception):
            return Refused(draws[0].limit, "unavailable", detail=self._log_failure(problem))
        if any(self._specs[draw.limit].shared for draw in draws):
            self._log_recovery()
        result = answer.result()
        assert not isinstance(result, bool)
        return result

    def exhausted(self, draws: Sequence[Draw]) -> Refused | None:
        """Why draws on limits per call or per process have no room, if waiting does not help."""
        return self._ledger.exhausted(self._specs, draws) if draws and not self._closed else None

    def drawn(self) -> Mapping[Account, int]:
        """The units drawn on the accounts of this process."""
        return self._ledger.drawn()

    def own(self, most: int) -> Balances | None:
        """The fullest accounts of this process; None if nothing was drawn."""
        return None if self._backend is None or self._closed else self._backend.own(most)

    async def settle(self, settlement: Settlement) -> None:
        """Settle a reservation. If it fails, it is retried, and the max cost stays charged until then."""
        if self._closed:
            return
        if not self._is_threaded(settlement.reserved.draws):
            self._ledger.settle(settlement, self._deadline)
            return
        # a cancelled or late wait leaves the settlement alone
        await self._answered(self._carry_out(self._call(settlement)))

    def level(self, limit: str, key: str) -> int:
        """The units drawn on an account of this process. Does not block."""
        return 0 if self._backend is None else self._backend.level(limit, key)

    async def restore(self, levels: Mapping[Account, int]) -> None:
        """Raise accounts of this process to these levels."""
        work = partial(self._ledger.restore, levels)
        if self._closed:
            return
        if self._thread is None:
            work(self._deadline)
        else:
            await self._answered(self._carry_out(self._run(work)))

    @property
    def specs(self) -> Mapping[str, LimitSpec]:
        """The limits by identity."""
        return self._specs

    @property
    def lease(self) -> float | None:
        """Seconds for which slots stay taken without ``renew``; None: as long as this process runs."""
        return None if self._backend is None else self._backend.lease

    async def renew(self) -> bool:
        """Renew the lease of this process's slots. Returns whether it was renewed in time."""
        if self._closed or self._backend is None:
            return True
        answer = self._carry_out(self._run(self._backend.renew))
        await self._answered(answer)
        return answer.done() and answer.exception() is None

    def set_shutdown_deadline(self, seconds: float) -> None:
        """Begin the shutdown: from now on, all calls together take at most ``seconds``."""
        if self._shutting_down or self._thread is None:
            return
        self._shutting_down = True
        self._patience = min(self._patience, seconds)
        self._ledger.set_shutdown_deadline(time.monotonic() + self._patience)
        end = self._ending()
        asyncio.get_running_loop().call_later(self._patience + LAST_GRACE, _finish, end)

    async def aclose(self) -> None:
        """Finish the earlier calls, free the slots and close the file."""
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()
        if self._thread is None:
            if self._backend is not None:
                self._backend.close(self._deadline)
            return
        with anyio.CancelScope(shield=True):
            self._patience = LAST_TRY if self._shutting_down else min(self._patience, LAST_PATIENCE)
            self._ledger.set_shutdown_deadline(time.monotonic() + self._patience)
            closed = asyncio.wrap_future(self._run(self._ledger.close))
            # asyncio would log an exception that is never retrieved
            closed.add_done_callback(lambda done: done.cancelled() or done.exception())
            await asyncio.wait([closed], timeout=self._patience + (LAST_GRACE if self._shutting_down else GRACE))
        self._thread.close()
        self._thread = None

    async def _answered(self, answer: asyncio.Future[Any]) -> None:
        """Wait for a bounded time. The answer is not cancelled, even if the wait is."""
        await asyncio.wait(
            [answer, self._ending()], timeout=self._patience + GRACE, return_when=asyncio.FIRST_COMPLETED
        )

    def _ending(self) -> asyncio.Future[None]:
        if self._end is None:
            self._end = asyncio.get_running_loop().create_future()
        return self._end

    @property
    def _ledger(self) -> LedgerBackend:
        if self._backend is None:
            self._backend = self._make(self._specs)
        return self._backend

    @property
    def _deadline(self) -> float:
        return time.monotonic() + self._patience

    def _is_threaded(self, draws: Sequence[Draw]) -> bool:
        return self._thread is not None or any(self._specs[draw.limit].shared for draw in draws)

    @property
    def _started(self) -> LedgerThread:
        """The thread, which the first use starts."""
        if self._thread is None:
            from samplegate.limits.ledger_thread import LedgerThread

            self._thread = LedgerThread(lambda: self._ledger)
        return self._thread

    def _call(self, call: Call) -> Future[Reserved | Refused | bool]:
        return self._started.call(call, self._deadline)

    def _run(self, work: Callable[[float], T]) -> Future[T]:
        return self._started.run(work, self._deadline)

    def _carry_out(self, call: Future[Any]) -> asyncio.Future[Any]:
        """Carry a call out to its end, even if no caller waits. It returns whether the shared accounts were used."""
        done = asyncio.wrap_future(call)
        done.add_done_callback(self._done)
        return done

    def _done(self, done: asyncio.Future[Any]) -> None:
        problem = None if done.cancelled() else done.exception()
        if isinstance(problem, Exception):
            self._log_failure(problem)
        elif not done.cancelled() and done.result():
            self._log_recovery()

    def _undo(self, given: Future[Reserved | Refused | bool], rates: Rates) -> None:
        """Undo a reservation whose caller has gone: it is cancelled, or undone by the thread's next call."""
        if not given.cancel() and not self._closed:
            self._carry_out(self._run(partial(self._undo_result, given, rates)))

    def _undo_result(self, given: Future[Reserved | Refused | bool], rates: Rates, deadline: float) -> bool:
        got = None if given.exception() else given.result()
        return isinstance(got, Reserved) and self._ledger.settle(Settlement(got, undo=True, rates=rates), deadline)

    def _log_failure(self, problem: Exception) -> str:
        """Log a kind of fault, once until a call succeeds, and schedule a retry of what is owed. Returns the
        message."""
        known = isinstance(problem, LedgerUnavailable)
        kind = problem.kind if isinstance(problem, LedgerUnavailable) else type(problem).__name__
        message = str(problem) if known else "limits: internal error in the gate; see the log"
        if kind not in self._logged:
            self._logged.add(kind)
            trace = {} if known else {"exc_info": problem}
            self._log.error("limits.unavailable", kind=kind, problem=message, path=self._place, **trace)
        if self._ledger.has_pending and self._retry is None and not self._closed:
            self._retry = after(min(FIRST_RETRY * 2**self._failed, LAST_RETRY), self._pay, self._later)
            self._failed = min(self._failed + 1, 10)
        return message

    def _pay(self) -> None:
        self._retry = None
        if not self._closed:
            self._carry_out(self._run(self._ledger.flush))

    def _log_recovery(self) -> None:
        self._failed = 0
        if self._logged:
            self._logged.clear()
            self._log.info("limits.recovered", path=self._place)


def _finish(end: asyncio.Future[None]) -> None:
    if not end.done():
        end.set_result(None)
