"""States without questions: a modern server says "come back", and the gate does, after growing pauses. The client never sees them (R62, T10)."""

from __future__ import annotations

from typing import Final

import msgspec

from samplegate.core.session.inflight import Pending
from samplegate.core.session.rounds import Later
from samplegate.core.session.state import State

MAX_WAITS: Final = 100  # in a row: eight minutes at the longest pause
FIRST_PAUSE: Final = 0.25
LONGEST_PAUSE: Final = 5.0


class Pauses(msgspec.Struct, eq=False):
    """The calls of a session that pause."""

    state: State
    waiting: dict[str, Pending] = msgspec.field(default_factory=dict)

    def begin(self, pending: Pending, server_state: bytes | None) -> Later | None:
        """Put a call off; None if its server did so too often in a row."""
        pending.waits += 1
        if pending.waits > MAX_WAITS:
            return None
        token = self.state.new_round()
        self.waiting[token] = pending
        pending.state = server_state
        pending.round = token
        return Later(min(FIRST_PAUSE * 2.0 ** min(pending.waits - 1, 10), LONGEST_PAUSE), token)

    def over(self, token: str) -> Pending | None:
        """A pause is over; the call that it was, None if there is none any more."""
        return self.waiting.pop(token, None)
