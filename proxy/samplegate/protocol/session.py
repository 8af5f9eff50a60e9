"""Pure. State machine of one server connection with its client: frames in, effects out.

The session has no clock, no await and no I/O, so every interleaving is a test case. The gate decides requests, between
``Open`` and ``round_done``. Frames that are not ours leave with the bytes that arrived (R109). Where an id, a
capability or a state must change, only that part is spliced. The doors are in ``server_requests.py`` (legacy) and
``input_required.py`` (modern).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from samplegate.durations import duration_text
from samplegate.protocol import capabilities, frames, rawjson, results, server_requests, strictjson
from samplegate.protocol.capabilities import modern_meta
from samplegate.protocol.evidence import EvidenceObserver
from samplegate.protocol.frames import LEGACY, META, Frame, FrameId, era_of, has_batches
from samplegate.protocol.input_required import Exchange
from samplegate.protocol.legacy_tasks import LegacyTasks
from samplegate.protocol.rawjson import Malformed
from samplegate.protocol.rounds import (
    PARKS,
    Close,
    Conclusion,
    Effect,
    Effects,
    ForwardRound,
    Note,
    Over,
    ResourceRead,
    Side,
    ToClient,
    ToServer,
    Withdraw,
)
from samplegate.protocol.server_requests import Pushes, UrlErrors
from samplegate.protocol.session_state import (
    CANCELLED,
    INITIALIZE,
    INTERNAL,
    LISTEN,
    SERVER_STREAM,
    OpenCall,
    PassThrough,
    Pending,
    Progress,
    Routes,
    SessionState,
    call_and_token,
    kept,
    request_id,
    with_client_id,
)
from samplegate.protocol.task_state import GET, Found
from samplegate.protocol.tasks import NOTIFICATIONS, Tasks
from samplegate.protocol.tool_results import TASKS_RESULT, ToolResults
from samplegate.protocol.ui_resources import UiReads

MAX_BATCH: Final = 1000  # elements
NESTED_BATCH: Final = Malformed("nested batches are not allowed")


def batch_elements(line: bytes, problem: Malformed, revision: str) -> list[bytes] | Malformed:
    """The elements of a batch as lines, or the reason why the batch is refused.

    ``revision`` is the negotiated one. ``problem`` is the error from reading the line as a frame.
    """
    if not frames.is_batch(line):
        return problem
    if not revision or not has_batches(revision):
        return Malformed("batches are not supported in this protocol version")
    try:
        found = frames.batch(line)
    except Malformed as worse:
        return worse
    if not 0 < len(found) <= MAX_BATCH:
        return Malformed(f"a batch of {len(found)} elements, not of 1 to {MAX_BATCH}")
    return [element.replace(b"\n", b" ").replace(b"\r", b" ") for element in found]


def is_nested_batch(element: bytes) -> bool:
    """Whether an element of a batch is itself a batch."""
    return element[:1] == b"["


def refused_line(
    side: Side, line: bytes, problem: Malformed, answer: Callable[[Malformed], list[Effect]]
) -> list[Effect]:
    """Refuse a line that is not a frame. In a batch, ``answer`` refuses each of the first elements that has an id.

    One note counts the lost requests. Elements beyond ``MAX_BATCH`` count as requests without being read. An unreadable
    batch counts as one, because `--strict` must not miss a lost call.
    """
    if not frames.is_batch(line):
        return answer(problem)
    fault = problem.fault
    try:
        found = frames.batch(line)
    except Malformed:
        return [Note("frame.refused", {"side": side, "fault": fault, "requests": 1})]
    refused = [Malformed(fault, **frames.owner_of(element)) for element in found[:MAX_BATCH]]
    waiting = [one for one in refused if one.id is not None]
    requests = sum(not one.answers for one in waiting) + max(len(found) - MAX_BATCH, 0)
    out: list[Effect] = [Note("frame.refused", {"side": side, "fault": fault, "requests": requests})]
    return out + [effect for one in waiting for effect in answer(one) if not isinstance(effect, Note)]


_MEMBERS: Final = frozenset({"protocolVersion", "capabilities", "clientInfo", "serverInfo", "instructions", "_meta"})
_date: Final = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")


class Handshake(msgspec.Struct, eq=False):
    """Handshake of a session; a client may restart it."""

    state: SessionState
    _asked: dict[FrameId, str] = msgspec.field(default_factory=dict)
    """The revision that the client asked for, by the id under which the server knows the request."""

    @property
    def revision(self) -> str:
        """The negotiated revision, or the requested one until ``initialize`` is answered."""
        return next(iter(self._asked.values()), self.state.revision)

    def request(self, stream: int, f: Frame, now: float) -> Effects:
        """Forward the client's ``initialize``, with the capabilities that the server is offered."""
        assert f.id is not None
        state = self.state
        _plain(f, "params")
        asked = rawjson.string(f.lookup("protocolVersion"))
        revision = asked if asked is not None and era_of(asked) == "legacy" else LEGACY[-1]
        raw = f.lookup("capabilities")
        state.client = capabilities.declared_by(raw)
        state.client_name = strictjson.plain_name((rawjson.string(f.lookup("clientInfo", "name")) or "")[:64])
        state.offered = state.offer("legacy", revision, state.client, None)
        wanted = capabilities.rewrite(raw, state.client, state.offered, revision)
        params = None if wanted == raw else f.object.changed({"capabilities": wanted})
        pending = Pending(stream, f.id, f.id, f.method, now)
        sent = state.send(pending, f, params)
        self._asked = {pending.wire_id: revision}
        withheld = capabilities.withheld_from(state.client, state.offered, revision)
        return [state.withheld("legacy", withheld, None), *sent] if withheld else sent

    def answered(self, f: Frame) -> None:
        """Store the revision that the server chose, if ``f`` answers ``initialize``.

        Raises Malformed for a protocolVersion that is not a date, because all later frames are read by this revision.
        """
        asked = self._asked.pop(f.id, None) if f.id is not None else None
        if asked is None:
            return
        _plain(f, "result")
        said = rawjson.string(f.lookup("protocolVersion"))
        if said is not None and not _date.fullmatch(said):
            raise Malformed("protocolVersion is not a date")
        self.state.revision = said or asked


