"""Finds out which era a server speaks and becomes what fits it and the client: a plain session, or the bridge from one era to the other.

Where the server speaks both, its era is matched to the client's (R88). A legacy client's ``initialize`` goes to the server as it is, without a
probe before it: servers on stdio keep to the era of the first request. For a modern client the server is asked ``server/discover`` first (R84).
"""

from __future__ import annotations

from functools import partial
from typing import Final

from samplegate.core import frames, jsontext
from samplegate.core.bridge import fallback
from samplegate.core.bridge.again import Again
from samplegate.core.bridge.choice import Choice, Phase
from samplegate.core.bridge.conversing import TakesFrames
from samplegate.core.bridge.discovering import Discovering
from samplegate.core.bridge.probing import Eras
from samplegate.core.bridge.relaying import Relaying
from samplegate.core.bridge.waiting import Held, full
from samplegate.core.eras import Protocol
from samplegate.core.frames import Frame, FrameId
from samplegate.core.jsontext import Malformed
from samplegate.core.session import batches, handshake, shapes
from samplegate.core.session.declarations import modern_meta
from samplegate.core.session.inflight import OpenCall
from samplegate.core.session.rounds import Conclusion, Effect, Note, Over, Side, ToClient
from samplegate.core.session.state import INTERNAL, State

Effects = list[Effect]
PATIENCE: Final = 5.0  # seconds for an answer to server/discover; a server that is only slow is found out by its answer to initialize


