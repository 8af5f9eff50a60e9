"""The decision log: records every request's outcome before its release, with a queue, batches and deadlines.

Records that arrive while a batch is written form the next batch, so that many waiting writers share one commit. If a
record cannot be written in time, the gate gets Unavailable and releases nothing. If it is unknown whether a write
succeeded, the record may still be in the log. So the log may have more outcomes than were released, never fewer.
"""

from __future__ import annotations

import asyncio
import glob
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

from samplegate.audit.jsonl import LogFile, daily_files, file_name, one_file
from samplegate.audit.record import ContentMode, Record
from samplegate.errors import Unavailable
from samplegate.files import PATIENCE, SQLITE, Patience
from samplegate.postgres.driver import check_driver
from samplegate.postgres.url import DATABASE, shown

T = TypeVar("T")

MAX_WAITING: Final = 10_000
MAX_BATCH: Final = 256  # entries of one batch: the last entry waits for all of them
GRACE: Final = 5.0  # seconds for a batch that has begun


class QueueFull(Exception):
    """The queue is full or closed."""


class CommitLate(Exception):
    """An entry was not committed in time. ``begun``: it may still be committed."""

    def __init__(self, *, begun: bool) -> None:
        super().__init__("begun" if begun else "waiting")
        self.begun = begun


class LogEntry(msgspec.Struct, Generic[T], frozen=True):
    """An item to commit, and the future for its result."""

    item: T
    done: Future[None]


class Batches(Generic[T]):
    """Batched commits in one thread. ``commit`` gets several entries and sets the result of each. An entry whose result
    is not set has failed."""

    def __init__(self, commit: Callable[[Sequence[LogEntry[T]]], None], name: str) -> None:
        self._commit = commit
        self._name = name
        self._waiting: deque[LogEntry[T]] = deque()
        self._tasks: deque[Callable[[], object]] = deque()
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def waiting(self) -> int:
        """How many entries wait for the next batch."""
        return len(self._waiting)

    async def put(self, item: T, seconds: float) -> None:
        """Commit an item. It waits ``seconds`` for its batch to begin, and GRACE more for the end of the batch. Raises
        QueueFull, CommitLate or the commit's exception.

        A cancellation before the batch has begun removes the item. Later, it waits for the end of the batch, and is
        ignored if the commit succeeds.
        """
        done: Future[None] = Future()
        self._enqueue(LogEntry(item, done))
        answer = asyncio.wrap_future(done)
        # asyncio would log an exception that is never retrieved
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        cancelled: asyncio.CancelledError | None = None
        try:
            await asyncio.wait([answer], timeout=seconds)
        except asyncio.CancelledError as problem:
            cancelled = problem
        if done.cancel():  # its batch has not begun
            raise cancelled or CommitLate(begun=False)
        with anyio.CancelScope(shield=True):
            await asyncio.wait([answer], timeout=GRACE)
        if not answer.done():
            answer.cancel()
            raise cancelled or CommitLate(begun=True)
        answer.result()

    def task(self, what: Callable[[], object]) -> None:
        """Run a function in the thread between two batches. It reports no result, and is skipped if there is no
        thread."""
        with self._wake:
            if self._thread is not None and not self._closed:
                self._tasks.append(what)
                self._wake.notify()

    async def aclose(self, last: Callable[[], object], seconds: float) -> None:
        """Close the queue: commit the waiting entries, call ``last`` and end the thread. After ``seconds``, the thread
        is abandoned."""
        with self._wake:
            thread, self._closed = self._thread, True
            if thread is None:
                return
            ended: Future[None] = Future()
            self._tasks.append(lambda: _run_last(ended, last))
            self._wake.notify()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([asyncio.wrap_future(ended)], timeout=seconds)

    def _enqueue(self, entry: LogEntry[T]) -> None:
        with self._wake:
            if self._closed:
                raise QueueFull("the log is closed")
            if len(self._waiting) >= MAX_WAITING:
                raise QueueFull(f"{MAX_WAITING} are already waiting")
            self._waiting.append(entry)
            if self._thread is None:
                # a daemon thread, so that a disk that does not answer cannot block the end of the process
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()
            self._wake.notify()

    def _work(self) -> None:
        while True:
            with self._wake:
                while not (self._waiting or self._tasks or self._closed):
                    self._wake.wait()
                batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), MAX_BATCH))]
                task = None if batch or not self._tasks else self._tasks.popleft()
                if not batch and task is None:
                    return
            if task is not None:
                task()
            elif begun := [entry for entry in batch if entry.done.set_running_or_notify_cancel()]:
                _commit_batch(self._commit, begun)


def _commit_batch(commit: Callable[[Sequence[LogEntry[Any]]], None], batch: Sequence[LogEntry[Any]]) -> None:
    """Commit a batch. Every entry gets a result, even if the commit raises."""
    problem: BaseException = RuntimeError("the commit set no result")
    try:
        commit(batch)
    except BaseException as raised:
        problem = raised
    for entry in batch:
        if not entry.done.done():
            entry.done.set_exception(problem)


