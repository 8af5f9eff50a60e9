"""Notices that a peer has gone while its descriptor is not read: the end of input is only seen by who reads up to it.

A look now and then, because no event loop reports a going without reporting what can be read too. Not for Windows: nothing is noticed there.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from typing import Final

LOOK: Final = 0.2
"""Seconds between two looks, and a pause this long before the first: a side that is held up only briefly is read to its end in order."""
_GONE: Final = getattr(select, "POLLHUP", 0) | getattr(select, "POLLERR", 0) | getattr(select, "POLLRDHUP", 0)
"""The first two are told without being asked for. A socket whose peer writes no more, but reads, has only the last, where there is one."""


class HangUp:
    """Calls ``gone`` once when no process can write to ``fd`` any more. It looks between ``watch`` and ``stop`` only."""

    def __init__(self, fd: int, gone: Callable[[], None]) -> None:
        self._fd = fd
        self._gone = gone
        self._next: asyncio.TimerHandle | None = None

    def watch(self) -> None:
        """Look from now on, while the descriptor is open."""
        if _GONE:
            self._next = asyncio.get_running_loop().call_later(LOOK, self._look)

    def stop(self) -> None:
        """Look no more. May be called again."""
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _look(self) -> None:
        if self._has_gone():
            self._next = None
            self._gone()
        else:
            self.watch()

    def _has_gone(self) -> bool:
        return _polled(self._fd, getattr(select, "POLLRDHUP", 0))


def has_no_reader(fd: int) -> bool:
    """Whether no process reads from ``fd`` any more. A socket's peer that writes no more may still read."""
    return bool(_GONE) and _polled(fd, 0)


def _polled(fd: int, also: int) -> bool:
    poll = select.poll()
    poll.register(fd, also)
    return any(events & _GONE for _, events in poll.poll(0))
