"""The ledger for the event loop: every call ends within a bounded time, and every fault is reported once. Not the
transactions: ``sqlite_ledger.py``.

As long as no limit is shared, calls are made in place; from the first draw on a shared limit, one thread makes them
all. A caller that is cancelled while its reservation is being made gets it undone behind its back; a settlement, once
asked for, is carried out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio

from samplegate.errors import Log
from samplegate.limits.accounts import Account
from samplegate.limits.backend import LedgerBackend, LedgerUnavailable, Settlement
from samplegate.limits.queue import Later, Timer, after
from samplegate.policy.ledger import Draw, LimitSpec, Rates, Refused, Reserved

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

T = TypeVar("T")

FIRST_RETRY: Final = 1.0
LAST_RETRY: Final = 60.0
GRACE: Final = 2.0  # seconds beyond its patience for a thread that a disk keeps
LAST_PATIENCE: Final = 1.0  # at the end: what is not freed by then is found to be free by the others
LAST_GRACE: Final = 0.2  # and for a disk, once the end was told
LAST_TRY: Final = 0.3  # seconds for the last transaction, where all patience was used up before

PATIENCE: Final = 5.0
"""Seconds that a call may take in all: behind others of this process, for the file's lock, for SQLite."""


class AsyncLedger:
    """One backend, created by ``make`` for the first draw. No method raises if the backend fails. ``path`` is for the
    log."""

    def __init__(
        self,
        make: Callable[[Mapping[str, LimitSpec]], LedgerBackend],
        path: Path,
        log: Log,
        *,
        patience: float | None = None,
        later: Later | None = None,
    ) -> None:
        self._make = make
        self._path = path
        self._log = log
        self._patience = PATIENCE if patience is None else patience
        self._later = later
        self._terms: Mapping[str, LimitSpec] = {}
        self._backend: LedgerBackend | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._told: set[str] = set()
        self._retry: Timer | None = None
        self._failed = 0
        self._closed = False
        self._hurried = False
        self._end: asyncio.Future[None] | None = None

    def update_limits(self, terms: Mapping[str, LimitSpec]) -> None:
        """Replace the limits, by identity, for all later calls. Returns at once."""
        self._terms = terms
        if self._closed or self._backend is None:
            return
        if self._threads is not None:
            self._give(self._backend.update_limits, terms)
            self._carry_out(self._backend.pay)
            return
        self._backend.update_limits(terms, self._deadline)
        if self._backend.owes:
            self._carry_out(self._backend.pay)

    async def reserve(self, id: str, draws: Sequence[Draw], rates: Callable[[], Rates]) -> Reserved | Refused:
        """Charge all of the draws, or none; where that cannot be told, none. ``rates`` are asked for where it is to be
        taken back."""
        if self._closed:
            return Refused(draws[0].limit, "unavailable", detail="the gate is ending")
        if not self._is_threaded(draws):
            try:
                return self._ledger.reserve(id, draws, self._deadline)
            except LedgerUnavailable as full:
                return Refused(draws[0].limit, "unavailable", detail=self._fails(full))
        given = self._give(self._ledger.reserve, id, draws)
        answer = asyncio.wrap_future(given)
        # so that asyncio does not complain of it
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            await self._answered(answer)
        except asyncio.CancelledError:
            self._take_back(given, rates())
            raise
        if not answer.done():
            self._take_back(given, rates())
            late = LedgerUnavailable(
                "busy", "limits: the shared state did not answer in time; see what keeps its disk or its lock"
            )
            return Refused(draws[0].limit, "unavailable", detail=self._fails(late))
        problem = answer.exception()
        if isinstance(problem, Exception):
            return Refused(draws[0].limit, "unavailable", detail=self._fails(problem))
        if any(self._terms[draw.limit].shared for draw in draws):
            self._works()
        return answer.result()

    def exhausted(self, draws: Sequence[Draw]) -> Refused | None:
        """Why draws on limits of a call or of this process have no room, where waiting does not help."""
        return self._ledger.exhausted(self._terms, draws) if draws and not self._closed else None

    def drawn(self) -> Mapping[Account, int]:
        """The units drawn on the accounts of this process."""
        return self._ledger.drawn()

    async def settle(self, settlement: Settlement) -> None:
        """Correct a reservation; what fails is tried again, and stays at its worst case until then."""
        if self._closed:
            return
        if not self._is_threaded(settlement.reserved.draws):
            self._ledger.settle(settlement, self._deadline)
            return
        # which leaves it alone, whatever becomes of the waiting
        await self._answered(self._carry_out(self._ledger.settle, settlement))

    def set_shutdown_deadline(self, seconds: float) -> None:
        """The end has begun: whatever is asked takes ``seconds`` at most from now on, all together."""
        if self._hurried or self._threads is None:
            return
        self._hurried = True
        self._patience = min(self._patience, seconds)
        self._ledger.set_shutdown_deadline(time.monotonic() + self._patience)
        end = self._ending()
        asyncio.get_running_loop().call_later(self._patience + LAST_GRACE, _over, end)

    async def aclose(self) -> None:
        """Free what is held and close the file, after what was asked for before."""
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()
        if self._threads is None:
            if self._backend is not None:
                self._backend.close(self._deadline)
            return
        with anyio.CancelScope(shield=True):
            self._patience = LAST_TRY if self._hurried else min(self._patience, LAST_PATIENCE)
            self._ledger.set_shutdown_deadline(time.monotonic() + self._patience)
            closed = asyncio.wrap_future(self._give(self._ledger.close))
            # so that asyncio does not complain of it
            closed.add_done_callback(lambda done: done.cancelled() or done.exception())
            await asyncio.wait([closed], timeout=self._patience + (LAST_GRACE if self._hurried else GRACE))
        self._threads.shutdown(wait=False)
        self._threads = None

    async def _answered(self, answer: asyncio.Future[Any]) -> None:
        """Wait for a bounded time. Leaves the answer alone, whatever becomes of the waiting."""
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
            self._backend = self._make(self._terms)
        return self._backend

    @property
    def _deadline(self) -> float:
        return time.monotonic() + self._patience

    def _is_threaded(self, draws: Sequence[Draw]) -> bool:
        return self._threads is not None or any(self._terms[draw.limit].shared for draw in draws)

    def _give(self, work: Callable[..., T], *arguments: Any) -> Future[T]:
        """Queue a piece of work, whose last argument is until when it may take."""
        if self._threads is None:
            from concurrent.futures import ThreadPoolExecutor

            self._threads = ThreadPoolExecutor(1, "samplegate-limits")
        return self._threads.submit(partial(work, *arguments, self._deadline))

    def _carry_out(self, work: Callable[..., bool], *arguments: Any) -> asyncio.Future[bool]:
        """What is done whether or not somebody waits for it; ``work`` returns whether the shared accounts were
        asked."""
        done = asyncio.wrap_future(self._give(work, *arguments))
        done.add_done_callback(self._done)
        return done

    def _done(self, done: asyncio.Future[bool]) -> None:
        problem = None if done.cancelled() else done.exception()
        if isinstance(problem, Exception):
            self._fails(problem)
        elif not done.cancelled() and done.result():
            self._works()

    def _take_back(self, given: Future[Reserved | Refused], rates: Rates) -> None:
        """Nobody waits for it any more. One that runs, or has run, is undone by what comes next in the one thread."""
        if not given.cancel() and not self._closed:
            self._carry_out(self._undo_what_came_of, given, rates)

    def _undo_what_came_of(self, given: Future[Reserved | Refused], rates: Rates, deadline: float) -> bool:
        got = None if given.exception() else given.result()
        return isinstance(got, Reserved) and self._ledger.settle(Settlement(got, undo=True, rates=rates), deadline)

    def _fails(self, problem: Exception) -> str:
        """What the log says of a kind of fault, once until something works again. What is owed is tried again after a
        while."""
        known = isinstance(problem, LedgerUnavailable)
        kind = problem.kind if isinstance(problem, LedgerUnavailable) else type(problem).__name__
        said = str(problem) if known else "limits: a fault while asking the state; the log has it"
        if kind not in self._told:
            self._told.add(kind)
            trace = {} if known else {"exc_info": problem}
            self._log.error("limits.unavailable", kind=kind, problem=said, path=str(self._path), **trace)
        if self._ledger.owes and self._retry is None and not self._closed:
            self._retry = after(min(FIRST_RETRY * 2**self._failed, LAST_RETRY), self._pay, self._later)
            self._failed = min(self._failed + 1, 10)
        return said

    def _pay(self) -> None:
        self._retry = None
        if not self._closed:
            self._carry_out(self._ledger.pay)

    def _works(self) -> None:
        self._failed = 0
        if self._told:
            self._told.clear()
            self._log.info("limits.recovered", path=str(self._path))


def _over(end: asyncio.Future[None]) -> None:
    if not end.done():
        end.set_result(None)
