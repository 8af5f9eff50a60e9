"""HTTP requests of clients, counted: what they were, in a few words each, what came of them and how long they took. Not the front.

Every word that a client chooses (a method, a status that it caused) is put into a class here, so that no client makes series.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from samplegate.core.eras import CALLS, Era
from samplegate.records.metrics import Metrics

Refusal: TypeAlias = Literal["auth", "origin", "host", "headers", "body", "session", "busy"]

_BEGIN: Final = frozenset({"initialize", "server/discover"})
_LISTEN: Final = "subscriptions/listen"


class Traffic:
    """Counts for the HTTP front. A server is None where the request named none that there is."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def answered(self, *, server: str | None, era: Era | None, http: str, method: str | None, status: int | None, seconds: float) -> None:
        """A request is over. ``method`` is that of the JSON-RPC frame in it; ``status`` is None where the client left before there was one."""
        labels = {"server": server, "era": era, "method": method_class(http, method)}
        self._metrics.count("samplegate_http_requests_total", **labels, status=status_class(status))
        if labels["method"] != "stream":  # a stream lasts as long as its client
            self._metrics.observe("samplegate_http_request_duration_seconds", seconds, **labels)

    def refused(self, server: str | None, reason: Refusal) -> None:
        """A request was not let in; ``answered`` counts it too."""
        self._metrics.count("samplegate_http_refused_total", server=server, reason=reason)


def method_class(http: str, method: str | None) -> str:
    """``begin``, ``call``, ``end``, ``message``, ``stream`` or ``other``, by the HTTP verb and the JSON-RPC method (None for a response)."""
    if http != "POST":
        return {"GET": "stream", "DELETE": "end"}.get(http, "other")
    if method is None or method.startswith("notifications/"):
        return "message"
    if method in CALLS:
        return "call"
    if method in _BEGIN:
        return "begin"
    return "stream" if method == _LISTEN else "other"


def status_class(status: int | None) -> str:
    """``2xx`` and so on; ``gone`` for None. What is no status of HTTP reads ``other``."""
    if status is None:
        return "gone"
    return f"{status // 100}xx" if 100 <= status < 600 else "other"
