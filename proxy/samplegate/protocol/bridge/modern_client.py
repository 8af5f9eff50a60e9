"""Pure. Bridge from modern clients to a legacy-only server. Inside is a legacy session, whose client is this bridge.

The bridge is no policy and no door: the inner session decides the server's pushed requests as always. The inner client
has declared nothing, so no `forward` is possible: between two modern requests, no client can be asked. The server gets
the specification's error instead.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from samplegate.protocol import capabilities, frames, rawjson, results, server_requests
from samplegate.protocol.bridge import era_detection, translation
from samplegate.protocol.bridge.calls import FULL, HeldFrame, HeldFrames
from samplegate.protocol.bridge.subscriptions import Key, NotificationFanout
from samplegate.protocol.bridge.translation import Envelope, Refusal, ServerHello
from samplegate.protocol.frames import LEGACY, META_CAPABILITIES, TASKS_EXTENSION, Frame, FrameId
from samplegate.protocol.own_tasks import HOLD
from samplegate.protocol.rawjson import Malformed
from samplegate.protocol.rounds import ClientReply, Conclusion, Effects, Later, Note, Over, Side, ToClient, ToServer
from samplegate.protocol.server_requests import KEY
from samplegate.protocol.session import Session, batch_elements, refused_line
from samplegate.protocol.session_state import (
    CANCELLED,
    DISCOVER,
    INITIALIZE,
    INTERNAL,
    LISTEN,
    PROGRESS,
    SERVER_STREAM,
    OpenCall,
    Pending,
    SessionState,
    request_id,
)
from samplegate.protocol.task_state import Found
from samplegate.protocol.tasks import REQUESTS

MAX_OWN: Final = 10_000  # our requests that the server has not answered
_OWN_INFO: Final = b'{"name":"samplegate","version":"0"}'  # used if no client names itself


class ServerHandshake:
    """Handshake of the gate, as the client of one legacy server."""

    def __init__(self, state: SessionState, inner: Session, patience: float) -> None:
        self.hello: ServerHello | None = None
        """The server's description of itself, once it is open."""
        self.under_way = False
        self.waiting = HeldFrames()
        self._state = state
        self._inner = inner
        self._patience = patience
        self._timer: str | None = None
        self._own: dict[FrameId, str] = {}
        self._numbers = 0

    def open(self, client: bytes | None, now: float) -> Effects:
        """Open the server, unless that is under way. ``client``: the waiting client's info, raw JSON (R116)."""
        out: Effects = []
        if not self.under_way:
            self.under_way = True
            params = (
                b'{"protocolVersion":'
                + rawjson.dump(LEGACY[-1])
                + b',"capabilities":{},"clientInfo":'
                + (client or _OWN_INFO)
                + b"}"
            )
            out = self.ask(INITIALIZE, params, now)
        if self._timer is None:
            self._timer = self._state.new_round()
            out.append(Later(self._patience, self._timer))
        return out

    def ask(self, method: str, params: bytes, now: float) -> Effects:
        """Send a request of our own."""
        if len(self._own) >= MAX_OWN:
            return [Note("bridge.refused", {"server": self._state.server, "method": method})]
        self._numbers += 1
        self._own[self._numbers] = method
        return self._inner.frame("client", INTERNAL, frames.request(self._numbers, method, params), now)

    def answered(self, f: Frame) -> str:
        """Process the answer to a request of our own: ``opened``, ``refused``, or the method of that request."""
        method = self._own.pop(f.id, "") if f.id is not None else ""
        if method != INITIALIZE:
            return method
        self.under_way, self._timer = False, None
        try:
            self.hello = translation.server_hello(f.payload or b"") if f.kind == "result" else None
        except Malformed:
            self.hello = None
        return "refused" if self.hello is None else "opened"

    def is_due(self, token: str) -> bool:
        """Whether the timeout of the waiting frames has elapsed. A later answer still opens the server."""
        if token != self._timer:
            return False
        self._timer = None
        return True

    def end(self) -> list[HeldFrame]:
        """End the handshake and return the frames that still wait."""
        self.under_way, self._timer = False, None
        self._own.clear()
        return self.waiting.take()


_INNER: Final = server_requests.KINDS | {CANCELLED, PROGRESS}
"""The notifications that the inner session attributes or refuses."""


