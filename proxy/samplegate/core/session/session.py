"""The state of one server connection with its client: frames in, effects out. No clock, no await, no I/O: every interleaving is a test case.

Not a policy: what to do with a request is the gate's, between ``Open`` and ``round_done``. Frames that are not ours leave as they came (R109);
where an id, a capability or a state must change only that is spliced. The doors: ``pushes.py``, ``exchange.py`` (modern), ``urlerrors.py``.
"""

from __future__ import annotations

from samplegate.core import frames
from samplegate.core.eras import META
from samplegate.core.frames import Frame, FrameId
from samplegate.core.jsontext import Malformed
from samplegate.core.patience import PARKS
from samplegate.core.session import batches, cancelling, doors, handshake, shapes
from samplegate.core.session.cancelling import Cancelling
from samplegate.core.session.declarations import modern_meta
from samplegate.core.session.exchange import Exchange
from samplegate.core.session.handshake import Handshake
from samplegate.core.session.inflight import OpenCall, Pending, call_and_token, kept, trace_of
from samplegate.core.session.passed import Passed
from samplegate.core.session.progress import Progress
from samplegate.core.session.pushes import Pushes
from samplegate.core.session.refusing import Refusing, undelivered
from samplegate.core.session.rounds import Close, Conclusion, Effect, Effects, ForwardRound, Note, Side, ToClient, ToServer, Withdraw
from samplegate.core.session.routing import Routes, unmapped
from samplegate.core.session.state import SERVER_LANE, State
from samplegate.core.session.urlerrors import UrlErrors
from samplegate.core.session.witness import Witness


