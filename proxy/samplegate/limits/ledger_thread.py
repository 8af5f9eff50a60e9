"""The thread of a ledger: calls run one after the other, and charges and settlements that wait share a transaction.

One transaction for many calls holds the rows of a busy account for hardly longer than one for a single call. So the
more calls wait, the larger the batches become, and the throughput grows with the load.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, TypeVar

from samplegate.limits.backend import Call, LedgerBackend, LedgerUnavailable
from samplegate.policy.ledger import Refused, Reserved

T = TypeVar("T")

MAX_BATCH: Final = 64


class _Entry(NamedTuple):
    """A charge or settlement, or other work, with its deadline and the future of its result."""

    call: Call | None
    work: Callable[[float], Any] | None
    deadline: float
    done: Future[Any]


class LedgerThread:
    """A thread that starts with the first call. ``ledger`` returns the ledger, in the thread."""

    def __init__(self, ledger: Callable[[], LedgerBackend]) -> None:
        self._ledger = ledger
        self._waiting: deque[_Entry] = deque()
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def call(self, call: Call, deadline: float) -> Future[Reserved | Refused | bool]:
        """Make a charge or a settlement, in one transaction with those that wait before and after it."""
        return self._enqueue(_Entry(call, None, deadline, Future()))

    def run(self, work: Callable[[float], T], deadline: float) -> Future[T]:
        """Run other work, which gets its deadline."""
        return self._enqueue(_Entry(None, work, deadline, Future()))

    def close(self) -> None:
        """End the thread after the work that waits. Does not block."""
        with self._wake:
            self._closed = True
            self._wake.notify()

    def _enqueue(self, entry: _Entry) -> Future[Any]:
        with self._wake:
            if self._closed:
                raise RuntimeError("the ledger is closed")
            self._waiting.append(entry)
            if self._thread is None:
                # a daemon thread, so that a disk or a server that does not answer cannot block the end of the process
                self._thread = threading.Thread(target=self._run, name="samplegate-limits", daemon=True)
                self._thread.start()
            self._wake.notify()
        return entry.done

    def _run(self) -> None:
        while entries := self._next():
            begun = [entry for entry in entries if entry.done.set_running_or_notify_cancel()]
            calls = [entry for entry in begun if entry.call is not None]
            if calls:
                self._batch(calls)
            for entry in begun:
                if entry.work is not None:
                    _finish(entry, entry.work)

    def _next(self) -> list[_Entry]:
        """The next calls that can share a transaction, or the next other work. Empty at the end."""
        with self._wake:
            while not self._waiting and not self._closed:
                self._wake.wait()
            found: list[_Entry] = []
            while self._waiting and len(found) < MAX_BATCH:
                if found and (self._waiting[0].work or found[0].work):
                    break
                found.append(self._waiting.popleft())
            return found

    def _batch(self, entries: Sequence[_Entry]) -> None:
        calls = [entry.call for entry in entries if entry.call is not None]
        try:
            results = self._ledger().batch(calls, max(entry.deadline for entry in entries))
        except BaseException as problem:
            if len(entries) > 1 and not isinstance(problem, LedgerUnavailable):  # a bug, which one of them may cause
                for entry in entries:
                    self._batch([entry])
                return
            for entry in entries:
                entry.done.set_exception(problem)
        else:
            for entry, result in zip(entries, results, strict=True):
                entry.done.set_result(result)


def _finish(entry: _Entry, work: Callable[[float], Any]) -> None:
    try:
        result = work(entry.deadline)
    except BaseException as problem:
        entry.done.set_exception(problem)
    else:
        entry.done.set_result(result)