def _plain(f: Frame, what: str) -> None:
    """Raises Malformed where another parser could find another revision or other capabilities."""
    if (name := strictjson.second_reading(f.object.members, _MEMBERS)) is not None:
        raise Malformed(f"{name[:40]!r} in {what} could be read as another member")


class Cancellations(msgspec.Struct, eq=False):
    """Cancellations from both sides of a session, and calls that exceed their timeout."""

    state: SessionState
    routes: Routes
    pushes: Pushes
    exchange: Exchange
    url_errors: UrlErrors
    tool_results: ToolResults
    passed: PassThrough

    # -- the client
    # ------------------------------------------------------------------------------------------------------------------

    def by_client(self, stream: int, f: Frame) -> Effects:
        """Cancel the request that the client's notification names."""
        id = request_id(f)
        pending = None if id is None else self._request_named(stream, id)
        if pending is None:
            return _unmatched("client")
        return [] if pending.method == INITIALIZE else self.call(pending, f)  # R99: initialize is never cancelled

    def _request_named(self, stream: int, id: FrameId) -> Pending | None:
        """The request that a client's cancellation names.

        Over HTTP, a cancellation arrives as a request of its own. So if the session does not map ids, a request on any
        stream matches.
        """
        inflight = self.state.inflight
        pending = inflight.asked.get((stream, id))
        if pending is not None or self.state.maps_ids or not self.state.revision:
            return pending
        return next(
            (one for one in inflight.asked.values() if one.id == id and not one.modern and one.stream != INTERNAL), None
        )

    def call(self, pending: Pending, f: Frame | None) -> Effects:
        """Cancel a call: withdraw its rounds and cancel it at the server, under the server's id (R100)."""
        return [*self._cancel(pending, f), Over(pending.stream)]

    def _cancel(self, pending: Pending, f: Frame | None) -> Effects:
        out = self.pushes.call_gone(pending)
        held = self.exchange.cancelled(pending) if pending.modern else None
        if held is None and pending.round is not None:
            doors = (self.url_errors, self.tool_results, self.exchange.unasked)
            held = next((gone for door in doors if (gone := door.cancelled(pending.round)) is not None), None)
        self.state.inflight.remove(pending)
        if held is not None:
            return out + held  # the server has already answered, so it has nothing in flight for this call
        if pending.modern and self.state.streams:
            return [*out, Close(pending.number)]
        if f is not None and pending.wire_id == pending.id:
            return [*out, ToServer(SERVER_STREAM, f.raw, f)]
        params = rawjson.splice(
            b"{}" if f is None or f.payload is None else f.payload, ("requestId",), rawjson.dump(pending.wire_id)
        )
        return [*out, ToServer(SERVER_STREAM, frames.notification(CANCELLED, params))]

    def overdue(self, now: float, seconds: float) -> Effects:
        """Cancel requests that the server has not answered within ``seconds``, and answer each with an error (R102)."""
        out: Effects = []
        for pending in self.state.inflight.overdue(now, seconds, self.pushes.held()):
            tool = None if pending.call is None else pending.call.tool
            fault = f"the server did not answer within {duration_text(seconds)} (setting call_timeout)"
            fields = {
                "server": self.state.server,
                "method": pending.method[:100],
                "tool": tool and tool[:100],
                "seconds": seconds,
            }
            out += [*self._cancel(pending, None), Note("call.timed_out", fields)]
            out.append(ToClient(pending.stream, frames.error(pending.id, results.INTERNAL, fault), True))
        return out

    # -- the server
    # ------------------------------------------------------------------------------------------------------------------

    def by_server(self, stream: int, f: Frame) -> Effects:
        """Handle a server's cancellation of its own request, or its end of the client's listen (R99)."""
        id = request_id(f)
        if id is None:
            return _unmatched("server")
        out = self.pushes.cancelled_by_server(id)
        if out is not None:
            return out
        on = self.passed.over(id)
        if on is not None:
            return [
                ToClient(on if on in self.state.inflight.streams else self.routes.request(stream), f.raw, cancels=id)
            ]
        pending = self.state.inflight.wire.get(id)
        if pending is None or pending.read or self.exchange.tasks.is_own(pending):
            return _unmatched("server")
        return self._clients_own(pending, f)

    def _clients_own(self, pending: Pending, f: Frame) -> Effects:
        ends = pending.method == LISTEN
        if ends:
            # the end of the listen, which is the only client request that a server may cancel
            self.state.inflight.remove(pending)
        line = (
            f.raw
            if pending.id == pending.wire_id
            else rawjson.splice(f.raw, ("params", "requestId"), rawjson.dump(pending.id))
        )
        return [ToClient(pending.stream, line, ends)]


