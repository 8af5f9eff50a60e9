"""Pure. State of a session: the server, the negotiated revision, the requests in flight, their progress and pauses.

The module holds no policy rules. The memory that peers' frames occupy in a session is counted in bytes and bounded.
Lines that a link has not written yet have bounds of their own.

A server's frame goes to the client's stream of its request: the one on which the frame came, the one that it names, or
the only possible one. If several clients share a server and the request is unknown, the frame is dropped, never guessed
(R119). Stdio has one stream.
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
from samplegate.protocol.identity import LOCAL, Identity, in_common
from samplegate.protocol.rawjson import Malformed, lookup, string
from samplegate.protocol.requests import Call, ClientCapabilities, Kind, Offer, Origin
from samplegate.protocol.rounds import Effect, Effects, Later, Note, ToClient, ToServer
from samplegate.protocol.seals import SealKeys
from samplegate.protocol.strictjson import separators

MIB: Final = 1024 * 1024
MAX_CALL_BYTES: Final = 128 * MIB
"""Bytes of one session's calls in flight: eight calls of 15 MiB, or 30,000 small ones."""
MAX_PUSH_BYTES: Final = 64 * MIB
"""Bytes of one session's pushed requests: real ones have some KiB, or some MiB with pictures."""
MAX_TOTAL_BYTES: Final = 512 * MIB
"""Bytes of calls and pushed requests in all sessions of a process."""
SMALL: Final = 256 * 1024
"""Bytes that a session may always have in flight, so that small calls continue even if others fill the process."""
ENTRY: Final = 4096
"""Bytes counted for a request without its params; ids, tokens and names are bounded."""
VALUE: Final = 64
"""Bytes of a parsed value in addition to its text."""
MAX_ABANDONED: Final = 16
"""Own requests whose late answers a session knows."""

CALLS_FULL: Final = f"refused: the calls in flight in this session already use {MAX_CALL_BYTES // MIB} MiB"
PUSHES_FULL: Final = f"refused: the open requests of this server already use {MAX_PUSH_BYTES // MIB} MiB"
ALL_FULL: Final = f"refused: the requests in flight in all sessions already use {MAX_TOTAL_BYTES // MIB} MiB"


def parsed_size(texts: Iterable[bytes | None]) -> int:
    """Bytes counted for JSON texts that are kept together with their parsed values."""
    return sum(2 * len(text) + VALUE * separators(text) for text in texts if text is not None)


class Pending(msgspec.Struct, gc=False, eq=False):
    """A client request that the server has not answered yet. A Struct, because each forwarded request creates one."""

    stream: int
    id: FrameId
    """The client's id."""
    wire_id: FrameId
    """The id under which the server currently knows the request; each retry changes it (R63)."""
    method: str
    started: float
    call: Call | None = None
    """The call during which the server may ask; None for every other method."""
    token: bytes | None = None
    """The client's progressToken as raw JSON; None if the client gave none."""
    params: bytes | None = None
    """Modern: the params of a retry, with our capabilities and without inputResponses and requestState."""
    modern: bool = False
    revision: str = ""
    client: ClientCapabilities = ClientCapabilities()
    offer: Offer = Offer()
    rounds: int = 0
    shown: int = 0
    """``input_required`` results sent to the client in this call, with or without questions."""
    waits: int = 0
    """Consecutive results that contain only a state."""
    identity: Identity = LOCAL
    """The caller, with what its token of this request says."""
    number: int = 0
    """The number by which the server's link knows the request and its stream."""
    wire_token: str | None = None
    """The token under which the server reports progress, if it is not the client's own."""
    level: bool = False
    """Modern: whether the request asked for log messages."""
    trace: str = ""
    """The client's W3C trace context, as received."""
    ambient: str = ""
    """As in ``Origin``."""
    key: str = ""
    """The name of the call for limits per call, the same for all its rounds and retries (R16); set by its first round.
    """
    round: str | None = None
    state: bytes | None = None
    """The server's requestState for the next retry, raw."""
    frame: Frame | None = None
    """Legacy calls: the frame itself, unless it is too large to keep."""
    progress: float | None = None
    rewound: bool = False
    """Whether our own progress or a retry precedes the server's next value.

    A value that does not increase is then dropped (R101, T33).
    """
    since: float | None = None
    """Start of the current wait for the server; None if the wait began with the request."""
    size: int = ENTRY
    """Bytes counted for the request while it is in flight."""
    extra: int = 0
    """The part of ``size`` for its open round, or for the server's state during a pause."""
    renewed: bool = False
    """Whether the server has shown activity on the request; the next timeout check restarts the wait (R102)."""
    task: str | None = None
    """The task that the request names; None for other requests."""
    own: str = ""
    """The gate's own task for which the gate carries this call on."""
    detaches: bool = False
    """Legacy: whether the call becomes a task of the gate if it has to wait for a reviewer."""
    answers: tuple[str, ...] = ()
    """The keys that a ``tasks/update`` of the gate's own answers."""
    read: str = ""
    """The token of a ``resources/read`` of the gate's own."""

    @property
    def caller(self) -> str:
        """The caller's name."""
        return self.identity.name

    @property
    def waited_from(self) -> float:
        """Start of the current wait for the server."""
        return self.started if self.since is None else self.since

    @property
    def arguments(self) -> bytes | None:
        """The params as shown to reviewers, raw JSON; None if they are not kept."""
        return self.params if self.frame is None else self.frame.payload


