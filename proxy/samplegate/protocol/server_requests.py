"""Pure. Requests of a server to its client: each way they arrive (T3), read into the items of a round.

Nothing is decided here. A request that a legacy server pushes is a round of one. A forwarded one goes to the client
under an id of ours. A 2025-11-25 server can fail a call with -32042 until the client has opened URLs (R44). Such a call
ends with that error, or without the URLs. ``input_required.py`` handles the ``inputRequests`` of an ``input_required``
result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from samplegate.protocol import frames, rawjson, results, strictjson
from samplegate.protocol.frames import Frame, FrameId
from samplegate.protocol.identity import Identity
from samplegate.protocol.legacy_tasks import LegacyTask, LegacyTasks
from samplegate.protocol.outcomes import Answered, Reason, Unanswered, Withdrawn
from samplegate.protocol.requests import (
    ELICITATION,
    ROOTS,
    SAMPLING,
    BadRequest,
    Call,
    ClientCapabilities,
    ElicitationRequest,
    Offer,
    Origin,
    Request,
    UiRef,
    parse,
    ui_of,
)
from samplegate.protocol.rounds import (
    ClientReply,
    Effects,
    Item,
    Note,
    Open,
    Over,
    Release,
    Round,
    Settled,
    ToClient,
    ToServer,
    Withdraw,
)
from samplegate.protocol.session_state import (
    CANCELLED,
    ENTRY,
    SERVER_STREAM,
    STANDALONE,
    Pending,
    SessionState,
    notification,
    own_token,
    parsed_size,
    token_of,
    with_client_id,
)

KINDS: Final = frozenset({SAMPLING, ELICITATION})
MAX_KEYS: Final = 64  # requests in one round; real ones have one to three
URL_ELICITATION_REQUIRED: Final = -32042
MAX_MEMBERS: Final = 64  # of one entry of a round; real ones have two
MAX_URL_ERROR: Final = 1024 * 1024  # bytes of a -32042 error that is parsed; real ones have one or two URLs
_OF_URL_ERRORS: Final = frozenset({"elicitations"})
_OF_ENTRIES: Final = frozenset({"method", "params"})
INPUT_REQUIRED: Final = "input_required"
_SMALL: Final = 16 * 1024  # bytes of a frame in which searching is cheaper than reading
_OF_RESULTS: Final = frozenset({"resultType", "inputRequests", "requestState"})
_OF_CALLS: Final = frozenset({"resultType", "content", "structuredContent", "isError", "_meta"})
"""Members of most results: none of them resembles one of an input round."""
_COMPLETE: Final = msgspec.Raw(b'"complete"')
_TYPES: Final = frozenset({INPUT_REQUIRED, "complete", "task"})


def item(method: str, params: bytes | None, origin: Origin, offer: Offer) -> Item:
    """One request, parsed; ``offered``: its kind, mode and sub-capability were declared (R8, R31, R61)."""
    parsed = parse(method, params, origin)
    return Item(method, params, parsed, _offered(method, parsed, offer), ui=_ui(parsed, offer))


def _ui(request: Request | BadRequest, offer: Offer) -> UiRef | None:
    """The UI of a form. SEP-3118 allows one only to a server to which it was declared; RICH has no negotiation."""
    if not isinstance(request, ElicitationRequest) or request.mode != "form":
        return None
    return ui_of(request.params, negotiated=offer.ui)


def for_client(params: bytes | None, client: ClientCapabilities, *, cut: bool = False) -> bytes | None:
    """The params of a form for the client: without a UI that it did not declare (SEP-3118). ``cut``: without
    ``params.ui`` (RICH)."""
    if params is None or not may_contain(params, b'"ui"'):
        return params
    if not client.ui and rawjson.lookup(params, "_meta", "ui", "resourceUri") is not None:
        params = rawjson.splice(params, ("_meta", "ui"), None)
    if cut and rawjson.lookup(params, "ui") is not None:
        params = rawjson.splice(params, ("ui",), None)
    return params


def entry_for_client(raw: bytes, client: ClientCapabilities, *, cut: bool = False) -> bytes:
    """An entry of ``inputRequests`` for the client, as ``for_client``."""
    params = rawjson.lookup(raw, "params") if rawjson.string(rawjson.lookup(raw, "method")) == ELICITATION else None
    shown = for_client(params, client, cut=cut)
    return raw if shown is None or shown is params else rawjson.splice(raw, ("params",), shown)


def _offered(method: str, request: Request | BadRequest, offer: Offer) -> bool:
    if isinstance(request, BadRequest):
        return offer.sampling if method == SAMPLING else offer.form or offer.url
    if isinstance(request, ElicitationRequest):
        return offer.url if request.mode == "url" else offer.form
    asks_tools = "tools" in request.params or "toolChoice" in request.params
    return offer.sampling and (offer.sampling_tools or not asks_tools)


def resembles_request_method(method: str) -> bool:
    """Whether a lenient parser reads another method as sampling or elicitation."""
    return method.strip() in KINDS or strictjson.resembles(method.strip(), KINDS)


class InputRequired(msgspec.Struct, frozen=True):
    """A parsed ``input_required`` result."""

    items: Mapping[str, Item]
    roots: Mapping[str, bytes]
    """Keys that ask for roots, with the entry as received."""
    entries: Mapping[str, bytes]
    """Every key's entry as received."""
    state: bytes | None
    """``requestState`` as raw JSON; None if there was none (T9)."""