def _run_last(done: Future[None], what: Callable[[], object]) -> None:
    try:
        what()
    finally:
        done.set_result(None)


QUEUE_TIMEOUT: Final = 10.0  # seconds that a record waits for earlier records of this process
PROBE_INTERVAL: Final = 1.0  # seconds between two probes of a sink that failed
CLOSE_TIMEOUT: Final = 5.0  # seconds at shutdown for the waiting records


class LogSink(Protocol):
    """A store for records: files or a database. One thread calls it, except for ``location`` and ``fault``. Its methods
    raise OSError, and TimeoutError if another process has it locked."""

    def location(self, now: float) -> Path | str:
        """The place of a record of that time, for display."""
        ...

    def fault(self, now: float) -> str | None:
        """Why a record of that time could not be written, as a phrase that follows the place. Creates nothing."""
        ...

    def write_first(self, records: Sequence[Record], patience: Patience) -> int:
        """Write the first of the records, as durably as configured. Returns how many were written, at least one. If it
        raises, none was written."""
        ...

    def probe(self, patience: Patience) -> None:
        """Test whether the store is writable again. Leaves nothing behind; raises OSError."""

    def close(self) -> None:
        """Close the store."""


class AsyncDecisionLog:
    """The decision log of one process: one thread writes, and records that arrive meanwhile are written together."""

    def __init__(self, sink: LogSink, *, patience: float = PATIENCE, queue: float = QUEUE_TIMEOUT) -> None:
        self._sink = sink
        self._patience = patience
        self._queue = queue
        self._shutdown_seconds = math.inf
        self._shutdown_began = math.inf
        self._spent = 0.0  # changed only by the thread that writes
        self._batches = Batches(self._commit, "samplegate-decisions")
        self._problem: str | None = None
        self._probed = -math.inf
        self.last: Path | str | None = None
        """The place of the latest record."""

    @property
    def waiting(self) -> int:
        """How many records wait."""
        return self._batches.waiting

    def place(self, now: float) -> str | None:
        """The place of a record of ``now``."""
        return str(self._sink.location(now))

    def check_writable(self, now: float) -> None:
        """Raises Unavailable if a record of ``now`` (Unix seconds) could not be written. Creates nothing."""
        problem = self._sink.fault(now)
        if problem is not None:
            raise Unavailable(
                f"decision log: {self._sink.location(now)} {problem}; set --decision-log to a writable path, or to none"
            )

    def problem(self) -> str | None:
        """Why the last write failed; None once a write succeeds, or a probe, which this call may start. Does not
        block."""
        if self._problem is not None and time.monotonic() - self._probed >= PROBE_INTERVAL:
            self._probed = time.monotonic()
            self._batches.task(self._probe)
        return self._problem

    def set_shutdown_deadline(self, seconds: float) -> None:
        """Begin the shutdown: from now on, writing takes at most ``seconds`` in all, including waits for a lock."""
        self._shutdown_seconds, self._shutdown_began = (
            min(self._shutdown_seconds, seconds),
            min(self._shutdown_began, time.monotonic()),
        )

    async def write(self, record: Record) -> None:
        """Write a record. Raises Unavailable. A cancellation waits for a write that has begun."""
        try:
            await self._batches.put(record, max(0.0, min(self._queue, self._time_left())))
        except (QueueFull, CommitLate) as problem:
            self._problem = self._problem_text(record.time, problem)
            raise Unavailable(self._problem) from problem
        except OSError as problem:
            raise Unavailable(self._problem_text(record.time, problem)) from problem

    async def aclose(self) -> None:
        """Write the waiting records and close the store."""
        await self._batches.aclose(self._sink.close, max(0.0, min(CLOSE_TIMEOUT, self._time_left())))

    def _commit(self, batch: Sequence[LogEntry[Record]]) -> None:
        begun = time.monotonic()
        try:
            while batch:
                batch = self._write_some(batch)
        finally:
            self._spent += max(0.0, time.monotonic() - max(begun, self._shutdown_began))

    def _write_some(self, batch: Sequence[LogEntry[Record]]) -> Sequence[LogEntry[Record]]:
        """Write the first records of the batch, and return the others."""
        now = batch[0].item.time
        try:
            if self._time_left() <= 0:
                raise TimeoutError("the shutdown deadline has passed")
            kept = self._sink.write_first([entry.item for entry in batch], self._patience_left)
        except Exception as problem:
            # our own fault, perhaps with one record only
            if len(batch) > 1 and not isinstance(problem, OSError):
                return [left for entry in batch for left in self._write_some([entry])]
            self._problem = self._problem_text(now, problem)
            for entry in batch:
                entry.done.set_exception(problem)
            return ()
        self.last, self._problem = self._sink.location(now), None
        for entry in batch[:kept]:
            entry.done.set_result(None)
        return batch[kept:]

    def _probe(self) -> None:
        try:
            self._sink.probe(self._patience_left)
        except Exception:
            return  # the problem of the last write remains
        self._problem = None

    def _problem_text(self, now: float, problem: Exception) -> str:
        place = f"decision log: {self._sink.location(now)}"
        if isinstance(problem, QueueFull):
            return f"{place} accepts no more records: {problem}"
        if isinstance(problem, CommitLate):
            return (
                f"{place} could not be written in time"
                f" ({'the disk is not responding' if problem.begun else 'earlier records are still waiting'})"
            )
        if isinstance(problem, TimeoutError):
            return f"{place} could not be written in time ({problem})"
        if isinstance(problem, OSError):
            return f"{place} cannot be written: {problem.strerror or problem}"
        return f"{place}: internal error while writing ({type(problem).__name__})"

    def _time_left(self) -> float:
        return self._shutdown_seconds - self._spent

    def _patience_left(self) -> float:
        return min(self._patience, self._time_left())


