"""Pure. Tasks of legacy servers (2025-11-25): the call that created a task, for the requests that name the task.

Such a task runs after its call has been answered. The server's requests during it name it in ``_meta`` (R106). They
belong to the call that created it. The server chooses what it names, so calls in flight remain candidates, too.
"""

from __future__ import annotations

from typing import Final

import msgspec

from samplegate.protocol import rawjson
from samplegate.protocol.frames import META, META_RELATED_TASK, Frame
from samplegate.protocol.identity import Identity
from samplegate.protocol.rawjson import Malformed
from samplegate.protocol.requests import Call
from samplegate.protocol.session_state import Pending, SessionState
from samplegate.protocol.task_state import MAX_ID, TERMINAL

MAX_TASKS: Final = 1_000
"""Tasks of one session; the oldest are forgotten."""
MAX_BYTES: Final = 16 * 1024 * 1024
"""Bytes of the params of their calls."""
DAY: Final = 86_400.0
"""Seconds for which a task is known that has no ttl, or a longer one."""
STATUS: Final = "notifications/tasks/status"
_ASKS: Final = frozenset({"tasks/get", "tasks/cancel"})


class LegacyTask(msgspec.Struct, frozen=True):
    """A task, with the call that created it."""

    call: Call
    identity: Identity
    params: bytes | None
    key: str
    """The name of the call for limits per call."""
    until: float
    """When it is forgotten, on the session's clock."""


class LegacyTasks(msgspec.Struct, eq=False):
    """The tasks of a session."""

    state: SessionState
    _known: dict[str, LegacyTask] = msgspec.field(default_factory=dict)
    _size: int = 0

    def answered(self, pending: Pending, f: Frame, now: float) -> None:
        """Remember a task that a call has created; forget one that has ended. Raises Malformed."""
        if pending.call is not None:
            asked = pending.frame  # requests are small; most results are never searched
            if asked is not None and asked.may_contain(b"task") and f.may_contain(b"taskId"):
                self._created(pending, pending.call, f, now)
        elif pending.method in _ASKS:
            self._ended(rawjson.string(f.lookup("taskId")), rawjson.string(f.lookup("status")))

    def notified(self, f: Frame) -> None:
        """Forget a task that has ended. Raises Malformed."""
        if f.method == STATUS:
            self._ended(rawjson.string(f.lookup("taskId")), rawjson.string(f.lookup("status")))

    def of(self, params: bytes | None, now: float) -> LegacyTask | None:
        """The task that a request names; None if it names none that is known."""
        if not self._known or params is None:
            return None
        try:
            id = rawjson.string(rawjson.lookup(params, META, META_RELATED_TASK, "taskId"))
        except Malformed:  # the request is refused for that
            return None
        found = None if id is None else self._known.get(id)
        return found if found is not None and now < found.until else None

    def _created(self, pending: Pending, call: Call, f: Frame, now: float) -> None:
        id = rawjson.string(f.lookup("task", "taskId"))
        if id is None or len(id) > MAX_ID or rawjson.lookup(pending.arguments, "task") is None:
            return
        self._forget(id)
        (key,) = self.state.call_ids([pending])
        self._known[id] = LegacyTask(call, pending.identity, pending.arguments, key, now + _ttl(f))
        self._size += len(pending.arguments or b"")
        while len(self._known) > MAX_TASKS or self._size > MAX_BYTES:
            self._forget(next(iter(self._known)))

    def _ended(self, id: str | None, status: str | None) -> None:
        if id is not None and status in TERMINAL:
            self._forget(id)

    def _forget(self, id: str) -> None:
        found = self._known.pop(id, None)
        if found is not None:
            self._size -= len(found.params or b"")

    def end(self) -> None:
        """Forget all tasks, because a side has ended for good."""
        self._known.clear()
        self._size = 0


def _ttl(f: Frame) -> float:
    raw = f.lookup("task", "ttl")
    try:
        milliseconds = None if raw is None or raw == b"null" else float(raw)
    except ValueError:
        milliseconds = None
    return DAY if milliseconds is None or not 0 <= milliseconds <= DAY * 1000 else milliseconds / 1000
