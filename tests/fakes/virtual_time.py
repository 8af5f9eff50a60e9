"""An event loop in virtual time: its clock jumps to the next timer whenever nothing is ready."""

from __future__ import annotations

import asyncio
import selectors
from typing import Final


class _Jumping(selectors.DefaultSelector):
    """A selector that never waits for a timer."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready now. If nothing is, the time passes at once. Without a timer it waits as usual."""
        ready = super().select(None if timeout is None else 0)
        if not ready and timeout is not None:
            self.now += max(timeout, 0.0)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose sleeps take no time, for tests without threads and processes."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Seconds since the loop was created."""
        return self._jumping.now


VIRTUAL: Final = ("asyncio", {"loop_factory": VirtualLoop})
"""The ``anyio_backend`` of a module that runs in virtual time."""
