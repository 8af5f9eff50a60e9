"""The records of servers' tasks: in memory for a stdio server, whose tasks end with the process, else in a database.

A step reads one record, changes it by a pure function and writes it, alone in the database. Content that is no longer
needed is not part of the record that is written.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, Protocol

import anyio
import anyio.to_thread
import msgspec

from samplegate.errors import Unavailable
from samplegate.protocol.rounds import TaskStep
from samplegate.protocol.task_state import LostClaim, TaskRecord

MAX_TASKS: Final = 10_000
"""Tasks of one server that a store keeps at a time."""
MAX_MEMORY: Final = 64 * 1024 * 1024
"""Bytes of the records in memory."""
TIMEOUT: Final = 5.0  # seconds of one step


class TaskRows(Protocol):
    """Rows within a transaction."""

    def get(self, scope: str, id: str) -> tuple[bytes, float] | None:
        """A record and the end of its life, in Unix seconds."""
        ...

    def put(self, scope: str, id: str, record: bytes, expires: float) -> None: ...

    def count(self, scope: str) -> int: ...

    def remove_expired(self, now: float) -> None: ...

    def now(self) -> float:
        """The store's time, in Unix seconds."""
        ...


class TaskTable(Protocol):
    """A table of tasks, for one thread at a time."""

    def transaction(self, left: Callable[[], float]) -> AbstractContextManager[TaskRows]:
        """A transaction alone in the table, with the seconds left. Raises Unavailable."""
        ...

    def close(self) -> None: ...


class TaskStore(Protocol):
    """The port of a session."""

    async def step(self, scope: str, step: TaskStep) -> TaskRecord | None:
        """Carry out a step. ``scope`` tells servers apart, because each chooses its own IDs. Raises Unavailable."""
        ...

    def close(self) -> None: ...


class MemoryTasks:
    """Tasks in memory."""

    def __init__(self, wall: Callable[[], float] = time.time, most: int = MAX_TASKS) -> None:
        self._rows = _MemoryRows(wall)
        self._most = most

    async def step(self, scope: str, step: TaskStep) -> TaskRecord | None:
        """See ``TaskStore``."""
        return carry_out(self._rows, scope, step, self._most)

    def close(self) -> None:
        """Nothing is open."""


class _MemoryRows:
    def __init__(self, wall: Callable[[], float]) -> None:
        self.now = wall
        self._rows: dict[tuple[str, str], tuple[bytes, float]] = {}
        self._size = 0

    def get(self, scope: str, id: str) -> tuple[bytes, float] | None:
        return self._rows.get((scope, id))

    def put(self, scope: str, id: str, record: bytes, expires: float) -> None:
        before = self._rows.get((scope, id))
        size = self._size + len(record) - (0 if before is None else len(before[0]))
        if size > MAX_MEMORY:
            raise Unavailable(f"tasks: the records in memory would use more than {MAX_MEMORY // 2**20} MiB")
        self._rows[scope, id] = record, expires
        self._size = size

    def count(self, scope: str) -> int:
        return sum(named == scope for named, _ in self._rows)

    def remove_expired(self, now: float) -> None:
        for name in [name for name, (_, expires) in self._rows.items() if expires <= now]:
            self._size -= len(self._rows.pop(name)[0])


class SqlTasks:
    """Tasks in a database, one step at a time, in a thread. The first step opens it."""

    def __init__(self, table: Callable[[], TaskTable], most: int = MAX_TASKS) -> None:
        self._make = table
        self._table: TaskTable | None = None
        self._most = most
        self._turn = anyio.Lock()

    async def step(self, scope: str, step: TaskStep) -> TaskRecord | None:
        """See ``TaskStore``."""
        async with self._turn:
            return await anyio.to_thread.run_sync(self._step, scope, step)

    def _step(self, scope: str, step: TaskStep) -> TaskRecord | None:
        if self._table is None:
            self._table = self._make()
        until = time.monotonic() + TIMEOUT
        with self._table.transaction(lambda: until - time.monotonic()) as rows:
            return carry_out(rows, scope, step, self._most)

    def close(self) -> None:
        """Close the database."""
        table, self._table = self._table, None
        if table is not None:
            table.close()


def carry_out(rows: TaskRows, scope: str, step: TaskStep, most: int) -> TaskRecord | None:
    """Carry out a step on the rows of a transaction. Raises Unavailable."""
    now = rows.now()
    found = rows.get(scope, step.id)
    if found is not None and found[1] > now:
        record = msgspec.json.decode(found[0], type=TaskRecord)
        if step.create is not None:
            return record
    elif step.create is None:
        return None
    else:
        rows.remove_expired(now)
        if rows.count(scope) >= most:
            raise Unavailable(f"tasks: the server already has {most} tasks")
        record = step.create
    try:
        changed = step.change(record, now)
    except LostClaim as problem:
        raise Unavailable(str(problem)) from None
    if changed or step.create is not None:
        rows.put(scope, step.id, msgspec.json.encode(record), record.expires)
    return record
