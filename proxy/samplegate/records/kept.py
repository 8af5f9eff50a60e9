"""A decision log that is really kept, whatever the place: its queue, its deadlines, what is told of a failure. Not the place: ``logfile``, ``table``.

A record that could not be written in time, or at all, is Unavailable to the gate, which then answers nobody. Where the outcome of a write is not
known the record may stand all the same: it says what was intended, and more is on record than was released, never less.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from samplegate.core.record import Record
from samplegate.ports import Unavailable
from samplegate.records.batches import Batches, Entry, Full, Late
from samplegate.records.locking import PATIENCE, Patience

QUEUE: Final = 10.0  # seconds that a record waits for the earlier ones of this process
PROBES: Final = 1.0  # seconds between two probes of a place that failed
CLOSING: Final = 5.0  # seconds for what still waits at the end


class Place(Protocol):
    """Where records are kept. Asked by one thread, but for ``show`` and ``fault``. Raises OSError, TimeoutError where others hold it."""

    def show(self, now: float) -> Path | str:
        """Where a record of that time goes, for a person."""
        ...

    def fault(self, now: float) -> str | None:
        """Why a record of that time could not be kept, as words to stand after the place. Makes nothing."""
        ...

    def keep(self, records: Sequence[Record], patience: Patience) -> int:
        """Keep the first of the records, as durably as it was set up; how many now stand, at least one. Raising: none of them."""
        ...

    def probe(self, patience: Patience) -> None:
        """Whether the place takes something again. Leaves nothing behind."""

    def close(self) -> None:
        """Give it free."""


class KeptLog:
    """Records of one process to one place, in one thread: those that come while it writes are written together."""

    def __init__(self, place: Place, *, patience: float = PATIENCE, queue: float = QUEUE) -> None:
        self._place = place
        self._patience = patience
        self._queue = queue
        self._allowed = math.inf
        self._hurried = math.inf
        self._spent = 0.0  # by the one thread that writes, which alone changes it
        self._batches = Batches(self._commit, "samplegate-decisions")
        self._problem: str | None = None
        self._probed = -math.inf
        self.last: Path | str | None = None
        """Where the latest record went."""

    def check_writable(self, now: float) -> None:
        """Raises Unavailable where a record of ``now`` (unix seconds) could not be written; makes nothing."""
        problem = self._place.fault(now)
        if problem is not None:
            raise Unavailable(f"decision log: {self._place.show(now)} {problem}; give --decision-log a place that can be written, or none")

    def problem(self) -> str | None:
        """Why the last write failed, None once one has succeeded, or a probe that this call starts. Does not block."""
        if self._problem is not None and time.monotonic() - self._probed >= PROBES:
            self._probed = time.monotonic()
            self._batches.errand(self._probe)
        return self._problem

    def hurry(self, seconds: float) -> None:
        """The end has begun: from now on writing takes ``seconds`` at most, all records together; a lock that is waited for is given up then."""
        self._allowed, self._hurried = min(self._allowed, seconds), min(self._hurried, time.monotonic())

    async def write(self, record: Record) -> None:
        """Keep the record. Raises Unavailable; a cancellation waits for a write that has begun."""
        try:
            await self._batches.put(record, max(0.0, min(self._queue, self._left())))
        except (Full, Late) as problem:
            self._problem = self._words(record.time, problem)
            raise Unavailable(self._problem) from problem
        except OSError as problem:
            raise Unavailable(self._words(record.time, problem)) from problem

    async def aclose(self) -> None:
        """Write what waits, and give the place free; nothing is taken any more."""
        await self._batches.aclose(self._place.close, max(0.0, min(CLOSING, self._left())))

    def _commit(self, batch: Sequence[Entry[Record]]) -> None:
        begun = time.monotonic()
        try:
            while batch:
                batch = self._some(batch)
        finally:
            self._spent += max(0.0, time.monotonic() - max(begun, self._hurried))

    def _some(self, batch: Sequence[Entry[Record]]) -> Sequence[Entry[Record]]:
        """Keep the first of the batch; the others."""
        now = batch[0].item.time
        try:
            if self._left() <= 0:
                raise TimeoutError("the time for the last records is over")
            kept = self._place.keep([entry.item for entry in batch], self._still)
        except Exception as problem:
            if len(batch) > 1 and not isinstance(problem, OSError):  # a fault of ours, and perhaps with one record only
                return [left for entry in batch for left in self._some([entry])]
            self._problem = self._words(now, problem)
            for entry in batch:
                entry.done.set_exception(problem)
            return ()
        self.last, self._problem = self._place.show(now), None
        for entry in batch[:kept]:
            entry.done.set_result(None)
        return batch[kept:]

    def _probe(self) -> None:
        try:
            self._place.probe(self._still)
        except Exception:
            return  # what was told of the write still holds
        self._problem = None

    def _words(self, now: float, problem: Exception) -> str:
        place = f"decision log: {self._place.show(now)}"
        if isinstance(problem, Full):
            return f"{place} takes no more records: {problem}"
        if isinstance(problem, Late):
            return f"{place} was not free in time ({'its disk does not answer' if problem.begun else 'earlier records wait'})"
        if isinstance(problem, TimeoutError):
            return f"{place} was not free in time ({problem})"
        if isinstance(problem, OSError):
            return f"{place} cannot be written: {problem.strerror or problem}"
        return f"{place}: a fault while writing ({type(problem).__name__})"

    def _left(self) -> float:
        return self._allowed - self._spent

    def _still(self) -> float:
        return min(self._patience, self._left())
