"""The server's other requests (roots, ping, what is not known here), which pass to the client as they come and wait for it. No door: not decided."""

from __future__ import annotations

from typing import Final

import msgspec

from samplegate.core import frames
from samplegate.core.frames import Frame, FrameId
from samplegate.core.session import shapes
from samplegate.core.session.rounds import Effect, ToClient, ToServer
from samplegate.core.session.state import SERVER_LANE

MAX_PASSED: Final = 10_000  # a server chooses how many it asks for


class Passed(msgspec.Struct, eq=False):
    """Those that the client has not answered, each with the stream on which it went."""

    open: dict[FrameId, int] = msgspec.field(default_factory=dict)

    def arrive(self, f: Frame, lane: int) -> list[Effect]:
        """One goes on, on a lane of the client's."""
        assert f.id is not None
        if len(self.open) >= MAX_PASSED:
            return [ToServer(SERVER_LANE, frames.error(f.id, shapes.INVALID_REQUEST, f"refused: {MAX_PASSED} requests wait for the client already"))]
        self.open[f.id] = lane
        return [ToClient(lane, f.raw, asks=f.id)]

    def over(self, id: FrameId) -> int | None:
        """One is answered or taken back: its stream; None if there is none of this id."""
        return self.open.pop(id, None)