def token_of(params: bytes | None) -> bytes | None:
    """The progressToken of a request's params, raw.

    None if the token is absent, is neither a string nor a whole number, or has two readings.
    """
    try:
        raw = lookup(params, "_meta", "progressToken")
    except Malformed:
        return None
    return _token(raw)


def is_call(method: str) -> bool:
    """Whether the server may ask during a request (R59).

    Raises Malformed for a method that a lenient server takes for one of these.
    """
    if method in CALLS:
        return True
    bare = method.strip()
    if bare in CALLS or strictjson.resembles(bare, CALLS):
        raise Malformed(f"method {method[:40]!r} could be read as another method")
    return False


def call_and_token(f: Frame, *, modern: bool) -> tuple[Call | None, bytes | None]:
    """The call in a frame, if the server may ask during it (R59), and its progressToken.

    Raises Malformed where another parser could find another call in its params.
    """
    if not is_call(f.method) and not modern:
        return None, own_token(f)
    params = f.object.members
    # some libraries accept a list in place of the members in their order
    if not params and f.members is None and f.payload not in (None, b"null"):
        raise Malformed("params is not an object")
    _single(params, _OF_PARAMS, "params")
    token = None
    if META in params:
        meta = f.meta
        _single(meta.members, _OF_META, "_meta")
        token = _token(meta.raw("progressToken"))
    if not modern and not ANSWERS.isdisjoint(params):
        raise Malformed("params contains inputResponses or requestState, which this protocol version does not have")
    if f.method not in CALLS:
        return None, token
    named = _text(f, "uri" if f.method == "resources/read" else "name")
    tool = named if f.method == "tools/call" else None
    if tool is not None and len(tool) > MAX_TOOL:
        raise Malformed(f"tool name is longer than {MAX_TOOL} characters")
    return Call(f.method, tool), token


def _single(found: Mapping[str, msgspec.Raw], known: frozenset[str], where: str) -> None:
    if found.keys() <= known:
        return
    if (twin := strictjson.second_reading(found, known)) is not None:
        raise Malformed(f"{twin[:60]!r} in {where} could be read as another member")


def _text(f: Frame, member: str) -> str | None:
    """The text that names a call's target; None if there is none.

    Raises Malformed for other values: some parsers read numbers and booleans as text, and for some a NUL ends the text.
    """
    raw = f.object.raw(member)
    if raw is None or raw == b"null":
        return None
    said = string(raw)
    if said is None or "\0" in said:
        raise Malformed(f"params.{member} is not a plain string")
    return said


def own_token(f: Frame) -> bytes | None:
    """The progressToken of a frame's params, as in ``token_of``."""
    if not f.may_contain(b"progressToken"):
        return None
    try:
        return _token(f.meta.raw("progressToken"))
    except Malformed:
        return None


