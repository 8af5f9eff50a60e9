"""The modern era's calls: rounds inside ``input_required`` results, answered by retries that the client never sees (R60 to R70).

What the client must answer is handed on under a state that only this gate can open; its retry reopens the round. Not the legacy doors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from samplegate.core import frames, jsontext
from samplegate.core.decisions import Answered, Reason, Unanswered, Withdrawn
from samplegate.core.eras import CALLS, META, META_CAPABILITIES, META_LOG_LEVEL
from samplegate.core.frames import Frame
from samplegate.core.requests import Origin
from samplegate.core.session import declared, doors, seal, sealing, shapes
from samplegate.core.session.declarations import Declarations
from samplegate.core.session.inflight import Pending, call_and_token, trace_of
from samplegate.core.session.rounds import (
    ROOTS,
    Effect,
    ForwardRound,
    Later,
    Note,
    Open,
    Over,
    Release,
    Returned,
    Round,
    Settled,
    ToClient,
    Withdraw,
)
from samplegate.core.session.routing import unmapped
from samplegate.core.session.state import State
from samplegate.core.session.unasked import Unasked, brings_answers

Effects = list[Effect]
MAX_ROUNDS: Final = 10  # questions in one call, as the SDKs' own clients count (R66)
MAX_WAITS: Final = 100  # states without questions in a row: eight minutes at the longest pause
FIRST_PAUSE: Final = 0.25
LONGEST_PAUSE: Final = 5.0


class Asked(msgspec.Struct, eq=False):
    """A round that waits for its outcomes, and the call it belongs to."""

    pending: Pending
    round: Round
    entries: Mapping[str, bytes]
    state: bytes | None
    """The server's requestState, raw JSON."""


