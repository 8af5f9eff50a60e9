"""Pure. Bridge for a legacy client before a modern-only server.

It has the methods of a session, and a modern session inside. The client's frames enter the inner session as those of a
modern client. Its output is translated back for the client. The bridge decides nothing: doors, answers and limits
belong to the inner session. Questions that the policy forwards become requests to the client (``legacy_rounds.py``).
"""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec

from samplegate.protocol import frames, rawjson, results, server_requests, strictjson
from samplegate.protocol.bridge import translation
from samplegate.protocol.bridge.calls import MAX_CALLS, Action, BridgedCall, BridgeIO, Calls
from samplegate.protocol.bridge.legacy_rounds import ForwardedRound
from samplegate.protocol.bridge.subscriptions import LegacySubscriptions
from samplegate.protocol.bridge.translation import (
    LEVELS,
    REMOVED,
    Stamp,
    initialize_result,
    revision_for,
    stamp_of,
    without_meta,
)
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
from samplegate.protocol.task_state import Found

MAX_INITIALIZES: Final = 8  # a client sends one


class PendingInitialize(msgspec.Struct, frozen=True):
    """An ``initialize`` that waits for the server's ``server/discover`` result."""

    call: BridgedCall
    revision: str
    client: bytes
    """The client's declared capabilities, raw, in their modern form."""


class ClientHandshake(msgspec.Struct, eq=False):
    """Handshake and settings of one client. The client may open again; the last opening counts."""

    state: SessionState
    io: BridgeIO
    revision: str = ""
    """The legacy revision that the client was given; empty before it opened."""
    stamp: Stamp = Stamp()
    logs: bool = True
    """Whether the server offers logging, as far as is known."""
    _asked: dict[FrameId, PendingInitialize] = msgspec.field(default_factory=dict)

    def initialize(self, call: BridgedCall, f: Frame) -> Effects:
        """Start the handshake; it is answered once the server has described itself. Raises Malformed."""
        revision = revision_for(rawjson.string(f.lookup("protocolVersion")))
        self.stamp = stamp_of(f.payload, revision)
        self.revision = revision
        if len(self._asked) >= MAX_INITIALIZES:
            line = frames.error(
                call.id,
                results.INVALID_REQUEST,
                f"refused: {MAX_INITIALIZES} initialize requests are in flight",
            )
            return self.io.answer(call, line)
        id = self.state.new_round()
        self._asked[id] = PendingInitialize(call, revision, self.stamp.capabilities)
        return self.io.ask(id, DISCOVER, b"{}")

    def discovered(self, f: Frame) -> tuple[Effects, bytes | None] | None:
        """Answer ``initialize`` from the server's discovery, and return the capabilities that the client was given.

        None if the frame answers something else.
        """
        opening = None if f.id is None else self._asked.pop(f.id, None)
        if opening is None:
            return None
        call = opening.call
        if f.kind == "error":
            return self.io.answer(
                call, frames.error(call.id, results.INTERNAL, translation.rejected(DISCOVER, f.payload), f.payload)
            ), None
        try:
            result = initialize_result(
                f.payload or b"", revision=opening.revision, server=self.state.server, client=opening.client
            )
            capabilities = rawjson.lookup(result, "capabilities")
            self.logs = rawjson.lookup(capabilities, "logging") is not None
        except Malformed as problem:
            fault = f"invalid response from the server: {problem.fault}"
            note = Note("frame.refused", {"side": "server", "fault": problem.fault})
            return [note, *self.io.answer(call, frames.error(call.id, results.INTERNAL, fault))], None
        return self.io.answer(call, frames.result(call.id, result)), capabilities

    def set_level(self, call: BridgedCall, f: Frame) -> Effects:
        """Set the session's log level, which is added to each request because a modern server keeps none (R105)."""
        level = rawjson.string(f.lookup("level"))
        if not self.logs:
            line = frames.error(
                call.id, results.METHOD_NOT_FOUND, "method not found: the server does not offer logging"
            )
        elif level not in LEVELS:
            line = frames.error(call.id, results.BAD_PARAMS, "refused: unknown log level")
        else:
            self.stamp = msgspec.structs.replace(self.stamp, level=level)
            line = frames.result(call.id, b"{}")
        return self.io.answer(call, line)


