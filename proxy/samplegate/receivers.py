"""What links call, each for its side: they hand on what came, with the lane it came on. No more."""

from __future__ import annotations

from typing import Protocol

import anyio
import msgspec

from samplegate.core.frames import Frame
from samplegate.core.session.rounds import Side


class Takes(Protocol):
    """Who takes what came: the relay."""

    def take(self, side: Side, lane: int, line: bytes | Frame) -> None: ...
    def take_oversized(self, side: Side, lane: int, size: int, head: bytes) -> None: ...
    def take_end(self, side: Side, lane: int, head: bytes, tail: bytes) -> None: ...
    def ended(self, side: Side) -> None: ...


class Receiver(msgspec.Struct, eq=False):
    """What a link calls for its side; one with several lanes names them."""

    relay: Takes
    side: Side

    def received(self, line: bytes) -> None:
        """One line came on the only lane."""
        self.relay.take(self.side, 0, line)

    def oversized(self, size: int, head: bytes) -> None:
        """A line over the bound was thrown away; its head may say who waits for it."""
        self.relay.take_oversized(self.side, 0, size, head)

    def oversized_end(self, head: bytes, tail: bytes) -> None:
        """Such a line is over; some writers put the id last."""
        self.relay.take_end(self.side, 0, head, tail)

    def ended(self) -> None:
        """Nothing more comes from this side."""
        self.relay.ended(self.side)


class InputReceiver(Receiver, eq=False):
    """What the link to our own client calls: the end of its input is not yet the end of the client, who may still read."""

    over: anyio.Event = msgspec.field(default_factory=anyio.Event)

    def ended(self) -> None:
        """Nothing more comes from the client."""
        self.over.set()


class StreamReceiver(msgspec.Struct, eq=False):
    """What the link to a server with a stream for each request calls."""

    relay: Takes

    def received(self, lane: int, line: bytes | Frame) -> None:
        """One frame, read or not, came on the stream of the request with this number, or on the standalone one (0)."""
        self.relay.take("server", lane, line)

    def oversized(self, lane: int, size: int, head: bytes) -> None:
        """A frame over the bound was thrown away."""
        self.relay.take_oversized("server", lane, size, head)

    def ended(self) -> None:
        """The server's session is gone."""
        self.relay.ended("server")
