"""Pure. State of a session: the server, the negotiated revision, the requests in flight on both legs with their ids,
progress and pauses. No rules.

The memory that peers' frames leave in a session is counted in bytes and bounded. What a link has not written yet has
bounds of its own. A server's frame goes to the client's stream of the request that it came on, names or can only mean.
If several clients share a server and the request is unknown, the frame is dropped, never guessed (R119). On stdio there
is one stream.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, Final, Literal, Protocol

import msgspec

from samplegate.protocol import frames, rawjson, results, strictjson
from samplegate.protocol.frames import (
    CALLS,
    META,
    META_CAPABILITIES,
    META_LOG_LEVEL,
    META_RELATED_TASK,
    META_VERSION,
    Era,
    Frame,
    FrameId,
)
from samplegate.protocol.rawjson import Malformed, lookup, string
from samplegate.protocol.requests import Call, ClientCapabilities, Kind, Offer, Origin
from samplegate.protocol.rounds import Effect, Effects, Later, Note, ToClient, ToServer
from samplegate.protocol.strictjson import separators

MIB: Final = 1024 * 1024
MOST_CALLS: Final = 128 * MIB
"""Bytes of one session's calls in flight: eight of 15 MiB, or 30,000 small ones."""
MOST_PUSHES: Final = 64 * MIB
"""Bytes of one session's pushed requests: real ones have some KiB, with pictures some MiB."""
MOST_OF_ALL: Final = 512 * MIB
"""Bytes of both, of all sessions of a process together."""
SMALL: Final = 256 * 1024
"""Bytes that a session may have in flight even where others fill the process: small calls go on."""
ENTRY: Final = 4096
"""Bytes that stand for a request without its params: ids, tokens and names are bounded."""
VALUE: Final = 64
"""Bytes that a parsed value takes beside its text."""

CALLS_FULL: Final = f"refused: the calls in flight in this session already hold {MOST_CALLS // MIB} MiB"
PUSHES_FULL: Final = f"refused: the open requests of this server already hold {MOST_PUSHES // MIB} MiB"
ALL_FULL: Final = f"refused: the requests in flight in all sessions already hold {MOST_OF_ALL // MIB} MiB"


def parsed(texts: Iterable[bytes | None]) -> int:
    """Bytes of JSON texts that are kept together with what they were read as."""
    return sum(2 * len(text) + VALUE * separators(text) for text in texts if text is not None)


class Pending(msgspec.Struct, gc=False, eq=False):
    """A client request that the server has not answered yet. A Struct, since one is made for every frame that
    passes."""

    stream: int
    id: FrameId
    """The client's id."""
    wire_id: FrameId
    """The id under which the server knows it now; another one at each retry (R63)."""
    method: str
    started: float
    call: Call | None = None
    """The call that the server may ask during, None for every other method."""
    token: bytes | None = None
    """The client's progressToken, raw JSON, if it gave one."""
    params: bytes | None = None
    """Modern: what a retry sends, without inputResponses and requestState, our capabilities in place."""
    modern: bool = False
    revision: str = ""
    client: ClientCapabilities = ClientCapabilities()
    offer: Offer = Offer()
    rounds: int = 0
    shown: int = 0
    """``input_required`` results that its client has been shown in this call, with questions or without."""
    waits: int = 0
    """State-only answers in a row."""
    caller: str = "local"
    number: int = 0
    """Names it to the server's link: the stream of what belongs to it."""
    wire_token: str | None = None
    """The token under which the server knows its progress, where that is not the client's own."""
    level: bool = False
    """Modern: whether it asked for log messages."""
    trace: str = ""
    """The client's trace context (W3C), as it gave it."""
    key: str = ""
    """The name of the call for limits that count by call, the same for all its rounds and retries (R16); given to it by
    its first round."""
    round: str | None = None
    state: bytes | None = None
    """The server's requestState for the next retry, raw."""
    frame: Frame | None = None
    """Legacy calls: the frame itself, as far as it is not too large to keep."""
    progress: float | None = None
    rewound: bool = False
    """Progress of ours or a retry stands before the server's next value: what does not increase is dropped (R101, T33).
    """
    since: float | None = None
    """When the current wait for the server began; None: when the request came."""
    size: int = ENTRY
    """Bytes that it counts for while it is in flight."""
    extra: int = 0
    """Those among them of its open round, or of the server's state while it pauses."""
    renewed: bool = False
    """The server has shown that it works on the request: the wait begins anew at the next look at the timeouts (R102).
    """

    @property
    def waited_from(self) -> float:
        """When the current wait for the server began."""
        return self.started if self.since is None else self.since

    @property
    def arguments(self) -> bytes | None:
        """Its params for people to read, raw JSON; None where they are not kept."""
        return self.params if self.frame is None else self.frame.payload


