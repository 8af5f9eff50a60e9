"""A modern client in front of a server of unknown era: the server is asked ``server/discover`` (R84), and a bridge opens one that does not know it.

Whoever would lose by the bridge is told to begin again in the server's era (``fallback.py``).
"""

from __future__ import annotations

import msgspec

from samplegate.core import frames
from samplegate.core.bridge import envelope, fallback, probing
from samplegate.core.bridge.again import Again
from samplegate.core.bridge.choice import Choice
from samplegate.core.bridge.envelope import Envelope
from samplegate.core.bridge.probing import DISCOVER, Eras
from samplegate.core.bridge.relaying import Relaying
from samplegate.core.bridge.waiting import full
from samplegate.core.eras import CALLS, META, META_CAPABILITIES
from samplegate.core.frames import Frame
from samplegate.core.jsontext import Malformed
from samplegate.core.session import declared, handshake
from samplegate.core.session.inflight import LISTEN
from samplegate.core.session.rounds import Effect
from samplegate.core.session.session import Session
from samplegate.core.session.state import INTERNAL

Effects = list[Effect]


class Discovering(msgspec.Struct, eq=False):
    """The way of a modern client; a legacy one's, too, where the server refused its ``initialize``."""

    choice: Choice
    relaying: Relaying
    again: Again

    def begin(self, lane: int, f: Frame, now: float) -> Effects:
        """The client's first frame waits for what the server says of itself, unless that is known."""
        choice = self.choice
        extended = choice.prefers_legacy and declared.has_modern_extension(f.lookup(META, META_CAPABILITIES))
        legacy = choice.eras.modern is False or (choice.prefers_legacy and not extended)
        if choice.eras.modern and not legacy:
            if f.method not in CALLS and f.method != LISTEN:
                self.lives()
                return choice.chosen.frame("client", lane, f, now)
            choice.phase = "calling"  # such a request may rightly take long: whether the server answers at all, our own question shows
            return [*choice.probe.beside(choice.chosen, now), *choice.chosen.frame("client", lane, f, now)]
        own = f.method == DISCOVER and isinstance(envelope.read(f), Envelope)
        if not choice.waiting.add(lane, f, now):
            return [full(lane, f)]
        if legacy:
            return self._greet()
        choice.phase, choice.probed_first = "probing", True
        return choice.probe.ask(choice.chosen, now, choice.waiting.held[0] if own else None)

    def lives(self) -> None:
        """The server is modern, as was known, and nothing more is to be found out."""
        self.choice.settle(self.choice.chosen)
        if self.choice.protocol == "modern":
            self.choice.take(self.again.frame)  # an initialize that follows is not for this server

    def meanwhile(self, lane: int, line: bytes | Frame, now: float) -> Effects:
        """A client's frame while a first call is with the server."""
        takes = self.again.frame if self.choice.protocol == "modern" else self.choice.chosen.frame
        return takes("client", lane, line, now)

    def answered(self, f: Frame) -> Effects:
        """The server's answer to ``server/discover``."""
        choice, found = self.choice, probing.finding(f)
        choice.found = found.eras
        choice.probe.answered()
        if not found.modern:
            return self.not_modern()
        choice.eras = choice.eras.and_(found.eras)
        if choice.hello is not None:
            choice.eras = choice.eras.and_(Eras(legacy=False))
            return [*choice.handshake_refused(), *self.relaying.bridged()]
        choice.settle(choice.chosen)
        return [*choice.probe.clients(f, choice.waiting), *choice.replayed()]

    def not_modern(self) -> Effects:
        """It is no modern server, or says so too late."""
        choice = self.choice
        if choice.hello is None:
            return self._greet()
        refusal, choice.refusal = choice.refusal, None
        choice.settle(choice.chosen)  # the client hears what the server itself had to say, and may try another revision
        return [*([] if refusal is None else [refusal]), *choice.replayed()]

    def _greet(self) -> Effects:
        from samplegate.core.bridge.modern_client import ModernClient

        choice = self.choice
        out = [*choice.left(), *self._sent_back()]
        choice.reset()
        if not choice.waiting.held:  # whoever was sent back may begin again, in the server's era
            choice.begin_anew()
            return out
        choice.phase, choice.chosen = "greeting", ModernClient(choice.state)
        return out + choice.replayed()

    def _sent_back(self) -> Effects:
        choice = self.choice
        held = [held for held in choice.waiting.held if choice.is_sent_back(held.lane, held.frame)]
        for one in held:
            assert one.frame.id is not None
            choice.waiting.remove(one.lane, one.frame.id)
        return [fallback.refusal(one.lane, one.frame) for one in held]

    def greeted(self) -> Effects:
        """Whether the bridge has opened the server by now. One that refused may be asked again, from the start."""
        from samplegate.core.bridge.modern_client import ModernClient

        choice, bridge = self.choice, self.choice.chosen
        assert isinstance(bridge, ModernClient)
        if bridge.ready:
            choice.eras = choice.eras.and_(Eras(legacy=True, modern=choice.found.modern))
            choice.settle(bridge)
            choice.take(self.again.frame)
        elif not bridge.opening:
            out = [*(choice.handshake_refused() if choice.prefers_legacy else []), *choice.left()]
            choice.reset()
            choice.begin_anew()
            return out
        return []

    def found_late(self, line: bytes | Frame) -> Effects | None:
        """The server shows itself modern after all, while a bridge opens it (T21); None for every other line."""
        choice = self.choice
        if choice.protocol == "legacy":
            return None
        try:
            f = frames.of(line)
        except Malformed:
            return None
        if f.id is None or f.kind not in ("result", "error"):
            return None
        pending = choice.state.inflight.wire.get(f.id)
        late = choice.probe.comes_late(f)
        opens = pending is not None and pending.lane == INTERNAL and pending.method == handshake.METHOD
        refused = opens and probing.says_modern(f)
        if not (late and probing.finding(f).modern) and not refused:
            return [] if late else None
        choice.eras = choice.eras.and_(Eras(modern=True))
        return [*(choice.handshake_refused() if refused else []), *self._modern_after_all()]

    def _modern_after_all(self) -> Effects:
        from samplegate.core.bridge.modern_client import ModernClient

        choice, bridge = self.choice, self.choice.chosen
        assert isinstance(bridge, ModernClient)
        held = bridge.give_back()
        out = choice.left()
        choice.reset()
        choice.settle(Session(choice.state))
        for one in held:
            out += choice.chosen.frame("client", one.lane, one.frame, one.now)
        return out
