"""A client that began as a modern one, and may begin again as a legacy one: on stdio, with nothing under way but its own probes (T21)."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from samplegate.core import frames
from samplegate.core.bridge import fallback
from samplegate.core.bridge.choice import Choice
from samplegate.core.bridge.probing import DISCOVER
from samplegate.core.frames import Frame
from samplegate.core.jsontext import Malformed
from samplegate.core.session import handshake, shapes
from samplegate.core.session.declarations import modern_meta
from samplegate.core.session.rounds import Effect, Side, ToClient

Effects = list[Effect]
STDIO = 0


class Again(msgspec.Struct, eq=False):
    """The way back to the begin."""

    choice: Choice
    first: Callable[[int, Frame, float], Effects]
    """Takes a client's first frame, and from then on all of them."""

    def frame(self, side: Side, lane: int, line: bytes | Frame, now: float) -> Effects:
        """Frames through a bridge, which cost a reading anyway: a client on stdio may still fall back to ``initialize`` (T21)."""
        raw = line.raw if isinstance(line, Frame) else line
        if side == "client" and (b"initialize" in raw or b"server/discover" in raw):
            try:
                line = f = frames.of(line)
                if self.choice.is_sent_back(lane, f):
                    return [fallback.refusal(lane, f)]
                if self.is_meant(lane, f):
                    return self.begin(lane, f, now)
            except Malformed:
                pass  # the bridge words the refusal
        return self.choice.chosen.frame(side, lane, line, now)

    def is_meant(self, lane: int, f: Frame) -> bool:
        """Whether a client's frame begins again, and may."""
        from samplegate.core.bridge.modern_client import ModernClient

        choice = self.choice
        if f.kind != "request" or f.method != handshake.METHOD or lane != STDIO or choice.hello is not None or modern_meta(f) is not None:
            return False
        if isinstance(choice.chosen, ModernClient) and choice.chosen.ready:
            return choice.chosen.idle
        waits = choice.chosen.waits if isinstance(choice.chosen, ModernClient) else choice.waiting.held
        return all(held.frame.method == DISCOVER for held in waits)

    def begin(self, lane: int, f: Frame, now: float) -> Effects:
        """Whoever waits is told, and the frame is a first one."""
        from samplegate.core.bridge.modern_client import ModernClient

        choice = self.choice
        held = choice.chosen.give_back() if isinstance(choice.chosen, ModernClient) else choice.waiting.take()
        choice.probe.give_up()
        out = choice.left()
        choice.reset()
        choice.begin_anew()
        fault = "the client has begun another era with initialize"
        out += [ToClient(one.lane, frames.error(one.frame.id, shapes.INTERNAL, fault), True) for one in held if one.frame.id is not None]
        return out + self.first(lane, f, now)