def result_type(result: rawjson.Object) -> str | None:
    """``resultType`` of a result; None if it has none. Raises rawjson.Malformed for a result with two readings.

    Clients of both eras read a result's members with one model, so these members count in every era.
    """
    found = result.members
    if found.keys() <= _OF_CALLS and found.get("resultType") == _COMPLETE:
        return "complete"
    if (name := strictjson.resembling(found, _OF_RESULTS)) is not None:
        raise rawjson.Malformed(f"{name[:20]!r} in result resembles a protocol member")
    raw = result.raw("resultType")
    said = None if raw is None or raw == b"null" else rawjson.string(raw) or ""
    if said is not None and (not said or "\0" in said or strictjson.resembles(said, _TYPES)):
        raise rawjson.Malformed("parsers may read resultType differently")
    if said != INPUT_REQUIRED and ("inputRequests" in found or "requestState" in found):
        raise rawjson.Malformed("result asks for input, but its resultType is not input_required")
    return said


def has_no_type(result: bytes) -> bool:
    """Whether a frame surely has no member of an input round, however lenient the parser.

    This check is cheap and safe. It returns False for a large frame, which has to be read.
    """
    if len(result) > _SMALL or result.find(b"resultType") >= 0 or not result.isascii():
        return False
    loose = result.decode().lower().replace("_", "")
    return (
        "\\u" not in loose
        and "resulttype" not in loose
        and "inputrequests" not in loose
        and "requeststate" not in loose
    )


def may_contain(text: bytes, word: bytes) -> bool:
    """Whether a JSON spelling of ``word`` may occur in the text; False is certain.

    Searching for one byte is ten times faster than for two, and most large texts contain no escape at all.
    """
    if word in text:
        return True
    return b"\\" in text and (b"\\u" in text or (b"/" in word and b"\\/" in text))


def input_required(result: rawjson.Object, origin: Origin, offer: Offer) -> InputRequired | str:
    """The requests of an ``input_required`` result (R60), or the reason why it is refused."""
    state, asked = result.raw("requestState"), result.raw("inputRequests")
    state = None if state == b"null" else state
    if state is not None and not _is_text(state):
        return "requestState is not a string"
    if asked is None or asked == b"null":
        return (
            InputRequired({}, {}, {}, state) if state is not None else "neither inputRequests nor requestState is set"
        )
    entries = result.inner("inputRequests")
    if entries is None:
        return "inputRequests is not an object"
    count = len(entries.members)
    if not count and state is None:
        return "neither inputRequests nor requestState is set"
    if count > MAX_KEYS:
        return f"inputRequests has {count} entries, more than {MAX_KEYS}"
    try:
        # all entries together may have as many values as one
        strictjson.check_values(bytes(asked) if count > 1 else b"")
    except strictjson.JsonFault as fault:
        return f"inputRequests is too large: {fault}"
    return _by_kind(entries, origin, offer, state)


def _is_text(raw: bytes) -> bool:
    """Whether raw JSON is a string, in UTF-8."""
    try:
        return raw[:1] == b'"' and bool(raw.decode())
    except UnicodeDecodeError:
        return False


def _by_kind(entries: rawjson.Object, origin: Origin, offer: Offer, state: bytes | None) -> InputRequired | str:
    items: dict[str, Item] = {}
    roots: dict[str, bytes] = {}
    texts = {key: bytes(raw) for key, raw in entries.members.items()}
    for key, raw in texts.items():
        entry = entries.inner(key)
        if entry is None:
            return "an entry of inputRequests is not an object"
        if len(entry.members) > MAX_MEMBERS:
            return f"an entry of inputRequests has more than {MAX_MEMBERS} members"
        for name in entry.members:
            if strictjson.resembles(name, _OF_ENTRIES):
                return "an entry of inputRequests has a member that resembles a protocol member"
        method = rawjson.string(entry.raw("method"))
        if method == ROOTS:
            roots[key] = raw
        elif method in KINDS:
            items[key] = item(method, entry.raw("params"), origin, offer)
        else:
            return "an entry of inputRequests is not a sampling, elicitation or roots request"
    return InputRequired(items, roots, texts, state)


