"""Finds out which era a server speaks and becomes what fits it and the client: a plain session, or the bridge from one era to the other.

Where the server speaks both, its era is matched to the client's (R88). A legacy client's ``initialize`` goes to the server as it is, without a
probe before it: servers on stdio keep to the era of the first request. For a modern client the server is asked ``server/discover`` first (R84).
"""

from __future__ import annotations

from typing import Final, Literal

from samplegate.core import frames, jsontext
from samplegate.core.bridge import envelope, fallback, probing
from samplegate.core.bridge.conversing import Converses, TakesFrames
from samplegate.core.bridge.envelope import Envelope
from samplegate.core.bridge.probe import Probe
from samplegate.core.bridge.probing import DISCOVER, Eras
from samplegate.core.bridge.waiting import FULL, Held, Waiting
from samplegate.core.capabilities import Offer
from samplegate.core.frames import Frame, FrameId
from samplegate.core.jsontext import Malformed
from samplegate.core.requests import ClientCapabilities
from samplegate.core.session import handshake, shapes
from samplegate.core.session.declarations import modern_meta
from samplegate.core.session.rounds import Conclusion, Effect, Note, Over, Side, ToClient, Withdraw
from samplegate.core.session.session import INTERNAL, Session
from samplegate.core.session.state import State

Effects = list[Effect]
PATIENCE: Final = 5.0  # seconds for an answer to server/discover; a server that is only slow is found out by its answer to initialize
STDIO: Final = 0
Phase = Literal["new", "relaying", "probing", "greeting", "settled"]
"""Nothing yet; the client's ``initialize`` is with the server; our ``server/discover`` is; a bridge opens the server; decided."""


