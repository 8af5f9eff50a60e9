"""What is told of each HTTP request once it is over: a line for the access log and the labels of its metrics. Never content, never a session's id."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

import msgspec

METHODS: Final = frozenset(
    "completion/complete initialize logging/setLevel notifications/cancelled notifications/initialized notifications/progress "
    "notifications/roots/list_changed ping prompts/get prompts/list resources/list resources/read resources/subscribe "
    "resources/templates/list resources/unsubscribe server/discover subscriptions/listen tasks/cancel tasks/get tasks/list tasks/result "
    "tasks/update tools/call tools/list".split()
)
"""Others are told as ``other``: a label's values are ours, not the client's."""

Reason: TypeAlias = Literal[
    "accept", "batch", "body_size", "body_time", "busy", "content_type", "draining", "event", "failed", "header", "meta", "method", "mismatch",
    "opening", "parse", "protocol", "refused", "session", "session_full", "version", "",
]  # fmt: skip
"""Why the front refuses a request itself, or empty."""
REASONS: Final[frozenset[str]] = frozenset(get_args(Reason)) - {""}


class Access(msgspec.Struct, frozen=True):
    """One HTTP request, told at its end; a stream's is the end of the stream."""

    server: str
    caller: str
    http: str
    """``POST``, ``GET``, ``DELETE`` or ``other``."""
    era: str
    """``legacy``, ``modern``, or empty where it was refused before that was known."""
    method: str
    """One of METHODS, ``other``; ``answer`` for a client's answer, ``batch``; empty where no body was read."""
    status: int
    """0 if the client had gone before there was one."""
    form: str
    """``json``, ``sse``, or empty for an answer without content."""
    reason: Reason
    """Why the front refused it, or empty."""
    end: str
    """How a stream came to its end: ``ended``, ``gone``, ``slow``, ``displaced``, ``closing``; empty for no stream."""
    seconds: float
    session: str
    """Eight hexadecimal digits that stand for the session, empty without one."""
    traceparent: str
    """The caller's, if its form is right, else empty."""


def method_label(method: str) -> str:
    """The method as it may stand in a label."""
    return method if method in METHODS else "other"