_NOT_FOR_CLIENTS: Final = frozenset({"notifications/elicitation/complete", "notifications/tasks"})
"""Notifications that no modern server may send (R43, R108); the ids in them are unknown."""
_NEVER: Final = frozenset({results.METHOD_NOT_FOUND, results.BAD_PARAMS})


class ClientTranslator(msgspec.Struct, eq=False):
    """Translation of the inner session's effects for one client."""

    calls: Calls
    handshake: ClientHandshake
    rounds: ForwardedRound
    subscriptions: LegacySubscriptions
    io: BridgeIO

    def translate(self, effects: Effects, *, forwarded: ForwardRound | None = None, beat: bool = False) -> Effects:
        """The inner session's effects, translated for the client.

        ``forwarded``: the round that they forward. ``beat``: they are progress of the gate.
        """
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
                    self.subscriptions.forget(call)
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
        # the modern era has no requests of the server (R89) and no errors without a request
        if f.kind == "request" or f.id is None:
            return [Note("frame.unasked", {"side": "server"})]
        if effect.stream == INTERNAL:
            return self._own_answer(f)
        call = self.calls.by_id.get(f.id)
        return [Note("frame.unasked", {"side": "server"})] if call is None else self._answered(call, f, forwarded)

    def _own_answer(self, f: Frame) -> Effects:
        """Process the server's answer to a request of the gate."""
        assert f.id is not None
        found = self.handshake.discovered(f)
        if found is not None:
            out, capabilities = found
            return out if capabilities is None else [*out, *self.subscriptions.begin(capabilities)]
        return self.subscriptions.ended(
            f.id, "the server does not support subscriptions/listen, or rejected this one" if _is_final(f) else None
        )

    def _notification(self, stream: int, f: Frame, beat: bool) -> Effects:
        if f.method == PROGRESS:
            shown = self.calls.shown(stream, f, ours=beat)
            return [] if shown is None else [shown]
        if f.method == CANCELLED:
            return self._server_cancels(stream, f)
        if f.method in _NOT_FOR_CLIENTS:
            return [
                Note(
                    "frame.refused",
                    {"side": "server", "fault": "a notification that its protocol version does not have"},
                )
            ]
        raw = f.meta.raw(META_SUBSCRIPTION) if f.may_contain(SUBSCRIPTION) else None
        if f.method == "notifications/subscriptions/acknowledged":
            id = frames.plain_id(raw)
            return [] if id is None and raw is not None else self.subscriptions.acknowledged(id)
        if raw is None:
            return [ToClient(STANDALONE if stream == INTERNAL else stream, f.raw)]
        assert f.payload is not None
        return [ToClient(STANDALONE, rawjson.splice(f.raw, ("params",), without_meta(f.payload, META_SUBSCRIPTION)))]

    def _server_cancels(self, stream: int, f: Frame) -> Effects:
        """Process the server's end of our listen. A server may not cancel the client's requests (R99)."""
        id = request_id(f)
        if stream != INTERNAL or id is None:
            return [Note("cancel.unmatched", {"side": "server"}, warn=False)]
        return self.subscriptions.ended(id, None)

    def _answered(self, call: BridgedCall, f: Frame, forwarded: ForwardRound | None) -> Effects:
        try:
            if f.kind == "error":
                return self.io.answer(call, translation.legacy_error(f))
            if forwarded is not None and server_requests.result_type(f.object) == server_requests.INPUT_REQUIRED:
                return self.rounds.hand(call, f.payload or b"", forwarded, self.handshake.revision)
            return self.io.answer(call, translation.legacy_result(f, call.method))
        except Malformed as problem:
            fault = f"invalid response from the server: {problem.fault}"
            return [_refusal(problem), *self.io.answer(call, frames.error(call.id, results.INTERNAL, fault))]


def _refusal(problem: Malformed) -> Note:
    return Note("frame.refused", {"side": "server", "fault": problem.fault})


def _is_final(f: Frame) -> bool:
    """Whether an answer shows that asking again is of no use."""
    return f.code in _NEVER


