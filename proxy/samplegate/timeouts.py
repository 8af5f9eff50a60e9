"""The timeouts of one server: `start_timeout` for its first answer, `call_timeout` for each later one. It looks at what is in flight now and then.

A request that arrives after a look cannot time out before the next one, so no frame has to set a timer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio
import msgspec

from samplegate.relay import Relay

SOONEST: Final = 0.01  # seconds between two looks


class Timeouts(msgspec.Struct, frozen=True, eq=False):
    """Seconds; a `call` of 0 is no limit. ``silent`` is called once, before the server is given up for its `start`."""

    start: float
    call: float
    silent: Callable[[], None]

    async def watch(self, relay: Relay) -> None:
        """Enforce them until the server's side ends, or nothing is left to enforce."""
        while not relay.server_gone.is_set():
            wait = self._look(relay)
            if wait is None:
                return
            await anyio.sleep(max(wait, SOONEST))

    def _look(self, relay: Relay) -> float | None:
        """Seconds until the next look; None if there need not be any."""
        state, now = relay.session.state, relay.clock()
        waits = []
        opening = state.inflight.opening(answered=state.answered)
        if opening is not None and now - opening >= self.start:
            self.silent()
            relay.give_up(f"the server did not answer its first request within {self.start:g} s (setting start_timeout)")
            return None
        if opening is not None or not state.answered:
            waits.append(self.start if opening is None else opening + self.start - now)
        if self.call:
            relay.guarded("request.failed", lambda: relay.session.overdue(now, self.call))
            oldest = state.inflight.oldest_wait()
            waits.append(self.call if oldest is None else oldest + self.call - now)
        return min(waits, default=None)