class ServerTranslator:
    """Translation of one server's frames for modern clients. ``own`` gets the server's answers to the bridge itself."""

    def __init__(
        self, state: SessionState, inner: Session, handshake: ServerHandshake, own: Callable[[Frame], Effects]
    ) -> None:
        self.fanout = NotificationFanout(state)
        self.asked: dict[Key, str] = {}
        """The methods of the clients' requests that are with the server."""
        self._state = state
        self._inner = inner
        self._handshake = handshake
        self._own = own

    def over(self, key: Key) -> str | None:
        """Remove a finished client request and return its method."""
        self.fanout.leave(key)
        return self.asked.pop(key, None)

    def end(self) -> None:
        """Clear all requests and subscriptions."""
        self.asked.clear()
        self.fanout = NotificationFanout(self._state)

    def frame(self, stream: int, line: bytes | Frame, now: float) -> Effects:
        """Process one line of the server.

        Requests and notifications that the inner session would pass to a legacy client are answered or distributed
        here.
        """
        f = _with_method(line)
        if f is not None and f.kind == "request" and f.method not in server_requests.KINDS:
            return [ToServer(SERVER_STREAM, _answer(f))]
        if f is not None and f.kind == "notification" and f.method not in _INNER:
            return self._notification(stream, f)
        return self.translate(self._inner.frame("server", stream, line, now))

    def translate(self, effects: Effects) -> Effects:
        """The inner session's effects for its legacy client, translated for the modern clients."""
        out: Effects = []
        for effect in effects:
            if isinstance(effect, ToClient):
                out += self._to_client(effect)
            elif not isinstance(effect, Over) or effect.stream != INTERNAL:
                out.append(effect)
        return out

    def _to_client(self, effect: ToClient) -> Effects:
        f = effect.frame or frames.read(effect.line)
        if f.kind == "request":  # from a batch
            return self._inner.frame("client", INTERNAL, _answer(f), 0.0)
        if f.kind == "notification":
            return self._passed(effect, f)
        return self._own(f) if effect.stream == INTERNAL else self._answered(effect, f)

    def _passed(self, effect: ToClient, f: Frame) -> Effects:
        if f.method == PROGRESS and effect.stream != INTERNAL:
            return [effect]
        if f.method == CANCELLED:  # a server may only cancel a client's listen, and here it has none
            return [Note("cancel.unmatched", {"side": "server"}, warn=False)]
        return self._notification(SERVER_STREAM, f)

    def _notification(self, stream: int, f: Frame) -> Effects:
        """Distribute a notification other than progress and cancellation; one with two readings is refused."""
        try:
            return self.fanout.distribute(stream, f)
        except Malformed as problem:
            return [Note("frame.refused", {"side": "server", "fault": problem.fault})]

    def _answered(self, effect: ToClient, f: Frame) -> Effects:
        stream, hello = effect.stream, self._handshake.hello
        method = None if f.id is None else self.over((stream, f.id))
        if f.id is None or method is None:  # sent before the server's era was known
            return [effect]
        try:
            return [ToClient(stream, _modern(method, f, None if hello is None else hello.info), True)]
        except Malformed as problem:
            line = frames.error(f.id, results.INTERNAL, f"invalid response from the server: {problem.fault}")
            return [Note("frame.refused", {"side": "server", "fault": problem.fault}), ToClient(stream, line, True)]


def _with_method(line: bytes | Frame) -> Frame | None:
    """The frame of a request or notification; None for every other line and for unreadable ones.

    The inner session handles those.
    """
    # an envelope cannot spell it otherwise, and answers can be large
    if b'"method"' not in (line.raw if isinstance(line, Frame) else line):
        return None
    try:
        return frames.of(line)
    except Malformed:
        return None


def _modern(method: str, f: Frame, info: bytes | None) -> bytes:
    if f.kind == "error":
        return translation.modern_error(f)
    return rawjson.splice(f.raw, ("result",), translation.modern_result(method, f.payload or b"", info))


def _answer(f: Frame) -> bytes:
    """Our answer to a server's request that is not for the gate.

    That is a ping (R104), or a request for a capability that this client does not have (R105).
    """
    assert f.id is not None
    if f.method == "ping":
        return frames.result(f.id, b"{}")
    return frames.error(f.id, results.METHOD_NOT_FOUND, f"method not found: {f.method[:100]}")


