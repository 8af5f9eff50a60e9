"""Waiting for a client as long as it takes bytes, however slowly. Not what happens to one that does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

Unsent = Callable[[], int]


class Clock(Protocol):
    """As much of an event loop as it needs."""

    def call_later(self, delay: float, callback: Callable[[], object], /) -> Any:
        """A timer, which has ``cancel``."""


class Patience:
    """Calls ``end`` once when ``unsent`` has not become less for so many seconds: at least as many, less than twice. Runs from the beginning."""

    __slots__ = ("_clock", "_end", "_left", "_seconds", "_timer", "_unsent")

    def __init__(self, clock: Clock, seconds: float, unsent: Unsent, end: Callable[[], object]) -> None:
        self._clock, self._seconds, self._unsent, self._end = clock, seconds, unsent, end
        self._left = unsent()
        self._timer: Any = clock.call_later(seconds, self._look)

    def over(self) -> None:
        """The wait is over."""
        self._timer.cancel()

    def _look(self) -> None:
        before, self._left = self._left, self._unsent()
        if self._left < before:
            self._timer = self._clock.call_later(self._seconds, self._look)
        else:
            self._end()
