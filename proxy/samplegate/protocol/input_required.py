"""Pure. Rounds of the modern era: ``input_required`` results, answered by retries that the client never sees (R60 to
R70).

Questions for the client leave under a state that only this gate can open, and so does a round that takes longer than
the client waits. The retry reopens the round unchanged (R68). Answers that a client sends before the server asked (the
fourth door of T3) are passed on, once recorded, only if all rules that can match are `forward`, because only then would
the client have been asked. Otherwise they are refused or removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from samplegate.protocol import capabilities, frames, rawjson, request_state, results, server_requests, strictjson
from samplegate.protocol.capabilities import Declarations
from samplegate.protocol.evidence import EvidenceObserver
from samplegate.protocol.frames import CALLS, META, META_CAPABILITIES, META_LOG_LEVEL, Frame
from samplegate.protocol.outcomes import Answered, Reason, Unanswered, Withdrawn
from samplegate.protocol.requests import BadRequest, Kind
from samplegate.protocol.results import second_reading
from samplegate.protocol.rounds import (
    ELICITATION,
    PARKS,
    ROOTS,
    SAMPLING,
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
    MAX_WAITS,
    Pending,
    PollBackoff,
    SessionState,
    call_and_token,
    parsed,
    trace_of,
    unmapped,
)


class ReopenedRound(msgspec.Struct, frozen=True):
    """A round that is there again."""

    asked: server_requests.InputRequired
    state: bytes | None
    """The server's requestState, raw JSON."""
    returned: Returned


def reopened(
    state: SessionState, pending: Pending, text: str | None, answers: bytes | None, now: float
) -> ReopenedRound | None:
    """The round behind a state, with the raw ``inputResponses`` that came along; None if it is not ours for this call.
    The call's counts go on."""
    opened = request_state.opened(state, pending, text, now)
    if opened is None:
        return None
    pending.rounds, pending.shown, pending.key = opened.rounds, opened.shown, opened.call
    # where it was only put off, this try's own time counts: the one before has had its answer
    if opened.replies is None:
        pending.started = min(now, opened.started - state.epoch)
    server_state = None if opened.state is None else opened.state.encode()
    return ReopenedRound(
        _asked(state, pending, opened), server_state, request_state.returned(state, opened, answers, now)
    )


def _asked(state: SessionState, pending: Pending, opened: request_state.SealedRound) -> server_requests.InputRequired:
    """What the server asked, read again: the policy may offer less by now."""
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
    """The calls of a session that wait for the record of such answers."""

    state: SessionState
    open: dict[str, tuple[Pending, Frame]] = msgspec.field(default_factory=dict)

    def arrive(self, pending: Pending, answers: bytes, f: Frame, bare: rawjson.Object) -> Effects:
        """A call with answers: ``f`` is the call as it came, ``bare`` its params without them."""
        given = read_unasked(answers)
        if isinstance(given, str):  # not a consent, as in an answer to a question
            return [self._note(pending), _refused(pending, given)]
        if not given:
            return self.state.send(pending, f)
        methods = {key: ELICITATION if _says_action(raw) else SAMPLING for key, raw in given.items()}
        match self._fate(pending, frozenset(methods.values())):
            case "pass":
                return self._open(pending, {key: _item(method, given[key]) for key, method in methods.items()}, f)
            case "refuse":
                return [
                    self._note(pending),
                    _refused(pending, "inputResponses that nobody asked for are not taken here"),
                ]
            case "strip":
                return [self._note(pending), *self.state.send(pending, f, bare)]

    def _fate(self, pending: Pending, methods: frozenset[str]) -> Literal["pass", "refuse", "strip"]:
        assert pending.call is not None
        state = self.state
        kinds: frozenset[Kind] = frozenset("elicitation" if method == ELICITATION else "sampling" for method in methods)
        return state.policy.unsolicited(
            server=state.server,
            caller=pending.caller,
            call=pending.call,
            client=pending.client,
            kinds=kinds,
        )

    def _open(self, pending: Pending, items: dict[str, Item], f: Frame) -> Effects:
        extra = 2 * len(f.raw)  # the call as it came, and the answers by themselves
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
        pending.wire_id = self.state.new_id()  # the server has not seen it yet
        self.state.enter(pending)
        pending.round = round.id
        self.open[round.id] = (pending, f)
        return [Open(round)]

    def settle(self, settled: Settled, round: str) -> Effects:
        """The answers are on record, and the call goes on; or they are not, and it ends."""
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
        """The client takes the call back; None if the round is not one of these."""
        return None if self.open.pop(round, None) is None else [Withdraw(round)]

    def end(self) -> list[str]:
        """A side has gone for good: the rounds that were open."""
        rounds = list(self.open)
        self.open.clear()
        return rounds

    def _note(self, pending: Pending) -> Note:
        return Note("answers.unsolicited", {"server": self.state.server, "method": pending.method})