def _token(raw: bytes | None) -> bytes | None:
    return raw if frames.plain_id(raw) is not None else None


def trace_of(f: Frame) -> str:
    """The trace context of a request (R83); empty if it is absent or malformed.

    Raises Malformed if it has two readings.
    """
    if f.raw.find(b"traceparent") < 0:
        return ""
    said = string(f.meta.raw("traceparent"))
    return said if said is not None and _trace.fullmatch(said) else ""


def kept(f: Frame, call: Call | None) -> Frame | None:
    """A legacy client's frame, if the server may ask during it and it is not too large to keep; else None."""
    return f if call is not None and len(f.raw) <= MAX_KEPT else None


# characters of a tool's name, which is kept while its call is in flight; real names have at most 128
MAX_TOOL: Final = 1024
MAX_KEPT: Final = 1024 * 1024  # bytes; the rest is never read, and the line itself is freed once it is written
_trace: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
ANSWERS: Final = frozenset({"requestState", "inputResponses"})
"""The members of a modern call's params that return answers."""
_OF_PARAMS: Final = ANSWERS | {"name", "uri", "arguments", "task", META}
_OF_META: Final = frozenset({"progressToken", "traceparent", "tracestate", "baggage", META_RELATED_TASK}) | {
    META_VERSION,
    META_CAPABILITIES,
    META_LOG_LEVEL,
    "io.modelcontextprotocol/clientInfo",
}


STANDALONE: Final = 0
"""The client's stream for frames that belong to no request."""

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
    since: float | None = None
    """When it arrived, on the session's clock."""
    caller: str | None = None
    """None if it is not known."""