def url_elicitations(error: Frame, origin: Origin, offer: Offer) -> Mapping[str, Item] | None:
    """The elicitations of a -32042 error (R44); None for any other error.

    Raises rawjson.Malformed for data with two readings.
    """
    if error.code != URL_ELICITATION_REQUIRED:
        return None
    data = error.object.inner("data") if len(error.raw) <= MAX_URL_ERROR else None
    if data is not None and (name := strictjson.second_reading(data.members, _OF_URL_ERRORS)) is not None:
        raise rawjson.Malformed(f"{name[:20]!r} in the error's data resembles a protocol member")
    raw = None if data is None else data.raw("elicitations")
    try:
        entries = [] if raw is None else msgspec.json.decode(raw, type=list[msgspec.Raw])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        entries = []
    items = {
        str(number): item(ELICITATION, bytes(params), origin, offer) for number, params in enumerate(entries[:MAX_KEYS])
    }
    return items if entries and len(entries) <= MAX_KEYS else {"0": item(ELICITATION, b"{}", origin, offer)}


KEY: Final = ""  # the only key of a pushed round
MAX_OPEN: Final = 1000  # because each open round is a task, and a server chooses how many it asks for


class Push(msgspec.Struct, eq=False):
    """A pushed request that is being answered."""

    id: FrameId
    """The server's id."""
    round: Round
    params: bytes | None
    kind: str
    calls: list[Pending]
    """The calls to which the request may belong."""
    sent: FrameId | None = None
    """Our id at the client, while the request is forwarded."""
    stream: int = STANDALONE
    """The stream on which the request was forwarded."""
    size: int = 0
    """Bytes counted for the request."""
    beats: int = 0