def _item(method: str, answer: bytes) -> Item:
    return Item(method, None, BadRequest(results.BAD_PARAMS, "nobody asked"), offered=True, answer=answer)


def _refused(pending: Pending, fault: str) -> ToClient:
    return ToClient(pending.stream, frames.error(pending.id, results.BAD_PARAMS, fault), True)


def _says_action(answer: bytes) -> bool:
    """Whether an answer is one to an elicitation: of the two results only that has an ``action``."""
    return answer[:1] == b"{" and "action" in rawjson.fields(answer)


_NOT_PLAIN: Final = "inputResponses has an answer that is not an object of one reading"


def read_unasked(answers: bytes) -> dict[str, bytes] | str:
    """Each answer of ``inputResponses``, raw; or why none of them is taken."""
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


def brings_answers(params: rawjson.Object) -> bool:
    """Whether a call brings answers or a state along. Raises jsontext.Malformed for a spelling that another parser may
    fold to them."""
    if (name := strictjson.resembling(params.members, ANSWERS)) is not None:
        raise rawjson.Malformed(f"its params have {name[:20]!r}, which resembles a member of the protocol")
    return not ANSWERS.isdisjoint(params.members)


def is_withdrawn(settled: Settled) -> bool:
    """Whether whoever asked or called took it back, and nothing else ended it."""
    outcomes = [release.outcome for release in settled.releases.values()]
    return any(isinstance(one, Withdrawn) for one in outcomes) and all(
        isinstance(one, Withdrawn | Answered) for one in outcomes
    )


def responses(round: Round, settled: Settled) -> bytes | tuple[str, Release]:
    """``inputResponses`` as raw JSON; or the kind and the release of the key that can only end the call."""
    entries: dict[str, bytes] = {}
    for key, item in round.items.items():
        release = settled.releases[key]
        entry = None if isinstance(release.outcome, Withdrawn) else results.nested(item.kind, release)
        if entry is None:
            return _blocking(round, settled)
        entries[key] = entry
    for key in round.roots:
        reply = None if round.returned is None else round.returned.replies.get(key)
        if reply is None:
            return "roots", Release(Unanswered(Reason.CLIENT), "")
        entries[key] = reply
    return rawjson.object_of(entries)


def _blocking(round: Round, settled: Settled) -> tuple[str, Release]:
    """The key that ends the call: the first that is neither answered nor withdrawn and has no form in
    ``inputResponses``."""
    for key, item in round.items.items():
        release = settled.releases[key]
        if not isinstance(release.outcome, Withdrawn) and results.nested(item.kind, release) is None:
            return item.kind, release
    return "input", Release(Unanswered(Reason.ERROR), "")


MAX_ROUNDS: Final = 10  # questions in one call, as the SDKs' own clients count (R66)


class PendingRound(msgspec.Struct, eq=False):
    """A round that waits for its outcomes, and the call it belongs to."""

    pending: Pending
    round: Round
    entries: Mapping[str, bytes]
    state: bytes | None
    """The server's requestState, raw JSON."""


