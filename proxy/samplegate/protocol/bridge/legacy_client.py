"""Pure. A legacy client before a modern-only server: what looks like a session, with a session of the modern era inside
that has the server.

Frames of the client go in as a modern client would have written them; what comes out for it is said again in its own
words. Decides nothing: every door, answer and limit is the inner session's. Questions that its policy forwards become
requests to the client (``legacy_rounds.py``).
"""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec

from samplegate.protocol import frames, rawjson, results, server_requests, strictjson
from samplegate.protocol.bridge import translation
from samplegate.protocol.bridge.calls import MAX_CALLS, Action, BridgedCall, BridgeIO, Calls
from samplegate.protocol.bridge.legacy_rounds import ForwardedRound
from samplegate.protocol.bridge.subscriptions import Listening
from samplegate.protocol.bridge.translation import LEVELS, REMOVED, Stamp, revision_for, stamp_of, welcome, without_meta
from samplegate.protocol.frames import CALLS, Frame, FrameId
from samplegate.protocol.rawjson import Malformed
from samplegate.protocol.rounds import Conclusion, Effects, ForwardRound, Later, Note, Over, Side, ToClient
from samplegate.protocol.session import (
    NESTED_BATCH,
    Session,
    batch_elements,
    is_nested_batch,
    refused_line,
    undelivered,
)
from samplegate.protocol.session_state import (
    ANSWERS,
    CANCELLED,
    DISCOVER,
    INTERNAL,
    LISTEN,
    META_SUBSCRIPTION,
    PROBE,
    PROGRESS,
    STANDALONE,
    SUBSCRIPTION,
    OpenCall,
    SessionState,
    is_call,
    own_token,
    request_id,
)

MAX_OPENINGS: Final = 8  # a client sends one


class PendingInitialize(msgspec.Struct, frozen=True):
    """An ``initialize`` whose server has not said yet what it is."""

    call: BridgedCall
    revision: str
    client: bytes
    """The capabilities that the client declared, raw, as a modern client's."""


class ClientHandshake(msgspec.Struct, eq=False):
    """What holds for the requests of one client. It may open again: the last opening counts."""

    state: SessionState
    ways: BridgeIO
    revision: str = ""
    """The legacy revision that the client was given, empty before it opened."""
    stamp: Stamp = Stamp()
    logs: bool = True
    """Whether the server logs, as far as is known."""
    _asked: dict[FrameId, PendingInitialize] = msgspec.field(default_factory=dict)

    def initialize(self, call: BridgedCall, f: Frame) -> Effects:
        """The client opens. Answered when the server has said what it is. Raises Malformed."""
        revision = revision_for(rawjson.string(f.lookup("protocolVersion")))
        self.stamp = stamp_of(f.payload, revision)
        self.revision = revision
        if len(self._asked) >= MAX_OPENINGS:
            line = frames.error(
                call.id, results.INVALID_REQUEST, f"refused: {MAX_OPENINGS} initialize requests are in flight already"
            )
            return self.ways.answer(call, line)
        id = self.state.new_round()
        self._asked[id] = PendingInitialize(call, revision, self.stamp.capabilities)
        return self.ways.ask(id, DISCOVER, b"{}")

    def discovered(self, f: Frame) -> tuple[Effects, bytes | None] | None:
        """The server says what it is; with its capabilities as the client was told them. None if the frame answers
        something else."""
        opening = None if f.id is None else self._asked.pop(f.id, None)
        if opening is None:
            return None
        call = opening.call
        if f.kind == "error":
            return self.ways.answer(
                call, frames.error(call.id, results.INTERNAL, "the server does not say what it is", f.payload)
            ), None
        try:
            result = welcome(
                f.payload or b"", revision=opening.revision, server=self.state.server, client=opening.client
            )
            capabilities = rawjson.lookup(result, "capabilities")
            self.logs = rawjson.lookup(capabilities, "logging") is not None
        except Malformed as problem:
            fault = f"the server's answer was refused: {problem.fault}"
            note = Note("frame.refused", {"side": "server", "fault": problem.fault})
            return [note, *self.ways.answer(call, frames.error(call.id, results.INTERNAL, fault))], None
        return self.ways.answer(call, frames.result(call.id, result)), capabilities

    def set_level(self, call: BridgedCall, f: Frame) -> Effects:
        """For the whole session here, for one request at the server: kept, and stamped on each (R105)."""
        level = rawjson.string(f.lookup("level"))
        if not self.logs:
            line = frames.error(
                call.id, results.METHOD_NOT_FOUND, "method not found: the server does not offer logging"
            )
        elif level not in LEVELS:
            line = frames.error(call.id, results.BAD_PARAMS, "refused: its level is none of the protocol's")
        else:
            self.stamp = msgspec.structs.replace(self.stamp, level=level)
            line = frames.result(call.id, b"{}")
        return self.ways.answer(call, line)


