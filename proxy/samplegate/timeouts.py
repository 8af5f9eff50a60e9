"""The timeouts of one server: `start_timeout` for its first answer, `call_timeout` for each later one.

What is in flight is looked at now and then. A request that arrives after a look cannot time out before the next one, so no frame has to set a timer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import anyio

from samplegate.relay import Relay

SOONEST: Final = 0.01  # seconds between two looks


async def enforce(start: float, call: float, silent: Callable[[], None], relay: Relay) -> None:
    """Enforce them, in seconds, until the server's side ends or nothing is left to enforce; a ``call`` of 0 is no limit.

    ``silent`` is called once, before the server is given up for its ``start``.
    """
    while not relay.server_gone.is_set():
        state, now = relay.session.state, relay.clock()
        waits = []
        opening = state.inflight.opening(answered=state.answered)
        if opening is not None and now - opening >= start:
            silent()
            relay.give_up(f"the server did not answer its first request within {start:g} s (setting start_timeout)")
            return
        if opening is not None or not state.answered:
            waits.append(start if opening is None else opening + start - now)
        if call:
            relay.guarded("request.failed", partial(relay.session.overdue, now, call))
            oldest = state.inflight.oldest_wait()
            waits.append(call if oldest is None else oldest + call - now)
        if not waits:
            return
        await anyio.sleep(max(min(waits), SOONEST))