class Exchange:
    """The modern calls of a session."""

    def __init__(self, state: SessionState, witness: EvidenceObserver, parks: int = PARKS) -> None:
        """``parks``: how often one call may be put off."""
        self.state = state
        self._witness = witness
        self.open: dict[str, PendingRound] = {}
        self.unasked = UnsolicitedAnswers(state)
        self._declarations = Declarations(state)
        self.pauses = PollBackoff(state)
        self._parks = parks

    # -- the client's requests
    # -------------------------------------------------------------------------------------------------------------

    def request(self, stream: int, f: Frame, meta: rawjson.Object, now: float) -> Effects:
        """A request with the modern envelope: our capabilities in place, and no answers in it that passed no policy."""
        assert f.id is not None
        if f.method.startswith("tasks/"):  # the extension was not offered, so the method does not exist here (R108)
            return [
                ToClient(
                    stream,
                    frames.error(
                        f.id, results.METHOD_NOT_FOUND, f"method not found: {f.method[:100]} (tasks are not relayed)"
                    ),
                    True,
                )
            ]
        call, token = call_and_token(f, modern=True)
        caller = self.state.caller_on(stream)
        declaration = self._declarations.of(meta, call, caller)
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
        pending.caller, pending.level = caller, META_LOG_LEVEL in meta.members
        pending.trace = trace_of(f) or self.state.traces.get(stream, "")
        ours: dict[str, bytes] = {} if declaration.line is None else {META_CAPABILITIES: declaration.line}
        own_token = self.state.own_token(pending)
        if own_token is not None:
            ours["progressToken"] = own_token
        params = f.object.changed({META: bytes(meta.changed(ours).text)}) if ours else None
        if call is not None:  # no other request is made again
            pending.params = bytes(params.text) if params is not None else f.payload
            pending.size += len(pending.params or b"")
        notes = self._declarations.withheld(declaration, call, caller)
        if f.method in CALLS and not ANSWERS.isdisjoint(f.object.members):
            return [*notes, *self._returns(pending, params or f.object, f, now)]
        return [*notes, *self.state.send(pending, f, params)]

    def _returns(self, pending: Pending, params: rawjson.Object, f: Frame, now: float) -> Effects:
        """A call that brings ``requestState`` or ``inputResponses`` along."""
        state, answers = params.raw("requestState"), params.raw("inputResponses")
        if state == b"null":  # some write it for "none" (T9); it is not passed on
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
        """The client comes back with a sealed round (R68): a state that our key does not open for this very call is an
        error."""
        back = reopened(self.state, pending, rawjson.string(state), answers, now)
        if back is None:
            fault = frames.error(
                pending.id, results.BAD_PARAMS, "requestState is not one of ours for this call, or it is too old"
            )
            return [Note("state.refused", {"server": self.state.server}), ToClient(pending.stream, fault, True)]
        extra = _size(back.asked, back.state, back.returned)
        if (full := self.state.call_fault(pending.size + extra)) is not None:
            return self.state.refusal(pending, full)
        pending.wire_id = self.state.new_id()  # the server has never seen this try
        self.state.enter(pending)
        self.state.inflight.resize(pending, extra)
        return self._open(pending, back.asked, back.state, back.returned)

    # -- the server's answers
    # --------------------------------------------------------------------------------------------------------------

    def answered(self, pending: Pending, f: Frame) -> Effects | None:
        """A result for a modern request that is not simply passed on; None for all others."""
        kind = server_requests.result_type(f.object)
        if kind == "task":
            return [
                *self._witness.asked(pending),
                *self._fail(pending, "the server made a task of the call, which was not offered to it"),
            ]
        if kind != server_requests.INPUT_REQUIRED:
            return self._discovered(pending, f) if pending.method == DISCOVER else None
        return [*self._witness.asked(pending), *self._input_required(pending, f)]

    def _input_required(self, pending: Pending, f: Frame) -> Effects:
        if pending.call is None:
            return self._fail(pending, "the server asked for input where the protocol has none")
        asked = server_requests.input_required(f.object, self.state.origin(pending), pending.offer)
        if isinstance(asked, str):
            return self._fail(pending, f"the server asked for input in a way that cannot be read: {asked}")
        if not asked.entries:
            if (full := self._grow(pending, len(asked.state or b""))) is not None:
                return full
            later = self.pauses.begin(pending, asked.state)
            return (
                [later]
                if later is not None
                else self._fail(pending, f"the server put the call off more than {MAX_WAITS} times in a row")
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
        """Make room for what the server sent in a call; where there is none, the call ends."""
        fault = self.state.call_fault(extra - pending.extra)
        if fault is not None:
            self.state.inflight.remove(pending)
            return self.state.refusal(pending, fault)
        self.state.inflight.resize(pending, extra)
        return None

    def _open(
        self, pending: Pending, asked: server_requests.InputRequired, state: bytes | None, returned: Returned | None
    ) -> Effects:
        portable = request_state.is_portable(pending, asked, state, {} if returned is None else returned.replies)
        round = Round(
            self.state.new_round(),
            "input_required",
            self.state.origin(pending),
            pending.client,
            asked.items,
            asked=None,
            called=pending.started,
            roots=frozenset(asked.roots),
            returned=returned,
            client_told=pending.token is not None,
            call_ids=self.state.call_ids([pending]),
            session=self.state.token,
            parks=max(self._parks - pending.shown, 0) if portable else 0,
            arguments=pending.arguments,
        )
        self.open[round.id] = PendingRound(pending, round, asked.entries, state)
        pending.round = round.id
        return [Open(round)]

    def _discovered(self, pending: Pending, f: Frame) -> Effects | None:
        """What a server says of itself, without the Tasks extension (R108)."""
        raw = f.lookup("capabilities")
        if raw is None or (without := capabilities.without_tasks_extension(raw)) == raw:
            return None
        self.state.inflight.remove(pending)
        f = unmapped(pending, f.changed(payload=f.object.changed({"capabilities": without})))
        return [ToClient(pending.stream, f.raw, True, frame=f)]

    def due(self, token: str) -> Effects:
        """A pause is over."""
        pending = self.pauses.over(token)
        return [] if pending is None else self._retry(pending, None, pending.state)

    def _retry(self, pending: Pending, responses: bytes | None, state: bytes | None) -> Effects:
        """The same call again under a new id, with the answers and the server's state byte for byte (R63)."""
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
        self.state.inflight.resize(pending, len(line) if self.state.streams else 0)  # as in ``State.send``
        return [self.state.to_server(pending, line)]

    def _fail(self, pending: Pending, fault: str) -> Effects:
        """End the call for what the server did wrong."""
        self.state.inflight.remove(pending)
        return [
            Note("call.failed", {"server": self.state.server, "method": pending.method, "fault": fault}),
            ToClient(pending.stream, frames.error(pending.id, results.INTERNAL, f"refused: {fault}"), True),
        ]

    # -- the gate's conclusions
    # ------------------------------------------------------------------------------------------------------------

    def settle(self, settled: Settled, round: str) -> Effects:
        """Every key is answered: retry. One that can only end the call ends it (R70)."""
        asked = self.open[round]
        out = self._settled(asked, settled)
        del self.open[round]  # not before: after a fault the round can still be settled otherwise
        return out

    def _settled(self, asked: PendingRound, settled: Settled) -> Effects:
        pending = asked.pending
        if is_withdrawn(settled):
            self.state.inflight.remove(pending)
            return [Over(pending.stream, pending.id)]
        found = responses(asked.round, settled)
        return self._retry(pending, found, asked.state) if isinstance(found, bytes) else self._end(pending, *found)

    def _end(self, pending: Pending, kind: str, release: Release) -> Effects:
        self.state.inflight.remove(pending)
        return [ToClient(pending.stream, results.ended_call(pending.id, pending.method, "modern", kind, release), True)]

    def hand_on(self, conclusion: ForwardRound, round: str, now: float) -> Effects:
        """The keys that the client must answer go to it, if any; the rest waits, sealed, for its return.

        Raises ValueError for a round that may not be put off: a fault of the gate's.
        """
        asked = self.open[round]
        pending, parked = asked.pending, request_state.only_put_off(asked.round, conclusion)
        if parked and asked.round.parks < 1:
            raise ValueError("the round cannot be put off any more")
        state = request_state.sealed(self.state, pending, asked.round, conclusion, server_state=asked.state, now=now)
        del self.open[round]
        self.state.inflight.remove(pending)
        if state is None:
            return self._fail(
                pending, "its call cannot be sealed: the params hold a number or a depth that cannot be read"
            )
        asks = (
            {}
            if parked
            else {key: raw for key, raw in asked.entries.items() if key in conclusion.keys or key in asked.round.roots}
        )
        return [ToClient(pending.stream, results.input_required(pending.id, asks, state), True)]

    def cancelled(self, pending: Pending) -> Effects | None:
        """The client takes the call back; None if the call is with the server, which then must be told."""
        if pending.round is None:
            return None
        if self.pauses.over(pending.round) is not None:
            return []
        return None if self.open.pop(pending.round, None) is None else [Withdraw(pending.round)]

    def end(self) -> list[str]:
        """A side has gone for good: the rounds that were open. No pause is waited for any more, and what is withheld is
        said anew."""
        rounds = [*self.open, *self.unasked.end()]
        self.open.clear()
        self.pauses.waiting.clear()
        self._declarations = Declarations(self.state)
        return rounds


def _size(asked: server_requests.InputRequired, state: bytes | None, returned: Returned | None) -> int:
    """Bytes that an open round counts for."""
    kept = [state, *asked.entries.values(), *(() if returned is None else returned.replies.values())]
    return parsed(item.params for item in asked.items.values()) + sum(len(raw) for raw in kept if raw is not None)
