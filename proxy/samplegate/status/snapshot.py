"""Pure. Status of gates: what goes on in each process now, as ``/status`` and `samplegate status --json` give it.

Times are ages in seconds and times until something happens. No part has content of messages. Text of peers is printable
and cut. Each ``Listed`` is bounded, and its total counts all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

import msgspec

from samplegate.printable import printable

T = TypeVar("T")

MAX_LISTED: Final = 100
"""Items of one list."""
MAX_TEXT: Final = 200
"""Characters of one text of a peer."""
MAX_PROBLEM: Final = 1000
"""Characters of one problem."""
MAX_BYTES: Final = 4 * 1024 * 1024
"""Bytes of one process's status, as read by others."""


def shown(text: str, most: int = MAX_TEXT) -> str:
    """The text of a peer or a problem, printable and cut."""
    text = printable(text[: most + 1])
    return text if len(text) <= most else f"{text[: most - 1]}…"


class Listed(msgspec.Struct, Generic[T], frozen=True):
    """A bounded list, and how many there are in all."""

    total: int = 0
    items: tuple[T, ...] = ()


def listed(items: Iterable[T], total: int | None = None) -> Listed[T]:
    """The first items of a list. ``total``: how many there are, if not all are given."""
    found = tuple(items)
    return Listed(len(found) if total is None else total, found[:MAX_LISTED])


ServerState: TypeAlias = Literal["idle", "starting", "ready", "failed", "backoff"]
"""``idle``: no process or connection; the next request starts one. ``backoff``: it is restarted in ``restart_in``.
``failed``: it cannot be started, or a server at a URL did not take the latest request."""


class ServerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A server and its conversations."""

    name: str
    state: ServerState
    problem: str | None = None
    restart_in: float | None = None
    protocol: str | None = None
    """The protocol version of its sessions; None if none is known, or if they differ."""
    sessions: int = 0
    calls: int = 0
    requests: int = 0

    def failed(self, problem: str | None) -> ServerStatus:
        """The same of a server that failed with this problem, if there is one."""
        if problem is None:
            return self
        return msgspec.structs.replace(self, state="failed", problem=shown(problem, MAX_PROBLEM))


class SessionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A session of a client, or the one that a caller's stateless requests share."""

    id: str
    """As in the decision log."""
    server: str
    caller: str
    client: str | None
    """The name that the client gave itself in ``initialize``; None if it gave none."""
    protocol: str | None
    """None until the server has answered."""
    age: float
    calls: int
    requests: int


class CallStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A client's request that is not answered yet."""

    server: str
    caller: str
    session: str
    method: str
    tool: str | None
    age: float | None
    """None if the time of its arrival is not known."""


WaitsFor: TypeAlias = Literal["gate", "limit", "model", "client", "reviewer"]


class RequestStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A server's request that is being answered."""

    decision_id: str
    server: str
    caller: str
    session: str
    tool: str | None
    """The tool or method of the call during which the server asks; several with commas."""
    kind: Literal["sampling", "elicitation"]
    rule: str | None
    effect: str
    """``none`` until it is decided."""
    waits_for: WaitsFor
    name: str | None
    """The name of the model or reviewer in the policy, or the names of the rule's limits."""
    age: float
    expires_in: float | None
    """None if no timeout is known."""


class LimitStatus(msgspec.Struct, frozen=True, kw_only=True):
    """An account of a limit: what is used now. Amounts are in the unit of ``quantity``."""

    limit: str
    quantity: str
    per: str
    """``day``, ``month``, ``call``, ``run``, ``process``, a span such as ``1h``, or ``concurrent``."""
    key: dict[str, str]
    """The values of ``by``."""
    max: float | None
    """None if no running gate has the limit."""
    used: float
    left: float | None
    resets_in: float | None = None
    """Until all of it is available again, if nothing more is drawn."""
    waiting: int = 0
    """Requests of this process that wait for room."""
    shared: bool = False
    """Whether all processes with the same state folder draw on it."""


class ReviewerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Pending reviews of a reviewer."""

    reviewer: str
    pending: int
    oldest_age: float
    next_expires_in: float


class ReviewsStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Pending reviews of a store."""

    store: str
    reviewers: tuple[ReviewerStatus, ...] = ()
    problem: str | None = None


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A process that calls models."""

    state: Literal["not started", "starting", "ready", "failed"]
    pid: int | None = None
    calls: int = 0
    problem: str | None = None
    """Why it ended, or why the latest one did not start."""
    retry_in: float | None = None


class LogStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The decision log."""

    path: str | None
    waiting: int = 0
    problem: str | None = None


class ReloadStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The latest reload."""

    age: float
    result: str
    problems: int


class GateStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One process: a `serve` or a `run`."""

    command: Literal["run", "serve"]
    instance: str
    """A random name of the process."""
    pid: int
    version: str
    uptime: float
    state: str
    """The state folder; empty without one."""
    policy: str
    policy_hash: str
    settings_hash: str
    run: str | None = None
    draining: bool = False
    problems: tuple[str, ...] = ()
    """Why it is not ready, and what it could not read for this status."""
    servers: Listed[ServerStatus] = Listed()
    sessions: Listed[SessionStatus] = Listed()
    calls: Listed[CallStatus] = Listed()
    """The oldest first."""
    requests: Listed[RequestStatus] = Listed()
    """The oldest first."""
    limits: Listed[LimitStatus] = Listed()
    """The fullest first."""
    reviews: ReviewsStatus | None = None
    """None if the policy has no reviewers."""
    workers: tuple[WorkerStatus, ...] = ()
    """Those that run, and the latest start; empty if the policy has no models to call."""
    decision_log: LogStatus = LogStatus(path=None)
    reload: ReloadStatus | None = None


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """What `samplegate status` shows: the gates that run, and what their state folder has besides."""

    time: str
    gates: tuple[GateStatus, ...] = ()
    state: str | None = None
    """The state folder that was read."""
    limits: Listed[LimitStatus] = Listed()
    """Shared limits that no running gate has."""
    reviews: ReviewsStatus | None = None
    """The review store, if no running gate has it."""
    problems: tuple[str, ...] = ()


def plain(value: GateStatus | Overview) -> Any:
    """Plain values. Numbers are rounded to three decimals, and below 1 to six significant digits."""
    return _rounded(msgspec.to_builtins(value))


def as_json(value: GateStatus | Overview) -> bytes:
    """The plain values as JSON."""
    return msgspec.json.encode(plain(value))


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 3) if abs(value) >= 1 else float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    return value


def read_gate(text: bytes) -> GateStatus:
    """The status of a process as it was sent. Raises ValueError if it is none."""
    return msgspec.json.decode(text, type=GateStatus)
