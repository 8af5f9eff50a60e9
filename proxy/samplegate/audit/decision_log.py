"""The decision log: every request with its outcome, recorded before the outcome is released; the log's queue, batches
and deadlines.

Records that arrive while a batch is written form the next batch, so that many waiting writers share one commit. A
record that could not be written in time is Unavailable to the gate, which then releases nothing. If the outcome of a
write is unknown, the record may still be in the log. It states the intention, so the log may have more than was
released, never less.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, Generic, Literal, Protocol, TypeAlias, TypeVar

import anyio
import msgspec

from samplegate.audit.jsonl import LogFile, daily_files, one_file
from samplegate.audit.record import ContentMode, Record
from samplegate.errors import Unavailable
from samplegate.files import PATIENCE, SQLITE, Patience

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


class LogEntry(msgspec.Struct, Generic[T], frozen=True):
    """Something to commit, and what tells of it."""

    item: T
    done: Future[None]


class Batches(Generic[T]):
    """``commit`` gets some entries at a time and tells each of them what came of it; what it does not tell of, or
    leaves by raising, has failed."""

    def __init__(self, commit: Callable[[Sequence[LogEntry[T]]], None], name: str) -> None:
        self._commit = commit
        self._name = name
        self._waiting: deque[LogEntry[T]] = deque()
        self._errands: deque[Callable[[], object]] = deque()
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    async def put(self, item: T, seconds: float) -> None:
        """Wait until it is committed: ``seconds`` for its batch to begin, GRACE more for its end. Raises Full, Late,
        what the commit failed with.

        A cancellation before its batch has begun takes it back; after that, it waits for the end of the batch, and is
        ignored where that is good.
        """
        done: Future[None] = Future()
        self._give(LogEntry(item, done))
        answer = asyncio.wrap_future(done)
        # so that asyncio does not complain of it
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
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
        """Have the thread do something between two batches. Nothing is told of it; without a thread it is left
        undone."""
        with self._wake:
            if self._thread is not None and not self._closed:
                self._errands.append(what)
                self._wake.notify()

    async def aclose(self, last: Callable[[], object], seconds: float) -> None:
        """Take no more, commit what waits, do ``last`` and end the thread; no longer than so many seconds, after which
        it is left to itself."""
        with self._wake:
            thread, self._closed = self._thread, True
            if thread is None:
                return
            ended: Future[None] = Future()
            self._errands.append(lambda: _told(ended, last))
            self._wake.notify()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([asyncio.wrap_future(ended)], timeout=seconds)

    def _give(self, entry: LogEntry[T]) -> None:
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


def _carried_out(commit: Callable[[Sequence[LogEntry[Any]]], None], batch: Sequence[LogEntry[Any]]) -> None:
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


QUEUE: Final = 10.0  # seconds that a record waits for the earlier ones of this process
PROBES: Final = 1.0  # seconds between two probes of a place that failed
CLOSING: Final = 5.0  # seconds for what still waits at the end


class LogSink(Protocol):
    """Where records are kept. Asked by one thread, but for ``show`` and ``fault``. Raises OSError, TimeoutError where
    others hold it."""

    def show(self, now: float) -> Path | str:
        """Where a record of that time goes, for a person."""
        ...

    def fault(self, now: float) -> str | None:
        """Why a record of that time could not be kept, as words to stand after the place. Makes nothing."""
        ...

    def keep(self, records: Sequence[Record], patience: Patience) -> int:
        """Keep the first of the records, as durably as it was set up; how many now stand, at least one. Raising: none
        of them."""
        ...

    def probe(self, patience: Patience) -> None:
        """Whether the place takes something again. Leaves nothing behind."""

    def close(self) -> None:
        """Give it free."""


class AsyncDecisionLog:
    """Records of one process to one place, in one thread: those that come while it writes are written together."""

    def __init__(self, place: LogSink, *, patience: float = PATIENCE, queue: float = QUEUE) -> None:
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
            raise Unavailable(
                f"decision log: {self._place.show(now)} {problem}; give --decision-log a place that can be written, or"
                " none"
            )

    def problem(self) -> str | None:
        """Why the last write failed, None once one has succeeded, or a probe that this call starts. Does not block."""
        if self._problem is not None and time.monotonic() - self._probed >= PROBES:
            self._probed = time.monotonic()
            self._batches.errand(self._probe)
        return self._problem

    def set_shutdown_deadline(self, seconds: float) -> None:
        """The end has begun: from now on writing takes ``seconds`` at most, all records together; a lock that is waited
        for is given up then."""
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

    def _commit(self, batch: Sequence[LogEntry[Record]]) -> None:
        begun = time.monotonic()
        try:
            while batch:
                batch = self._some(batch)
        finally:
            self._spent += max(0.0, time.monotonic() - max(begun, self._hurried))

    def _some(self, batch: Sequence[LogEntry[Record]]) -> Sequence[LogEntry[Record]]:
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
            return (
                f"{place} was not free in time"
                f" ({'its disk does not answer' if problem.begun else 'earlier records wait'})"
            )
        if isinstance(problem, TimeoutError):
            return f"{place} was not free in time ({problem})"
        if isinstance(problem, OSError):
            return f"{place} cannot be written: {problem.strerror or problem}"
        return f"{place}: a fault while writing ({type(problem).__name__})"

    def _left(self) -> float:
        return self._allowed - self._spent

    def _still(self) -> float:
        return min(self._patience, self._left())


Durability: TypeAlias = Literal["written", "synced"]


class DecisionLog(Protocol):
    """What the gate's process needs of a decision log."""

    @property
    def last(self) -> Path | str | None:
        """Where the latest record went, for a person; None before the first."""
        ...

    def check_writable(self, now: float) -> None:
        """Raises Unavailable where a record of ``now`` (unix seconds) could not be written; makes nothing."""

    def problem(self) -> str | None:
        """Why the last write failed, None where none has, or where it would do again. Does not block."""
        ...

    def set_shutdown_deadline(self, seconds: float) -> None:
        """The end has begun: from now on writing takes ``seconds`` at most, all records together."""

    async def write(self, record: Record) -> None:
        """Returns once the record is kept, as durably as was set. Raises Unavailable."""

    async def aclose(self) -> None:
        """Write what waits, and take nothing any more."""