_NOT_FOR_CLIENTS: Final = frozenset({"notifications/elicitation/complete", "notifications/tasks"})
"""What no modern server may send (R43, R108): the ids in it are nobody's."""
_NEVER: Final = frozenset({results.METHOD_NOT_FOUND, results.BAD_PARAMS})


class ClientTranslator(msgspec.Struct, eq=False):
    """The way back to one client."""

    calls: Calls
    entering: ClientHandshake
    handing: ForwardedRound
    listening: Listening
    ways: BridgeIO

    def told(self, effects: Effects, *, forwarded: ForwardRound | None = None, beat: bool = False) -> Effects:
        """The inner session's effects, in the client's words. ``forwarded``: they hand this round on; ``beat``: they
        are progress of the gate's."""
        out: Effects = []
        for effect in effects:
            match effect:
                case ToClient():
                    out += self._translated(effect, forwarded, beat)
                case Over(stream) if stream == INTERNAL:
                    pass
                case Over(_, id) if id is not None and id in self.calls.by_id:
                    call = self.calls.by_id[id]
                    self.calls.remove(call)
                    self.listening.forget(call)
                    out.append(effect)
                case _:
                    out.append(effect)
        return out

    def _translated(self, effect: ToClient, forwarded: ForwardRound | None, beat: bool) -> Effects:
        f = effect.frame or frames.read(effect.line)
        if f.kind == "notification":
            try:
                return self._notification(effect.stream, f, beat)
            except Malformed as problem:
                return [_refusal(problem)]
        # an era without requests of the server's (R89); an error without a request
        if f.kind == "request" or f.id is None:
            return [Note("frame.unasked", {"side": "server"})]
        if effect.stream == INTERNAL:
            return self._own_answer(f)
        call = self.calls.by_id.get(f.id)
        return [Note("frame.unasked", {"side": "server"})] if call is None else self._answered(call, f, forwarded)

    def _own_answer(self, f: Frame) -> Effects:
        """To what the gate itself asked."""
        assert f.id is not None
        found = self.entering.discovered(f)
        if found is not None:
            out, capabilities = found
            return out if capabilities is None else [*out, *self.listening.begin(capabilities)]
        return self.listening.ended(f.id, "it has no subscriptions/listen, or not this one" if _is_final(f) else None)

    def _notification(self, stream: int, f: Frame, beat: bool) -> Effects:
        if f.method == PROGRESS:
            shown = self.calls.shown(stream, f, ours=beat)
            return [] if shown is None else [shown]
        if f.method == CANCELLED:
            return self._server_cancels(stream, f)
        if f.method in _NOT_FOR_CLIENTS:
            return [Note("frame.refused", {"side": "server", "fault": "a notification that its era does not have"})]
        raw = f.meta.raw(META_SUBSCRIPTION) if f.may_say(SUBSCRIPTION) else None
        if f.method == "notifications/subscriptions/acknowledged":
            id = frames.plain_id(raw)
            return [] if id is None and raw is not None else self.listening.acknowledged(id)
        if raw is None:
            return [ToClient(STANDALONE if stream == INTERNAL else stream, f.raw)]
        assert f.payload is not None
        return [ToClient(STANDALONE, rawjson.splice(f.raw, ("params",), without_meta(f.payload, META_SUBSCRIPTION)))]

    def _server_cancels(self, stream: int, f: Frame) -> Effects:
        """It ends our listen. Requests of the client's are not a server's to take back (R99)."""
        id = request_id(f)
        if stream != INTERNAL or id is None:
            return [Note("cancel.unmatched", {"side": "server"}, warn=False)]
        return self.listening.ended(id, None)

    def _answered(self, call: BridgedCall, f: Frame, forwarded: ForwardRound | None) -> Effects:
        try:
            if f.kind == "error":
                return self.ways.answer(call, translation.legacy_error(f))
            if forwarded is not None and server_requests.result_type(f.object) == server_requests.INPUT_REQUIRED:
                return self.handing.hand(call, f.payload or b"", forwarded, self.entering.revision)
            return self.ways.answer(call, translation.legacy_result(f, call.method))
        except Malformed as problem:
            fault = f"the server's answer was refused: {problem.fault}"
            return [_refusal(problem), *self.ways.answer(call, frames.error(call.id, results.INTERNAL, fault))]