class Session:
    """One server connection, with one lane a side on stdio and one a stream on HTTP."""

    def __init__(self, state: State, *, parks: int = PARKS) -> None:
        """``parks``: how often a modern call may be put off; 0 where the client behind waits on one call all along."""
        self.state = state
        self.progress = Progress(state.inflight)
        self.routes = Routes(state, self.progress)
        self.pushes = Pushes(state)
        self._witness = Witness(state)
        self.exchange = Exchange(state, self._witness, parks)
        self.url_errors = UrlErrors(state)
        self.handshake = Handshake(state)
        self.passed = Passed()
        self._refusing = Refusing(state, self.pushes, self.passed)
        self._cancelling = Cancelling(state, self.routes, self.pushes, self.exchange, self.url_errors, self.passed)
        self._modern_seen = False

    def frame(self, side: Side, lane: int, line: bytes | Frame, now: float) -> Effects:
        """One line from a side, or the frame that it was read as. Never raises for what a peer wrote."""
        try:
            parsed = line if isinstance(line, Frame) else frames.read(line)
        except Malformed as problem:
            assert not isinstance(line, Frame)
            return self._unreadable(side, lane, line, problem, now)
        try:
            return self._client(lane, parsed, now) if side == "client" else self._server(lane, parsed, now)
        except Malformed as problem:
            return self._refusing.refused(side, lane, Malformed(problem.fault, parsed.id, answers=parsed.kind in ("result", "error")))

    def _unreadable(self, side: Side, lane: int, line: bytes, problem: Malformed, now: float) -> Effects:
        found = batches.elements(line, problem, self.handshake.revision)
        if isinstance(found, Malformed):
            return self._refusing.unreadable(side, lane, line, found)
        out: Effects = []
        for element in found:
            nested = batches.is_nested(element)
            out += self._refusing.unreadable(side, lane, element, batches.NESTED) if nested else self.frame(side, lane, element, now)
        return out

    def lost(self, side: Side, lane: int, head: bytes, fault: str) -> Effects:
        """A line could not be taken at all; ``head`` is its begin, which mostly tells who would wait for an answer. The shell has logged it."""
        return self._refusing.lost(side, lane, head, fault)

    def lost_end(self, side: Side, lane: int, head: bytes, tail: bytes) -> Effects:
        """The end of a line whose begin did not tell who would wait."""
        return [] if "id" in frames.whose(head) else self.lost(side, lane, head + tail, "it is longer than a line may be")

    def round_done(self, round: str, conclusion: Conclusion, now: float) -> Effects:
        """The gate is done with a round; one that was withdrawn meanwhile is nobody's any more."""
        if isinstance(conclusion, ForwardRound):
            return self.exchange.hand_on(conclusion, round, now) if round in self.exchange.open else []
        if round in self.exchange.open:
            return self.exchange.settle(conclusion, round)
        for door in (self.url_errors, self.exchange.unasked):
            if round in door.open:
                return door.settle(conclusion, round)
        return self.pushes.settle(conclusion, round)

    def forward(self, round: str) -> Effects:
        """Send a pushed request on to the client; its reply comes as ``Reply``."""
        return self.pushes.forward(round)

    def unforward(self, round: str, reason: str) -> Effects:
        """The gate no longer waits for that reply."""
        return self.pushes.unforward(round, reason)

    def round_progress(self, round: str, tokens: int = 0) -> Effects:
        """A round is still being worked on, its model has written so many tokens: progress on the tokens that the peers gave (R101)."""
        found = self.pushes.beat(round, tokens)
        if found is None:
            asked = self.exchange.open.get(round)
            line = None if asked is None else self.progress.beat(asked.pending)
            return [] if asked is None or line is None else [ToClient(asked.pending.lane, line)]
        push, out = found
        for pending in self.state.inflight.still(push.calls):
            line = self.progress.beat(pending)
            if line is not None:
                out.append(ToClient(pending.lane, line))
        return out

    def due(self, token: str) -> Effects:
        """The time of a ``Later`` has come."""
        return self.exchange.due(token)

    def open_calls(self) -> list[OpenCall]:
        """The client's requests that have no answer yet."""
        return self.state.inflight.open_calls()

    def questions(self) -> list[FrameId]:
        """The ids of the requests that wait for the client's answer."""
        return [*self.pushes.sent(), *self.passed.open]

    def overdue(self, now: float, seconds: float) -> Effects:
        """Requests that the server has not answered in so many seconds end with an error and are cancelled at the server (R102)."""
        return self._cancelling.overdue(now, seconds)

    def lane_closed(self, side: Side, lane: int) -> Effects:
        """A lane is gone: a disconnect is a cancel in the modern era and not in the legacy ones (T35)."""
        if lane not in self.state.inflight.lanes:
            return []
        gone = [p for p in self.state.inflight.asked.values() if p.lane == lane and p.modern] if side == "client" else []
        return [effect for pending in gone for effect in self._cancelling.call(pending, None)]

    def undelivered(self, id: FrameId) -> Effects:
        """The client has no stream for a request to it, and has had none for a while: no answer to it will come."""
        why = (
            "the client has ended its input and cannot be asked" if self.state.silent else "the client has no open stream on which it could be asked"
        )
        out = self._refusing.no_answer(id, why, delivered=False)
        return [undelivered(self.state.server), *out] if out else []

    def eof(self, side: Side) -> Effects:
        """A side has gone for good: nothing is owed to anybody any more."""
        told = self._server_ended() if side == "server" and self.state.outlived else []
        rounds = [*self.pushes.end(), *self.url_errors.end(), *self.exchange.end()]
        return [*(Withdraw(id) for id in rounds), *([Close(SERVER_LANE)] if side == "client" else told)]

    def _server_ended(self) -> Effects:
        """Whoever waits for the server is told that it is gone: a call of which nobody knows how far it came is not made again by us."""
        waiting = list(self.state.inflight.asked.values())
        for pending in waiting:
            self.state.inflight.remove(pending)
        return [ToClient(p.lane, frames.error(p.id, shapes.INTERNAL, self.state.ended_because), True) for p in waiting]

    # -- from the client -------------------------------------------------------------------------------------------------------------------

    def _client(self, lane: int, f: Frame, now: float) -> Effects:
        if f.kind == "request":
            return self._client_request(lane, f, now)
        if f.kind == "notification":
            return self._cancelling.by_client(lane, f) if f.method == cancelling.METHOD else [ToServer(SERVER_LANE, f.raw, f)]
        return self._client_answers(f)

    def _client_request(self, lane: int, f: Frame, now: float) -> Effects:
        assert f.id is not None
        if (lane, f.id) in self.state.inflight.asked or self.state.is_ours(f.id):
            return [ToClient(lane, frames.error(f.id, shapes.INVALID_REQUEST, "a request with this id is in flight"), True)]
        if f.method == handshake.METHOD:
            return self.handshake.request(lane, f, now)
        meta = modern_meta(f)
        if meta is not None:
            self._modern_seen = True
            return self.exchange.request(lane, f, meta, now)
        call, token = call_and_token(f, modern=False)
        pending = Pending(lane, f.id, f.id, f.method, now, call, token, caller=self.state.caller_on(lane), frame=kept(f, call))
        if pending.frame is not None:
            pending.size += 2 * len(f.raw)  # its params may be read out of it
        pending.trace = trace_of(f) or self.state.traces.get(lane, "")
        own_token = self.state.own_token(pending)
        if own_token is None:
            return self.state.send(pending, f)
        return self.state.send(pending, f, f.object.changed({META: bytes(f.meta.changed({"progressToken": own_token}).text)}))

    def _client_answers(self, f: Frame) -> Effects:
        """An answer to the server's request, or to one that we forwarded. What nobody asked is no answer: it passed no policy (T3)."""
        if f.id is None:
            return [Note("frame.unasked", {"side": "client"})]
        out = self.pushes.replied(f.id, f.kind == "result", f.payload or b"null")
        if out is not None:
            return out
        return [ToServer(SERVER_LANE, f.raw, f)] if self.passed.over(f.id) is not None else [Note("frame.unasked", {"side": "client"})]

    # -- from the server -------------------------------------------------------------------------------------------------------------------

    def _server(self, lane: int, f: Frame, now: float) -> Effects:
        if f.kind == "request":
            return self._server_request(lane, f, now)
        if f.kind == "notification":
            return self._server_notifies(lane, f)
        if f.id is None:  # an error that names no request: for whoever reads it
            url_error = f.code == doors.URL_ELICITATION_REQUIRED
            if url_error or self.state.maps_ids:
                return [Note("frame.refused", {"side": "server", "fault": "URLs for no request" if url_error else "an error for no request"})]
            return [ToClient(0, f.raw)]
        pending = self.state.inflight.wire.get(f.id)
        if pending is None or pending.round is not None:
            return [Note("frame.unasked", {"side": "server"})]
        self.state.answered = True
        seen, out = self._witness.answered(pending, f), self._server_answers(pending, f)
        return seen + out if seen else out

    def _server_answers(self, pending: Pending, f: Frame) -> Effects:
        held: Effects | None = None
        if f.kind == "error":
            held = self.url_errors.arrive(pending, f)
        elif pending.modern:
            held = self.exchange.answered(pending, f)
        elif not doors.has_no_type(f.raw) and doors.result_type(f.object) == doors.INPUT_REQUIRED:
            raise Malformed("it asks for input in an era that has no such result")
        elif pending.method == handshake.METHOD:
            self.handshake.answered(f)
        if held is not None:
            return held
        self.state.inflight.remove(pending)
        f = unmapped(pending, f)
        return [ToClient(pending.lane, f.raw, True, frame=f)]

    def _server_request(self, lane: int, f: Frame, now: float) -> Effects:
        assert f.id is not None
        if f.id in self.passed.open or self.pushes.asks(f.id) or self.state.is_ours(f.id):
            return [Note("frame.refused", {"side": "server", "fault": "a request with its id is in flight"}), _duplicate(f.id)]
        if not self.state.revision and self._modern_seen:
            refused = Note("frame.refused", {"side": "server", "fault": "a server writes no requests in the modern era"})  # R89
            return [refused, *self._witness.wrote(f)]
        if f.method in doors.KINDS:
            return self.pushes.arrive(f, now, lane)
        if doors.resembles_a_kind(f.method):
            refused = Note("frame.refused", {"side": "server", "fault": "its method resembles one of the protocol"})
            return [refused, ToServer(SERVER_LANE, frames.error(f.id, shapes.METHOD_NOT_FOUND, "the method resembles one of the protocol"))]
        return self.passed.arrive(f, self.routes.request(lane))

    def _server_notifies(self, lane: int, f: Frame) -> Effects:
        if f.method == cancelling.METHOD:
            return self._cancelling.by_server(lane, f)
        if f.method in doors.KINDS:
            return [Note("frame.refused", {"side": "server", "fault": "a request without an id"})]
        tasks = f.method.startswith("notifications/tasks") and not self.state.revision
        if tasks or f.method == "notifications/tasks":  # in the legacy eras it is notifications/tasks/status, which asks nothing
            return [Note("frame.refused", {"side": "server", "fault": "tasks were not offered to it"})]  # R108
        return self.routes.notification(lane, f)


def _duplicate(id: FrameId) -> Effect:
    return ToServer(SERVER_LANE, frames.error(id, shapes.INVALID_REQUEST, "a request with this id is in flight"))
