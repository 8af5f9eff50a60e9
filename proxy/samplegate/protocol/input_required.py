"""Pure. Rounds of the modern era: ``input_required`` results, answered by hidden retries (R60 to R70).

The client never sees these retries. Questions for the client leave with a state that only this gate can open. A round
that takes longer than the client waits leaves in the same way. The client's retry reopens the round unchanged (R68).

A client may send answers before the server asked (the fourth door of T3). They are recorded and passed on only if all
rules that can match are `forward`, because only then would the client have been asked. Otherwise they are refused or
removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from samplegate.protocol import capabilities, frames, rawjson, request_state, results, server_requests, strictjson
from samplegate.protocol.capabilities import Declarations
from samplegate.protocol.evidence import EvidenceObserver
from samplegate.protocol.frames import CALLS, META, META_CAPABILITIES, META_LOG_LEVEL, Frame
from samplegate.protocol.outcomes import Answered, CallDrawn, Reason, Withdrawn
from samplegate.protocol.own_tasks import HOLD, OwnTasks
from samplegate.protocol.requests import ELICITATION, ROOTS, SAMPLING, BadRequest, Kind
from samplegate.protocol.results import second_reading
from samplegate.protocol.rounds import (
    PARKS,
    Effects,
    ForwardRound,
    Item,
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
from samplegate.protocol.session_state import (
    ANSWERS,
    DISCOVER,
    LISTEN,
    MAX_WAITS,
    Pending,
    PollBackoff,
    Routes,
    SessionState,
    call_and_token,
    parsed_size,
    with_client_id,
)
from samplegate.protocol.task_state import FOREVER
from samplegate.protocol.tasks import Tasks


class ReopenedRound(msgspec.Struct, frozen=True):
    """A round that the client's retry reopened."""

    asked: server_requests.InputRequired
    state: bytes | None
    """The server's requestState, raw JSON."""
    returned: Returned
    drawn: tuple[CallDrawn, ...]


def reopen_round(
    state: SessionState, pending: Pending, text: str | None, answers: bytes | None, now: float
) -> ReopenedRound | str:
    """The round of a sealed state, with the raw ``inputResponses`` of the retry; the reason if it does not open.

    The call's counts continue.
    """
    opened = request_state.unseal_round(state, pending, text, now)
    if isinstance(opened, str):
        return opened
    pending.rounds, pending.shown, pending.key = opened.rounds, opened.shown, opened.call
    # if the round was only put off, the previous try has had its answer, so this try's own time counts
    if opened.replies is None:
        pending.started = min(now, opened.started - state.epoch)
    server_state = None if opened.state is None else opened.state.encode()
    returned = request_state.read_returned(state, opened, answers, now)
    return ReopenedRound(_asked(state, pending, opened), server_state, returned, opened.drawn)


def _asked(state: SessionState, pending: Pending, opened: request_state.SealedRound) -> server_requests.InputRequired:
    """The server's questions, read again, because the policy may offer less by now."""
    origin = state.origin(pending)
    items = {
        key: server_requests.item(
            sealed.method, None if sealed.params is None else sealed.params.encode(), origin, pending.offer
        )
        for key, sealed in opened.keys.items()
        if sealed.method != ROOTS
    }
    return server_requests.InputRequired(
        items, {key: b"" for key, sealed in opened.keys.items() if sealed.method == ROOTS}, {}, None
    )