def token_of(params: bytes | None) -> bytes | None:
    """The progressToken of a request's params, raw; None if it is absent, neither a string nor a whole number, or has
    two readings."""
    try:
        raw = lookup(params, "_meta", "progressToken")
    except Malformed:
        return None
    return _token(raw)


def is_call(method: str) -> bool:
    """Whether the server may ask during a request (R59). Raises Malformed for a method that a lenient server takes for
    one of these."""
    if method in CALLS:
        return True
    bare = method.strip()
    if bare in CALLS or strictjson.resembles(bare, CALLS):
        raise Malformed(f"its method {method[:40]!r} could be read as another one")
    return False


def call_and_token(f: Frame, *, modern: bool) -> tuple[Call | None, bytes | None]:
    """The call that a request is, if the server may ask during it (R59), and its progressToken.

    Raises Malformed where another parser could find another call in its params.
    """
    if not is_call(f.method) and not modern:
        return None, own_token(f)
    params = f.object.members
    # some libraries take a list for the members in their order
    if not params and f.members is None and f.payload not in (None, b"null"):
        raise Malformed("its params are not an object")
    _single(params, _OF_PARAMS, "params have")
    token = None
    if META in params:
        meta = f.meta
        _single(meta.members, _OF_META, "_meta has")
        token = _token(meta.raw("progressToken"))
    if not modern and not ANSWERS.isdisjoint(params):
        raise Malformed("its params have answers, which this era does not have")
    if f.method not in CALLS:
        return None, token
    named = _text(f, "uri" if f.method == "resources/read" else "name")
    tool = named if f.method == "tools/call" else None
    if tool is not None and len(tool) > MAX_TOOL:
        raise Malformed(f"its tool's name is longer than {MAX_TOOL} characters")
    return Call(f.method, tool), token


def _single(found: Mapping[str, msgspec.Raw], known: frozenset[str], where: str) -> None:
    if found.keys() <= known:
        return
    if (twin := strictjson.second_reading(found, known)) is not None:
        raise Malformed(f"its {where} {twin[:60]!r}, which could be read as another member")


def _text(f: Frame, member: str) -> str | None:
    """What names a call's target, None where nothing does. Numbers and booleans are texts to some parsers, and a NUL
    ends one for others."""
    raw = f.object.raw(member)
    if raw is None or raw == b"null":
        return None
    said = string(raw)
    if said is None or "\0" in said:
        raise Malformed(f"the {member} in its params is not a plain text")
    return said


def own_token(f: Frame) -> bytes | None:
    """As ``token_of``, of a frame's params."""
    if not f.may_say(b"progressToken"):
        return None
    try:
        return _token(f.meta.raw("progressToken"))
    except Malformed:
        return None


def _token(raw: bytes | None) -> bytes | None:
    return raw if frames.plain_id(raw) is not None else None


def trace_of(f: Frame) -> str:
    """The trace context that a request names (R83), empty where it names none of the right form. Raises
    jsontext.Malformed for two readings."""
    if f.raw.find(b"traceparent") < 0:
        return ""
    said = string(f.meta.raw("traceparent"))
    return said if said is not None and _trace.fullmatch(said) else ""


def kept(f: Frame, call: Call | None) -> Frame | None:
    """A legacy client's frame, where a server may ask during it and it is not too large to keep while it is in
    flight."""
    return f if call is not None and len(f.raw) <= MAX_KEPT else None