class Opening:
    """One server and its clients, from the first frame on; it has the methods of ``Session``.

    ``frame`` is replaced by that of the object chosen, so that frames pass without it once all is decided: look it up anew for each frame.
    """

    def __init__(
        self,
        state: State,
        known: Eras | None = None,
        patience: float = PATIENCE,
        *,
        protocol: Protocol = "auto",
        prefers_legacy: bool = False,
    ) -> None:
        """``protocol``: what the settings say of the server; ``prefers_legacy``: what earlier connections have shown of it (``Evidence``)."""
        self.frame: TakesFrames = self._frame
        self.died_probing = False
        """Whether the server ended while it was asked which eras it speaks: some do, at a request that they do not know."""
        self._choice = Choice(state, known, patience, self._taken_by, protocol=protocol, prefers_legacy=prefers_legacy)
        self._again = Again(self._choice, self._begun_again)
        self._relaying = Relaying(self._choice)
        self._discovering = Discovering(self._choice, self._relaying, self._again)

    def _taken_by(self, takes: TakesFrames) -> None:
        self.frame = takes

    @property
    def state(self) -> State:
        """What the parts of the session share."""
        return self._choice.state

    @property
    def eras(self) -> Eras:
        """What is known of the server, to be kept for its next conversation."""
        return self._choice.eras

    @property
    def phase(self) -> Phase:
        """How far it is found out."""
        return self._choice.phase

    # -- the methods of a session, but for ``frame`` ---------------------------------------------------------------------------------------

    def lost(self, side: Side, lane: int, head: bytes, fault: str) -> Effects:
        """A line could not be taken at all."""
        effects = self._choice.chosen.lost(side, lane, head, fault)
        return self._watched(effects, 0.0) if side == "server" else effects

    def lost_end(self, side: Side, lane: int, head: bytes, tail: bytes) -> Effects:
        """The end of a line whose begin did not tell who would wait."""
        effects = self._choice.chosen.lost_end(side, lane, head, tail)
        return self._watched(effects, 0.0) if side == "server" else effects

    def round_done(self, round: str, conclusion: Conclusion, now: float) -> Effects:
        """The gate is done with a round."""
        return self._choice.chosen.round_done(round, conclusion, now)

    def forward(self, round: str) -> Effects:
        """Send a pushed request on to the client."""
        return self._choice.chosen.forward(round)

    def unforward(self, round: str, reason: str) -> Effects:
        """The gate no longer waits for that reply."""
        return self._choice.chosen.unforward(round, reason)

    def round_progress(self, round: str, tokens: int = 0) -> Effects:
        """A round is still being worked on."""
        return self._choice.chosen.round_progress(round, tokens)

    def due(self, token: str) -> Effects:
        """The time of a ``Later`` has come."""
        if not self._choice.probe.is_due(token):
            return self._choice.chosen.due(token)
        self._choice.probe.give_up()
        return self._discovering.not_modern()

    def open_calls(self) -> list[OpenCall]:
        """The clients' requests that have no answer yet."""
        hello = self._choice.hello if self.phase == "probing" else None  # in every other phase it is with the server
        first = [] if hello is None or hello.frame.id is None else [OpenCall(hello.lane, hello.frame.id, hello.frame.method)]
        return [*first, *self._choice.chosen.open_calls(), *self._choice.waiting.open_calls()]

    def questions(self) -> list[FrameId]:
        """The ids of the requests that wait for a client's answer."""
        return self._choice.chosen.questions()

    def overdue(self, now: float, seconds: float) -> Effects:
        """Requests that the server has not answered in so many seconds end with an error."""
        return self._watched(self._choice.chosen.overdue(now, seconds), now)

    def lane_closed(self, side: Side, lane: int) -> Effects:
        """A lane is gone."""
        if side == "client" and self._choice.hello is None:  # a legacy client's requests go on (T35)
            self._choice.waiting.lane_closed(lane)
        return self._choice.chosen.lane_closed(side, lane)

    def undelivered(self, id: FrameId) -> Effects:
        """The client has no stream for a request to it."""
        return self._choice.chosen.undelivered(id)

    def eof(self, side: Side) -> Effects:
        """A side has gone for good. What a legacy client wrote without waiting for the server goes to it before."""
        if side == "client":
            out = self._choice.replayed() if self.phase == "relaying" else []
            self._choice.settle(self._choice.chosen)
            return out + self._choice.chosen.eof(side)
        self.died_probing = self.phase == "probing"
        out = [] if self._choice.refusal is None else [self._choice.refusal]
        out += [effect for effect in self._choice.chosen.eof(side) if not isinstance(effect, ToClient) or effect.lane != INTERNAL]
        out += [self._ended(held) for held in self._choice.waiting.take() if held.frame.kind == "request"]
        self._choice.settle(self._choice.chosen)
        return out

    # -- frames, until all is decided ------------------------------------------------------------------------------------------------------

    def _frame(self, side: Side, lane: int, line: bytes | Frame, now: float) -> Effects:
        if side == "server":
            return self._server(lane, line, now)
        if self.phase == "calling":
            return self._discovering.meanwhile(lane, line, now)
        try:
            line = f = frames.of(line)
            return self._first(lane, f, now) if self.phase == "new" else self._meanwhile(lane, f, now)
        except Malformed as problem:
            return self._unreadable(lane, line, problem, now)

    def _unreadable(self, lane: int, line: bytes | Frame, problem: Malformed, now: float) -> Effects:
        """A batch that is written before ``initialize`` is answered waits as its elements (R92)."""
        hello = self._choice.hello
        found: list[bytes] | Malformed = problem
        if hello is not None and isinstance(line, bytes):
            found = batches.elements(line, problem, jsontext.string(hello.frame.lookup("protocolVersion")) or "")
        if isinstance(found, Malformed):
            return self._choice.chosen.frame("client", lane, line, now)  # it words the refusal
        out: Effects = []
        for element in found:
            if batches.is_nested(element):
                out += batches.refused("client", element, batches.NESTED, partial(_refused, lane))
            else:
                out += self.frame("client", lane, element, now)
        return out

    def _begun_again(self, lane: int, f: Frame, now: float) -> Effects:
        self.frame = self._frame
        return self._first(lane, f, now)

    def _first(self, lane: int, f: Frame, now: float) -> Effects:
        if f.kind == "request" and modern_meta(f) is not None:
            return self._discovering.begin(lane, f, now)
        if f.kind == "request" and (f.method == handshake.METHOD or self._choice.protocol == "modern"):
            return self._relaying.begin(lane, f, now)
        return self._choice.chosen.frame("client", lane, f, now)

    def _meanwhile(self, lane: int, f: Frame, now: float) -> Effects:
        """A client's frame while the server is being found out."""
        if self._again.is_meant(lane, f):
            return self._again.begin(lane, f, now)
        if self.phase == "greeting" and self._choice.is_sent_back(lane, f):
            return [fallback.refusal(lane, f)]
        if self.phase == "greeting" or f.kind in ("result", "error"):
            return self._choice.chosen.frame("client", lane, f, now)
        if f.method == "notifications/cancelled" and (id := _request_id(f)) is not None and self._choice.waiting.remove(lane, id):
            return [Over(lane)]
        if f.kind == "request" and f.id is not None and self._choice.waiting.has(lane, f.id):
            return [ToClient(lane, frames.error(f.id, shapes.INVALID_REQUEST, "a request with this id is in flight"), True)]
        if self._choice.waiting.add(lane, f, now):
            return []
        if f.kind != "request" or f.id is None:
            return [Note("frame.unasked", {"side": "client"})]
        return [full(lane, f)]

    def _server(self, lane: int, line: bytes | Frame, now: float) -> Effects:
        if self.phase == "greeting":
            found = self._discovering.found_late(line)
            if found is not None:
                return found
        return self._watched(self._choice.chosen.frame("server", lane, line, now), now)

    def _ended(self, held: Held) -> ToClient:
        return ToClient(held.lane, frames.error(held.frame.id, shapes.INTERNAL, self.state.ended_because), True)

    def _watched(self, effects: Effects, now: float) -> Effects:
        """What the server said, but for what decides its era."""
        if self.phase == "greeting":
            return effects + self._discovering.greeted()
        if self.phase == "calling":
            others = [effect for effect in effects if not isinstance(effect, ToClient) or effect.lane != INTERNAL]
            if len(others) < len(effects):
                self._discovering.lives()
            return others
        if self.phase not in ("relaying", "probing"):
            return effects
        out: Effects = []
        for effect in effects:
            f = (effect.frame or frames.read(effect.line)) if isinstance(effect, ToClient) else None
            if not isinstance(effect, ToClient) or f is None or f.kind in ("request", "notification"):
                out.append(effect)
            elif self.phase == "probing" and effect.lane == INTERNAL:
                out += self._discovering.answered(f)
            elif self._relaying.answers(effect.lane, f):
                out += self._relaying.answered(effect, f, now)
            elif effect.lane != INTERNAL:
                out.append(effect)
        return out


def _refused(lane: int, problem: Malformed) -> Effects:
    line = frames.error(problem.id, shapes.INVALID_REQUEST, f"refused: {problem.fault}")
    return [] if problem.answers else [ToClient(lane, line, True)]  # before the handshake is over, no answer is for anybody


def _request_id(f: Frame) -> FrameId | None:
    raw = f.lookup("requestId")
    return None if raw is None else frames.plain_id(raw)