def _unmatched(side: Side) -> Effects:
    return [Note("cancel.unmatched", {"side": side}, warn=False)]


UNREADABLE: Final = "the client's answer could not be read"


class Rejections(msgspec.Struct, eq=False):
    """Answers to frames that a session refuses."""

    state: SessionState
    pushes: Pushes
    tasks: Tasks
    passed: PassThrough
    reads: UiReads

    def refused(self, side: Side, stream: int, problem: Malformed, code: int = results.INVALID_REQUEST) -> Effects:
        """Refuse a line because of ``problem``, and answer whichever peer waits for it."""
        note = Note("frame.refused", {"side": side, "fault": problem.fault})
        if problem.id is None:
            return [note]
        if problem.answers:
            return [
                note,
                *(
                    self.no_answer(problem.id, UNREADABLE)
                    if side == "client"
                    else self._servers_answer(problem.id, problem.fault)
                ),
            ]
        line = frames.error(problem.id, code, f"refused: {problem.fault}")
        return [note, ToClient(stream, line, True) if side == "client" else ToServer(SERVER_STREAM, line)]

    def unreadable(self, side: Side, stream: int, line: bytes, problem: Malformed) -> Effects:
        """Refuse a line from which no frame could be read; the line may be a batch."""
        return refused_line(side, line, problem, partial(self.refused, side, stream))

    def lost(self, side: Side, stream: int, head: bytes, fault: str) -> Effects:
        """Refuse a line that could not be read completely.

        ``head`` is its beginning, which usually shows which peer waits for an answer. The relay has already logged the
        line.
        """
        effects = self.refused(side, stream, Malformed(fault, **frames.owner_of(head)), results.INTERNAL)
        return [effect for effect in effects if not isinstance(effect, Note)]

    def no_answer(self, id: FrameId, why: str, *, delivered: bool = True) -> Effects:
        """Answer a request to the client with an error, because the client's answer will not come.

        The error goes to the gate or to the server, whichever waits.
        """
        out = self.pushes.replied(id, False, rawjson.dump({"code": results.INTERNAL, "message": why}), delivered)
        if out is not None or self.passed.over(id) is None:
            return out or []
        return [ToServer(SERVER_STREAM, frames.error(id, results.INTERNAL, why))]

    def _servers_answer(self, id: FrameId, fault: str) -> Effects:
        pending = self.state.inflight.wire.get(id)
        if pending is None or pending.round is not None:  # already answered: its round decides
            return []
        if self.tasks.is_own(pending):
            self.tasks.forget(pending)
            return []
        if pending.read:
            return self.reads.lost(pending, fault)
        self.state.inflight.remove(pending)
        return [
            ToClient(
                pending.stream,
                frames.error(pending.id, results.INTERNAL, f"invalid response from the server: {fault}"),
                True,
            )
        ]


