"""The state of one server connection with its client: frames in, effects out. No clock, no await, no I/O: every interleaving is a test case.

Not a policy: what to do with a request is the gate's, between ``Open`` and ``round_done``. Frames that are not ours leave as they came (R109);
where an id, a capability or a state must change only that is spliced. The doors: ``pushes.py``, ``exchange.py`` (modern), ``urlerrors.py``.
"""

from __future__ import annotations

from typing import Final

from samplegate.core import frames, jsontext
from samplegate.core.eras import META, has_batches
from samplegate.core.frames import Frame, FrameId
from samplegate.core.jsontext import Malformed
from samplegate.core.session import doors, handshake, shapes
from samplegate.core.session.declarations import modern_meta
from samplegate.core.session.exchange import Exchange
from samplegate.core.session.handshake import Handshake
from samplegate.core.session.inflight import Pending, call_and_token, trace_of
from samplegate.core.session.progress import Progress
from samplegate.core.session.pushes import Pushes
from samplegate.core.session.rounds import Close, Conclusion, Effect, ForwardRound, Note, Over, Side, ToClient, ToServer, Withdraw
from samplegate.core.session.routing import Routes, unmapped
from samplegate.core.session.state import SERVER_LANE, State
from samplegate.core.session.urlerrors import UrlErrors

Effects = list[Effect]
INTERNAL: Final = -1  # the lane of what the gate itself asks of a server
MAX_BATCH: Final = 1000  # elements; each is gated and answered on its own
_INPUT_REQUIRED: Final = doors.INPUT_REQUIRED.encode()
MAX_PASSED: Final = 10_000  # the server's other requests that wait for the client