class Inflight(msgspec.Struct, eq=False):
    """Client requests in flight, by their two ids, their number and their token at the server; counted by stream."""

    asked: dict[tuple[int, FrameId], Pending] = msgspec.field(default_factory=dict)
    wire: dict[FrameId, Pending] = msgspec.field(default_factory=dict)
    numbered: dict[int, Pending] = msgspec.field(default_factory=dict)
    tokens: dict[str, Pending] = msgspec.field(default_factory=dict)
    streams: dict[int, int] = msgspec.field(default_factory=dict)
    size: int = 0
    """Bytes of all requests in flight."""

    def add(self, pending: Pending) -> None:
        """Add a request."""
        asked, stream = (pending.stream, pending.id), pending.stream
        if asked not in self.asked:
            self.streams[stream] = self.streams.get(stream, 0) + 1
        self.size += pending.size
        self.asked[asked] = pending
        self.wire[pending.wire_id] = pending
        self.numbered[pending.number] = pending
        if pending.wire_token is not None:
            self.tokens[pending.wire_token] = pending

    def adopt(self, pending: Pending, stream: int, id: FrameId) -> None:
        """Give a request another stream and id, because its client has been answered and the gate goes on with it."""
        frame = pending.frame
        self.remove(pending)
        pending.stream, pending.id, pending.token, pending.wire_token, pending.frame = stream, id, None, None, frame
        self.add(pending)

    def rewire(self, pending: Pending, wire_id: FrameId) -> None:
        """Replace the server's id of a request before a retry."""
        self.wire.pop(pending.wire_id, None)
        pending.wire_id = wire_id
        self.wire[wire_id] = pending

    def remove(self, pending: Pending) -> None:
        """Remove a finished request."""
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
        """Set the bytes of the request's open round or pause."""
        if self.asked.get((pending.stream, pending.id)) is pending:
            self.size += extra - pending.extra
        pending.size += extra - pending.extra
        pending.extra = extra

    def still_open(self, some: list[Pending]) -> list[Pending]:
        """The requests of ``some`` that are still in flight."""
        return [pending for pending in some if self.wire.get(pending.wire_id) is pending]

    def stream_of(self, calls: list[Pending]) -> int:
        """The client's stream for a frame that belongs to one of ``calls``.

        That is the stream of the oldest call still in flight, or the standalone stream.
        """
        return next((pending.stream for pending in self.still_open(calls)), STANDALONE)

    def open_calls(self) -> list[OpenCall]:
        """The clients' requests in flight, except listens, which stay open by design."""
        some = (p for p in self.asked.values() if p.stream >= 0 and p.method != LISTEN)
        return [
            OpenCall(p.stream, p.id, p.method, None if p.call is None else p.call.tool, p.started, p.caller)
            for p in some
        ]

    def oldest_opening(self, *, answered: bool) -> float | None:
        """Arrival of the oldest request that a server answers first; ``answered``: it has answered any request.

        Modern calls do not count, because they may legitimately take long. If one comes first, the gate's own
        ``server/discover`` precedes it.
        """
        return min((p.started for p in self.asked.values() if _opens(p, answered)), default=None)

    def overdue(self, now: float, seconds: float, held: set[int]) -> list[Pending]:
        """Requests that the server has not answered within ``seconds``.

        The time in which the gate works on them does not count. ``held``: the numbers of the calls in which the server
        itself waits for an answer.
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
        """Start of the longest current wait for the server, among requests that have a `call_timeout`."""
        return min((p.waited_from for p in self.asked.values() if not p.renewed and _is_timed(p)), default=None)

    @property
    def for_tasks(self) -> bool:
        """Whether the gate carries some call on for a task of its own."""
        return any(pending.own for pending in self.asked.values())

    @property
    def at_server_for_tasks(self) -> bool:
        """Whether the server works on a call for a task of the gate. Answers that it has to confirm do not count: they
        are stored, and sent again."""
        return any(pending.own and pending.round is None for pending in self.asked.values())

    def calls(self) -> list[Pending]:
        """The legacy calls during which a server may be asking, oldest first."""
        return [pending for pending in self.wire.values() if pending.call is not None and not pending.modern]


def _opens(pending: Pending, answered: bool) -> bool:
    """Whether a session waits for this answer first; ``answered``: the server has already answered some request."""
    if pending.method == INITIALIZE or (pending.method == DISCOVER and pending.stream < 0):
        return not (answered and pending.id == PROBE)
    return not (answered or (pending.modern and pending.call is not None) or pending.method == LISTEN)


def _is_timed(pending: Pending) -> bool:
    """Whether a request has a `call_timeout`.

    The gate's own requests, listens and ``initialize``, which is never cancelled (R99), have none.
    """
    return pending.stream >= 0 and pending.method not in (LISTEN, INITIALIZE)


MAX_PASSED: Final = 10_000  # because a server chooses how many requests it sends


class PassThrough(msgspec.Struct, eq=False):
    """A server's requests that pass to the client without a decision, each with its stream, until they are answered."""

    open: dict[FrameId, int] = msgspec.field(default_factory=dict)

    def arrive(self, f: Frame, stream: int) -> list[Effect]:
        """Pass a request to a stream of the client."""
        assert f.id is not None
        if len(self.open) >= MAX_PASSED:
            return [
                ToServer(
                    SERVER_STREAM,
                    frames.error(
                        f.id,
                        results.INVALID_REQUEST,
                        f"refused: {MAX_PASSED} requests are already waiting for the client",
                    ),
                )
            ]
        self.open[f.id] = stream
        return [ToClient(stream, f.raw, asks=f.id)]

    def over(self, id: FrameId) -> int | None:
        """Remove an answered or cancelled request and return its stream; None if no request has this id."""
        return self.open.pop(id, None)


MAX_WAITS: Final = 100  # in a row: eight minutes at the longest pause
FIRST_PAUSE: Final = 0.25
LONGEST_PAUSE: Final = 5.0


class PollBackoff(msgspec.Struct, eq=False):
    """Pauses between retries of calls that the server puts off, with exponential backoff in seconds."""

    state: SessionState
    waiting: dict[str, Pending] = msgspec.field(default_factory=dict)

    def begin(self, pending: Pending, server_state: bytes | None) -> Later | None:
        """Start a pause for a call; None if its server put it off too often in a row."""
        pending.waits += 1
        if pending.waits > MAX_WAITS:
            return None
        token = self.state.new_round()
        self.waiting[token] = pending
        pending.state = server_state
        pending.round = token
        return Later(min(FIRST_PAUSE * 2.0 ** min(pending.waits - 1, 10), LONGEST_PAUSE), token)

    def over(self, token: str) -> Pending | None:
        """End a pause and return its call; None if the call is gone."""
        return self.waiting.pop(token, None)