def undelivered(server: str) -> Note:
    """Log note for a request that reached no stream of the client."""
    return Note("request.undelivered", {"server": server})


class Session:
    """Session of one server connection: one stream for each side on stdio, one for each request over HTTP."""

    def __init__(self, state: SessionState, *, parks: int = PARKS) -> None:
        """``parks`` is how often a modern call may be put off; 0 if the client behind keeps waiting on one call."""
        self.state = state
        self.progress = Progress(state.inflight)
        self.routes = Routes(state, self.progress)
        self.legacy_tasks = LegacyTasks(state)
        self.pushes = Pushes(state, self.legacy_tasks)
        self._evidence = EvidenceObserver(state)
        self.exchange = Exchange(state, self._evidence, self.routes, parks)
        self.url_errors = UrlErrors(state)
        self.tool_results = ToolResults(state)
        self.handshake = Handshake(state)
        self.passed = PassThrough()
        self._cancelling = Cancellations(
            state, self.routes, self.pushes, self.exchange, self.url_errors, self.tool_results, self.passed
        )
        self.exchange.own.cancel = lambda pending: self._cancelling.call(pending, None)
        self._reads = UiReads(state, self.exchange.own.cancel)
        self._refusing = Rejections(state, self.pushes, self.exchange.tasks, self.passed, self._reads)
        self._modern_seen = False

    def frame(self, side: Side, stream: int, line: bytes | Frame, now: float) -> Effects:
        """Process one line of a side, or the frame that was read from it. Never raises because of a peer's input."""
        return self.exchange.own.captured(self._frame(side, stream, line, now))

    def _frame(self, side: Side, stream: int, line: bytes | Frame, now: float) -> Effects:
        try:
            parsed = line if isinstance(line, Frame) else frames.read(line)
        except Malformed as problem:
            assert not isinstance(line, Frame)
            return self._unreadable(side, stream, line, problem, now)
        try:
            return self._client(stream, parsed, now) if side == "client" else self._server(stream, parsed, now)
        except Malformed as problem:
            return self._refusing.refused(
                side, stream, Malformed(problem.fault, parsed.id, answers=parsed.kind in ("result", "error"))
            )

    def _unreadable(self, side: Side, stream: int, line: bytes, problem: Malformed, now: float) -> Effects:
        found = batch_elements(line, problem, self.handshake.revision)
        if isinstance(found, Malformed):
            return self._refusing.unreadable(side, stream, line, found)
        out: Effects = []
        for element in found:
            nested = is_nested_batch(element)
            out += (
                self._refusing.unreadable(side, stream, element, NESTED_BATCH)
                if nested
                else self.frame(side, stream, element, now)
            )
        return out

    def lost(self, side: Side, stream: int, head: bytes, fault: str) -> Effects:
        """Refuse a line that could not be read completely.

        ``head`` is its beginning, which usually shows which peer waits for an answer. The relay has already logged the
        line.
        """
        return self.exchange.own.captured(self._refusing.lost(side, stream, head, fault))

    def lost_end(self, side: Side, stream: int, head: bytes, tail: bytes) -> Effects:
        """Refuse the line by its end, if its beginning did not show which peer waits."""
        return (
            []
            if "id" in frames.owner_of(head)
            else self.lost(side, stream, head + tail, "the line is too long (setting max_frame_bytes)")
        )

    def round_done(self, round: str, conclusion: Conclusion, now: float) -> Effects:
        """Apply the gate's conclusion to a round; a round that was withdrawn meanwhile has no effects."""
        return self.exchange.own.captured(self._round_done(round, conclusion, now))

    def _round_done(self, round: str, conclusion: Conclusion, now: float) -> Effects:
        if round in self.exchange.tasks.open:
            tasks = self.exchange.tasks
            return (
                tasks.hand_on(conclusion, round)
                if isinstance(conclusion, ForwardRound)
                else tasks.settle(conclusion, round)
            )
        if isinstance(conclusion, ForwardRound):
            return self.exchange.hand_on(conclusion, round, now) if round in self.exchange.open else []
        if round in self.exchange.open:
            return self.exchange.settle(conclusion, round)
        for door in (self.url_errors, self.tool_results, self.exchange.unasked):
            if round in door.open:
                return door.settle(conclusion, round)
        return self.pushes.settle(conclusion, round)

    def forward(self, round: str) -> Effects:
        """Forward a pushed request to the client; the reply arrives as ``ClientReply``."""
        return self.pushes.forward(round)

    def unforward(self, round: str, reason: str) -> Effects:
        """Cancel a forwarded request at the client, because the gate no longer waits for its reply."""
        return self.pushes.unforward(round, reason)

    def round_progress(self, round: str, tokens: int = 0) -> Effects:
        """Progress notifications for a round that is still running, on the tokens that the peers gave (R101).

        ``tokens`` is the number of tokens that the model has written.
        """
        if round in self.exchange.tasks.open:
            return self.exchange.tasks.renewed(round) if not tokens else []
        found = self.pushes.beat(round, tokens)
        if found is None:
            pending = self._call_of(round)
            line = None if pending is None else self.progress.beat(pending)
            return [] if pending is None or line is None else [ToClient(pending.stream, line)]
        push, out = found
        for pending in self.state.inflight.still_open(push.calls):
            line = self.progress.beat(pending)
            if line is not None:
                out.append(ToClient(pending.stream, line))
        return out

    def _call_of(self, round: str) -> Pending | None:
        """The call whose result asks for input, or asks the user; None if the round is of another kind."""
        asked = self.exchange.open.get(round)
        return self.tool_results.pending(round) if asked is None else asked.pending

    def due(self, token: str) -> Effects:
        """Handle a ``Later`` whose delay has elapsed."""
        return self.exchange.own.captured(self.exchange.due(token))

    def wait_long(self, round: str, nonce: bytes) -> Effects:
        """No effects: see ``ModernClient``."""
        return []

    def task_stepped(self, token: str, found: Found) -> Effects:
        """Continue after a ``TaskStep``, with the record of the task or the reason for none."""
        return self.exchange.own.captured(self.exchange.tasks.stepped(token, found))

    def read_resource(self, token: str, round: str, uri: str, now: float) -> Effects:
        """Read a resource of the server for a round; the answer is a ``ResourceRead`` with this token."""
        push = self.pushes.open.get(round)
        if push is not None:
            identity = push.calls[0].identity if push.calls else self.state.identity
            return self._reads.begin(token, uri, None, identity, now)
        embedded = self.tool_results.resource(round, uri)
        if embedded is not None:
            return [ResourceRead(token, embedded, "")]
        pending, task = self._call_of(round), self.exchange.tasks.open.get(round)
        if pending is not None:
            meta = (rawjson.lookup(pending.params, META) or b"{}") if pending.modern else None
            return self._reads.begin(token, uri, meta, pending.identity, now)
        if task is not None:
            return self._reads.begin(token, uri, task.meta, task.identity, now)
        return [ResourceRead(token, None, "the request has ended")]

    def stop_reading(self, token: str) -> Effects:
        """Cancel a read of the gate's own."""
        return self._reads.give_up(token)

    def open_calls(self) -> list[OpenCall]:
        """The client's requests without an answer."""
        return self.state.inflight.open_calls()

    def questions(self) -> list[FrameId]:
        """The ids of the requests that wait for the client's answer."""
        return [*self.pushes.sent(), *self.passed.open]

    def overdue(self, now: float, seconds: float) -> Effects:
        """Cancel requests that the server has not answered within ``seconds``, and answer each with an error (R102)."""
        return self._cancelling.overdue(now, seconds)

    def stream_closed(self, side: Side, stream: int) -> Effects:
        """Handle the end of a stream. A disconnect cancels in the modern era, but not in the legacy one (T35)."""
        if stream not in self.state.inflight.streams:
            return []
        gone = (
            [p for p in self.state.inflight.asked.values() if p.stream == stream and p.modern]
            if side == "client"
            else []
        )
        return [effect for pending in gone for effect in self._cancelling.call(pending, None)]

    def undelivered(self, id: FrameId) -> Effects:
        """Fail a request for which the client has had no stream for a while, so that no answer will come."""
        why = (
            "the client closed its input and cannot be asked"
            if self.state.silent
            else "the client has no open stream for the request"
        )
        out = self._refusing.no_answer(id, why, delivered=False)
        return [undelivered(self.state.server), *out] if out else []

    def eof(self, side: Side) -> Effects:
        """Handle the permanent end of a side: withdraw all open rounds."""
        self.legacy_tasks.end()
        self.exchange.own.leave()
        errors = self.exchange.own.captured(self._server_ended()) if side == "server" and self.state.outlived else []
        rounds = [*self.pushes.end(), *self.url_errors.end(), *self.tool_results.end(), *self.exchange.end()]
        ended = [*(Withdraw(id) for id in rounds), *self._reads.end()]
        return [*ended, *([Close(SERVER_STREAM)] if side == "client" else errors)]

    def _server_ended(self) -> Effects:
        """Answer the client's open requests with an error after the server ended.

        We never repeat a call, because its progress at the server is unknown.
        """
        inflight = list(self.state.inflight.asked.values())
        for pending in inflight:
            self.state.inflight.remove(pending)
        waiting = [one for one in inflight if not (one.read or self.exchange.tasks.is_own(one))]
        return [ToClient(p.stream, frames.error(p.id, results.INTERNAL, self.state.end_reason), True) for p in waiting]

    # -- from the client
    # ------------------------------------------------------------------------------------------------------------------

    def _client(self, stream: int, f: Frame, now: float) -> Effects:
        if f.kind == "request":
            return self._client_request(stream, f, now)
        if f.kind == "notification":
            return (
                self._cancelling.by_client(stream, f) if f.method == CANCELLED else [ToServer(SERVER_STREAM, f.raw, f)]
            )
        return self._client_answers(f)

    def _client_request(self, stream: int, f: Frame, now: float) -> Effects:
        assert f.id is not None
        if (stream, f.id) in self.state.inflight.asked or self.state.is_ours(f.id):
            return [
                ToClient(
                    stream,
                    frames.error(f.id, results.INVALID_REQUEST, "a request with this id is already in flight"),
                    True,
                )
            ]
        if f.method == INITIALIZE:
            return self.handshake.request(stream, f, now)
        meta = modern_meta(f)
        if meta is not None:
            self._modern_seen = True
            return self.exchange.request(stream, f, meta, now)
        call, token = call_and_token(f, modern=False)
        pending = Pending(
            stream, f.id, f.id, f.method, now, call, token, identity=self.state.identity_on(stream), frame=kept(f, call)
        )
        if pending.frame is not None:
            pending.size += 2 * len(f.raw)  # its params may be parsed from it
        self.state.note_trace(pending, f, stream)
        own_token = self.state.own_token(pending)
        if own_token is None:
            return self.state.send(pending, f)
        return self.state.send(
            pending, f, f.object.changed({META: bytes(f.meta.changed({"progressToken": own_token}).text)})
        )

    def _client_answers(self, f: Frame) -> Effects:
        """Route the client's answer to the gate or to the server.

        An answer to no request is dropped, because it passed no policy (T3).
        """
        if f.id is None:
            return [Note("frame.unasked", {"side": "client"})]
        out = self.pushes.replied(f.id, f.kind == "result", f.payload or b"null")
        if out is not None:
            return out
        return (
            [ToServer(SERVER_STREAM, f.raw, f)]
            if self.passed.over(f.id) is not None
            else [Note("frame.unasked", {"side": "client"})]
        )

    # -- from the server
    # ------------------------------------------------------------------------------------------------------------------

    def _server(self, stream: int, f: Frame, now: float) -> Effects:
        if f.kind == "request":
            return self._server_request(stream, f, now)
        if f.kind == "notification":
            return self._server_notifies(stream, f)
        if f.id is None:  # an error that names no request goes to the client, unless clients share the server
            url_error = f.code == server_requests.URL_ELICITATION_REQUIRED
            if url_error or self.state.maps_ids:
                return [
                    Note(
                        "frame.refused",
                        {
                            "side": "server",
                            "fault": "URL elicitation error without a request id"
                            if url_error
                            else "error without a request id",
                        },
                    )
                ]
            return [ToClient(0, f.raw)]
        pending = self.state.inflight.wire.get(f.id)
        if pending is None or pending.round is not None:
            return [] if self.state.forget_abandoned(f.id) else [Note("frame.unasked", {"side": "server"})]
        self.state.answered = True
        if f.kind == "result" and not pending.modern:
            self.legacy_tasks.answered(pending, f, now)
        seen, out = self._evidence.answered(pending, f), self._server_answers(pending, f)
        return seen + out if seen else out

    def _server_answers(self, pending: Pending, f: Frame) -> Effects:
        held: Effects | None = None
        if pending.read:
            return self._reads.answered(pending, f)
        if self.exchange.tasks.is_own(pending):
            return self.exchange.tasks.confirmed(pending, f)
        refused: Effects = []
        if f.kind == "result" and pending.method in (GET, TASKS_RESULT):
            f, refused = self.tool_results.of_task(f, pending.method)
        if f.kind == "error":
            held = self.url_errors.arrive(pending, f)
        elif pending.modern:
            held = self.exchange.answered(pending, f)
        elif (
            not server_requests.has_no_type(f.raw)
            and server_requests.result_type(f.object) == server_requests.INPUT_REQUIRED
        ):
            raise Malformed("it asks for input in a protocol version that has no input_required result")
        elif pending.method == INITIALIZE:
            self.handshake.answered(f)
        if held is None and f.kind == "result":
            held = self.tool_results.arrive(pending, f)
        if held is not None:
            return refused + held
        self.state.inflight.remove(pending)
        f = with_client_id(pending, f)
        return [*refused, ToClient(pending.stream, f.raw, True, frame=f)]

    def _server_request(self, stream: int, f: Frame, now: float) -> Effects:
        assert f.id is not None
        if f.id in self.passed.open or self.pushes.asks(f.id) or self.state.is_ours(f.id):
            return [
                Note("frame.refused", {"side": "server", "fault": "a request with this id is already in flight"}),
                _duplicate(f.id),
            ]
        if not self.state.revision and self._modern_seen:
            # R89
            refused = Note("frame.refused", {"side": "server", "fault": "servers may not send requests in 2026-07-28"})
            return [refused, *self._evidence.wrote(f)]
        if f.method in server_requests.KINDS:
            return self.pushes.arrive(f, now, stream)
        if server_requests.resembles_request_method(f.method):
            refused = Note("frame.refused", {"side": "server", "fault": "method resembles a protocol method"})
            return [
                refused,
                ToServer(
                    SERVER_STREAM,
                    frames.error(f.id, results.METHOD_NOT_FOUND, "method resembles a protocol method"),
                ),
            ]
        return self.passed.arrive(f, self.routes.request(stream))

    def _server_notifies(self, stream: int, f: Frame) -> Effects:
        if f.method == CANCELLED:
            return self._cancelling.by_server(stream, f)
        if f.method in server_requests.KINDS:
            return [Note("frame.refused", {"side": "server", "fault": "request without an id"})]
        if f.method in NOTIFICATIONS and not self.state.revision:
            f, refused = self.tool_results.of_task(f, f.method)
            return refused + self.exchange.tasks.notified(stream, f)
        tasks = f.method.startswith("notifications/tasks") and not self.state.revision
        # the legacy era's notifications/tasks/status asks nothing
        if tasks or f.method == "notifications/tasks":
            return [Note("frame.refused", {"side": "server", "fault": "tasks were not offered to the server"})]  # R108
        self.legacy_tasks.notified(f)
        return self.routes.notification(stream, f)


def _duplicate(id: FrameId) -> Effect:
    return ToServer(
        SERVER_STREAM, frames.error(id, results.INVALID_REQUEST, "a request with this id is already in flight")
    )