class Exchange:
    """The modern calls of a session."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.open: dict[str, Asked] = {}
        self.unasked = Unasked(state)
        self._declarations = Declarations(state)
        self._paused: dict[str, Pending] = {}

    # -- the client's requests -------------------------------------------------------------------------------------------------------------

    def request(self, lane: int, f: Frame, meta: bytes, now: float) -> Effects:
        """A request with the modern envelope: our capabilities in place, and no answers in it that passed no policy."""
        assert f.id is not None
        assert f.payload is not None
        if f.method.startswith("tasks/"):  # the extension was not offered, so the method does not exist here (R108)
            return [ToClient(lane, frames.error(f.id, shapes.METHOD_NOT_FOUND, f"method not found: {f.method[:100]} (tasks are not relayed)"), True)]
        call, token = call_and_token(f, modern=True)
        caller, fields = self.state.caller_on(lane), jsontext.fields(meta)
        declaration = self._declarations.of(fields, call, caller)
        pending = Pending(lane, f.id, f.id, f.method, now, call, token, f.payload, True, declaration.revision, declaration.client, declaration.offer)
        pending.caller, pending.level = caller, META_LOG_LEVEL in fields
        pending.trace = trace_of(f.raw, f.payload) or self.state.traces.get(lane, "")
        line, ours = f.raw, meta if declaration.line is None else jsontext.splice(meta, (META_CAPABILITIES,), declaration.line)
        own_token = self.state.own_token(pending)
        if own_token is not None:
            ours = jsontext.splice(ours, ("progressToken",), own_token)
        if ours is not meta:
            pending.params = jsontext.splice(f.payload, (META,), ours)
            line = jsontext.splice(f.raw, ("params",), pending.params)
        params = pending.params
        assert params is not None
        notes = self._declarations.withheld(declaration)
        if f.method in CALLS and brings_answers(params):
            return [*notes, *self._returns(pending, params, f, now)]
        return [*notes, *self.state.send(pending, line)]

    def _returns(self, pending: Pending, params: bytes, f: Frame, now: float) -> Effects:
        """A call that brings ``requestState`` or ``inputResponses`` along."""
        state = jsontext.lookup(params, "requestState")
        if state == b"null":  # some write it for "none" (T9); it is not passed on
            state, params = None, jsontext.splice(params, ("requestState",), None)
        answers = jsontext.lookup(params, "inputResponses")
        bare = jsontext.splice(jsontext.splice(params, ("requestState",), None), ("inputResponses",), None)
        pending.params = bare
        if state is not None:
            return self._reopen(pending, state, answers, now)
        line = jsontext.splice(f.raw, ("params",), params)
        if answers is None:
            return self.state.send(pending, line)
        return self.unasked.arrive(pending, answers, line, jsontext.splice(f.raw, ("params",), bare))

    def _reopen(self, pending: Pending, state: bytes, answers: bytes | None, now: float) -> Effects:
        """The client comes back with a sealed round (R68): a state that our key does not open for this very call is an error."""
        opened = sealing.opened(self.state, pending, jsontext.string(state), now)
        if opened is None:
            fault = frames.error(pending.id, shapes.BAD_PARAMS, "requestState is not one of ours for this call, or it is too old")
            return [Note("state.refused", {"server": self.state.server}), ToClient(pending.lane, fault, True)]
        pending.rounds, pending.started = opened.rounds, min(now, opened.started - self.state.epoch)
        pending.key = opened.call
        pending.wire_id = self.state.new_id()  # the server has never seen this try
        self.state.enter(pending)
        replies = {} if answers is None or answers[:1] != b"{" else {key: bytes(raw) for key, raw in jsontext.fields(answers).items()}
        forwarded = {key: sealing.seen(self.state, sealed, now) for key, sealed in opened.keys.items() if sealed.forwarded}
        returned = Returned({key: reply for key, reply in replies.items() if key in forwarded}, forwarded)
        server_state = None if opened.state is None else opened.state.encode()
        return self._open(pending, self._asked_again(pending, opened), server_state, returned)

    def _asked_again(self, pending: Pending, opened: seal.SealedRound) -> doors.InputRequired:
        origin = self._origin(pending)
        items = {
            key: doors.item(sealed.method, None if sealed.params is None else sealed.params.encode(), origin, pending.offer)
            for key, sealed in opened.keys.items()
            if sealed.method != ROOTS
        }
        return doors.InputRequired(items, {key: b"" for key, sealed in opened.keys.items() if sealed.method == ROOTS}, {}, None)

    # -- the server's answers --------------------------------------------------------------------------------------------------------------

    def answered(self, pending: Pending, f: Frame) -> Effects | None:
        """A result for a modern request that is not simply passed on; None for all others."""
        if not doors.may_say(f.raw, b"input_required") and not doors.may_say(f.raw, b"task"):
            return self._discovered(pending, f) if pending.method == "server/discover" else None
        assert f.payload is not None
        kind = doors.result_type(f.payload)
        if kind == "task":
            return self._fail(pending, "the server made a task of the call, which was not offered to it")
        if kind != doors.INPUT_REQUIRED:
            return self._discovered(pending, f) if pending.method == "server/discover" else None
        if pending.call is None:
            return self._fail(pending, "the server asked for input where the protocol has none")
        asked = doors.input_required(f.payload, self._origin(pending), pending.offer)
        if isinstance(asked, str):
            return self._fail(pending, f"the server asked for input in a way that cannot be read: {asked}")
        if not asked.entries:
            return self._pause(pending, asked.state)
        if asked.roots and not pending.client.roots:
            return self._fail(pending, "the server asked for roots, which the client did not declare")
        pending.rounds += 1
        pending.waits = 0
        if pending.rounds > MAX_ROUNDS:
            over = {key: msgspec.structs.replace(item, refused=Reason.ROUNDS) for key, item in asked.items.items()}
            if not over:
                return self._fail(pending, f"the server asked for input more than {MAX_ROUNDS} times in one call")
            asked = msgspec.structs.replace(asked, items=over)
        return self._open(pending, asked, asked.state, None)

    def _open(self, pending: Pending, asked: doors.InputRequired, state: bytes | None, returned: Returned | None) -> Effects:
        origin, roots = self._origin(pending), frozenset(asked.roots)
        round = Round(
            self.state.new_round(),
            "input_required",
            pending.lane,
            origin,
            pending.client,
            asked.items,
            asked=None,
            called=pending.started,
            roots=roots,
            returned=returned,
            client_told=pending.token is not None,
            call_ids=self.state.call_ids([pending]),
            session=self.state.token,
        )
        self.open[round.id] = Asked(pending, round, asked.entries, state)
        pending.round = round.id
        return [Open(round)]

    def _discovered(self, pending: Pending, f: Frame) -> Effects | None:
        """What a server says of itself, without the Tasks extension (R108)."""
        assert f.payload is not None
        raw = jsontext.lookup(f.payload, "capabilities")
        if raw is None or (without := declared.without_tasks_extension(raw)) == raw:
            return None
        self.state.inflight.remove(pending)
        line = jsontext.splice(f.raw, ("result", "capabilities"), without)
        return [ToClient(pending.lane, unmapped(pending, line), True)]

    def _pause(self, pending: Pending, state: bytes | None) -> Effects:
        """A state without questions means "come back": retried by us after a pause, never shown to the client."""
        pending.waits += 1
        if pending.waits > MAX_WAITS:
            return self._fail(pending, f"the server put the call off more than {MAX_WAITS} times in a row")
        token = self.state.new_round()
        self._paused[token] = pending
        pending.state = state
        pending.round = token
        return [Later(min(FIRST_PAUSE * 2.0 ** min(pending.waits - 1, 10), LONGEST_PAUSE), token)]

    def due(self, token: str) -> Effects:
        """A pause is over."""
        pending = self._paused.pop(token, None)
        return [] if pending is None else self._retry(pending, None, pending.state)

    def _retry(self, pending: Pending, responses: bytes | None, state: bytes | None) -> Effects:
        """The same call again under a new id, with the answers and the server's state byte for byte (R63)."""
        assert pending.params is not None
        params = pending.params
        if responses is not None:
            params = jsontext.splice(params, ("inputResponses",), responses)
        if state is not None:
            params = jsontext.splice(params, ("requestState",), state)
        pending.round = None
        pending.rewound = True
        self.state.inflight.rewire(pending, self.state.new_id())
        return [self.state.to_server(pending, frames.request(pending.wire_id, pending.method, params))]

    def _fail(self, pending: Pending, fault: str) -> Effects:
        """End the call for what the server did wrong."""
        self.state.inflight.remove(pending)
        return [
            Note("call.failed", {"server": self.state.server, "method": pending.method, "fault": fault}),
            ToClient(pending.lane, frames.error(pending.id, shapes.INTERNAL, f"refused: {fault}"), True),
        ]

    # -- the gate's conclusions ------------------------------------------------------------------------------------------------------------

    def settle(self, settled: Settled, round: str) -> Effects:
        """Every key is answered: retry. One that can only end the call ends it (R70)."""
        asked = self.open[round]
        out = self._settled(asked, settled)
        del self.open[round]  # not before: after a fault the round can still be settled otherwise
        return out

    def _settled(self, asked: Asked, settled: Settled) -> Effects:
        pending = asked.pending
        if any(isinstance(release.outcome, Withdrawn) for release in settled.releases.values()) and not _blocked(settled):
            self.state.inflight.remove(pending)
            return [Over(pending.lane, pending.id)]
        responses: dict[str, bytes] = {}
        for key, item in asked.round.items.items():
            release, kind = settled.releases[key], item.kind
            entry = None if isinstance(release.outcome, Withdrawn) else shapes.nested(kind, release)
            if entry is None:
                return self._end(asked, *_blocking(asked, settled))
            responses[key] = entry
        for key in asked.round.roots:
            reply = None if asked.round.returned is None else asked.round.returned.replies.get(key)
            if reply is None:
                return self._end(asked, "roots", Release(Unanswered(Reason.CLIENT), ""))
            responses[key] = reply
        return self._retry(pending, _object(responses), asked.state)

    def _end(self, asked: Asked, kind: str, release: Release) -> Effects:
        pending = asked.pending
        self.state.inflight.remove(pending)
        return [ToClient(pending.lane, shapes.ended_call(pending.id, pending.method, "modern", kind, release), True)]

    def hand_on(self, conclusion: ForwardRound, round: str, now: float) -> Effects:
        """The keys that the client must answer go to it; the rest waits, sealed, for its return."""
        asked = self.open[round]
        pending = asked.pending
        state = sealing.sealed(self.state, pending, asked.round, conclusion, server_state=asked.state, now=now)
        del self.open[round]
        self.state.inflight.remove(pending)
        if state is None:
            return self._fail(pending, "its call cannot be sealed: the params hold a number or a depth that cannot be read")
        out = {key: asked.entries[key] for key in asked.entries if key in conclusion.keys or key in asked.round.roots}
        return [ToClient(pending.lane, shapes.input_required(pending.id, out, state), True)]

    def cancelled(self, pending: Pending) -> Effects | None:
        """The client takes the call back; None if the call is with the server, which then must be told."""
        if pending.round is None:
            return None
        if self._paused.pop(pending.round, None) is not None:
            return []
        return None if self.open.pop(pending.round, None) is None else [Withdraw(pending.round)]

    def _origin(self, pending: Pending) -> Origin:
        calls = () if pending.call is None else (pending.call,)
        return Origin(self.state.server, pending.caller, "modern", pending.revision, calls, pending.trace)


def _blocked(settled: Settled) -> bool:
    return any(not isinstance(release.outcome, Withdrawn | Answered) for release in settled.releases.values())


def _blocking(asked: Asked, settled: Settled) -> tuple[str, Release]:
    """The key that ends the call: the first that is neither answered nor withdrawn and has no form in ``inputResponses``."""
    for key, item in asked.round.items.items():
        release = settled.releases[key]
        if not isinstance(release.outcome, Withdrawn) and shapes.nested(item.kind, release) is None:
            return item.kind, release
    return "input", Release(Unanswered(Reason.ERROR), "")


def _object(entries: Mapping[str, bytes]) -> bytes:
    return b"{" + b",".join(jsontext.dump(key) + b":" + raw for key, raw in entries.items()) + b"}"