class UnsolicitedAnswers(msgspec.Struct, eq=False):
    """Calls of a session with answers that were not asked for, until these are recorded."""

    state: SessionState
    open: dict[str, tuple[Pending, Frame]] = msgspec.field(default_factory=dict)

    def arrive(self, pending: Pending, answers: bytes, f: Frame, bare: rawjson.Object) -> Effects:
        """Handle a call with answers: ``f`` is the call as received, ``bare`` its params without them."""
        given = read_unsolicited(answers)
        if isinstance(given, str):  # unlike an answer to a question, this is not a consent
            return [self._note(pending), _refused(pending, given)]
        if not given:
            return self.state.send(pending, f)
        methods = {key: ELICITATION if _has_action(raw) else SAMPLING for key, raw in given.items()}
        match self._treatment(pending, frozenset(methods.values())):
            case "pass":
                return self._open(pending, {key: _item(method, given[key]) for key, method in methods.items()}, f)
            case "refuse":
                return [
                    self._note(pending),
                    _refused(pending, "unsolicited inputResponses are not accepted"),
                ]
            case "strip":
                return [self._note(pending), *self.state.send(pending, f, bare)]

    def _treatment(self, pending: Pending, methods: frozenset[str]) -> Literal["pass", "refuse", "strip"]:
        assert pending.call is not None
        state = self.state
        kinds: frozenset[Kind] = frozenset("elicitation" if method == ELICITATION else "sampling" for method in methods)
        return state.policy.unsolicited(
            server=state.server,
            identity=pending.identity,
            call=pending.call,
            client=pending.client,
            kinds=kinds,
        )

    def _open(self, pending: Pending, items: dict[str, Item], f: Frame) -> Effects:
        extra = 2 * len(f.raw)  # the call as received, and the answers by themselves
        if (full := self.state.call_fault(pending.size + extra)) is not None:
            return self.state.refusal(pending, full)
        self.state.inflight.resize(pending, extra)
        origin = self.state.origin(pending)
        round = Round(
            self.state.new_round(),
            "unasked",
            origin,
            pending.client,
            items,
            None,
            pending.started,
            arguments=pending.arguments,
        )
        pending.wire_id = self.state.new_id()  # the server has not seen the call yet
        self.state.enter(pending)
        pending.round = round.id
        self.open[round.id] = (pending, f)
        return [Open(round)]

    def settle(self, settled: Settled, round: str) -> Effects:
        """Send the call on if its answers are recorded; end it otherwise."""
        pending, f = self.open.pop(round)
        pending.round = None
        self.state.inflight.remove(pending)
        self.state.inflight.resize(pending, 0)
        refused = next(
            (release for release in settled.releases.values() if not isinstance(release.outcome, Answered)), None
        )
        if refused is None:
            pending.wire_id = pending.id
            return self.state.send(pending, f)
        if isinstance(refused.outcome, Withdrawn):
            return [Over(pending.stream, pending.id)]
        return [
            ToClient(pending.stream, results.ended_call(pending.id, pending.method, "modern", "input", refused), True)
        ]

    def cancelled(self, round: str) -> Effects | None:
        """Withdraw the round of a cancelled call; None if the round is not one of these."""
        return None if self.open.pop(round, None) is None else [Withdraw(round)]

    def end(self) -> list[str]:
        """Clear the state after a side has ended for good, and return the rounds that were open."""
        rounds = list(self.open)
        self.open.clear()
        return rounds

    def _note(self, pending: Pending) -> Note:
        return Note("answers.unsolicited", {"server": self.state.server, "method": pending.method})


def _item(method: str, answer: bytes) -> Item:
    return Item(method, None, BadRequest(results.BAD_PARAMS, "unsolicited"), offered=True, answer=answer)


def _refused(pending: Pending, fault: str) -> ToClient:
    return ToClient(pending.stream, frames.error(pending.id, results.BAD_PARAMS, fault), True)


def _has_action(answer: bytes) -> bool:
    """Whether an answer belongs to an elicitation: of the two result types, only that one has an ``action``."""
    return answer[:1] == b"{" and "action" in rawjson.fields(answer)


_NOT_PLAIN: Final = "an answer in inputResponses is not a JSON object, or is ambiguous JSON"


def read_unsolicited(answers: bytes) -> dict[str, bytes] | str:
    """Each answer of ``inputResponses``, raw; or the reason why all of them are refused."""
    try:
        given = {key: bytes(raw) for key, raw in rawjson.fields(answers).items()}
        if len(given) > server_requests.MAX_KEYS:
            return f"inputResponses has more than {server_requests.MAX_KEYS} answers"
        plain = all(
            isinstance(one, dict) and second_reading(one) is None for one in strictjson.decode(answers).values()
        )
        return given if plain else _NOT_PLAIN
    except (rawjson.Malformed, strictjson.JsonFault):
        return _NOT_PLAIN


def has_answers(params: rawjson.Object) -> bool:
    """Whether a call contains answers or a state.

    Raises rawjson.Malformed for a spelling that another parser may fold to one of these names.
    """
    if (name := strictjson.resembling(params.members, ANSWERS)) is not None:
        raise rawjson.Malformed(f"{name[:20]!r} in params resembles a protocol member")
    return not ANSWERS.isdisjoint(params.members)


MAX_ROUNDS: Final = 10  # input rounds in one call, as the SDKs' own clients count (R66)


class PendingRound(msgspec.Struct, eq=False):
    """A round that waits for its outcomes, and its call."""

    pending: Pending
    round: Round
    entries: Mapping[str, bytes]
    state: bytes | None
    """The server's requestState, raw JSON."""