class Opening:
    """One server and its clients, from the first frame on; it has the methods of ``Session``.

    ``frame`` is replaced by that of the object chosen, so that frames pass without it once all is decided: look it up anew for each frame.
    """

    def __init__(self, state: State, known: Eras | None = None, patience: float = PATIENCE) -> None:
        self.state = state
        self.eras = known if known is not None else Eras()
        """What is known of the server, to be kept for its next conversation."""
        self.frame: TakesFrames = self._frame
        self.phase: Phase = "new"
        self.died_probing = False
        """Whether the server ended while it was asked which eras it speaks: some do, at a request that they do not know."""
        self._maps_ids = state.maps_ids
        self._chosen: Converses = Session(state)
        self._waiting = Waiting()
        self._hello: Held | None = None
        """The legacy client's ``initialize``, while nobody knows whether the server takes it."""
        self._refusal: ToClient | None = None
        """What the server said to it, while it is asked whether it is modern."""
        self._found = Eras()
        """What the probe told, kept once the server has shown it."""
        self._probe = Probe(state, patience)

    # -- the methods of a session, but for ``frame`` ---------------------------------------------------------------------------------------

    def lost(self, side: Side, lane: int, head: bytes, fault: str) -> Effects:
        """A line could not be taken at all."""
        effects = self._chosen.lost(side, lane, head, fault)
        return self._watched(effects, 0.0) if side == "server" else effects

    def lost_end(self, side: Side, lane: int, head: bytes, tail: bytes) -> Effects:
        """The end of a line whose begin did not tell who would wait."""
        effects = self._chosen.lost_end(side, lane, head, tail)
        return self._watched(effects, 0.0) if side == "server" else effects

    def round_done(self, round: str, conclusion: Conclusion, now: float) -> Effects:
        """The gate is done with a round."""
        return self._chosen.round_done(round, conclusion, now)

    def forward(self, round: str) -> Effects:
        """Send a pushed request on to the client."""
        return self._chosen.forward(round)

    def unforward(self, round: str, reason: str) -> Effects:
        """The gate no longer waits for that reply."""
        return self._chosen.unforward(round, reason)

    def round_progress(self, round: str, tokens: int = 0) -> Effects:
        """A round is still being worked on."""
        return self._chosen.round_progress(round, tokens)

    def due(self, token: str) -> Effects:
        """The time of a ``Later`` has come."""
        if not self._probe.is_due(token):
            return self._chosen.due(token)
        self._probe.give_up()
        return self._no_modern_server()

    def lane_closed(self, side: Side, lane: int) -> Effects:
        """A lane is gone."""
        if side == "client" and self._hello is None:  # a legacy client's requests go on (T35)
            self._waiting.lane_closed(lane)
        return self._chosen.lane_closed(side, lane)

    def eof(self, side: Side) -> Effects:
        """A side has gone for good. What a legacy client wrote without waiting for the server goes to it before."""
        if side == "client":
            out = self._replayed() if self.phase == "relaying" else []
            self._settle(self._chosen)
            return out + self._chosen.eof(side)
        self.died_probing = self.phase == "probing"
        out = [] if self._refusal is None else [self._refusal]
        out += [effect for effect in self._chosen.eof(side) if not isinstance(effect, ToClient) or effect.lane != INTERNAL]
        out += [_ended(held) for held in self._waiting.take() if held.frame.kind == "request"]
        self._settle(self._chosen)
        return out

    # -- frames, until all is decided ------------------------------------------------------------------------------------------------------

    def _frame(self, side: Side, lane: int, line: bytes, now: float) -> Effects:
        if side == "server":
            return self._server(lane, line, now)
        try:
            f = frames.read(line)
            return self._first(lane, f, now) if self.phase == "new" else self._meanwhile(lane, f, now)
        except Malformed:
            return self._chosen.frame(side, lane, line, now)  # it words the refusal

    def _first(self, lane: int, f: Frame, now: float) -> Effects:
        if f.kind == "request" and modern_meta(f) is not None:
            return self._modern_client(lane, f, now)
        if f.kind == "request" and f.method == handshake.METHOD:
            return self._legacy_client(lane, f, now)
        return self._chosen.frame("client", lane, f.raw, now)

    def _meanwhile(self, lane: int, f: Frame, now: float) -> Effects:
        """A client's frame while the server is being found out."""
        if f.kind == "request" and f.method == handshake.METHOD and self._may_begin_again(lane, f):
            return [*self._begun_again(), *self._first(lane, f, now)]
        if self.phase == "greeting" and self._is_sent_back(lane, f):
            return [fallback.refusal(lane, f)]
        if self.phase == "greeting" or f.kind in ("result", "error"):
            return self._chosen.frame("client", lane, f.raw, now)
        if f.method == "notifications/cancelled" and (id := _request_id(f)) is not None and self._waiting.remove(lane, id):
            return [Over(lane)]
        if f.kind == "request" and f.id is not None and self._waiting.has(lane, f.id):
            return [ToClient(lane, frames.error(f.id, shapes.INVALID_REQUEST, "a request with this id is in flight"), True)]
        if self._waiting.add(lane, f, now):
            return []
        if f.kind != "request" or f.id is None:
            return [Note("frame.unasked", {"side": "client"})]
        return [_full(lane, f)]

    def _server(self, lane: int, line: bytes, now: float) -> Effects:
        if self.phase == "greeting":
            found = self._found_late(line, now)
            if found is not None:
                return found
        return self._watched(self._chosen.frame("server", lane, line, now), now)

    def _watched(self, effects: Effects, now: float) -> Effects:
        """What the server said, but for what decides its era."""
        if self.phase == "greeting":
            return effects + self._greeted()
        if self.phase not in ("relaying", "probing"):
            return effects
        out: Effects = []
        for effect in effects:
            f = frames.read(effect.line) if isinstance(effect, ToClient) else None
            if not isinstance(effect, ToClient) or f is None or f.kind in ("request", "notification"):
                out.append(effect)
            elif self.phase == "probing" and effect.lane == INTERNAL:
                out += self._probed(f)
            elif self.phase == "relaying" and self._hello is not None and (effect.lane, f.id) == (self._hello.lane, self._hello.frame.id):
                out += self._relayed(effect, f, now)
            elif effect.lane != INTERNAL:
                out.append(effect)
        return out

    # -- a legacy client -------------------------------------------------------------------------------------------------------------------

    def _legacy_client(self, lane: int, f: Frame, now: float) -> Effects:
        """It goes on as it is: a server of both eras is to speak the client's (R88)."""
        if self.eras.legacy is False and self.eras.modern:
            self._hello = Held(lane, f, now)
            return self._bridge_legacy()
        out = self._chosen.frame("client", lane, f.raw, now)
        if self.eras.legacy:
            self._settle(self._chosen)
        elif not any(isinstance(effect, ToClient) for effect in out):
            self.phase, self._hello = "relaying", Held(lane, f, now)
        return out

    def _relayed(self, effect: ToClient, f: Frame, now: float) -> Effects:
        """The server's answer to ``initialize``."""
        if f.kind == "result":
            self.eras = self.eras.and_(Eras(legacy=True))
            self._settle(self._chosen)
            return [effect, *self._replayed()]
        if probing.says_modern(f):
            self.eras = self.eras.and_(Eras(legacy=False, modern=True))
            return self._bridge_legacy()
        if self.eras.modern is False:
            self._settle(self._chosen)
            return [effect, *self._replayed()]
        self._refusal = effect
        self.phase = "probing"
        return self._probe.ask(self._chosen, now)

    def _bridge_legacy(self) -> Effects:
        from samplegate.core.bridge.legacy_client import LegacyClient

        assert self._hello is not None
        hello, out = self._hello, [*self._left(), *self._too_early()]
        self._reset()
        self._settle(LegacyClient(self.state))
        return [*out, *self._chosen.frame("client", hello.lane, hello.frame.raw, hello.now), *self._replayed()]

    def _too_early(self) -> Effects:
        """What the client asked before ``initialize``, in words that its server does not know: nobody else will answer it."""
        early = list(self.state.inflight.asked.values())
        for pending in early:
            self.state.inflight.remove(pending)
        fault = "asked before initialize, in an era that the server does not speak"
        return [ToClient(pending.lane, frames.error(pending.id, shapes.INVALID_REQUEST, fault), True) for pending in early]

    # -- a modern client -------------------------------------------------------------------------------------------------------------------

    def _modern_client(self, lane: int, f: Frame, now: float) -> Effects:
        if self.eras.modern:
            self._settle(self._chosen)
            return self._chosen.frame("client", lane, f.raw, now)
        own = f.method == DISCOVER and isinstance(envelope.read(f), Envelope)
        if not self._waiting.add(lane, f, now):
            return [_full(lane, f)]
        if self.eras.modern is False:
            return self._greet()
        self.phase = "probing"
        return self._probe.ask(self._chosen, now, self._waiting.held[0] if own else None)

    def _probed(self, f: Frame) -> Effects:
        found = probing.finding(f)
        self._found = found.eras
        self._probe.answered()
        if not found.modern:
            return self._no_modern_server()
        self.eras = self.eras.and_(found.eras)
        if self._hello is not None:
            self.eras = self.eras.and_(Eras(legacy=False))
            return self._bridge_legacy()
        self._settle(self._chosen)
        return [*self._probe.clients(f, self._waiting), *self._replayed()]

    def _no_modern_server(self) -> Effects:
        if self._hello is None:
            return self._greet()
        refusal, self._refusal = self._refusal, None
        self._settle(self._chosen)  # the client hears what the server itself had to say, and may try another revision
        return [*([] if refusal is None else [refusal]), *self._replayed()]

    def _greet(self) -> Effects:
        from samplegate.core.bridge.modern_client import ModernClient

        out = [*self._left(), *self._sent_back()]
        self._reset()
        if not self._waiting.held:  # whoever was sent back may begin again, in the server's era
            self.phase, self._chosen = "new", Session(self.state)
            return out
        self.phase, self._chosen = "greeting", ModernClient(self.state)
        return out + self._replayed()

    def _sent_back(self) -> Effects:
        held = [held for held in self._waiting.held if self._is_sent_back(held.lane, held.frame)]
        for one in held:
            assert one.frame.id is not None
            self._waiting.remove(one.lane, one.frame.id)
        return [fallback.refusal(one.lane, one.frame) for one in held]

    def _is_sent_back(self, lane: int, f: Frame) -> bool:
        return f.kind == "request" and f.method == DISCOVER and fallback.is_better(self.state, lane, f)

    def _greeted(self) -> Effects:
        """Whether the bridge has opened the server by now. One that refused may be asked again, from the start."""
        from samplegate.core.bridge.modern_client import ModernClient

        bridge = self._chosen
        assert isinstance(bridge, ModernClient)
        if bridge.ready:
            self.eras = self.eras.and_(Eras(legacy=True, modern=self._found.modern))
            self._settle(bridge)
            self.frame = self._bridged
        elif not bridge.opening:
            out = self._left()
            self._reset()
            self.phase, self._chosen = "new", Session(self.state)
            return out
        return []

    def _found_late(self, line: bytes, now: float) -> Effects | None:
        """The server shows itself modern after all, while a bridge opens it (T21); None for every other line."""
        try:
            f = frames.read(line)
        except Malformed:
            return None
        if f.id is None or f.kind not in ("result", "error"):
            return None
        pending = self.state.inflight.wire.get(f.id)
        late = self._probe.comes_late(f)
        opens = pending is not None and pending.lane == INTERNAL and pending.method == handshake.METHOD
        if not (late and probing.finding(f).modern) and not (opens and probing.says_modern(f)):
            return [] if late else None
        self.eras = self.eras.and_(Eras(modern=True))
        return self._modern_after_all(now)

    def _modern_after_all(self, now: float) -> Effects:
        from samplegate.core.bridge.modern_client import ModernClient

        bridge = self._chosen
        assert isinstance(bridge, ModernClient)
        held = bridge.give_back()
        out = self._left()
        self._reset()
        self._settle(Session(self.state))
        for one in held:
            out += self._chosen.frame("client", one.lane, one.frame.raw, one.now)
        return out

    # -- a client that falls back ----------------------------------------------------------------------------------------------------------

    def _bridged(self, side: Side, lane: int, line: bytes, now: float) -> Effects:
        """Frames through a bridge, which cost a reading anyway: a client on stdio may still fall back to ``initialize`` (T21)."""
        if side == "client" and (b"initialize" in line or b"server/discover" in line):
            try:
                f = frames.read(line)
                if self._is_sent_back(lane, f):
                    return [fallback.refusal(lane, f)]
                if f.kind == "request" and f.method == handshake.METHOD and self._may_begin_again(lane, f):
                    return [*self._begun_again(), *self._first(lane, f, now)]
            except Malformed:
                pass  # the bridge words the refusal
        return self._chosen.frame(side, lane, line, now)

    def _may_begin_again(self, lane: int, f: Frame) -> bool:
        """Whether a client that began as a modern one may begin again as a legacy one: on stdio, with nothing under way but its own probes."""
        from samplegate.core.bridge.modern_client import ModernClient

        if lane != STDIO or self._hello is not None or modern_meta(f) is not None:
            return False
        if isinstance(self._chosen, ModernClient) and self._chosen.ready:
            return self._chosen.idle
        waits = self._chosen.waits if isinstance(self._chosen, ModernClient) else self._waiting.held
        return all(held.frame.method == DISCOVER for held in waits)

    def _begun_again(self) -> Effects:
        from samplegate.core.bridge.modern_client import ModernClient

        held = self._chosen.give_back() if isinstance(self._chosen, ModernClient) else self._waiting.take()
        self._probe.give_up()
        out = self._left()
        self._reset()
        self.phase, self._chosen, self.frame = "new", Session(self.state), self._frame
        fault = "the client has begun another era with initialize"
        return out + [ToClient(one.lane, frames.error(one.frame.id, shapes.INTERNAL, fault), True) for one in held if one.frame.id is not None]

    # -- what is common to all -------------------------------------------------------------------------------------------------------------

    def _settle(self, chosen: Converses) -> None:
        self._chosen, self.phase, self._hello, self._refusal = chosen, "settled", None, None
        self._probe.answered()
        self.frame = chosen.frame

    def _replayed(self) -> Effects:
        """What waited goes to what was chosen, in its order."""
        return [effect for held in self._waiting.take() for effect in self._chosen.frame("client", held.lane, held.frame.raw, held.now)]

    def _left(self) -> Effects:
        """What was chosen before is left: its rounds end, what it asked for itself is nobody's any more, and what clients asked stays asked."""
        state = self.state
        for pending in [pending for pending in state.inflight.asked.values() if pending.lane == INTERNAL]:
            state.inflight.remove(pending)
        outlived, state.outlived = state.outlived, False
        out: Effects = [effect for effect in self._chosen.eof("server") if isinstance(effect, Withdraw)]
        state.outlived = outlived
        return out

    def _reset(self) -> None:
        """The state as before the first frame, but for its numbers."""
        self.state.maps_ids, self.state.revision = self._maps_ids, ""
        self.state.client, self.state.offered = ClientCapabilities(), Offer()


def _request_id(f: Frame) -> FrameId | None:
    raw = jsontext.lookup(f.payload, "requestId")
    return None if raw is None else frames.plain_id(raw)


def _full(lane: int, f: Frame) -> ToClient:
    return ToClient(lane, frames.error(f.id, shapes.INTERNAL, FULL), True)


def _ended(held: Held) -> ToClient:
    return ToClient(held.lane, frames.error(held.frame.id, shapes.INTERNAL, "the server has ended before it answered"), True)
