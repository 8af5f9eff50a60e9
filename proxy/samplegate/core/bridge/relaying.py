"""A legacy client in front of a server of unknown era: its ``initialize`` goes on as it is, and the answer tells (R88)."""

from __future__ import annotations

import msgspec

from samplegate.core import frames
from samplegate.core.bridge import probing
from samplegate.core.bridge.choice import Choice
from samplegate.core.bridge.probing import Eras
from samplegate.core.bridge.waiting import Held
from samplegate.core.frames import Frame
from samplegate.core.session import shapes
from samplegate.core.session.rounds import Effect, ToClient

Effects = list[Effect]


class Relaying(msgspec.Struct, eq=False):
    """The way of a legacy client."""

    choice: Choice

    def begin(self, lane: int, f: Frame, now: float) -> Effects:
        """It goes on as it is: a server of both eras is to speak the client's (R88)."""
        choice = self.choice
        if choice.eras.legacy is False and choice.eras.modern:
            choice.hello = Held(lane, f, now)
            return self.bridged()
        out = choice.chosen.frame("client", lane, f, now)
        if choice.eras.legacy:
            choice.settle(choice.chosen)
        elif not any(isinstance(effect, ToClient) for effect in out):
            choice.phase, choice.hello = "relaying", Held(lane, f, now)
        return out

    def answers(self, lane: int, f: Frame) -> bool:
        """Whether a frame for the client is the answer to its ``initialize``."""
        hello = self.choice.hello
        return self.choice.phase == "relaying" and hello is not None and (lane, f.id) == (hello.lane, hello.frame.id)

    def answered(self, effect: ToClient, f: Frame, now: float) -> Effects:
        """The server's answer to ``initialize``."""
        choice = self.choice
        if f.kind == "result":
            choice.eras = choice.eras.and_(Eras(legacy=True))
            choice.settle(choice.chosen)
            return [effect, *choice.replayed()]
        if probing.says_modern(f):
            choice.eras = choice.eras.and_(Eras(legacy=False, modern=True))
            return [*choice.handshake_refused(), *self.bridged()]
        if choice.eras.modern is False:
            choice.settle(choice.chosen)
            return [effect, *choice.replayed()]
        choice.refusal = effect
        choice.phase = "probing"
        return choice.probe.ask(choice.chosen, now)

    def bridged(self) -> Effects:
        """The server is a modern one."""
        from samplegate.core.bridge.legacy_client import LegacyClient

        choice = self.choice
        assert choice.hello is not None
        hello, out = choice.hello, [*choice.left(), *self._too_early()]
        choice.reset()
        choice.settle(LegacyClient(choice.state))
        return [*out, *choice.chosen.frame("client", hello.lane, hello.frame, hello.now), *choice.replayed()]

    def _too_early(self) -> Effects:
        """What the client asked before ``initialize``, in words that its server does not know: nobody else will answer it."""
        inflight = self.choice.state.inflight
        early = list(inflight.asked.values())
        for pending in early:
            inflight.remove(pending)
        fault = "asked before initialize, in an era that the server does not speak"
        return [ToClient(pending.lane, frames.error(pending.id, shapes.INVALID_REQUEST, fault), True) for pending in early]