class Pushes(msgspec.Struct, eq=False):
    """The unanswered pushed requests of a session."""

    state: SessionState
    tasks: LegacyTasks
    open: dict[str, Push] = msgspec.field(default_factory=dict)
    _by_id: dict[FrameId, Push] = msgspec.field(default_factory=dict)
    _sent: dict[FrameId, Push] = msgspec.field(default_factory=dict)

    def asks(self, id: FrameId) -> bool:
        """Whether the server has an open request with this id."""
        return id in self._by_id

    def arrive(self, f: Frame, now: float, stream: int = SERVER_STREAM) -> Effects:
        """Open a round for a server's request.

        A request on the stream of a call belongs to that call. Elsewhere, it may belong to any call in flight, and to
        the call that created the task that it names.
        """
        assert f.id is not None
        if len(self.open) >= MAX_OPEN:
            return _refused(f, f"refused: this server already has {MAX_OPEN} open requests")
        state = self.state
        on = state.inflight.numbered.get(stream) if stream else None
        calls = state.inflight.calls() if on is None or on.call is None else [on]
        distinct: dict[Call, list[bytes | None]] = {}
        for pending in calls:
            if pending.call is not None:
                distinct.setdefault(pending.call, []).append(pending.arguments)
        task = self.tasks.of(f.payload, now)
        if task is not None:
            distinct.setdefault(task.call, []).append(task.params)
        params = _kept(tuple(map(tuple, distinct.values())))
        origin = Origin(
            state.server,
            state.caller,
            "legacy",
            state.revision,
            tuple(distinct),
            calls[0].trace if len(calls) == 1 else "",
            calls[0].ambient if len(calls) == 1 else "",
            params,
            _identities(calls, task) or (state.identity,),
        )
        # the params live as long as this request, also if their calls end before it
        size = ENTRY + parsed_size([f.payload]) + origin.params_size
        if (full := state.push_fault(size)) is not None:
            return _refused(f, full)
        asked = item(f.method, f.payload, origin, state.offered)
        called = min((p.started for p in calls), default=None)
        round = Round(
            state.new_round(),
            "push",
            origin,
            state.client,
            {KEY: asked},
            asked=now,
            called=called,
            server_has_token=own_token(f) is not None,
            client_has_token=all(p.token is not None for p in calls),
            call_ids=state.call_ids(calls) if task is None else (task.key, *(state.call_ids(calls) if calls else ())),
            session=state.token,
            arguments=_certain(calls, task),
            request_id=f.id,
            detaches=bool(calls) and all(p.detaches for p in calls),
        )
        push = Push(f.id, round, f.payload, "sampling" if f.method == SAMPLING else "elicitation", calls)
        push.size = size
        state.pushed += push.size
        self.open[round.id] = self._by_id[f.id] = push
        return [Open(round)]

    def settle(self, settled: Settled, round: str) -> Effects:
        """Send the server its answer after the round is done."""
        push = self._close(round)
        if push is None:
            return []
        for pending in push.calls:
            pending.renewed = True
        release = settled.releases[KEY]
        if isinstance(release.outcome, Withdrawn):
            return []
        return [ToServer(SERVER_STREAM, results.pushed(push.id, push.kind, release, push.params))]

    def forward(self, round: str) -> Effects:
        """Forward the request to the client; its reply arrives as ``ClientReply``."""
        push = self.open.get(round)
        if push is None:
            return []
        # chosen only now, because the calls may be over by now
        push.sent, push.stream = self.state.new_id(), self.state.inflight.stream_of(push.calls)
        self._sent[push.sent] = push
        state, method = self.state, push.round.items[KEY].method
        params = _without_task(push.params)
        if method == ELICITATION:
            params = for_client(params, state.client, cut=state.policy.cuts_ui(state.server))
        return [ToClient(push.stream, frames.request(push.sent, method, params), asks=push.sent)]

    def unforward(self, round: str, reason: str) -> Effects:
        """Cancel a forwarded request at the client, because the gate no longer waits for its reply."""
        push = self.open.get(round)
        return [] if push is None else self._cancel_at_client(push, reason)

    def _cancel_at_client(self, push: Push, reason: str) -> Effects:
        if push.sent is None:
            return []
        sent, push.sent = push.sent, None
        self._sent.pop(sent, None)
        stream = (
            push.stream if push.stream in self.state.inflight.streams else self.state.inflight.stream_of(push.calls)
        )
        line = frames.notification(CANCELLED, rawjson.dump({"requestId": sent, "reason": reason}))
        return [ToClient(stream, line, cancels=sent)]

    def sent(self) -> list[FrameId]:
        """Our ids of the requests that are with the client."""
        return list(self._sent)

    def held(self) -> set[int]:
        """The numbers of the calls in which the server waits for an answer."""
        return {pending.number for push in self.open.values() for pending in push.calls}

    def replied(self, id: FrameId, ok: bool, payload: bytes, delivered: bool = True) -> Effects | None:
        """Process the client's result or error, or a failed delivery; None if it answers no request of ours."""
        push = self._sent.pop(id, None)
        if push is None:
            return None
        push.sent = None
        return [ClientReply(push.round.id, KEY, ok, payload, delivered)]

    def cancelled_by_server(self, id: FrameId) -> Effects | None:
        """Withdraw a request that the server cancels; None if it has no request with this id."""
        push = self._by_id.get(id)
        return None if push is None else self._withdraw(push, "the server cancelled its request")

    def call_gone(self, pending: Pending) -> Effects:
        """Withdraw the requests of a cancelled call that can belong to no other call."""
        out: Effects = []
        for push in list(self.open.values()):
            if pending in push.calls and self.state.inflight.still_open(push.calls) in ([], [pending]):
                out += self._withdraw(push, "its call was cancelled")
        return out

    def _withdraw(self, push: Push, reason: str) -> Effects:
        out = self._cancel_at_client(push, reason)
        self._close(push.round.id)
        return [Withdraw(push.round.id), *out]

    def end(self) -> list[str]:
        """Clear the state after a side has ended for good, and return the rounds that were open."""
        rounds = list(self.open)
        for table in (self.open, self._by_id, self._sent):
            table.clear()
        self.state.pushed = 0
        return rounds

    def _close(self, round: str) -> Push | None:
        push = self.open.pop(round, None)
        if push is not None:
            self.state.pushed -= push.size
            self._by_id.pop(push.id, None)
            if push.sent is not None:
                self._sent.pop(push.sent, None)
        return push

    def beat(self, round: str, tokens: int = 0) -> tuple[Push, Effects] | None:
        """Progress for the server, if it gave a token: the number of tokens so far, or one more than before.

        None if the round is not one of these.
        """
        push = self.open.get(round)
        if push is None:
            return None
        token = token_of(push.params)
        push.beats = max(push.beats + 1, tokens)
        return push, [] if token is None else [ToServer(SERVER_STREAM, notification(token, push.beats))]


MAX_CANDIDATES: Final = 64
"""Calls in flight whose params are kept for one request of the server."""
MAX_PARAMS: Final = 4 * 1024 * 1024
"""Bytes of these params."""
MAX_IDENTITIES: Final = 8
"""Identities of one request of the server. Each is combined with each of the calls."""