_GONE: Final = frozenset({"notifications/initialized", "notifications/roots/list_changed", PROGRESS})
"""Client notifications that the modern era does not have.

Progress would be on requests, which a modern client never gets.
"""
_NO_FORWARD: Final = rawjson.dump(
    {"code": results.METHOD_NOT_FOUND, "message": "a client with this protocol version cannot be sent requests"}
)
PATIENCE: Final = 60.0  # seconds that clients wait for the server to open; a first start may install it


class ModernClient:
    """Modern clients, on any number of streams, of one legacy server; it has the methods of ``Session``."""

    def __init__(
        self,
        state: SessionState,
        patience: float = PATIENCE,
        *,
        is_sent_back: Callable[[int, Frame], bool] = lambda _stream, _frame: False,
    ) -> None:
        """``is_sent_back``: whether a ``server/discover`` gets a legacy server's answer (``era_detection``)."""
        state.maps_ids = True  # modern ids are unique only among those in flight, legacy ones forever (R57)
        self._is_sent_back = is_sent_back
        self.state = state
        self._inner = Session(state)
        self._handshake = ServerHandshake(state, self._inner, patience)
        self._translator = ServerTranslator(state, self._inner, self._handshake, self._own_answered)
        self._gone = False
        self._waits: dict[str, tuple[str, bytes]] = {}
        """Rounds that wait for a reviewer, by the token of their ``Later``."""
        own = self._inner.exchange.own
        own.translate, own.carries_on = self._as_modern, False

    @property
    def ready(self) -> bool:
        """Whether the server has answered ``initialize``."""
        return self._handshake.hello is not None

    @property
    def opening(self) -> bool:
        """Whether ``initialize`` is with the server."""
        return self._handshake.under_way

    @property
    def idle(self) -> bool:
        """Whether no client waits for anything."""
        return not (self._translator.asked or self._translator.fanout.listens.open or self._handshake.waiting.held)

    @property
    def waits(self) -> list[HeldFrame]:
        """The frames that wait for the server to open."""
        return self._handshake.waiting.held

    def give_back(self) -> list[HeldFrame]:
        """Remove and return the waiting frames, which another object then handles."""
        return self._handshake.waiting.take()

    # -- the methods of a session
    # ----------------------------------------------------------------------------------------------------------

    def frame(self, side: Side, stream: int, line: bytes | Frame, now: float) -> Effects:
        """Process one line of a side. Never raises because of a peer's input."""
        if side == "server":
            return self._translator.frame(stream, line, now)
        try:
            f = frames.of(line)
        except Malformed as problem:
            assert isinstance(line, bytes)
            return _unreadable(stream, line, problem)
        try:
            return self._client(stream, f, now)
        except Malformed as problem:
            return _refused(stream, Malformed(problem.fault, f.id, answers=f.kind in ("result", "error")))

    def lost(self, side: Side, stream: int, head: bytes, fault: str) -> Effects:
        """Refuse a line that could not be read completely."""
        effects = self._inner.lost(side, stream, head, fault)
        return effects if side == "client" else self._translator.translate(effects)

    def lost_end(self, side: Side, stream: int, head: bytes, tail: bytes) -> Effects:
        """Refuse the line by its end, if its beginning did not show which peer waits."""
        effects = self._inner.lost_end(side, stream, head, tail)
        return effects if side == "client" else self._translator.translate(effects)

    def round_done(self, round: str, conclusion: Conclusion, now: float) -> Effects:
        """Apply the gate's conclusion to a round."""
        return self._translator.translate(self._inner.round_done(round, conclusion, now))

    def forward(self, round: str) -> Effects:
        """Reply to the round with an error at once, because no client can be asked. No decision should lead here."""
        return [ClientReply(round, KEY, False, _NO_FORWARD)]

    def unforward(self, round: str, reason: str) -> Effects:
        """No effects, because nothing was forwarded."""
        return []

    def round_progress(self, round: str, tokens: int = 0) -> Effects:
        """Progress notifications for a round that is still running."""
        return self._translator.translate(self._inner.round_progress(round, tokens))

    def due(self, token: str) -> Effects:
        """Handle a ``Later`` whose delay has elapsed."""
        if (waits := self._waits.pop(token, None)) is not None:
            return self._detach(*waits)
        if not self._handshake.is_due(token):
            return self._translator.translate(self._inner.due(token))
        return self._not_opened("the server did not answer initialize in time")

    def task_stepped(self, token: str, found: Found) -> Effects:
        """Continue after a ``TaskStep``, with the record of the task or the reason for none."""
        before = [key for key in self._translator.asked if key in self.state.inflight.asked]
        out = self._inner.task_stepped(token, found)
        for key in before:
            if key not in self.state.inflight.asked:  # the gate goes on with the call
                self._translator.over(key)
        return out

    def read_resource(self, token: str, round: str, uri: str, now: float) -> Effects:
        """Read a resource of the server for a round; the answer is a ``ResourceRead``."""
        return self._translator.translate(self._inner.read_resource(token, round, uri, now))

    def stop_reading(self, token: str) -> Effects:
        """Cancel a read of the gate's own."""
        return self._translator.translate(self._inner.stop_reading(token))

    def open_calls(self) -> list[OpenCall]:
        """The clients' requests without an answer."""
        return [*self._inner.open_calls(), *self._handshake.waiting.open_calls()]

    def questions(self) -> list[FrameId]:
        """No ids, because a modern client never gets a request (R89)."""
        return []

    def overdue(self, now: float, seconds: float) -> Effects:
        """Cancel requests that the server has not answered within ``seconds``, and answer each with an error."""
        return self._translator.translate(self._inner.overdue(now, seconds))

    def stream_closed(self, side: Side, stream: int) -> Effects:
        """Cancel all requests on a client's closed stream (R99, T35)."""
        if side == "server":
            return self._translator.translate(self._inner.stream_closed(side, stream))
        self._handshake.waiting.stream_closed(stream)
        out: Effects = []
        for key in [key for key in self._translator.fanout.listens.open if key[0] == stream]:
            out += self._unlisten(key)
        for key in [key for key in self._translator.asked if key[0] == stream]:
            out += self._cancel(key, rawjson.Object(b"{}", {}))
        return [effect for effect in out if not isinstance(effect, Over)]

    def undelivered(self, id: FrameId) -> Effects:
        """No effects, because a modern client never gets a request."""
        return []

    def eof(self, side: Side) -> Effects:
        """Handle the permanent end of a side; if the server ended, every waiting client gets an error."""
        out = self._translator.translate(self._inner.eof(side))
        self._gone = True
        waiting, asked, listens = (
            self._handshake.end(),
            [*self._translator.asked],
            list(self._translator.fanout.listens.open.values()),
        )
        self._translator.end()
        if side == "client":
            return [effect for effect in out if not isinstance(effect, ToClient)]
        for listen in listens:
            out.append(ToClient(listen.stream, frames.result(listen.id, listen.ended()), True))
        left = [
            (held.stream, held.frame.id)
            for held in waiting
            if held.frame.kind == "request" and held.frame.id is not None
        ]
        return out + [_error(stream, id, results.INTERNAL, self.state.end_reason) for stream, id in [*asked, *left]]

    # -- from the clients
    # ------------------------------------------------------------------------------------------------------------------

    def _client(self, stream: int, f: Frame, now: float) -> Effects:
        if f.kind == "request":
            return self._request(stream, f, now)
        if f.kind != "notification":
            return [Note("frame.unasked", {"side": "client"})]  # a modern client never gets a request (R89)
        if f.method == CANCELLED:
            return self._cancelled(stream, f)
        if f.method in _GONE or f.method.startswith("notifications/tasks"):
            return [Note("frame.unasked", {"side": "client"}, warn=False)]
        if self._handshake.hello is None:
            kept = self._handshake.waiting.add(stream, f, now) if self._handshake.under_way else False
            return [] if kept else [Note("frame.unasked", {"side": "client"})]
        return self._notification(stream, f, now)

    def _notification(self, stream: int, f: Frame, now: float) -> Effects:
        bare = translation.bare(f)
        return (
            []
            if isinstance(bare, Refusal)
            else self._translator.translate(self._inner.frame("client", stream, bare.frame, now))
        )

    def _request(self, stream: int, f: Frame, now: float) -> Effects:
        assert f.id is not None
        key = (stream, f.id)
        if (
            key in self._translator.asked
            or key in self._translator.fanout.listens.open
            or self._handshake.waiting.has(stream, f.id)
            or self.state.is_ours(f.id)
        ):
            return [_error(stream, f.id, results.INVALID_REQUEST, "a request with this id is already in flight")]
        if f.method in REQUESTS and self.state.tasks:
            return self._about_task(stream, f, now)
        said = translation.removed(f.method) or translation.read_envelope(f)
        if isinstance(said, Refusal):
            return [ToClient(stream, said.line(f.id), True)]
        translation.check(f)
        if self._gone:
            return [_error(stream, f.id, results.INTERNAL, "the server has stopped")]
        if self._handshake.hello is None:
            if not self._handshake.waiting.add(stream, f, now):
                return [_error(stream, f.id, results.INTERNAL, FULL)]
            return self._translator.translate(self._handshake.open(said.client, now))
        return self._opened(stream, f, said, self._handshake.hello, now)

    def _opened(self, stream: int, f: Frame, said: Envelope, hello: ServerHello, now: float) -> Effects:
        """Process a request with a valid envelope, after the server has opened."""
        assert f.id is not None
        if f.method == DISCOVER:
            if self._is_sent_back(stream, f):
                return [era_detection.refusal(stream, f)]
            own_tasks = self.state.tasks and self.state.policy.has_reviews
            found = translation.discover_result(hello, tasks=own_tasks)
            return [ToClient(stream, frames.result(f.id, found), True)]
        if f.method == LISTEN:
            return self._listen(stream, f, hello, now)
        bare = translation.bare(f)
        if isinstance(bare, Refusal):
            note = Note("state.refused", {"server": self.state.server, "fault": bare.message})
            return [note, ToClient(stream, bare.line(f.id), True)]
        out: Effects = (
            [Note("answers.unsolicited", {"server": self.state.server, "method": f.method})] if bare.answers else []
        )
        level = self._translator.fanout.enter((stream, f.id), said.level, hello)
        if level is not None:
            out += self._own("logging/setLevel", {"level": level}, now)
        self._translator.asked[stream, f.id] = f.method
        sent = self._translator.translate(self._inner.frame("client", stream, bare.frame, now))
        pending = self.state.inflight.asked.get((stream, f.id))
        if pending is not None:
            pending.detaches = f.method == "tools/call" and self._may_detach(f)
        return out + sent

    def _may_detach(self, f: Frame) -> bool:
        """Whether calls of the request's client may become tasks of the gate."""
        return (
            self.state.tasks
            and f.may_contain(TASKS_EXTENSION.encode())  # decoding each request would cost more
            and self.state.policy.has_reviews
            and capabilities.declared_by(f.meta.raw(META_CAPABILITIES)).tasks
        )

    def _about_task(self, stream: int, f: Frame, now: float) -> Effects:
        """Answer a request about a task of the gate, the only tasks before a legacy server."""
        said = translation.read_envelope(f)
        assert f.id is not None
        if isinstance(said, Refusal):
            return [ToClient(stream, said.line(f.id), True)]
        client = capabilities.declared_by(f.meta.raw(META_CAPABILITIES))
        pending = Pending(stream, f.id, f.id, f.method, now, modern=True, client=client)
        pending.identity = self.state.identity_on(stream)
        return self._inner.exchange.tasks.request(pending, f, passes=False)

    def wait_long(self, round: str, nonce: bytes) -> Effects:
        """Handle a round that waits for a reviewer: soon, its calls become tasks. ``nonce``: random, for their IDs."""
        token = self.state.new_round()
        self._waits[token] = round, nonce
        return [Later(HOLD, token)]

    def _detach(self, round: str, nonce: bytes) -> Effects:
        push = self._inner.pushes.open.get(round)
        out: Effects = []
        for pending in [] if push is None else self.state.inflight.still_open(push.calls):
            if pending.detaches and pending.stream != INTERNAL:
                out += self._inner.exchange.own.detach(pending, nonce)
        return out

    def _as_modern(self, result: bytes) -> bytes:
        hello = self._handshake.hello
        return translation.modern_result("tools/call", result, None if hello is None else hello.info)

    def _listen(self, stream: int, f: Frame, hello: ServerHello, now: float) -> Effects:
        assert f.id is not None
        begun = self._translator.fanout.listens.begin(stream, f.id, f.payload, hello.capabilities)
        if isinstance(begun, Refusal):
            return [ToClient(stream, begun.line(f.id), True)]
        listen, new = begun
        out: Effects = [ToClient(stream, listen.acknowledged())]
        for uri in new:
            out += self._own("resources/subscribe", {"uri": uri}, now)
        return out

    def _cancelled(self, stream: int, f: Frame) -> Effects:
        id = request_id(f)
        if id is not None and self._handshake.waiting.remove(stream, id):
            return [Over(stream)]
        if id is not None and (stream, id) in self._translator.fanout.listens.open:
            return self._unlisten((stream, id))
        if id is None or (stream, id) not in self._translator.asked:
            return [Note("cancel.unmatched", {"side": "client"}, warn=False)]
        return self._cancel((stream, id), f.object.changed(translation.without_envelope(f.meta)))

    def _cancel(self, key: Key, params: rawjson.Object) -> Effects:
        """Cancel a client's request: at the server under the server's id, and its rounds are withdrawn (R100)."""
        self._translator.over(key)
        line = frames.notification(CANCELLED, bytes(params.changed({"requestId": rawjson.dump(key[1])}).text))
        return self._translator.translate(self._inner.frame("client", key[0], line, 0.0))

    def _unlisten(self, key: Key) -> Effects:
        out: Effects = []
        for uri in self._translator.fanout.listens.end(key) or ():
            out += self._own("resources/unsubscribe", {"uri": uri}, 0.0)
        return [*out, Over(key[0])]

    def _own(self, method: str, params: object, now: float) -> Effects:
        """Send the server a request of our own, on a stream that belongs to no client."""
        return self._translator.translate(self._handshake.ask(method, rawjson.dump(params), now))

    # -- opening the server
    # ------------------------------------------------------------------------------------------------------------------

    def _own_answered(self, f: Frame) -> Effects:
        """Process the server's answer to a request of our own."""
        what = self._handshake.answered(f)
        if what == "opened":
            return self._all_open()
        if what == "refused":
            error = f.payload if f.kind == "error" else None
            return self._not_opened("the server rejected initialize", error)
        return [Note("bridge.refused", {"server": self.state.server, "method": what})] if f.kind == "error" else []

    def _all_open(self) -> Effects:
        """Complete the handshake and send the server the waiting frames, in their order."""
        out: Effects = self._inner.frame(
            "client", INTERNAL, frames.notification("notifications/initialized", b"{}"), 0.0
        )
        hello = self._handshake.hello
        assert hello is not None
        for held in self._handshake.waiting.take():
            try:
                said = translation.read_envelope(held.frame) if held.frame.kind == "request" else None
                if isinstance(said, Envelope):
                    out += self._opened(held.stream, held.frame, said, hello, held.now)
                else:
                    out += self._notification(held.stream, held.frame, held.now)
            except Malformed as problem:
                out += _refused(held.stream, Malformed(problem.fault, held.frame.id))
        return out

    def _not_opened(self, fault: str, error: bytes | None = None) -> Effects:
        """Answer all waiting requests with an error; the next request tries to open the server again."""
        data = None if error is None else rawjson.dump({"initialize": msgspec.Raw(error)})
        message = fault if error is None else translation.rejected(INITIALIZE, error)
        out: Effects = [Note("bridge.closed", {"server": self.state.server, "fault": fault})]
        for held in self._handshake.waiting.take():
            if held.frame.kind == "request" and held.frame.id is not None:
                out.append(ToClient(held.stream, frames.error(held.frame.id, results.INTERNAL, message, data), True))
        return out


def _error(stream: int, id: FrameId, code: int, message: str) -> ToClient:
    return ToClient(stream, frames.error(id, code, message), True)


def _unreadable(stream: int, line: bytes, problem: Malformed) -> Effects:
    found = batch_elements(line, problem, "")  # the modern era has no batches
    assert isinstance(found, Malformed)
    return refused_line("client", line, found, partial(_refused, stream))


def _refused(stream: int, problem: Malformed) -> Effects:
    """Log the refused line, and answer with an error if a peer would otherwise wait forever."""
    out: Effects = [Note("frame.refused", {"side": "client", "fault": problem.fault})]
    if problem.id is None or problem.answers:
        return out
    return [*out, _error(stream, problem.id, results.INVALID_REQUEST, f"refused: {problem.fault}")]