STEP: Final = 1e-6  # keeps our values between two values of a server that counts in steps of 1 or 0.01


class Progress:
    """Progress values of one session's calls."""

    def __init__(self, inflight: Inflight) -> None:
        self._inflight = inflight

    def passes(self, pending: Pending, f: Frame) -> bool:
        """Whether the server's progress notification for a request passes to the client."""
        value = to_float(f.lookup("progress"))
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
        """A progress notification that restarts the client's timeout; None if the client gave no token."""
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
    """A progress notification of ours for a token (raw JSON) that the peer gave."""
    return frames.notification(PROGRESS, b'{"progressToken":' + token + b',"progress":' + rawjson.dump(value) + b"}")


def to_float(raw: bytes | None) -> float | None:
    """A raw JSON number as a float; None for anything else."""
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
    """Routes of a server's frames to its client's streams."""

    state: SessionState
    progress: Progress

    def request(self, stream: int) -> int:
        """The client's stream for a request of the server.

        That is the stream of the call on which the request came, else of the oldest call, else the standalone stream.
        """
        pending = self.state.inflight.numbered.get(stream) if stream else None
        return self.state.inflight.stream_of(self.state.inflight.calls() if pending is None else [pending])

    def notification(self, stream: int, f: Frame) -> Effects:
        """Route a server's notification to the client."""
        if f.method == PROGRESS:
            return self._progress(stream, f)
        if self.state.maps_ids and f.may_contain(SUBSCRIPTION):
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
        """Pass progress to the client that gave the token, as long as the value rises (R101)."""
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
        """Pass a notification of a listen under the client's id (R77); None if it names no listen."""
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

    def listen_of(self, stream: int, f: Frame) -> Pending | None:
        """The listen to which a notification belongs: the one that it names, that of its stream, or the only one."""
        inflight = self.state.inflight
        raw = f.meta.raw(META_SUBSCRIPTION)
        if raw is not None:
            id = frames.plain_id(raw)
            return None if id is None else inflight.wire.get(id)
        if stream:
            return inflight.numbered.get(stream)
        listens = [pending for pending in inflight.wire.values() if pending.method == LISTEN]
        return listens[0] if len(listens) == 1 else None

    def on_listen(self, pending: Pending, f: Frame) -> Effects:
        """Pass a notification of a listen to its client, under the client's id (R77)."""
        line = f.raw
        if pending.id != pending.wire_id and f.meta.raw(META_SUBSCRIPTION) is not None:
            line = rawjson.splice(line, ("params", META, META_SUBSCRIPTION), rawjson.dump(pending.id))
        return [ToClient(pending.stream, line)]

    def _message(self, f: Frame) -> Effects:
        """Route a log message that names no request.

        It goes to the oldest request that can have caused it, if only one client has requests in flight (R79).
        """
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
    """The id of the request that a cancellation names; None if it names none."""
    return frames.plain_id(f.lookup("requestId"))


def with_client_id(pending: Pending, f: Frame) -> Frame:
    """The server's answer under the client's own id."""
    return f if pending.wire_id == pending.id else f.changed(id=pending.id)


SERVER_STREAM = 0
INTERNAL = -1  # the stream of the gate's own requests to a server


def _no_other_sessions() -> int:
    return 0