def _kept(params: tuple[tuple[bytes | None, ...], ...]) -> tuple[tuple[bytes | None, ...], ...]:
    """The params of the calls in flight; none if there are too many."""
    every = [one for of_call in params for one in of_call]
    fit = len(every) <= MAX_CANDIDATES and sum(len(one or b"") for one in every) <= MAX_PARAMS
    return params if fit else ()


def _certain(calls: list[Pending], task: LegacyTask | None) -> bytes | None:
    """The params of the only call to which a request may belong; None if it is not certain."""
    if task is None:
        return calls[0].arguments if len(calls) == 1 else None
    return None if calls else task.params


def _identities(calls: list[Pending], task: LegacyTask | None) -> tuple[Identity, ...]:
    """The identities of calls and of a task, each once. Of too many, one that is not known stands for all."""
    every = [pending.identity for pending in calls] + ([] if task is None else [task.identity])
    found = tuple(dict.fromkeys(every))
    return found if len(found) <= MAX_IDENTITIES else (Identity(found[0].name),)


def _refused(f: Frame, fault: str) -> Effects:
    assert f.id is not None
    note = Note("frame.refused", {"side": "server", "fault": fault})
    return [note, ToServer(SERVER_STREAM, frames.error(f.id, results.REJECTED, fault))]


def _without_task(params: bytes | None) -> bytes | None:
    """The params without ``task``: we declared no tasks for these kinds, so a client must not create one (R106)."""
    if params is None or rawjson.lookup(params, "task") is None:
        return params
    return rawjson.splice(params, ("task",), None)


class UrlErrors(msgspec.Struct, eq=False):
    """The -32042 errors of a session that are being decided."""

    state: SessionState
    open: dict[str, tuple[Pending, bytes]] = msgspec.field(default_factory=dict)

    def arrive(self, pending: Pending, f: Frame) -> Effects | None:
        """Open a round for a -32042 error; None for any other error."""
        state = self.state
        origin = state.origin(pending)
        items = url_elicitations(f, origin, pending.offer if pending.modern else state.offered)
        if items is None:
            return None
        line = with_client_id(pending, f).raw
        extra = len(line) + parsed_size(item.params for item in items.values())
        if (full := state.call_fault(extra)) is not None:
            state.inflight.remove(pending)
            return state.refusal(pending, full)
        state.inflight.resize(pending, extra)
        round = Round(
            state.new_round(),
            "url_error",
            origin,
            pending.client if pending.modern else state.client,
            items,
            asked=None,
            called=pending.started,
            call_ids=state.call_ids([pending]),
            session=state.token,
            arguments=pending.arguments,
        )
        self.open[round.id] = (pending, line)
        pending.round = round.id
        return [Open(round)]

    def settle(self, settled: Settled, round: str) -> Effects:
        """Pass the error on as received if the client is to open every URL; otherwise end the call without the URLs."""
        pending, line = self.open[round]
        out = self._settled(pending, line, settled, round)
        del self.open[round]  # only now: after a fault, the round can still be settled in another way
        self.state.inflight.remove(pending)
        return out

    def _settled(self, pending: Pending, line: bytes, settled: Settled, round: str) -> Effects:
        left = [release for release in settled.releases.values() if not _left_to_client(release)]
        if not left:
            return [ToClient(pending.stream, line, True)]
        blocking = next((release for release in left if not isinstance(release.outcome, Withdrawn)), None)
        if blocking is None:
            return [Over(pending.stream, pending.id)]
        if isinstance(blocking.outcome, Answered):
            blocking = Release(Unanswered(Reason.ERROR), blocking.decision_id)
            return [Note("round.faulty", {"round": round}), ToClient(pending.stream, _ended(pending, blocking), True)]
        return [ToClient(pending.stream, _ended(pending, blocking), True)]

    def cancelled(self, round: str) -> Effects | None:
        """Withdraw the round of a cancelled call; None if the round is not one of these."""
        return None if self.open.pop(round, None) is None else [Withdraw(round)]

    def end(self) -> list[str]:
        """Clear the state after a side has ended for good, and return the rounds that were open."""
        rounds = list(self.open)
        self.open.clear()
        return rounds


def _left_to_client(release: Release) -> bool:
    return isinstance(release.outcome, Answered) and release.outcome.decided_by == "client"


def _ended(pending: Pending, release: Release) -> bytes:
    return results.ended_call(
        pending.id, pending.method, "modern" if pending.modern else "legacy", "elicitation", release
    )
