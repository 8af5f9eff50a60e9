"""One thread and what waits for it: whatever came while it worked is the next batch, so that many who wait share one commit. It knows no files.

Who waits and gives up before the batch has begun leaves nothing behind; after that he waits for the end of it, within bounds.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final, Generic, TypeVar

import anyio
import msgspec

T = TypeVar("T")

MOST_WAITING: Final = 10_000
LARGEST: Final = 256  # entries of one batch: what the last of them waits for its neighbours
GRACE: Final = 5.0  # seconds that a batch may take by itself once it has begun


class Full(Exception):
    """Too many wait already, or nothing is taken any more."""


class Late(Exception):
    """Its time was over. ``begun``: it may stand, or may come to."""

    def __init__(self, *, begun: bool) -> None:
        super().__init__("begun" if begun else "waiting")
        self.begun = begun


class Entry(msgspec.Struct, Generic[T], frozen=True):
    """Something to commit, and what tells of it."""

    item: T
    done: Future[None]


class Batches(Generic[T]):
    """``commit`` gets some entries at a time and tells each of them what came of it; what it does not tell of, or leaves by raising, has failed."""

    def __init__(self, commit: Callable[[Sequence[Entry[T]]], None], name: str) -> None:
        self._commit = commit
        self._name = name
        self._waiting: deque[Entry[T]] = deque()
        self._errands: deque[Callable[[], object]] = deque()
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    async def put(self, item: T, seconds: float) -> None:
        """Wait until it is committed: ``seconds`` for its batch to begin, GRACE more for its end. Raises Full, Late, what the commit failed with.

        A cancellation before its batch has begun takes it back; after that, it waits for the end of the batch, and is ignored where that is good.
        """
        done: Future[None] = Future()
        self._give(Entry(item, done))
        answer = asyncio.wrap_future(done)
        answer.add_done_callback(_seen)
        cancelled: asyncio.CancelledError | None = None
        try:
            await asyncio.wait([answer], timeout=seconds)
        except asyncio.CancelledError as problem:
            cancelled = problem
        if done.cancel():  # nobody has begun with it
            raise cancelled or Late(begun=False)
        with anyio.CancelScope(shield=True):
            await asyncio.wait([answer], timeout=GRACE)
        if not answer.done():
            answer.cancel()
            raise cancelled or Late(begun=True)
        answer.result()

    def errand(self, what: Callable[[], object]) -> None:
        """Have the thread do something between two batches. Nothing is told of it; without a thread it is left undone."""
        with self._wake:
            if self._thread is not None and not self._closed:
                self._errands.append(what)
                self._wake.notify()

    async def aclose(self, last: Callable[[], object], seconds: float) -> None:
        """Take no more, commit what waits, do ``last`` and end the thread; no longer than so many seconds, after which it is left to itself."""
        with self._wake:
            thread, self._closed = self._thread, True
            if thread is None:
                return
            ended: Future[None] = Future()
            self._errands.append(lambda: _told(ended, last))
            self._wake.notify()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([asyncio.wrap_future(ended)], timeout=seconds)

    def _give(self, entry: Entry[T]) -> None:
        with self._wake:
            if self._closed:
                raise Full("it is closed")
            if len(self._waiting) >= MOST_WAITING:
                raise Full(f"{MOST_WAITING} wait already")
            self._waiting.append(entry)
            if self._thread is None:
                # a daemon: a disk that does not answer must not keep the process from ending
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()
            self._wake.notify()

    def _work(self) -> None:
        while True:
            with self._wake:
                while not (self._waiting or self._errands or self._closed):
                    self._wake.wait()
                batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), LARGEST))]
                errand = None if batch or not self._errands else self._errands.popleft()
                if not batch and errand is None:
                    return
            if errand is not None:
                errand()
            elif begun := [entry for entry in batch if entry.done.set_running_or_notify_cancel()]:
                _carried_out(self._commit, begun)


def _carried_out(commit: Callable[[Sequence[Entry[Any]]], None], batch: Sequence[Entry[Any]]) -> None:
    """Nobody is left waiting, whatever becomes of the commit."""
    problem: BaseException = RuntimeError("nothing was told of it")
    try:
        commit(batch)
    except BaseException as raised:
        problem = raised
    for entry in batch:
        if not entry.done.done():
            entry.done.set_exception(problem)


def _told(done: Future[None], what: Callable[[], object]) -> None:
    try:
        what()
    finally:
        done.set_result(None)


def _seen(done: asyncio.Future[Any]) -> None:
    """Its exception, if any, is known; asyncio need not tell of it."""
    if not done.cancelled():
        done.exception()