class NoDecisionLog:
    """``--decision-log none``: the operator wants no record."""

    last: Path | None = None

    def check_writable(self, now: float) -> None:
        """Nothing is ever written."""

    def problem(self) -> str | None:
        """Nothing can fail."""
        return None

    def set_shutdown_deadline(self, seconds: float) -> None:
        """There is nothing to hurry."""

    async def write(self, record: Record) -> None:
        """Keep nothing."""

    async def aclose(self) -> None:
        """There is nothing to close."""


def decision_log(
    setting: str | None,
    *,
    state: Path,
    server: str,
    content: ContentMode,
    durability: Durability = "written",
    max_bytes: int = 0,
    keep: int = 0,
) -> DecisionLog:
    """The log that is set: a path, ``sqlite:PATH``, ``none``, or None for the daily file in the state folder, which is
    named for ``server``.

    ``max_bytes``: the length at which a file is put aside (0: never); ``keep``: how many of those stay (0: all); a
    database heeds neither. Raises Unavailable for a database that cannot be meant.
    """
    if setting == "none":
        return NoDecisionLog()
    synced = durability == "synced"
    if setting is not None and setting.startswith(SQLITE):
        from samplegate.audit.sqlite_log import SqliteLog

        return AsyncDecisionLog(SqliteLog(_database(setting), content=content, synced=synced))
    at, key = daily_files(state, server) if setting is None else one_file(Path(setting))
    return AsyncDecisionLog(LogFile(at, key, content=content, synced=synced, max_bytes=max_bytes, keep=keep))


def _database(setting: str) -> Path:
    name = setting.removeprefix(SQLITE)
    # SQLAlchemy's own way to write it reads another path out of it; and memory is no log
    if not name or name.startswith((":", "//")):
        raise Unavailable(f"decision log: {setting} names no file; write sqlite:PATH")
    return Path(name)