# characters of a tool's name, which is kept while its call is in flight; real ones have at most 128
MAX_TOOL: Final = 1024
MAX_KEPT: Final = 1024 * 1024  # bytes; nobody reads more, and the line itself is gone once it is written
_trace: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
ANSWERS: Final = frozenset({"requestState", "inputResponses"})
"""The members of a call's params by which answers come back in the modern era."""
_OF_PARAMS: Final = ANSWERS | {"name", "uri", "arguments", "task", META}
_OF_META: Final = frozenset({"progressToken", "traceparent", "tracestate", "baggage", META_RELATED_TASK}) | {
    META_VERSION,
    META_CAPABILITIES,
    META_LOG_LEVEL,
    "io.modelcontextprotocol/clientInfo",
}


STANDALONE: Final = 0
"""The client's stream of what belongs to no request."""

LISTEN: Final = "subscriptions/listen"
INITIALIZE: Final = "initialize"
DISCOVER: Final = "server/discover"
PROBE: Final = "samplegate-probe"
"""The id of the gate's own ``server/discover``."""


class OpenCall(msgspec.Struct, frozen=True):
    """A client's request that has no answer yet."""

    stream: int
    id: FrameId
    method: str
    tool: str | None = None


class Inflight(msgspec.Struct, eq=False):
    """Client requests by both of their ids, their number and their token at the server; and how many each stream
    has."""

    asked: dict[tuple[int, FrameId], Pending] = msgspec.field(default_factory=dict)
    wire: dict[FrameId, Pending] = msgspec.field(default_factory=dict)
    numbered: dict[int, Pending] = msgspec.field(default_factory=dict)
    tokens: dict[str, Pending] = msgspec.field(default_factory=dict)
    streams: dict[int, int] = msgspec.field(default_factory=dict)
    size: int = 0
    """Bytes of all of them."""

    def add(self, pending: Pending) -> None:
        """Take a request in."""
        asked, stream = (pending.stream, pending.id), pending.stream
        if asked not in self.asked:
            self.streams[stream] = self.streams.get(stream, 0) + 1
        self.size += pending.size
        self.asked[asked] = pending
        self.wire[pending.wire_id] = pending
        self.numbered[pending.number] = pending
        if pending.wire_token is not None:
            self.tokens[pending.wire_token] = pending

    def rewire(self, pending: Pending, wire_id: FrameId) -> None:
        """The request goes to the server again, under a new id."""
        self.wire.pop(pending.wire_id, None)
        pending.wire_id = wire_id
        self.wire[wire_id] = pending

    def remove(self, pending: Pending) -> None:
        """The request is over."""
        found = self.asked.pop((pending.stream, pending.id), None)
        if found is not None:
            self.size -= found.size
            found.frame = None  # a pushed request may outlive the call that it belongs to
            left = self.streams.pop(pending.stream) - 1
            if left:
                self.streams[pending.stream] = left
        self.numbered.pop(pending.number, None)
        if pending.wire_token is not None:
            self.tokens.pop(pending.wire_token, None)
        if self.wire.get(pending.wire_id) is pending:
            del self.wire[pending.wire_id]

    def resize(self, pending: Pending, extra: int) -> None:
        """Its open round, or the state of its pause, now takes so many bytes."""
        if self.asked.get((pending.stream, pending.id)) is pending:
            self.size += extra - pending.extra
        pending.size += extra - pending.extra
        pending.extra = extra

    def still(self, some: list[Pending]) -> list[Pending]:
        """Those of ``some`` that are not over."""
        return [pending for pending in some if self.wire.get(pending.wire_id) is pending]

    def stream_of(self, calls: list[Pending]) -> int:
        """The stream for what belongs to one of ``calls``: that of the oldest still in flight, else the standalone
        one."""
        return next((pending.stream for pending in self.still(calls)), STANDALONE)

    def open_calls(self) -> list[OpenCall]:
        """The clients' requests among them, without those that stay open by design."""
        some = (p for p in self.asked.values() if p.stream >= 0 and p.method != LISTEN)
        return [OpenCall(p.stream, p.id, p.method, None if p.call is None else p.call.tool) for p in some]

    def opening(self, *, answered: bool) -> float | None:
        """When the oldest request came that a server answers first. ``answered``: it has answered some request already.

        A modern call is none of these, since it may rightly take long: where one comes first, the gate's own
        ``server/discover`` goes before it.
        """
        return min((p.started for p in self.asked.values() if _opens(p, answered)), default=None)

    def overdue(self, now: float, seconds: float, held: set[int]) -> list[Pending]:
        """Those that the server has not answered in so many seconds. The time in which the gate itself works on a call
        does not count.

        ``held``: the numbers of the calls in which the server itself waits for an answer.
        """
        late = []
        for pending in self.asked.values():
            if pending.round is not None or pending.number in held:
                pending.renewed = True
            elif pending.renewed:
                pending.since, pending.renewed = now, False
            elif now - pending.waited_from >= seconds and _is_timed(pending):
                late.append(pending)
        return late

    def oldest_wait(self) -> float | None:
        """Since when the server has been waited for longest, for a request that has a `call_timeout`."""
        return min((p.waited_from for p in self.asked.values() if not p.renewed and _is_timed(p)), default=None)

    def calls(self) -> list[Pending]:
        """The legacy calls during which a server may be asking, oldest first."""
        return [pending for pending in self.wire.values() if pending.call is not None and not pending.modern]