def _refusal(problem: Malformed) -> Note:
    return Note("frame.refused", {"side": "server", "fault": problem.fault})


def _is_final(f: Frame) -> bool:
    """Whether an answer says that asking again is of no use."""
    return f.code in _NEVER


_DROPPED: Final = frozenset(
    {"notifications/initialized", "notifications/roots/list_changed", PROGRESS, "notifications/tasks/status"}
)
"""Legacy notifications that a modern server has no use for (R58)."""
_MODERN_METHODS: Final = frozenset({DISCOVER, LISTEN})


class LegacyClient:
    """Has the methods of ``Session``. The client's streams are those of its transport, the server's those of the inner
    session's requests."""

    def __init__(self, state: SessionState) -> None:
        self.state = state
        self._session = Session(state, parks=0)  # its client waits on one call all along
        self._calls = Calls(state.inflight)
        self._ways = BridgeIO(
            self._say, self._ask_server, self._cancel_own, self._answer, self._after, lambda: self._now
        )
        self._entering = ClientHandshake(state, self._ways)
        self._handing = ForwardedRound(state, self._calls, self._ways)
        self._listening = Listening(state, self._ways)
        self._telling = ClientTranslator(self._calls, self._entering, self._handing, self._listening, self._ways)
        self._later: dict[str, Action] = {}
        self._spoken = False
        self._left = False
        self._now = 0.0

    @property
    def revision(self) -> str:
        """The legacy revision that the client was given; ``state.revision`` stays empty, since with the server there is
        none."""
        return self._entering.revision

    # -- what the shell calls
    # --------------------------------------------------------------------------------------------------------------

    def frame(self, side: Side, stream: int, line: bytes | Frame, now: float) -> Effects:
        """One line from a side. Never raises for what a peer wrote."""
        self._now = now
        if side == "client":
            return self._line(stream, line)
        if self._left:  # what the server still says is for nobody
            return []
        if not self._spoken:  # before the first request nothing says which era the server is to speak
            return [Note("frame.unasked", {"side": "server"})]
        return self._telling.told(self._session.frame("server", stream, line, now))

    def lost(self, side: Side, stream: int, head: bytes, fault: str) -> Effects:
        """A line could not be taken at all; ``head`` is its begin."""
        if side == "server":
            return self._telling.told(self._session.lost(side, stream, head, fault)) if self._spoken else []
        effects = self._refused(stream, Malformed(fault, **frames.whose(head)), results.INTERNAL)
        return [effect for effect in effects if not isinstance(effect, Note)]

    def lost_end(self, side: Side, stream: int, head: bytes, tail: bytes) -> Effects:
        """The end of a line whose begin did not tell who would wait."""
        return (
            []
            if "id" in frames.whose(head)
            else self.lost(side, stream, head + tail, "it is longer than a line may be")
        )

    def round_done(self, round: str, conclusion: Conclusion, now: float) -> Effects:
        """The gate is done with a round. One that it hands on is the client's from here, in requests of the client's
        own era."""
        self._now = now
        forwarded = conclusion if isinstance(conclusion, ForwardRound) else None
        return self._telling.told(self._session.round_done(round, conclusion, now), forwarded=forwarded)

    def forward(self, round: str) -> Effects:
        """Send a pushed request on. A modern server pushes none."""
        return self._telling.told(self._session.forward(round))

    def unforward(self, round: str, reason: str) -> Effects:
        """The gate no longer waits for the reply to one."""
        return self._telling.told(self._session.unforward(round, reason))

    def round_progress(self, round: str, tokens: int = 0) -> Effects:
        """A round is still being worked on (R101)."""
        return self._telling.told(self._session.round_progress(round, tokens), beat=True)

    def due(self, token: str) -> Effects:
        """The time of a ``Later`` has come."""
        action = self._later.pop(token, None)
        return self._telling.told(self._session.due(token)) if action is None else action()

    def open_calls(self) -> list[OpenCall]:
        """The client's requests that have no answer yet, with the server or with the client itself."""
        inner = {(one.stream, one.id): one for one in self._session.open_calls()}
        return [
            inner.get((call.stream, call.id), OpenCall(call.stream, call.id, call.method))
            for call in self._calls.by_id.values()
        ]

    def questions(self) -> list[FrameId]:
        """The ids of the requests that wait for the client's answer."""
        return self._handing.questions()

    def overdue(self, now: float, seconds: float) -> Effects:
        """Requests that the server has not answered in so many seconds end with an error."""
        self._now = now
        return self._telling.told(self._session.overdue(now, seconds))

    def stream_closed(self, side: Side, stream: int) -> Effects:
        """A stream is gone: for a legacy client that is no cancel (T35)."""
        return [] if side == "client" else self._telling.told(self._session.stream_closed(side, stream))

    def undelivered(self, id: FrameId) -> Effects:
        """The client has no stream for a request of ours: no answer to it will come."""
        out = self._handing.replied(id, None)
        return [] if out is None else [undelivered(self.state.server), *out]

    def eof(self, side: Side) -> Effects:
        """A side has gone for good. Questions to the client outlive a server that is started again: the call is not
        with it."""
        if side == "server" and self.state.outlived:
            return self._telling.told(self._session.eof(side))
        out = self._handing.withdraw_all("the server has ended")
        self._calls.clear()
        self._later.clear()
        self._left = side == "client"
        return [*(out if side == "server" else []), *self._telling.told(self._session.eof(side))]

    # -- lines of the client
    # ---------------------------------------------------------------------------------------------------------------

    def _line(self, stream: int, line: bytes | Frame) -> Effects:
        try:
            f = frames.of(line)
        except Malformed as problem:
            assert isinstance(line, bytes)
            return self._batch(stream, line, problem)
        try:
            return self._client(stream, f)
        except Malformed as problem:
            return self._refused(stream, Malformed(problem.fault, f.id, answers=f.kind in ("result", "error")))

    def _batch(self, stream: int, line: bytes, problem: Malformed) -> Effects:
        """2025-03-26 has them, and each element is taken for itself (R92)."""
        found = batch_elements(line, problem, self.revision)
        if isinstance(found, Malformed):
            return self._unreadable(stream, line, found)
        out: Effects = []
        for element in found:
            out += (
                self._unreadable(stream, element, NESTED_BATCH)
                if is_nested_batch(element)
                else self._line(stream, element)
            )
        return out

    def _unreadable(self, stream: int, line: bytes, problem: Malformed) -> Effects:
        return refused_line("client", line, problem, partial(self._refused, stream))

    def _refused(self, stream: int, problem: Malformed, code: int = results.INVALID_REQUEST) -> Effects:
        """Log that something came, and tell whoever would otherwise wait for ever."""
        note = Note("frame.refused", {"side": "client", "fault": problem.fault})
        if problem.id is None:
            return [note]
        if problem.answers:
            return [note, *(self._handing.replied(problem.id, None) or [])]
        return [note, ToClient(stream, frames.error(problem.id, code, f"refused: {problem.fault}"), True)]

    def _client(self, stream: int, f: Frame) -> Effects:
        if f.kind == "request":
            return self._request(stream, f)
        if f.kind == "notification":
            return self._notified(f)
        out = None if f.id is None else self._handing.replied(f.id, f.payload if f.kind == "result" else None)
        return [Note("frame.unasked", {"side": "client"})] if out is None else out

    def _notified(self, f: Frame) -> Effects:
        if f.method == CANCELLED:
            return self._cancelled(f)
        if f.method == "notifications/initialized":
            return self._listening.ready()
        if not self._spoken:  # the first line that the server reads must say its era
            return [Note("frame.refused", {"side": "client", "fault": "a notification before the session was opened"})]
        return (
            [] if f.method in _DROPPED else self._telling.told(self._session.frame("client", STANDALONE, f, self._now))
        )

    def _request(self, stream: int, f: Frame) -> Effects:
        assert f.id is not None
        fault = None
        if f.id in self._calls.by_id or self.state.is_ours(f.id):
            fault = "a request with this id is in flight"
        elif len(self._calls.by_id) >= MAX_CALLS:
            fault = f"refused: {MAX_CALLS} requests are in flight already"
        elif (full := self.state.call_fault(2 * len(f.raw))) is not None:
            fields = {"server": self.state.server, "method": f.method[:100], "fault": full}
            return [Note("call.failed", fields), ToClient(stream, frames.error(f.id, results.INTERNAL, full), True)]
        elif f.method in _MODERN_METHODS:
            return [
                ToClient(
                    stream,
                    frames.error(f.id, results.METHOD_NOT_FOUND, f"method not found: {f.method} (not in a session)"),
                    True,
                )
            ]
        if fault is not None:
            return [ToClient(stream, frames.error(f.id, results.INVALID_REQUEST, fault), True)]
        return self._own(BridgedCall(stream, f.id, f.method), f) if f.method in REMOVED else self._pass(stream, f)

    def _own(self, call: BridgedCall, f: Frame) -> Effects:
        """A request that a modern server does not have, answered here (R58)."""
        self._calls.add(call)
        try:
            match f.method:
                case "initialize":
                    return self._entering.initialize(call, f)
                case "ping":  # R104
                    return self._answer(call, frames.result(call.id, b"{}"))
                case "logging/setLevel":
                    return self._entering.set_level(call, f)
                case _:
                    return self._subscription(call, f)
        except Malformed:
            self._calls.remove(call)
            raise

    def _subscription(self, call: BridgedCall, f: Frame) -> Effects:
        uri = rawjson.string(f.lookup("uri"))
        if uri is None:
            return self._answer(call, frames.error(call.id, results.BAD_PARAMS, "refused: its uri is not a string"))
        return (
            self._listening.subscribe(call, uri)
            if f.method == "resources/subscribe"
            else self._listening.unsubscribe(call, uri)
        )

    def _pass(self, stream: int, f: Frame) -> Effects:
        """A request that both eras have: stamped, and else as it came."""
        assert f.id is not None
        if f.payload is not None and f.members is None:
            raise Malformed("its params are not an object")
        given = _plain(f) if is_call(f.method) else f.object
        params = self._entering.stamp.put(given)
        call = BridgedCall(stream, f.id, f.method, own_token(f), bytes(params.text) if f.method in CALLS else None)
        self._calls.add(call)
        # a call may rightly take long: whether the server answers at all, our own question shows
        known = self._spoken or f.method not in CALLS
        return [
            *([] if known else self._ask_server(PROBE, DISCOVER, b"{}")),
            *self._say(stream, f.changed(payload=params)),
        ]

    def _say(self, stream: int, line: bytes | Frame) -> Effects:
        """A line that a modern client writes."""
        self._spoken = True
        return self._telling.told(self._session.frame("client", stream, line, self._now))

    def _cancelled(self, f: Frame) -> Effects:
        """The client takes a call back, with all that it was asked in it (R100). Over HTTP this comes on a stream of
        its own."""
        id = request_id(f)
        call = None if id is None else self._calls.by_id.get(id)
        if call is None:
            return [Note("cancel.unmatched", {"side": "client"}, warn=False)]
        if call.method == "initialize":  # R99: never cancelled
            return []
        self._calls.remove(call)
        self._listening.forget(call)
        if call.method in REMOVED:
            return [Over(call.stream)]
        out = self._handing.cancelled(call)
        if out is not None:
            return out
        return self._telling.told(self._session.frame("client", call.stream, f, self._now))

    # -- requests of the gate's own
    # --------------------------------------------------------------------------------------------------------

    def _ask_server(self, id: FrameId, method: str, params: bytes) -> Effects:
        stamp = msgspec.structs.replace(self._entering.stamp, level=None)  # nothing of it is the client's to read
        return self._say(INTERNAL, frames.request(id, method, bytes(stamp.put(rawjson.read(params)).text)))

    def _cancel_own(self, id: FrameId) -> Effects:
        return self._say(INTERNAL, frames.notification(CANCELLED, rawjson.dump({"requestId": id})))

    def _answer(self, call: BridgedCall, line: bytes) -> Effects:
        """The one answer to a request of the client's."""
        return [ToClient(call.stream, line, True)] if self._calls.remove(call) else []

    def _after(self, delay: float, action: Action) -> Effects:
        token = self.state.new_round()
        self._later[token] = action
        return [Later(delay, token)]


def _plain(f: Frame) -> rawjson.Object:
    """A legacy call's params: no answers in them that nobody asked for (T3), and no task, which was not offered (R106,
    R121)."""
    found = f.object.members
    if (name := strictjson.resembling(found, ANSWERS) or next(iter(ANSWERS & found.keys()), None)) is not None:
        raise Malformed(f"its params have {name[:20]!r}, which this era does not have")
    return f.object.changed({"task": None}) if "task" in found else f.object