class Session:
    """One server connection, with one lane a side on stdio and one a stream on HTTP."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.progress = Progress(state.inflight)
        self.routes = Routes(state, self.progress)
        self.pushes = Pushes(state)
        self.exchange = Exchange(state)
        self.url_errors = UrlErrors(state)
        self.handshake = Handshake(state)
        self._modern_seen = False
        self._passed: set[FrameId] = set()

    def frame(self, side: Side, lane: int, line: bytes, now: float) -> Effects:
        """One line from a side. Never raises for what a peer wrote."""
        try:
            parsed = frames.read(line)
        except Malformed as problem:
            return self._unreadable(side, lane, line, problem, now)
        try:
            return self._client(lane, parsed, now) if side == "client" else self._server(lane, parsed, now)
        except Malformed as problem:
            return self._refused(side, lane, Malformed(problem.fault, parsed.id, answers=parsed.kind in ("result", "error")))

    def lost(self, side: Side, lane: int, head: bytes, fault: str) -> Effects:
        """A line could not be taken at all; ``head`` is its begin, which mostly tells who would wait for an answer. The shell has logged it."""
        effects = self._refused(side, lane, Malformed(fault, **frames.whose(head)), code=shapes.INTERNAL)
        return [effect for effect in effects if not isinstance(effect, Note)]

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

    def lane_closed(self, side: Side, lane: int) -> Effects:
        """A lane is gone: a disconnect is a cancel in the modern era and not in the legacy ones (T35)."""
        if lane not in self.state.inflight.lanes:
            return []
        gone = [p for p in self.state.inflight.asked.values() if p.lane == lane and p.modern] if side == "client" else []
        return [effect for pending in gone for effect in self._cancel(pending, None)]

    def eof(self, side: Side) -> Effects:
        """A side has gone for good: nothing is owed to anybody any more."""
        rounds = [*self.pushes.open, *self.url_errors.open, *self.exchange.open, *self.exchange.unasked.open]
        told = self._server_ended() if side == "server" and self.state.outlived else []
        self.pushes = Pushes(self.state)
        self.exchange = Exchange(self.state)
        self.url_errors = UrlErrors(self.state)
        return [*(Withdraw(id) for id in rounds), *([Close(SERVER_LANE)] if side == "client" else told)]

    def _server_ended(self) -> Effects:
        """Whoever waits for the server is told that it is gone: a call of which nobody knows how far it came is not made again by us."""
        waiting = list(self.state.inflight.asked.values())
        for pending in waiting:
            self.state.inflight.remove(pending)
        return [ToClient(p.lane, frames.error(p.id, shapes.INTERNAL, "the server has ended before it answered"), True) for p in waiting]

    # -- lines that are not taken ----------------------------------------------------------------------------------------------------------

    def _unreadable(self, side: Side, lane: int, line: bytes, problem: Malformed, now: float) -> Effects:
        if not frames.is_batch(line):
            return self._refused(side, lane, problem)
        if not self.state.revision or not has_batches(self.state.revision):
            return self._refused(side, lane, Malformed("it is a batch, which this revision does not have"))
        try:
            elements = frames.batch(line)
        except Malformed as worse:
            return self._refused(side, lane, worse)
        if not 0 < len(elements) <= MAX_BATCH:
            return self._refused(side, lane, Malformed(f"it is a batch of {len(elements)}, not of 1 to {MAX_BATCH}"))
        out: Effects = []
        for element in elements:
            if element[:1] == b"[":
                out += self._refused(side, lane, Malformed("it is a batch in a batch"))
            else:
                out += self.frame(side, lane, element.replace(b"\n", b" ").replace(b"\r", b" "), now)
        return out

    def _refused(self, side: Side, lane: int, problem: Malformed, code: int = shapes.INVALID_REQUEST) -> Effects:
        """Log that something came, and tell whoever would otherwise wait for ever."""
        out: Effects = [Note("frame.refused", {"side": side, "fault": problem.fault})]
        if problem.id is None:
            return out
        if side == "client":
            return (
                [*out, *self._unreadable_answer(problem.id)]
                if problem.answers
                else [*out, ToClient(lane, frames.error(problem.id, code, f"refused: {problem.fault}"), True)]
            )
        if not problem.answers:
            return [*out, ToServer(SERVER_LANE, frames.error(problem.id, code, f"refused: {problem.fault}"))]
        pending = self.state.inflight.wire.get(problem.id)
        if pending is None or pending.round is not None:  # answered already: its round is what counts
            return out
        self.state.inflight.remove(pending)
        line = frames.error(pending.id, shapes.INTERNAL, f"the server's answer was refused: {problem.fault}")
        return [*out, ToClient(pending.lane, line, True)]

    def _unreadable_answer(self, id: FrameId) -> Effects:
        """The client answered in a way that cannot be read: whoever asked is told, and does not wait for ever."""
        fault = jsontext.dump({"code": shapes.INTERNAL, "message": "the client's answer could not be read"})
        out = self.pushes.replied(id, False, fault)
        if out is not None or id not in self._passed:
            return out or []
        self._passed.discard(id)
        return [ToServer(SERVER_LANE, frames.error(id, shapes.INTERNAL, "the client's answer could not be read"))]

    # -- from the client -------------------------------------------------------------------------------------------------------------------

    def _client(self, lane: int, f: Frame, now: float) -> Effects:
        if f.kind == "request":
            return self._client_request(lane, f, now)
        if f.kind == "notification":
            return self._client_cancels(lane, f) if f.method == "notifications/cancelled" else [ToServer(SERVER_LANE, f.raw)]
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
        pending = Pending(lane, f.id, f.id, f.method, now, *call_and_token(f, modern=False), caller=self.state.caller_on(lane))
        pending.trace = trace_of(f.raw, f.payload) or self.state.traces.get(lane, "")
        token = self.state.own_token(pending)
        return self.state.send(pending, f.raw if token is None else jsontext.splice(f.raw, ("params", META, "progressToken"), token))

    def _client_answers(self, f: Frame) -> Effects:
        """An answer to the server's request, or to one that we forwarded. What nobody asked is no answer: it passed no policy (T3)."""
        if f.id is None:
            return [Note("frame.unasked", {"side": "client"})]
        out = self.pushes.replied(f.id, f.kind == "result", f.payload or b"null")
        if out is not None:
            return out
        if f.id not in self._passed:
            return [Note("frame.unasked", {"side": "client"})]
        self._passed.discard(f.id)
        return [ToServer(SERVER_LANE, f.raw)]

    def _client_cancels(self, lane: int, f: Frame) -> Effects:
        id = _request_id(f)
        pending = None if id is None else self._meant(lane, id)
        if pending is None:
            return [Note("cancel.unmatched", {"side": "client"}, warn=False)]
        return [] if pending.method == handshake.METHOD else self._cancel(pending, f)  # R99: initialize is never cancelled

    def _meant(self, lane: int, id: FrameId) -> Pending | None:
        """The request that a client names: of its lane; where it has but one session of ids, of any (over HTTP a cancel comes by itself)."""
        inflight = self.state.inflight
        pending = inflight.asked.get((lane, id))
        if pending is not None or self.state.maps_ids or not self.state.revision:
            return pending
        return next((one for one in inflight.asked.values() if one.id == id and not one.modern and one.lane != INTERNAL), None)

    def _cancel(self, pending: Pending, f: Frame | None) -> Effects:
        """The client takes a call back: its rounds are withdrawn, and the server is told under the id that it knows (R100)."""
        return [*self._taken_back(pending, f), Over(pending.lane)]

    def _taken_back(self, pending: Pending, f: Frame | None) -> Effects:
        out = self.pushes.call_gone(pending)
        held = self.exchange.cancelled(pending) if pending.modern else None
        if held is None and pending.round is not None:
            held = self.url_errors.cancelled(pending.round) or self.exchange.unasked.cancelled(pending.round)
        self.state.inflight.remove(pending)
        if held is not None:
            return out + held  # the server has answered already: nothing of it is in flight there
        if pending.modern and self.state.streams:
            return [*out, Close(pending.number)]
        if f is not None and pending.wire_id == pending.id:
            return [*out, ToServer(SERVER_LANE, f.raw)]
        params = jsontext.splice(b"{}" if f is None or f.payload is None else f.payload, ("requestId",), jsontext.dump(pending.wire_id))
        return [*out, ToServer(SERVER_LANE, frames.notification("notifications/cancelled", params))]

    # -- from the server -------------------------------------------------------------------------------------------------------------------

    def _server(self, lane: int, f: Frame, now: float) -> Effects:
        if f.kind == "request":
            return self._server_request(lane, f, now)
        if f.kind == "notification":
            return self._server_notifies(lane, f)
        if f.id is None:  # an error that names no request: for whoever reads it
            url_error = f.payload is not None and doors.is_url_error(f.payload)
            if url_error or self.state.maps_ids:
                return [Note("frame.refused", {"side": "server", "fault": "URLs for no request" if url_error else "an error for no request"})]
            return [ToClient(0, f.raw)]
        pending = self.state.inflight.wire.get(f.id)
        if pending is None or pending.round is not None:
            return [Note("frame.unasked", {"side": "server"})]
        return self._server_answers(pending, f)

    def _server_answers(self, pending: Pending, f: Frame) -> Effects:
        held: Effects | None = None
        if f.kind == "error":
            held = self.url_errors.arrive(pending, f)
        elif pending.modern:
            held = self.exchange.answered(pending, f)
        elif doors.may_say(f.raw, _INPUT_REQUIRED) and doors.result_type(f.payload or b"") == doors.INPUT_REQUIRED:
            raise Malformed("it asks for input in an era that has no such result")
        elif pending.method == handshake.METHOD:
            self.handshake.answered(f)
        if held is not None:
            return held
        self.state.inflight.remove(pending)
        return [ToClient(pending.lane, unmapped(pending, f.raw), True)]

    def _server_request(self, lane: int, f: Frame, now: float) -> Effects:
        assert f.id is not None
        if f.id in self._passed or self.pushes.asks(f.id) or self.state.is_ours(f.id):
            return [Note("frame.refused", {"side": "server", "fault": "a request with its id is in flight"}), _duplicate(f.id)]
        if not self.state.revision and self._modern_seen:
            return [Note("frame.refused", {"side": "server", "fault": "a server writes no requests in the modern era"})]  # R89
        if f.method in doors.KINDS:
            return self.pushes.arrive(f, now, lane)
        if len(self._passed) >= MAX_PASSED:
            return [ToServer(SERVER_LANE, frames.error(f.id, shapes.INVALID_REQUEST, f"refused: {MAX_PASSED} requests wait for the client already"))]
        self._passed.add(f.id)
        return [ToClient(self.routes.request(lane), f.raw)]

    def _server_notifies(self, lane: int, f: Frame) -> Effects:
        if f.method == "notifications/cancelled":
            return self._server_cancels(lane, f)
        if f.method in doors.KINDS:
            return [Note("frame.refused", {"side": "server", "fault": "a request without an id"})]
        tasks = f.method.startswith("notifications/tasks") and not self.state.revision
        if tasks or f.method == "notifications/tasks":  # in the legacy eras it is notifications/tasks/status, which asks nothing
            return [Note("frame.refused", {"side": "server", "fault": "tasks were not offered to it"})]  # R108
        return self.routes.notification(lane, f)

    def _server_cancels(self, lane: int, f: Frame) -> Effects:
        """The server takes back its own request, or ends a listen of the client's (R99)."""
        id = _request_id(f)
        if id is None:
            return [Note("cancel.unmatched", {"side": "server"}, warn=False)]
        out = self.pushes.cancelled_by_server(id)
        if out is not None:
            return out
        if id in self._passed:
            self._passed.discard(id)
            return [ToClient(self.routes.request(lane), f.raw)]
        pending = self.state.inflight.wire.get(id)
        if pending is None:
            return [Note("cancel.unmatched", {"side": "server"}, warn=False)]
        ends = pending.method == "subscriptions/listen"
        if ends:
            self.state.inflight.remove(pending)  # its end: the only request of the client's that a server takes back
        line = f.raw if pending.id == pending.wire_id else jsontext.splice(f.raw, ("params", "requestId"), jsontext.dump(pending.id))
        return [ToClient(pending.lane, line, ends)]


def _request_id(f: Frame) -> FrameId | None:
    raw = jsontext.lookup(f.payload, "requestId")
    return None if raw is None else frames.plain_id(raw)


def _duplicate(id: FrameId) -> Effect:
    return ToServer(SERVER_LANE, frames.error(id, shapes.INVALID_REQUEST, "a request with this id is in flight"))