def _opens(pending: Pending, answered: bool) -> bool:
    """Whether a session waits for this answer before anything else; ``answered``: the server has answered some
    request."""
    if pending.method == INITIALIZE or (pending.method == DISCOVER and pending.stream < 0):
        return not (answered and pending.id == PROBE)
    return not (answered or (pending.modern and pending.call is not None) or pending.method == LISTEN)


def _is_timed(pending: Pending) -> bool:
    """Whether it has a `call_timeout`: not what the gate itself asked, a listen, or ``initialize``, which is never
    cancelled (R99)."""
    return pending.stream >= 0 and pending.method not in (LISTEN, INITIALIZE)


MAX_PASSED: Final = 10_000  # a server chooses how many it asks for


class PassThrough(msgspec.Struct, eq=False):
    """Those that the client has not answered, each with the stream on which it went."""

    open: dict[FrameId, int] = msgspec.field(default_factory=dict)

    def arrive(self, f: Frame, stream: int) -> list[Effect]:
        """One goes on, on a stream of the client's."""
        assert f.id is not None
        if len(self.open) >= MAX_PASSED:
            return [
                ToServer(
                    SERVER_STREAM,
                    frames.error(
                        f.id, results.INVALID_REQUEST, f"refused: {MAX_PASSED} requests wait for the client already"
                    ),
                )
            ]
        self.open[f.id] = stream
        return [ToClient(stream, f.raw, asks=f.id)]

    def over(self, id: FrameId) -> int | None:
        """One is answered or taken back: its stream; None if there is none of this id."""
        return self.open.pop(id, None)


MAX_WAITS: Final = 100  # in a row: eight minutes at the longest pause
FIRST_PAUSE: Final = 0.25
LONGEST_PAUSE: Final = 5.0


class PollBackoff(msgspec.Struct, eq=False):
    """The calls of a session that pause."""

    state: SessionState
    waiting: dict[str, Pending] = msgspec.field(default_factory=dict)

    def begin(self, pending: Pending, server_state: bytes | None) -> Later | None:
        """Put a call off; None if its server did so too often in a row."""
        pending.waits += 1
        if pending.waits > MAX_WAITS:
            return None
        token = self.state.new_round()
        self.waiting[token] = pending
        pending.state = server_state
        pending.round = token
        return Later(min(FIRST_PAUSE * 2.0 ** min(pending.waits - 1, 10), LONGEST_PAUSE), token)

    def over(self, token: str) -> Pending | None:
        """A pause is over; the call that it was, None if there is none any more."""
        return self.waiting.pop(token, None)


STEP: Final = 1e-6  # our beats stay between two values of a server that counts in whole or hundredth parts


