"""Notifications and answers on their way to a remote server, one after the other: HTTP keeps no order. Not requests: they wait for these."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import aiohttp

from samplegate.core.frames import Frame
from samplegate.core.session.rounds import Note
from samplegate.links.remote.faults import Fault, of_error, of_status
from samplegate.links.remote.streams import Shared

TIME: Final = 10.0  # seconds for one: a server says 202 at once, and what follows waits for it
GRACE: Final = 0.25
"""Seconds that a notification waits for requests before it: a server that answers in one piece says nothing until it has the answer."""
MAX_WAITING: Final = 1_000


class Tells:
    """The order of what needs no answer. ``told`` is called with each frame that the server has accepted."""

    def __init__(self, shared: Shared, told: Callable[[Frame], None]) -> None:
        self._shared = shared
        self._told = told
        self._waiting: set[asyncio.Task[None]] = set()
        self.last: asyncio.Task[None] | None = None
        """What the next frame has to wait for, None if nothing is on its way."""

    def tell(
        self, frame: Frame, own: Callable[[], Mapping[str, str]], *, before: Iterable[asyncio.Future[Any]], requests: Iterable[asyncio.Future[Any]]
    ) -> bool:
        """Send one frame after those told before it and ``before``, and if they do not take long ``requests``. False if too many wait."""
        if len(self._waiting) >= MAX_WAITING:
            self._say(frame, Fault(f"{MAX_WAITING} others wait already"))
            return False
        after = [*before, *([] if self.last is None else [self.last])]
        task = asyncio.get_running_loop().create_task(self._send(frame, own, after, [one for one in requests if not one.done()]))
        self.last = task
        self._waiting.add(task)
        task.add_done_callback(self._over)
        return True

    def close(self) -> list[asyncio.Task[None]]:
        """Send nothing any more; the tasks that end of it."""
        tasks = list(self._waiting)
        for task in tasks:
            task.cancel()
        return tasks

    def _over(self, task: asyncio.Task[None]) -> None:
        self._waiting.discard(task)
        if self.last is task:
            self.last = None

    async def _send(
        self, frame: Frame, own: Callable[[], Mapping[str, str]], after: list[asyncio.Future[Any]], requests: list[asyncio.Future[Any]]
    ) -> None:
        if after:
            await asyncio.wait(after)
        if requests:
            await asyncio.wait(requests, timeout=GRACE)
        try:
            async with asyncio.timeout(TIME):
                await self._post(frame, own())
        except (Fault, aiohttp.ClientError, OSError) as error:
            self._say(frame, of_error(error))
        except Exception:
            self._shared.note(Note("remote.failed", {"origin": self._shared.wire.origin, "exc_info": True}))

    async def _post(self, frame: Frame, own: Mapping[str, str]) -> None:
        if self._shared.legacy.gone:
            raise Fault("its session is over")
        response = await self._shared.wire.post(own, frame.raw)
        response.close()
        if response.status == 404 and self._shared.legacy.id is not None:
            self._shared.lost()
        if response.status >= 300:
            raise of_status(response.status)
        self._told(frame)

    def _say(self, frame: Frame, fault: Fault) -> None:
        what = frame.method[:100] or frame.kind
        self._shared.note(Note("remote.untold", {"origin": self._shared.wire.origin, "method": what, "fault": fault.reason}))
