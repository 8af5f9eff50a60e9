"""A session with tasks, as a conversation: the steps in the store of tasks are carried out at once, in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from samplegate.errors import Unavailable
from samplegate.policy.capabilities import SessionRules
from samplegate.protocol.rounds import Effect, TaskStep
from samplegate.protocol.session import Session
from samplegate.protocol.session_state import SessionState
from samplegate.tasks.store import TaskRows, carry_out
from tests.fakes.dialogue import SEAL_KEYS, Dialogue, modern, result

EXTENSION: dict[str, Any] = {"io.modelcontextprotocol/tasks": {}}
ALL: dict[str, Any] = {"sampling": {}, "elicitation": {}, "extensions": EXTENSION}
SCOPE = "s"


class Rows(TaskRows):
    """The store's rows. They outlive a session, like a file."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], tuple[bytes, float]] = {}
        self.wall = 1_000_000.0
        self.fault = ""

    def get(self, scope: str, id: str) -> tuple[bytes, float] | None:
        if self.fault:
            raise Unavailable(self.fault)
        return self.rows.get((scope, id))

    def put(self, scope: str, id: str, record: bytes, expires: float) -> None:
        self.rows[scope, id] = record, expires

    def count(self, scope: str) -> int:
        return len(self.rows)

    def remove_expired(self, now: float) -> None:
        self.rows = {name: row for name, row in self.rows.items() if row[1] > now}

    def now(self) -> float:
        return self.wall


class TaskDialogue(Dialogue):
    """One session with tasks. ``rows``: the store of an earlier process."""

    def __init__(
        self,
        *rules: Mapping[str, Any],
        rows: Rows | None = None,
        token: str = "t",
        most: int = 100,
        **policy: Any,
    ) -> None:
        super().__init__(*rules, **{"reviewers": {"ops": {}}, **policy})
        self.rows = Rows() if rows is None else rows
        rules_of = SessionRules(self.compiled)
        self.session = Session(SessionState(rules_of, "default", token, SEAL_KEYS, epoch=self.rows.now(), tasks=True))
        self.most = most
        self.is_slow = False
        """Whether steps wait for ``go_on``."""
        self._waiting: list[TaskStep] = []

    def take(self, effects: list[Effect]) -> list[Effect]:
        done = super().take([effect for effect in effects if not isinstance(effect, TaskStep)])
        self._waiting += [effect for effect in effects if isinstance(effect, TaskStep)]
        return done if self.is_slow else done + self.go_on()

    def go_on(self) -> list[Effect]:
        """Carry out the steps that wait."""
        done: list[Effect] = []
        while self._waiting:
            step = self._waiting.pop(0)
            try:
                found: Any = carry_out(self.rows, SCOPE, step, self.most)
            except Unavailable as problem:
                found = str(problem)
            done += self.take(self.session.task_stepped(step.token, found))
        return done

    def create(self, id: str = "task-1", call: int = 1, tool: str = "x", **more: Any) -> list[Effect]:
        """A call becomes a task."""
        self.client(modern(call, "tools/call", ALL, name=tool, arguments={"n": 1}))
        return self.server(result(call, **task(id, "working", resultType="task", **more)))

    def poll(
        self, *, asks: Any = None, status: str = "", id: int = 2, task_id: str = "task-1", **more: Any
    ) -> list[Effect]:
        """The client asks for the task, and the server answers."""
        out = self.client(modern(id, "tasks/get", more.pop("capabilities", ALL), taskId=task_id))
        found = {} if asks is None else {"inputRequests": asks}
        status = status or ("working" if asks is None else "input_required")
        return out + self.server(result(id, **task(task_id, status, resultType="complete", **found, **more)))

    def update(self, id: int = 3, task_id: str = "task-1", capabilities: Any = ALL, **answers: Any) -> list[Effect]:
        """The client answers."""
        return self.client(modern(id, "tasks/update", capabilities, taskId=task_id, inputResponses=answers))


def task(id: str, status: str, **more: Any) -> dict[str, Any]:
    """A task."""
    times = {"createdAt": "2026-11-28T12:00:00Z", "lastUpdatedAt": "2026-11-28T12:00:00Z"}
    return {"taskId": id, "status": status, **times, "ttlMs": 3_600_000, "pollIntervalMs": 1000, **more}


def notified(**more: Any) -> dict[str, Any]:
    """A notification of a task."""
    return {"jsonrpc": "2.0", "method": "notifications/tasks", "params": more}