class Exchange:
    """The modern calls of a session."""

    def __init__(self, state: SessionState, witness: EvidenceObserver, routes: Routes, parks: int = PARKS) -> None:
        """``parks`` is how often one call may be put off."""
        self.state = state
        self._evidence = witness
        self.open: dict[str, PendingRound] = {}
        self.unasked = UnsolicitedAnswers(state)
        self.own = OwnTasks(state, self._reopen)
        self.tasks = Tasks(state, routes, self.own)
        self._declarations = Declarations(state)
        self.pauses = PollBackoff(state)
        self._parks = parks

    # -- the client's requests
    # -------------------------------------------------------------------------------------------------------------

    def request(self, stream: int, f: Frame, meta: rawjson.Object, now: float) -> Effects:
        """Process a request with the modern envelope: insert our capabilities, and check the answers in it."""
        assert f.id is not None
        call, token = call_and_token(f, modern=True)
        identity = self.state.identity_on(stream)
        declaration = self._declarations.of(meta, call, identity.name)
        pending = Pending(
            stream,
            f.id,
            f.id,
            f.method,
            now,
            call,
            token,
            None,
            True,
            declaration.revision,
            declaration.client,
            declaration.offer,
        )
        pending.identity, pending.level = identity, META_LOG_LEVEL in meta.members
        self.state.note_trace(pending, f, stream)
        ours: dict[str, bytes] = {} if declaration.line is None else {META_CAPABILITIES: declaration.line}
        own_token = self.state.own_token(pending)
        if own_token is not None:
            ours["progressToken"] = own_token
        params = f.object.changed({META: bytes(meta.changed(ours).text)}) if ours else None
        if call is not None:  # no other request is retried
            pending.params = bytes(params.text) if params is not None else f.payload
            pending.size += len(pending.params or b"")
        notes = self._declarations.withheld(declaration, call, identity.name)
        if call is None and strictjson.fold(f.method).strip().startswith("tasks/"):  # others are no such methods
            return [*notes, *self.tasks.request(pending, f, params)]
        if f.method == LISTEN and (subscribed := self.tasks.subscribe(pending, f, params)) is not None:
            return [*notes, *subscribed]
        if f.method in CALLS and not ANSWERS.isdisjoint(f.object.members):
            return [*notes, *self._returns(pending, params or f.object, f, now)]
        return [*notes, *self.state.send(pending, f, params)]

    def _returns(self, pending: Pending, params: rawjson.Object, f: Frame, now: float) -> Effects:
        """Process a call that contains ``requestState`` or ``inputResponses``."""
        state, answers = params.raw("requestState"), params.raw("inputResponses")
        if state == b"null":  # some clients write null for "none" (T9); it is not passed on
            state, params = None, params.changed({"requestState": None})
        bare = params.changed({"requestState": None, "inputResponses": None})
        pending.size += len(bare.text) - len(pending.params or b"")
        pending.params = bytes(bare.text)
        if state is not None:
            return self._reopen(pending, state, answers, now)
        if answers is None:
            return self.state.send(pending, f, params)
        return self.unasked.arrive(pending, answers, f.changed(payload=params), bare)

    def _reopen(self, pending: Pending, state: bytes, answers: bytes | None, now: float) -> Effects:
        """Reopen a sealed round (R68). A state that does not open here for this very call is an error."""
        back = reopen_round(self.state, pending, rawjson.string(state), answers, now)
        if isinstance(back, str):
            refused = frames.error(pending.id, results.BAD_PARAMS, back)
            note = Note("state.refused", {"server": self.state.server, "fault": back})
            return [note, ToClient(pending.stream, refused, True)]
        extra = _size(back.asked, back.state, back.returned)
        if (full := self.state.call_fault(pending.size + extra)) is not None:
            return self.state.refusal(pending, full)
        pending.wire_id = self.state.new_id()  # the server has never seen this try
        self.state.enter(pending)
        self.state.inflight.resize(pending, extra)
        return self._open(pending, back.asked, back.state, back.returned, back.drawn)

    # -- the server's answers
    # --------------------------------------------------------------------------------------------------------------

    def answered(self, pending: Pending, f: Frame) -> Effects | None:
        """Effects of a modern result that does not simply pass on; None for all others."""
        if pending.task is not None:
            return self.tasks.answered(pending, f)
        kind = server_requests.result_type(f.object)
        if kind == "task":
            created = self.tasks.created(pending, f)
            return [
                *self._evidence.asked(pending),
                *(self._fail(pending, created) if isinstance(created, str) else created),
            ]
        if kind != server_requests.INPUT_REQUIRED:
            return self._discovered(pending, f) if pending.method == DISCOVER else None
        return [*self._evidence.asked(pending), *self._input_required(pending, f)]

    def _input_required(self, pending: Pending, f: Frame) -> Effects:
        if pending.call is None:
            return self._fail(pending, "the server asked for input where the protocol does not allow it")
        asked = server_requests.input_required(f.object, self.state.origin(pending), pending.offer)
        if isinstance(asked, str):
            return self._fail(pending, f"the server sent an invalid input_required result: {asked}")
        if not asked.entries:
            if (full := self._grow(pending, len(asked.state or b""))) is not None:
                return full
            later = self.pauses.begin(pending, asked.state)
            return (
                [later]
                if later is not None
                else self._fail(pending, f"the server postponed the call more than {MAX_WAITS} times in a row")
            )
        if asked.roots and not pending.client.roots:
            return self._fail(pending, "the server asked for roots, which the client did not declare")
        pending.rounds += 1
        pending.waits = 0
        if pending.rounds > MAX_ROUNDS:
            over = {key: msgspec.structs.replace(item, refused=Reason.ROUNDS) for key, item in asked.items.items()}
            if not over:
                return self._fail(pending, f"the server asked for input more than {MAX_ROUNDS} times in one call")
            asked = msgspec.structs.replace(asked, items=over)
        if (full := self._grow(pending, _size(asked, asked.state, None))) is not None:
            return full
        return self._open(pending, asked, asked.state, None)

    def _grow(self, pending: Pending, extra: int) -> Effects | None:
        """Reserve memory for the server's part of a call; end the call if there is no room."""
        fault = self.state.call_fault(extra - pending.extra)
        if fault is not None:
            self.state.inflight.remove(pending)
            return self.state.refusal(pending, fault)
        self.state.inflight.resize(pending, extra)
        return None

    def _open(
        self,
        pending: Pending,
        asked: server_requests.InputRequired,
        state: bytes | None,
        returned: Returned | None,
        drawn: tuple[CallDrawn, ...] = (),
    ) -> Effects:
        portable = request_state.is_portable(pending, asked, state, {} if returned is None else returned.replies)
        # the gate does not give up its own calls, as clients do
        parks = (PARKS if pending.own else max(self._parks - pending.shown, 0)) if portable else 0
        round = Round(
            self.state.new_round(),
            "input_required",
            self.state.origin(pending),
            pending.client,
            asked.items,
            asked=None,
            called=None if pending.own else pending.started,
            roots=frozenset(asked.roots),
            returned=returned,
            drawn=drawn,
            client_has_token=pending.token is not None,
            call_ids=self.state.call_ids([pending]),
            session=self.state.token,
            parks=parks,
            arguments=pending.arguments,
            own=pending.own,
            hold=HOLD if parks and self.own.takes(pending) else None,
        )
        self.open[round.id] = PendingRound(pending, round, asked.entries, state)
        pending.round = round.id
        return [Open(round)]

    def _discovered(self, pending: Pending, f: Frame) -> Effects | None:
        """Pass on a server's discovery result: without the Tasks extension if tasks do not pass (R108), and with it if
        calls may become tasks of the gate: some clients declare tasks only to a server that has them."""
        raw = f.lookup("capabilities")
        if raw is None:
            return None
        offered = raw if self.state.tasks else capabilities.without_tasks_extension(raw)
        if self.state.tasks and self.state.policy.has_reviews:
            offered = capabilities.with_tasks_extension(raw)
        if offered == raw:
            return None
        self.state.inflight.remove(pending)
        f = with_client_id(pending, f.changed(payload=f.object.changed({"capabilities": offered})))
        return [ToClient(pending.stream, f.raw, True, frame=f)]

    def due(self, token: str) -> Effects:
        """Retry a call after its pause."""
        if (own := self.own.due(token)) is not None:
            return own
        pending = self.pauses.over(token)
        return [] if pending is None else self._retry(pending, None, pending.state)

    def _retry(self, pending: Pending, responses: bytes | None, state: bytes | None) -> Effects:
        """Send the same call again under a new id, with the answers and the server's state byte for byte (R63)."""
        assert pending.params is not None
        params = pending.params
        if responses is not None:
            params = rawjson.splice(params, ("inputResponses",), responses)
        if state is not None:
            params = rawjson.splice(params, ("requestState",), state)
        pending.round = pending.state = None
        pending.rewound = pending.renewed = True
        self.state.inflight.rewire(pending, self.state.new_id())
        line = frames.request(pending.wire_id, pending.method, params)
        self.state.inflight.resize(pending, len(line) if self.state.streams else 0)  # as in ``SessionState.send``
        return [self.state.to_server(pending, line)]

    def _fail(self, pending: Pending, fault: str) -> Effects:
        """End the call because of the server's error."""
        self.state.inflight.remove(pending)
        return [
            Note("call.failed", {"server": self.state.server, "method": pending.method, "fault": fault}),
            ToClient(pending.stream, frames.error(pending.id, results.INTERNAL, f"refused: {fault}"), True),
        ]

    # -- the gate's conclusions
    # ------------------------------------------------------------------------------------------------------------

    def settle(self, settled: Settled, round: str) -> Effects:
        """Retry the call with the answers of all keys, or end it if a key can only do that (R70)."""
        asked = self.open[round]
        out = self._settled(asked, settled)
        del self.open[round]  # only now: after a fault, the round can still be settled in another way
        return out

    def _settled(self, asked: PendingRound, settled: Settled) -> Effects:
        pending = asked.pending
        if results.is_withdrawn(settled):
            self.state.inflight.remove(pending)
            return [Over(pending.stream, pending.id)]
        found = results.responses(asked.round, settled)
        if isinstance(found, tuple):
            return self._end(pending, *found)
        answers = rawjson.object_of(found)
        if pending.own:
            return self.own.sending(pending, lambda: self._retry(pending, answers, asked.state))
        return self._retry(pending, answers, asked.state)

    def _end(self, pending: Pending, kind: str, release: Release) -> Effects:
        self.state.inflight.remove(pending)
        return [ToClient(pending.stream, results.ended_call(pending.id, pending.method, "modern", kind, release), True)]

    def hand_on(self, conclusion: ForwardRound, round: str, now: float) -> Effects:
        """Send the client the keys that it must answer, if any, and seal the rest until its retry.

        Raises ValueError for a round that may not be put off, which is an internal error of the gate.
        """
        asked = self.open[round]
        pending, parked = asked.pending, request_state.is_put_off(asked.round, conclusion)
        if parked and asked.round.parks < 1:
            raise ValueError("the call cannot be put off again")
        becomes_task = pending.own != "" or (parked and self.own.takes(pending))
        state = request_state.seal_round(
            self.state,
            pending,
            asked.round,
            conclusion,
            server_state=asked.state,
            now=now,
            lifetime=FOREVER if becomes_task else request_state.LIFETIME,
        )
        del self.open[round]
        self.state.inflight.remove(pending)
        if state is None:
            return self._fail(
                pending, "the call cannot be sealed: its params contain numbers or nesting that cannot be parsed"
            )
        asks = (
            {}
            if parked
            else {
                key: server_requests.entry_for_client(
                    raw, pending.client, cut=self.state.policy.cuts_ui(self.state.server)
                )
                for key, raw in asked.entries.items()
                if key in conclusion.keys or key in asked.round.roots
            }
        )
        if pending.own:
            return self.own.put_off(pending, state, asks, conclusion.expires)
        if becomes_task:
            return self.own.create(pending, state, conclusion)
        return [ToClient(pending.stream, results.input_required(pending.id, asks, state), True)]

    def cancelled(self, pending: Pending) -> Effects | None:
        """Withdraw the round of a cancelled call; None if the call is with the server, which then must be notified."""
        if pending.round is None:
            return None
        if (held := self.tasks.cancelled(pending)) is not None or (held := self.own.cancelled(pending)) is not None:
            return held
        if self.pauses.over(pending.round) is not None:
            return []
        return None if self.open.pop(pending.round, None) is None else [Withdraw(pending.round)]

    def end(self) -> list[str]:
        """Clear the state after a side has ended for good, and return the rounds that were open.

        Pauses are dropped, and later warnings about withheld capabilities are logged again.
        """
        self.own.end()
        rounds = [*self.open, *self.unasked.end(), *self.tasks.end()]
        self.open.clear()
        self.pauses.waiting.clear()
        self._declarations = Declarations(self.state)
        return rounds


def _size(asked: server_requests.InputRequired, state: bytes | None, returned: Returned | None) -> int:
    """Bytes counted for an open round."""
    kept = [state, *asked.entries.values(), *(() if returned is None else returned.replies.values())]
    return parsed_size(item.params for item in asked.items.values()) + sum(len(raw) for raw in kept if raw is not None)
