"""Client frames that wait until the server is open, in the order in which they came. Bounded: whoever writes them chooses how many."""

from __future__ import annotations

from typing import Final

import msgspec

from samplegate.core import frames
from samplegate.core.frames import Frame, FrameId
from samplegate.core.session import shapes
from samplegate.core.session.inflight import LISTEN, OpenCall
from samplegate.core.session.rounds import ToClient

MAX_FRAMES: Final = 1000
MAX_BYTES: Final = 32 * 1024 * 1024
FULL: Final = f"refused: {MAX_FRAMES} frames or {MAX_BYTES >> 20} MiB wait for the server to open already"


def full(lane: int, f: Frame) -> ToClient:
    """The refusal of a request for which there is no room."""
    return ToClient(lane, frames.error(f.id, shapes.INTERNAL, FULL), True)


class Held(msgspec.Struct, frozen=True):
    """One frame, the lane it came on and when."""

    lane: int
    frame: Frame
    now: float


class Waiting(msgspec.Struct, eq=False):
    """The frames that wait."""

    held: list[Held] = msgspec.field(default_factory=list)
    size: int = 0

    def add(self, lane: int, f: Frame, now: float) -> bool:
        """Take one in; False if there is no room for it."""
        if len(self.held) >= MAX_FRAMES or self.size + len(f.raw) > MAX_BYTES:
            return False
        self.held.append(Held(lane, f, now))
        self.size += len(f.raw)
        return True

    def has(self, lane: int, id: FrameId) -> bool:
        """Whether a request waits."""
        return any(held.lane == lane and held.frame.kind == "request" and held.frame.id == id for held in self.held)

    def open_calls(self) -> list[OpenCall]:
        """The requests among them, without those that stay open by design."""
        some = (held for held in self.held if held.frame.kind == "request" and held.frame.method != LISTEN)
        return [OpenCall(held.lane, held.frame.id, held.frame.method) for held in some if held.frame.id is not None]

    def remove(self, lane: int, id: FrameId) -> bool:
        """A request is taken back; False if none waits by that id."""
        return self._keep([h for h in self.held if h.lane != lane or h.frame.kind != "request" or h.frame.id != id])

    def lane_closed(self, lane: int) -> bool:
        """Nobody waits on a lane any more; False if nobody did."""
        return bool(self.held) and self._keep([held for held in self.held if held.lane != lane])

    def take(self) -> list[Held]:
        """All that waits; nothing does then."""
        taken, self.held, self.size = self.held, [], 0
        return taken

    def _keep(self, kept: list[Held]) -> bool:
        changed = len(kept) != len(self.held)
        self.held, self.size = kept, sum(len(held.frame.raw) for held in kept)
        return changed
