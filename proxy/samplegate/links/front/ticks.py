"""One coarse timer for many short waits: a timer for each would be set and cancelled with almost every call. Exact times are the loop's."""

from __future__ import annotations

import asyncio


class Ticks:
    """Ends each wait after one to two ticks of so many seconds; runs only while there is one. Of one event loop at a time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._new: list[asyncio.Future[None]] = []
        self._old: list[asyncio.Future[None]] = []
        """Those that were there at the last tick."""

    def end(self, wait: asyncio.Future[None]) -> None:
        """Have a wait end, unless it ends by itself before."""
        if not self._new and not self._old:
            self._next(wait.get_loop())
        self._new.append(wait)

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_later(self.seconds, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        late, self._old, self._new = self._old, self._new, []
        if self._old:
            self._next(loop)
        for wait in late:
            if not wait.done():
                wait.set_result(None)