Durability: TypeAlias = Literal["written", "synced"]


class DecisionLog(Protocol):
    """The decision log as the process uses it."""

    @property
    def last(self) -> Path | str | None:
        """The place of the latest record, for display; None before the first."""
        ...

    @property
    def waiting(self) -> int:
        """How many records wait to be written."""
        ...

    def place(self, now: float) -> str | None:
        """The place of a record of ``now`` (Unix seconds), for display; None without a log."""
        ...

    def check_writable(self, now: float) -> None:
        """Raises Unavailable if a record of ``now`` (Unix seconds) could not be written. Creates nothing."""

    def problem(self) -> str | None:
        """Why the last write failed; None if none did or writing works again. Does not block."""
        ...

    def set_shutdown_deadline(self, seconds: float) -> None:
        """Begin the shutdown: from now on, writing takes at most ``seconds`` in all."""

    async def write(self, record: Record) -> None:
        """Return once the record is written, as durably as configured. Raises Unavailable."""

    async def aclose(self) -> None:
        """Write the waiting records and close the log."""


class NoDecisionLog:
    """The disabled log of ``--decision-log none``."""

    last: Path | None = None
    waiting = 0

    def place(self, now: float) -> str | None:
        """None: there is no log."""
        return None

    def check_writable(self, now: float) -> None:
        """Do nothing."""

    def problem(self) -> str | None:
        """None: no write can fail."""
        return None

    def set_shutdown_deadline(self, seconds: float) -> None:
        """Do nothing."""

    async def write(self, record: Record) -> None:
        """Do nothing."""

    async def aclose(self) -> None:
        """Do nothing."""


def decision_log(
    setting: str | None,
    *,
    state: Path,
    database: str | None = None,
    database_key: bytes | None = None,
    server: str,
    content: ContentMode,
    durability: Durability = "written",
    max_bytes: int = 0,
    keep: int = 0,
) -> DecisionLog:
    """The configured log: a path, ``sqlite:PATH``, ``database``, ``none``, or None for the daily file of ``server`` in
    the state folder. ``database`` is the URL of the shared database, ``database_key`` the key of its key file.

    ``max_bytes``: the size at which a file is rotated (0: never). ``keep``: how many rotated files stay (0: all). A
    database ignores both. Raises Unavailable for an invalid database path, and without the database's driver.
    """
    if setting == "none":
        return NoDecisionLog()
    if setting == DATABASE:
        if database is None:
            raise Unavailable("decision_log: there is no shared database; set database, or use another log")
        check_driver()
        from samplegate.audit.postgres_log import PostgresLog

        return AsyncDecisionLog(PostgresLog(database, content=content, file_key=database_key))
    synced = durability == "synced"
    if setting is not None and setting.startswith(SQLITE):
        from samplegate.audit.sqlite_log import SqliteLog

        return AsyncDecisionLog(SqliteLog(_database(setting), content=content, synced=synced))
    at, key = daily_files(state, server) if setting is None else one_file(Path(setting))
    return AsyncDecisionLog(LogFile(at, key, content=content, synced=synced, max_bytes=max_bytes, keep=keep))


def readable_name(setting: str | None, *, state: Path, database: str | None = None, server: str) -> str | None:
    """The configured log as `samplegate report --log` reads it, without a password; None for no log, and for a pipe or
    a device, which cannot be read again."""
    if setting == DATABASE:
        return None if database is None else shown(database)
    if setting == "none":
        return None
    if setting is None:
        name = glob.escape(str((state / "decisions" / file_name(server)).absolute()))
        return f"{name}-*.jsonl*"
    if setting.startswith(SQLITE):
        return f"{SQLITE}{_database(setting).absolute()}"
    path = Path(setting).absolute()
    return None if path.exists() and not path.is_file() else str(path)


def _database(setting: str) -> Path:
    name = setting.removeprefix(SQLITE)
    # SQLAlchemy's URL syntax would name a different path, and a database in memory is no log
    if not name or name.startswith((":", "//")):
        raise Unavailable(f"decision log: {setting} has no path; write sqlite:PATH")
    return Path(name)