class SessionPolicy(Protocol):
    """The policy as a session needs it: declared capabilities, unsolicited answers and timeouts."""

    def offer(
        self, *, server: str, caller: str, era: Era, revision: str, client: ClientCapabilities, call: Call | None
    ) -> Offer:
        """The capabilities that the server is offered (R112, R113); ``call`` None gives the union over all calls."""
        ...

    def remedies(
        self, *, server: str, caller: str, era: Era, call: Call | None, withheld: Sequence[str]
    ) -> dict[str, Any]:
        """Log fields for withheld capabilities: the rules that deny them, and rules to add."""
        ...

    def unsolicited(
        self, *, server: str, identity: Identity, call: Call, client: ClientCapabilities, kinds: Set[Kind]
    ) -> Literal["pass", "refuse", "strip"]:
        """The treatment of unsolicited ``inputResponses`` of these kinds."""
        ...

    @property
    def has_reviews(self) -> bool:
        """Whether some rule asks a reviewer, so that calls may become tasks of the gate."""
        ...

    def cuts_ui(self, server: str) -> bool:
        """Whether forwarded forms lose ``params.ui``."""
        ...

    def polices_results(self, server: str) -> bool:
        """Whether the rules decide questions in tool results."""
        ...

    def extends_on_progress(self, server: str) -> bool:
        """Whether the server's progress on a request restarts the wait for its answer (R102)."""
        ...