class Progress:
    """The progress series of one session's calls."""

    def __init__(self, inflight: Inflight) -> None:
        self._inflight = inflight

    def passes(self, pending: Pending, f: Frame) -> bool:
        """Whether the server's progress notification on a request goes on to the client."""
        value = number_of(f.lookup("progress"))
        if value is None:
            return True
        if pending.rewound and pending.progress is not None and value <= pending.progress:
            return False
        pending.progress = value if pending.progress is None else max(value, pending.progress)
        return True

    def of(self, token: bytes) -> Pending | None:
        """The request in flight that the server knows by this token (raw JSON)."""
        wanted = frames.plain_id(token)
        if isinstance(wanted, str) and (mapped := self._inflight.tokens.get(wanted)) is not None:
            return mapped
        for pending in self._inflight.wire.values():
            if pending.token is not None and pending.wire_token is None and frames.plain_id(pending.token) == wanted:
                return pending
        return None

    def beat(self, pending: Pending) -> bytes | None:
        """A notification that keeps the client's timer alive, None if it gave no token."""
        token = pending.token
        if token is None or pending.progress == math.inf:
            return None
        pending.rewound = True
        before = pending.progress if pending.progress is not None else 0.0
        pending.progress = max(before + STEP, math.nextafter(before, math.inf))
        if pending.progress == math.inf:
            return None
        return notification(token, pending.progress)


def notification(token: bytes, value: float) -> bytes:
    """A progress notification of ours on a token (raw JSON) that the peer gave."""
    return frames.notification(PROGRESS, b'{"progressToken":' + token + b',"progress":' + rawjson.dump(value) + b"}")


def number_of(raw: bytes | None) -> float | None:
    """A raw JSON number, None for anything else."""
    try:
        return None if raw is None else float(raw)
    except ValueError:
        return None


MESSAGE: Final = "notifications/message"
PROGRESS: Final = "notifications/progress"
CANCELLED: Final = "notifications/cancelled"
META_SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
SUBSCRIPTION: Final = META_SUBSCRIPTION.encode()


class Routes(msgspec.Struct, eq=False):
    """The ways of one session's server frames to its client's streams."""

    state: SessionState
    progress: Progress

    def request(self, stream: int) -> int:
        """The client's stream for a request of the server's own: that of the call it came on, else of the oldest call,
        else the standalone one."""
        pending = self.state.inflight.numbered.get(stream) if stream else None
        return self.state.inflight.stream_of(self.state.inflight.calls() if pending is None else [pending])

    def notification(self, stream: int, f: Frame) -> Effects:
        """A notification of the server's goes on."""
        if f.method == PROGRESS:
            return self._progress(stream, f)
        if self.state.maps_ids and f.may_say(SUBSCRIPTION):
            found = self._subscribed(f)
            if found is not None:
                return found
        pending = self.state.inflight.numbered.get(stream) if stream else None
        if pending is not None:
            return [ToClient(pending.stream, f.raw)]
        if f.method == MESSAGE:
            return self._message(f)
        return self._unattributed(f) if self.state.maps_ids else [ToClient(STANDALONE, f.raw)]

    def _progress(self, stream: int, f: Frame) -> Effects:
        """To whoever gave the token, as far as the value rises (R101)."""
        token = f.lookup("progressToken")
        pending = None if token is None else self.progress.of(token)
        if pending is None and stream:
            pending = self.state.inflight.numbered.get(stream)
        if pending is None:
            return self._unattributed(f) if self.state.maps_ids else [ToClient(STANDALONE, f.raw)]
        if self.state.extends_on_progress:
            pending.renewed = True
        if not self.progress.passes(pending, f):
            return []
        if pending.wire_token is None or pending.token is None:
            return [ToClient(pending.stream, f.raw)]
        return [ToClient(pending.stream, rawjson.splice(f.raw, ("params", "progressToken"), pending.token))]

    def _subscribed(self, f: Frame) -> Effects | None:
        """A notification of a listen, under the id that its client gave it (R77); None if it names none."""
        raw = f.meta.raw(META_SUBSCRIPTION)
        id = frames.plain_id(raw)
        pending = None if id is None else self.state.inflight.wire.get(id)
        if pending is None:
            return None if raw is None else self._unattributed(f)
        return [
            ToClient(
                pending.stream, rawjson.splice(f.raw, ("params", META, META_SUBSCRIPTION), rawjson.dump(pending.id))
            )
        ]

    def _message(self, f: Frame) -> Effects:
        """A log message that names no request: of the oldest that can have caused it, where one client alone has any in
        flight (R79)."""
        inflight = self.state.inflight
        if not self.state.maps_ids:
            pending = next(iter(inflight.calls()), None)
            return [ToClient(STANDALONE if pending is None else pending.stream, f.raw)]
        wanted = [pending for pending in inflight.wire.values() if pending.level or not pending.modern]
        if not wanted or len({pending.caller for pending in inflight.wire.values()}) > 1:
            return self._unattributed(f)
        return [ToClient(wanted[0].stream, f.raw)]

    def _unattributed(self, f: Frame) -> Effects:
        return [Note("notification.unattributed", {"server": self.state.server, "method": f.method[:100]}, warn=False)]