_DROPPED: Final = frozenset(
    {"notifications/initialized", "notifications/roots/list_changed", PROGRESS, "notifications/tasks/status"}
)
"""Legacy notifications that a modern server does not use (R58)."""
_MODERN_METHODS: Final = frozenset({DISCOVER, LISTEN})


class LegacyClient:
    """Legacy client of a modern server, with the methods of ``Session``.

    The client's streams are those of its transport. The server's streams belong to the inner session's requests.
    """

    def __init__(self, state: SessionState) -> None:
        self.state = state
        self._session = Session(state, parks=0)  # its client waits on one call throughout
        self._calls = Calls(state.inflight)
        self._io = BridgeIO(
            self._send, self._ask_server, self._cancel_own, self._answer, self._after, lambda: self._now
        )
        self._handshake = ClientHandshake(state, self._io)
        self._rounds = ForwardedRound(state, self._calls, self._io)
        self._subscriptions = LegacySubscriptions(state, self._io)
        self._translator = ClientTranslator(self._calls, self._handshake, self._rounds, self._subscriptions, self._io)
        self._later: dict[str, Action] = {}
        self._spoken = False
        self._left = False
        self._now = 0.0

    @property
    def revision(self) -> str:
        """The legacy revision that the client was given; ``state.revision`` stays empty."""
        return self._handshake.revision

    # -- called by the relay
    # --------------------------------------------------------------------------------------------------------------

    def frame(self, side: Side, stream: int, line: bytes | Frame, now: float) -> Effects:
        """Process one line of a side. Never raises because of a peer's input."""
        self._now = now
        if side == "client":
            return self._line(stream, line)
        if self._left:  # the client has gone, so the server's output is dropped
            return []
        if not self._spoken:  # before the first request, the server does not know which era to use
            return [Note("frame.unasked", {"side": "server"})]
        return self._translator.translate(self._session.frame("server", stream, line, now))

    def lost(self, side: Side, stream: int, head: bytes, fault: str) -> Effects:
        """Refuse a line that could not be read completely; ``head`` is its beginning."""
        if side == "server":
            return self._translator.translate(self._session.lost(side, stream, head, fault)) if self._spoken else []
        effects = self._refused(stream, Malformed(fault, **frames.owner_of(head)), results.INTERNAL)
        return [effect for effect in effects if not isinstance(effect, Note)]

    def lost_end(self, side: Side, stream: int, head: bytes, tail: bytes) -> Effects:
        """Refuse the line by its end, if its beginning did not show which peer waits."""
        return (
            []
            if "id" in frames.owner_of(head)
            else self.lost(side, stream, head + tail, "the line is too long (setting max_frame_bytes)")
        )

    def round_done(self, round: str, conclusion: Conclusion, now: float) -> Effects:
        """Apply the gate's conclusion to a round. A forwarded round continues as legacy requests to the client."""
        self._now = now
        forwarded = conclusion if isinstance(conclusion, ForwardRound) else None
        return self._translator.translate(self._session.round_done(round, conclusion, now), forwarded=forwarded)

    def forward(self, round: str) -> Effects:
        """Forward a pushed request. A modern server pushes none."""
        return self._translator.translate(self._session.forward(round))

    def unforward(self, round: str, reason: str) -> Effects:
        """Cancel a forwarded request, because the gate no longer waits for its reply."""
        return self._translator.translate(self._session.unforward(round, reason))

    def round_progress(self, round: str, tokens: int = 0) -> Effects:
        """Progress notifications for a round that is still running (R101)."""
        return self._translator.translate(self._session.round_progress(round, tokens), beat=True)

    def due(self, token: str) -> Effects:
        """Handle a ``Later`` whose delay has elapsed."""
        action = self._later.pop(token, None)
        return self._translator.translate(self._session.due(token)) if action is None else action()

    def wait_long(self, round: str, nonce: bytes) -> Effects:
        """No effects: see ``ModernClient``."""
        return []

    def task_stepped(self, token: str, found: Found) -> Effects:
        """Continue after a ``TaskStep``, with the record of the task or the reason for none."""
        return self._session.task_stepped(token, found)

    def read_resource(self, token: str, round: str, uri: str, now: float) -> Effects:
        """Read a resource of the server for a round; the answer is a ``ResourceRead``."""
        return self._translator.translate(self._session.read_resource(token, round, uri, now))

    def stop_reading(self, token: str) -> Effects:
        """Cancel a read of the gate's own."""
        return self._translator.translate(self._session.stop_reading(token))

    def open_calls(self) -> list[OpenCall]:
        """The client's requests without an answer, whether the server or the client works on them."""
        inner = {(one.stream, one.id): one for one in self._session.open_calls()}
        return [
            inner.get((call.stream, call.id), OpenCall(call.stream, call.id, call.method, since=call.since))
            for call in self._calls.by_id.values()
        ]

    def questions(self) -> list[FrameId]:
        """The ids of the requests that wait for the client's answer."""
        return self._rounds.questions()

    def overdue(self, now: float, seconds: float) -> Effects:
        """Cancel requests that the server has not answered within ``seconds``, and answer each with an error."""
        self._now = now
        return self._translator.translate(self._session.overdue(now, seconds))

    def stream_closed(self, side: Side, stream: int) -> Effects:
        """Handle the end of a stream, which is no cancellation for a legacy client (T35)."""
        return [] if side == "client" else self._translator.translate(self._session.stream_closed(side, stream))

    def undelivered(self, id: FrameId) -> Effects:
        """Fail a request for which the client has no stream, so that no answer will come."""
        out = self._rounds.replied(id, None)
        return [] if out is None else [undelivered(self.state.server), *out]

    def eof(self, side: Side) -> Effects:
        """Handle the permanent end of a side.

        Questions to the client survive a restart of the server, because their call is not with the server.
        """
        if side == "server" and self.state.outlived:
            return self._translator.translate(self._session.eof(side))
        out = self._rounds.withdraw_all("the server has stopped")
        self._calls.clear()
        self._later.clear()
        self._left = side == "client"
        return [*(out if side == "server" else []), *self._translator.translate(self._session.eof(side))]

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
        """Process the elements of a batch, which 2025-03-26 has, one by one (R92)."""
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
        """Log the refused line, and answer with an error if a peer would otherwise wait forever."""
        note = Note("frame.refused", {"side": "client", "fault": problem.fault})
        if problem.id is None:
            return [note]
        if problem.answers:
            return [note, *(self._rounds.replied(problem.id, None) or [])]
        return [note, ToClient(stream, frames.error(problem.id, code, f"refused: {problem.fault}"), True)]

    def _client(self, stream: int, f: Frame) -> Effects:
        if f.kind == "request":
            return self._request(stream, f)
        if f.kind == "notification":
            return self._notified(f)
        out = None if f.id is None else self._rounds.replied(f.id, f.payload if f.kind == "result" else None)
        return [Note("frame.unasked", {"side": "client"})] if out is None else out

    def _notified(self, f: Frame) -> Effects:
        if f.method == CANCELLED:
            return self._cancelled(f)
        if f.method == "notifications/initialized":
            return self._subscriptions.ready()
        if not self._spoken:  # the first line that the server reads must show its era
            return [Note("frame.refused", {"side": "client", "fault": "a notification before initialize"})]
        return (
            []
            if f.method in _DROPPED
            else self._translator.translate(self._session.frame("client", STANDALONE, f, self._now))
        )

    def _request(self, stream: int, f: Frame) -> Effects:
        assert f.id is not None
        fault = None
        if f.id in self._calls.by_id or self.state.is_ours(f.id):
            fault = "a request with this id is already in flight"
        elif len(self._calls.by_id) >= MAX_CALLS:
            fault = f"refused: {MAX_CALLS} requests are already in flight"
        elif (full := self.state.call_fault(2 * len(f.raw))) is not None:
            fields = {"server": self.state.server, "method": f.method[:100], "fault": full}
            return [Note("call.failed", fields), ToClient(stream, frames.error(f.id, results.INTERNAL, full), True)]
        elif f.method in _MODERN_METHODS:
            return [
                ToClient(
                    stream,
                    frames.error(
                        f.id, results.METHOD_NOT_FOUND, f"method not found: {f.method} (not available in a session)"
                    ),
                    True,
                )
            ]
        if fault is not None:
            return [ToClient(stream, frames.error(f.id, results.INVALID_REQUEST, fault), True)]
        return self._own(BridgedCall(stream, f.id, f.method), f) if f.method in REMOVED else self._pass(stream, f)

    def _own(self, call: BridgedCall, f: Frame) -> Effects:
        """Answer a request that a modern server does not have (R58)."""
        self._calls.add(call)
        try:
            match f.method:
                case "initialize":
                    return self._handshake.initialize(call, f)
                case "ping":  # R104
                    return self._answer(call, frames.result(call.id, b"{}"))
                case "logging/setLevel":
                    return self._handshake.set_level(call, f)
                case _:
                    return self._subscription(call, f)
        except Malformed:
            self._calls.remove(call)
            raise

    def _subscription(self, call: BridgedCall, f: Frame) -> Effects:
        uri = rawjson.string(f.lookup("uri"))
        if uri is None:
            return self._answer(call, frames.error(call.id, results.BAD_PARAMS, "refused: uri is not a string"))
        return (
            self._subscriptions.subscribe(call, uri)
            if f.method == "resources/subscribe"
            else self._subscriptions.unsubscribe(call, uri)
        )

    def _pass(self, stream: int, f: Frame) -> Effects:
        """Pass a request that both eras have, with the stamp and otherwise unchanged."""
        assert f.id is not None
        if f.payload is not None and f.members is None:
            raise Malformed("params is not an object")
        given = _plain(f) if is_call(f.method) else f.object
        params = self._handshake.stamp.put(given)
        call = BridgedCall(
            stream,
            f.id,
            f.method,
            own_token(f),
            bytes(params.text) if f.method in CALLS else None,
            since=self._now,
        )
        self._calls.add(call)
        # a call may legitimately take long, so our own probe shows whether the server answers at all
        known = self._spoken or f.method not in CALLS
        return [
            *([] if known else self._ask_server(PROBE, DISCOVER, b"{}")),
            *self._send(stream, f.changed(payload=params)),
        ]

    def _send(self, stream: int, line: bytes | Frame) -> Effects:
        """Send the inner session a line as a modern client."""
        self._spoken = True
        return self._translator.translate(self._session.frame("client", stream, line, self._now))

    def _cancelled(self, f: Frame) -> Effects:
        """Cancel a call and its questions to the client (R100). Over HTTP, the notification has its own stream."""
        id = request_id(f)
        call = None if id is None else self._calls.by_id.get(id)
        if call is None:
            return [Note("cancel.unmatched", {"side": "client"}, warn=False)]
        if call.method == "initialize":  # R99: never cancelled
            return []
        self._calls.remove(call)
        self._subscriptions.forget(call)
        if call.method in REMOVED:
            return [Over(call.stream)]
        out = self._rounds.cancelled(call)
        if out is not None:
            return out
        return self._translator.translate(self._session.frame("client", call.stream, f, self._now))

    # -- the gate's own requests
    # --------------------------------------------------------------------------------------------------------

    def _ask_server(self, id: FrameId, method: str, params: bytes) -> Effects:
        stamp = msgspec.structs.replace(self._handshake.stamp, level=None)  # the client reads nothing of the answer
        return self._send(INTERNAL, frames.request(id, method, bytes(stamp.put(rawjson.read(params)).text)))

    def _cancel_own(self, id: FrameId) -> Effects:
        return self._send(INTERNAL, frames.notification(CANCELLED, rawjson.dump({"requestId": id})))

    def _answer(self, call: BridgedCall, line: bytes) -> Effects:
        """The only answer to a client's request; nothing if it was answered before."""
        return [ToClient(call.stream, line, True)] if self._calls.remove(call) else []

    def _after(self, delay: float, action: Action) -> Effects:
        token = self.state.new_round()
        self._later[token] = action
        return [Later(delay, token)]


def _plain(f: Frame) -> rawjson.Object:
    """A legacy call's params without a task, which was not offered (R106, R121). Raises Malformed for answers (T3)."""
    found = f.object.members
    if (name := strictjson.resembling(found, ANSWERS) or next(iter(ANSWERS & found.keys()), None)) is not None:
        raise Malformed(f"{name[:20]!r} in params, which this protocol version does not have")
    return f.object.changed({"task": None}) if "task" in found else f.object