class SessionState(msgspec.Struct, eq=False):
    """State shared by ``session.py`` and its parts.

    ``token`` is random; ``keys`` seal forwarded rounds; ``epoch`` plus the session's time is wall time.
    """

    policy: SessionPolicy
    server: str
    token: str
    keys: SealKeys
    epoch: float = 0.0
    identity: Identity = LOCAL
    """The caller of this conversation. Over HTTP, with the groups and claims that all of its requests had."""
    maps_ids: bool = False
    """Whether several clients or streams choose ids and tokens independently; the server then sees ours (R111)."""
    streams: bool = False
    """Whether the server answers each request on its own stream (HTTP).

    In the modern era, closing that stream cancels the call (R99).
    """
    tasks: bool = False
    """Whether the Tasks extension passes: both sides speak 2026-07-28, and there is a store for tasks."""
    outlived: bool = False
    """Whether the client's streams outlive the server's side; waiting clients then get an error when it ends."""
    identities: dict[int, Identity] = msgspec.field(default_factory=dict)
    """The identity of the requests on a client stream, if it is known for this stream (HTTP)."""
    traces: dict[int, str] = msgspec.field(default_factory=dict)
    """The trace context of a client stream, if its HTTP request has one in a header."""
    revision: str = ""
    """The negotiated legacy revision; empty until ``initialize`` is answered."""
    client: ClientCapabilities = ClientCapabilities()
    client_name: str = ""
    """The client's name in ``initialize``, shortened, for the log and the status."""
    offered: Offer = Offer()
    answered: bool = False
    """Whether the server has answered any request."""
    silent: bool = False
    """Whether the client has closed its input, so that it will answer no more requests."""
    end_reason: str = "the server stopped before it answered"
    """The error for requests that are still open when the server's side ends."""
    inflight: Inflight = msgspec.field(default_factory=Inflight)
    abandoned: set[FrameId] = msgspec.field(default_factory=set)
    """Our own requests that we no longer wait for, by the server's id; their answers may still come."""
    numbers: int = 0
    pushed: int = 0
    """Bytes of the server's open pushed requests."""
    process_bytes: Callable[[], int] = _no_other_sessions
    """Bytes that all sessions of the process, including this one, keep for requests."""

    @property
    def extends_on_progress(self) -> bool:
        """Whether the server's progress on a request restarts the wait for its answer, by the policy (R102)."""
        return self.policy.extends_on_progress(self.server)

    def abandon(self, pending: Pending) -> None:
        """Stop waiting for the answer to a request of ours."""
        self.inflight.remove(pending)
        if len(self.abandoned) >= MAX_ABANDONED:
            self.abandoned.clear()
        self.abandoned.add(pending.wire_id)

    def forget_abandoned(self, id: FrameId) -> bool:
        """Forget an abandoned request, whose late answer has come. False if there was none with this id."""
        late = id in self.abandoned
        self.abandoned.discard(id)
        return late

    def new_id(self) -> FrameId:
        """A new id of ours: a string with a random part, so that it differs from all others."""
        self.numbers += 1
        return f"sg:{self.token}:{self.numbers}"

    def is_ours(self, id: FrameId) -> bool:
        """Whether an id has the form of ours: a peer that uses such an id could be confused with us."""
        return isinstance(id, str) and id.startswith(f"sg:{self.token}:")

    def new_round(self) -> str:
        """The name of a new round."""
        self.numbers += 1
        return f"{self.token}-{self.numbers}"

    def call_ids(self, calls: list[Pending]) -> tuple[str, ...]:
        """The names of the calls to which a request may belong; the session's own name if none is in flight."""
        for pending in calls:
            pending.key = pending.key or self.new_round()
        return tuple(pending.key for pending in calls) or (self.token,)

    def origin(self, pending: Pending) -> Origin:
        """The origin of requests that the answer to a call contains."""
        calls, params = ((), ()) if pending.call is None else ((pending.call,), ((pending.arguments,),))
        return Origin(
            self.server,
            pending.caller,
            "modern" if pending.modern else "legacy",
            pending.revision if pending.modern else self.revision,
            calls,
            pending.trace,
            pending.ambient,
            params,
            (pending.identity,),
        )

    def note_trace(self, pending: Pending, f: Frame, stream: int) -> None:
        """Note the trace contexts of a client's request: that in ``_meta``, or else that of its HTTP request."""
        ambient = self.traces.get(stream, "")
        pending.trace = trace_of(f) or ambient
        pending.ambient = ambient if ambient != pending.trace else ""

    @property
    def caller(self) -> str:
        """The name of this conversation's caller."""
        return self.identity.name

    def caller_on(self, stream: int) -> str:
        """The name of the caller on a client's stream."""
        return self.identity_on(stream).name

    def identity_on(self, stream: int) -> Identity:
        """The identity of the requests on a client's stream."""
        return self.identities.get(stream, self.identity)

    def note_identity(self, stream: int, identity: Identity) -> None:
        """Note the identity of a stream's requests, and what it has in common with that of all others."""
        self.identities[stream] = identity
        self.identity = in_common(self.identity, identity)

    def offer(
        self, era: Era, revision: str, client: ClientCapabilities, call: Call | None, caller: str | None = None
    ) -> Offer:
        """The capabilities that are declared to the server (R113)."""
        who = self.caller if caller is None else caller
        return self.policy.offer(server=self.server, caller=who, era=era, revision=revision, client=client, call=call)

    def withheld(self, era: Era, names: list[str], call: Call | None, caller: str | None = None) -> Note:
        """Warning that declared capabilities are not offered to the server, with the rules that would change that."""
        who = self.caller if caller is None else caller
        advice = self.policy.remedies(server=self.server, caller=who, era=era, call=call, withheld=names)
        return Note("capability.withheld", {"server": self.server, "capabilities": names, **advice})

    @property
    def held(self) -> int:
        """Bytes that this session keeps for open requests."""
        return self.inflight.size + self.pushed

    def call_fault(self, size: int) -> str | None:
        """The reason why calls in flight may not use ``size`` more bytes; None if they may."""
        if self.inflight.size + size > MAX_CALL_BYTES:
            return CALLS_FULL
        return self._process_fault(size)

    def push_fault(self, size: int) -> str | None:
        """The reason why the server's pushed requests may not use ``size`` more bytes; None if they may."""
        if self.pushed + size > MAX_PUSH_BYTES:
            return PUSHES_FULL
        return self._process_fault(size)

    def _process_fault(self, size: int) -> str | None:
        if self.held + size <= SMALL or self.process_bytes() + size <= MAX_TOTAL_BYTES:
            return None
        return ALL_FULL

    def refusal(self, pending: Pending, fault: str) -> list[Effect]:
        """Answer a client's request with an error, because there is no room for it."""
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
        """Put a client's request in flight, with a new ``payload`` if given. A request without room is refused.

        The request gets another id if the session maps ids, or if two requests have the same id (R111).
        """
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
        """A line of a client's request to the server, on the request's own stream if the server has several."""
        return ToServer(pending.number if self.streams else SERVER_STREAM, line, f)

    def own_token(self, pending: Pending) -> bytes | None:
        """The progressToken that the server sees in place of the client's, raw; None if the client's stays (R111)."""
        if not self.maps_ids or pending.token is None:
            return None
        pending.wire_token = f"sg:{self.token}:p{self.numbers}"
        self.numbers += 1
        return rawjson.dump(pending.wire_token)