def request_id(f: Frame) -> FrameId | None:
    """The id of the request that a cancellation names, None where it names none."""
    return frames.plain_id(f.lookup("requestId"))


def unmapped(pending: Pending, f: Frame) -> Frame:
    """The server's answer under the client's own id."""
    return f if pending.wire_id == pending.id else f.changed(id=pending.id)


SERVER_STREAM = 0
INTERNAL = -1  # the stream of what the gate itself asks of a server


def _alone() -> int:
    return 0


class SessionPolicy(Protocol):
    """The policy as a session needs it: what is declared to the server, and what becomes of answers that it did not ask
    for."""

    def offer(
        self, *, server: str, caller: str, era: Era, revision: str, client: ClientCapabilities, call: Call | None
    ) -> Offer:
        """What the server is offered (R112, R113); ``call`` None is the union over all calls and none."""

    def remedies(
        self, *, server: str, caller: str, era: Era, call: Call | None, withheld: Sequence[str]
    ) -> dict[str, Any]:
        """Fields of the log for capabilities that are withheld: the rules that deny them, and rules to add."""

    def unsolicited(
        self, *, server: str, caller: str, call: Call, client: ClientCapabilities, kinds: Set[Kind]
    ) -> Literal["pass", "refuse", "strip"]:
        """What becomes of ``inputResponses`` of these kinds that a client sends unasked."""

    def extends_on_progress(self, server: str) -> bool:
        """Whether the server's progress on a request restarts the wait for its answer (R102)."""


