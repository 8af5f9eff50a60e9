"""The client's requests that are not answered yet, by id and by progress token, and the one rising series of progress that each shows (T33)."""

from __future__ import annotations

import math
from typing import Final

import msgspec

from samplegate.core import frames
from samplegate.core.frames import Frame, FrameId
from samplegate.core.session.bounds import ENTRY
from samplegate.core.session.inflight import Inflight
from samplegate.core.session.progress import STEP, notification
from samplegate.core.session.rounds import ToClient

MAX_CALLS: Final = 10_000  # in flight for one client; real ones have a few
PROGRESS: Final = "notifications/progress"


class Call(msgspec.Struct, eq=False):
    """A request of the client's."""

    lane: int
    id: FrameId
    method: str
    token: bytes | None = None
    """Its progressToken, raw JSON."""
    params: bytes | None = None
    """As the server sees them; kept where a retry may need them."""
    rounds: int = 0
    """How often the client was asked something in it."""
    progress: float | None = None
    """The last value that the client has seen."""
    size: int = 0
    """Bytes that it counts for beside the inner session's own."""


class Calls(msgspec.Struct, eq=False):
    """The requests in flight. An id is the client's for the whole session, whichever lane it comes on (R57)."""

    inflight: Inflight
    """Counts their bytes with those of the inner session."""
    by_id: dict[FrameId, Call] = msgspec.field(default_factory=dict)
    by_token: dict[FrameId, Call] = msgspec.field(default_factory=dict)

    def add(self, call: Call) -> None:
        """Take one in."""
        self.by_id[call.id] = call
        call.size = ENTRY + len(call.params or b"")
        self.inflight.size += call.size
        token = _token(call.token)
        if token is not None:
            self.by_token[token] = call

    def remove(self, call: Call) -> bool:
        """It is over; False if it was before."""
        if self.by_id.get(call.id) is not call:
            return False
        del self.by_id[call.id]
        self.inflight.size -= call.size
        token = _token(call.token)
        if token is not None and self.by_token.get(token) is call:
            del self.by_token[token]
        return True

    def clear(self) -> None:
        """All are over."""
        self.inflight.size -= sum(call.size for call in self.by_id.values())
        self.by_id.clear()
        self.by_token.clear()

    def grow(self, call: Call, size: int) -> None:
        """So many bytes more are remembered of one until it is over, or fewer."""
        if self.by_id.get(call.id) is call:
            self.inflight.size += size
        call.size += size

    def shown(self, lane: int, f: Frame, *, ours: bool) -> ToClient | None:
        """A progress notification as the client may see it, None if it must not: values only rise, whatever a retry begins anew.

        ``ours``: a beat of the gate's, which takes the next value there is. ``lane`` is for a token that no call gave.
        """
        call = self._of(f.lookup("progressToken"))
        value = _number(f.lookup("progress"))
        if call is None or value is None:
            return ToClient(lane, f.raw)
        if call.progress is None or value > call.progress:
            call.progress = value
            return ToClient(call.lane, f.raw)
        if ours:
            return beat(call)
        return None if call.rounds else ToClient(call.lane, f.raw)

    def _of(self, token: bytes | None) -> Call | None:
        key = _token(token)
        return None if key is None else self.by_token.get(key)


def beat(call: Call) -> ToClient | None:
    """Progress of ours on a call, one step up; None if the client gave no token, or nothing is above."""
    before = 0.0 if call.progress is None else call.progress
    value = max(before + STEP, math.nextafter(before, math.inf))
    if call.token is None or not math.isfinite(value):
        return None
    call.progress = value
    return ToClient(call.lane, notification(call.token, value))


def _token(raw: bytes | None) -> FrameId | None:
    return None if raw is None else frames.plain_id(raw)


def _number(raw: bytes | None) -> float | None:
    try:
        return None if raw is None else float(raw)
    except ValueError:
        return None
