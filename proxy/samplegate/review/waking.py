"""Who waits for news of the store, and how one waits: until news or so many seconds, whichever is first. Not the news themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeAlias

Pause: TypeAlias = Callable[[asyncio.Event, float], Awaitable[None]]
"""Until the event is set or so many seconds are over."""


async def pause(event: asyncio.Event, seconds: float) -> None:
    """The real one."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


class Waking:
    """Events of all that wait; one call wakes them."""

    def __init__(self) -> None:
        self._events: set[asyncio.Event] = set()

    def __call__(self) -> None:
        for event in self._events:
            event.set()

    @contextmanager
    def woken(self) -> Iterator[asyncio.Event]:
        """An event that is set at every call while this lasts; whoever waits clears it."""
        event = asyncio.Event()
        self._events.add(event)
        try:
            yield event
        finally:
            self._events.discard(event)