class SessionState(msgspec.Struct, eq=False):
    """Shared by ``session.py`` and its parts. ``token`` is random; ``key`` seals forwarded rounds; ``epoch`` + now is
    wall time."""

    policy: SessionPolicy
    server: str
    token: str
    key: bytes
    epoch: float = 0.0
    caller: str = "local"
    maps_ids: bool = False
    """Whether several clients, or several streams of one, choose ids and tokens for themselves: the server is then
    shown ours (R111)."""
    streams: bool = False
    """Whether the server answers each request on a stream of its own (HTTP): in the modern era its end is how a call is
    taken back (R99)."""
    outlived: bool = False
    """Whether the client's streams outlive the server's side: then whoever waits for it is told that it has ended."""
    callers: dict[int, str] = msgspec.field(default_factory=dict)
    """Who speaks on a client's stream, where that is not ``caller``."""
    traces: dict[int, str] = msgspec.field(default_factory=dict)
    """The trace context of what comes on a client's stream, where its transport gave one."""
    revision: str = ""
    """The negotiated legacy revision; empty until ``initialize`` was answered."""
    client: ClientCapabilities = ClientCapabilities()
    offered: Offer = Offer()
    answered: bool = False
    """Whether the server has answered any request."""
    silent: bool = False
    """Whether the client has ended its input, so that it answers no request any more."""
    ended_because: str = "the server has ended before it answered"
    """The error of the requests that are still open when the server's side ends."""
    inflight: Inflight = msgspec.field(default_factory=Inflight)
    numbers: int = 0
    pushed: int = 0
    """Bytes of the server's pushed requests that are open."""
    of_all: Callable[[], int] = _alone
    """Bytes that all sessions of the process remember of requests, this one's too."""

    @property
    def extends_on_progress(self) -> bool:
        """Whether the server's progress on a request begins the wait for its answer anew, by the policy's word
        (R102)."""
        return self.policy.extends_on_progress(self.server)

    def new_id(self) -> FrameId:
        """An id of our own: a string with a random part, so that it meets nobody else's."""
        self.numbers += 1
        return f"sg:{self.token}:{self.numbers}"

    def is_ours(self, id: FrameId) -> bool:
        """Whether an id has the form of ours: a peer that uses it could be taken for us."""
        return isinstance(id, str) and id.startswith(f"sg:{self.token}:")

    def new_round(self) -> str:
        """The name of a round."""
        self.numbers += 1
        return f"{self.token}-{self.numbers}"

    def call_ids(self, calls: list[Pending]) -> tuple[str, ...]:
        """The names of the calls that a request may belong to; with none in flight the session's."""
        for pending in calls:
            pending.key = pending.key or self.new_round()
        return tuple(pending.key for pending in calls) or (self.token,)

    def origin(self, pending: Pending) -> Origin:
        """Where what is asked in a modern call comes from."""
        calls = () if pending.call is None else (pending.call,)
        return Origin(self.server, pending.caller, "modern", pending.revision, calls, pending.trace)

    def caller_on(self, stream: int) -> str:
        """Who speaks on a client's stream."""
        return self.callers.get(stream, self.caller) if self.callers else self.caller

    def offer(
        self, era: Era, revision: str, client: ClientCapabilities, call: Call | None, caller: str | None = None
    ) -> Offer:
        """What is declared to the server (R113)."""
        who = self.caller if caller is None else caller
        return self.policy.offer(server=self.server, caller=who, era=era, revision=revision, client=client, call=call)

    def withheld(self, era: Era, names: list[str], call: Call | None, caller: str | None = None) -> Note:
        """The warning that the client declared what the server is not offered, with the rules that would change
        that."""
        who = self.caller if caller is None else caller
        advice = self.policy.remedies(server=self.server, caller=who, era=era, call=call, withheld=names)
        return Note("capability.withheld", {"server": self.server, "capabilities": names, **advice})

    @property
    def held(self) -> int:
        """Bytes that this session remembers of requests that are open."""
        return self.inflight.size + self.pushed

    def call_fault(self, size: int) -> str | None:
        """Why calls in flight may not take so many bytes more; None if they may."""
        if self.inflight.size + size > MOST_CALLS:
            return CALLS_FULL
        return self._fault_of_all(size)

    def push_fault(self, size: int) -> str | None:
        """The same of the server's requests."""
        if self.pushed + size > MOST_PUSHES:
            return PUSHES_FULL
        return self._fault_of_all(size)

    def _fault_of_all(self, size: int) -> str | None:
        if self.held + size <= SMALL or self.of_all() + size <= MOST_OF_ALL:
            return None
        return ALL_FULL

    def refusal(self, pending: Pending, fault: str) -> list[Effect]:
        """A client's request for which there is no room ends with an error."""
        fields = {"server": self.server, "method": pending.method[:100], "fault": fault}
        return [
            Note("call.failed", fields),
            ToClient(pending.stream, frames.error(pending.id, results.INTERNAL, fault), True),
        ]

    def enter(self, pending: Pending) -> None:
        """Put a request in flight that the server has not seen."""
        self.numbers += 1
        pending.number = self.numbers
        self.inflight.add(pending)

    def send(self, pending: Pending, f: Frame, payload: rawjson.Object | None = None) -> list[Effect]:
        """Put a client's request in flight, with ``payload`` where that is another now; under another id where ids are
        mapped, or where two requests have the same (R111). One for which there is no room is refused."""
        if self.streams:  # the link keeps the frame until it is answered
            pending.size += len(f.raw)
        if self.inflight.size + pending.size > SMALL and (fault := self.call_fault(pending.size)) is not None:
            return self.refusal(pending, fault)
        if self.maps_ids or pending.wire_id in self.inflight.wire:
            pending.wire_id = self.new_id()
            f = f.changed(id=pending.wire_id, payload=payload)
        elif payload is not None:
            f = f.changed(payload=payload)
        self.enter(pending)
        return [self.to_server(pending, f.raw, f)]

    def to_server(self, pending: Pending, line: bytes, f: Frame | None = None) -> ToServer:
        """A line of a client's request, on the stream that is its own where the server has more than one."""
        return ToServer(pending.number if self.streams else SERVER_STREAM, line, f)

    def own_token(self, pending: Pending) -> bytes | None:
        """The progressToken that the server is to see in place of the client's, raw; None where it stays (R111)."""
        if not self.maps_ids or pending.token is None:
            return None
        pending.wire_token = f"sg:{self.token}:p{self.numbers}"
        self.numbers += 1
        return rawjson.dump(pending.wire_token)
