"""What becomes known of who is not let in, and of the issuer's keys: counted each time, logged now and then. Nothing that a caller sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

import msgspec

from samplegate.ports import Log

Kind: TypeAlias = Literal["auth", "origin", "host", "headers", "path"]

SECONDS: Final = 10.0
"""Between two lines about refusals for one reason: anybody can cause any number of them."""


class Refusal(msgspec.Struct, frozen=True):
    """A request that was not let in: by which check, why, for which server of ours (empty where there is none) and from which address."""

    kind: Kind
    reason: str
    status: int
    server: str = ""
    peer: str = ""


class Telling:
    """Where it goes: ``count`` takes a metric's name and labels, ``clock`` is monotonic seconds."""

    def __init__(self, log: Log, count: Callable[..., None], *, clock: Callable[[], float]) -> None:
        self._log = log
        self._count = count
        self._clock = clock
        self._told: dict[str, float] = {}
        self._left: dict[str, int] = {}
        self._failing = False

    def refused(self, refusal: Refusal) -> None:
        """A request was refused."""
        self._count("samplegate_http_refused_total", server=refusal.server or None, reason=refusal.kind)
        now = self._clock()
        if now - self._told.get(refusal.reason, float("-inf")) < SECONDS:
            self._left[refusal.reason] = self._left.get(refusal.reason, 0) + 1
            return
        self._told[refusal.reason] = now
        fields = {"reason": refusal.reason, "status": refusal.status, "peer": refusal.peer, "more": self._left.pop(refusal.reason, 0)}
        self._log.warning("caller.refused", **{name: value for name, value in {"server": refusal.server, **fields}.items() if value})

    def keys(self, problem: str | None) -> None:
        """The issuer's keys were fetched, or why not. Logged where that changes."""
        self._count("samplegate_issuer_key_fetches_total", result="ok" if problem is None else "failed")
        if problem is not None and not self._failing:
            self._log.warning("issuer_keys.failed", problem=problem)
        elif problem is None and self._failing:
            self._log.info("issuer_keys.recovered")
        self._failing = problem is not None
