"""The requests in flight on both legs of a session, and their ids. A table, not a rule."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from samplegate.core import names
from samplegate.core.capabilities import Offer
from samplegate.core.eras import CALLS, META, META_CAPABILITIES, META_LOG_LEVEL, META_RELATED_TASK, META_VERSION
from samplegate.core.frames import Frame, FrameId, plain_id
from samplegate.core.jsontext import Malformed, lookup, string
from samplegate.core.requests import Call, ClientCapabilities
from samplegate.core.session.bounds import ENTRY


class Pending(msgspec.Struct, gc=False, eq=False):
    """A client request that the server has not answered yet. A Struct, since one is made for every frame that passes."""

    lane: int
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
    """Names it to the server's link: the lane of what belongs to it."""
    wire_token: str | None = None
    """The token under which the server knows its progress, where that is not the client's own."""
    level: bool = False
    """Modern: whether it asked for log messages."""
    trace: str = ""
    """The client's trace context (W3C), as it gave it."""
    key: str = ""
    """The name of the call for limits that count by call, the same for all its rounds and retries (R16); given to it by its first round."""
    round: str | None = None
    state: bytes | None = None
    """The server's requestState for the next retry, raw."""
    frame: Frame | None = None
    """Legacy calls: the frame itself, as far as it is not too large to keep."""
    progress: float | None = None
    rewound: bool = False
    """Progress of ours or a retry stands before the server's next value: what does not increase is dropped (R101, T33)."""
    since: float | None = None
    """When the current wait for the server began; None: when the request came."""
    size: int = ENTRY
    """Bytes that it counts for while it is in flight (``bounds.py``)."""
    extra: int = 0
    """Those among them of its open round, or of the server's state while it pauses."""
    renewed: bool = False
    """The server has shown that it works on the request: the wait begins anew at the next look at the timeouts (R102)."""

    @property
    def waited_from(self) -> float:
        """When the current wait for the server began."""
        return self.started if self.since is None else self.since

    @property
    def arguments(self) -> bytes | None:
        """Its params for people to read, raw JSON; None where they are not kept."""
        return self.params if self.frame is None else self.frame.payload


def token_of(params: bytes | None) -> bytes | None:
    """The progressToken of a request's params, raw; None if it is absent, neither a string nor a whole number, or has two readings."""
    try:
        raw = lookup(params, "_meta", "progressToken")
    except Malformed:
        return None
    return _token(raw)


def is_call(method: str) -> bool:
    """Whether the server may ask during a request (R59). Raises Malformed for a method that a lenient server takes for one of these."""
    if method in CALLS:
        return True
    bare = method.strip()
    if bare in CALLS or names.resembles(bare, CALLS):
        raise Malformed(f"its method {method[:40]!r} could be read as another one")
    return False


def call_and_token(f: Frame, *, modern: bool) -> tuple[Call | None, bytes | None]:
    """The call that a request is, if the server may ask during it (R59), and its progressToken.

    Raises Malformed where another parser could find another call in its params.
    """
    if not is_call(f.method) and not modern:
        return None, own_token(f)
    params = f.object.members
    if not params and f.members is None and f.payload not in (None, b"null"):  # some libraries take a list for the members in their order
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
    if (twin := names.second_reading(found, known)) is not None:
        raise Malformed(f"its {where} {twin[:60]!r}, which could be read as another member")


def _text(f: Frame, member: str) -> str | None:
    """What names a call's target, None where nothing does. Numbers and booleans are texts to some parsers, and a NUL ends one for others."""
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
    return raw if raw is not None and plain_id(raw) is not None else None


def trace_of(f: Frame) -> str:
    """The trace context that a request names (R83), empty where it names none of the right form. Raises jsontext.Malformed for two readings."""
    if f.raw.find(b"traceparent") < 0:
        return ""
    said = string(f.meta.raw("traceparent"))
    return said if said is not None and _trace.fullmatch(said) else ""


def kept(f: Frame, call: Call | None) -> Frame | None:
    """A legacy client's frame, where a server may ask during it and it is not too large to keep while it is in flight."""
    return f if call is not None and len(f.raw) <= MAX_KEPT else None


MAX_TOOL: Final = 1024  # characters of a tool's name, which is kept while its call is in flight; real ones have at most 128
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

    lane: int
    id: FrameId
    method: str
    tool: str | None = None


class Inflight(msgspec.Struct, eq=False):
    """Client requests by both of their ids, their number and their token at the server; and how many each lane has."""

    asked: dict[tuple[int, FrameId], Pending] = msgspec.field(default_factory=dict)
    wire: dict[FrameId, Pending] = msgspec.field(default_factory=dict)
    numbered: dict[int, Pending] = msgspec.field(default_factory=dict)
    tokens: dict[str, Pending] = msgspec.field(default_factory=dict)
    lanes: dict[int, int] = msgspec.field(default_factory=dict)
    size: int = 0
    """Bytes of all of them."""

    def add(self, pending: Pending) -> None:
        """Take a request in."""
        asked, lane = (pending.lane, pending.id), pending.lane
        if asked not in self.asked:
            self.lanes[lane] = self.lanes.get(lane, 0) + 1
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
        found = self.asked.pop((pending.lane, pending.id), None)
        if found is not None:
            self.size -= found.size
            found.frame = None  # a pushed request may outlive the call that it belongs to
            left = self.lanes.pop(pending.lane) - 1
            if left:
                self.lanes[pending.lane] = left
        self.numbered.pop(pending.number, None)
        if pending.wire_token is not None:
            self.tokens.pop(pending.wire_token, None)
        if self.wire.get(pending.wire_id) is pending:
            del self.wire[pending.wire_id]

    def resize(self, pending: Pending, extra: int) -> None:
        """Its open round, or the state of its pause, now takes so many bytes."""
        if self.asked.get((pending.lane, pending.id)) is pending:
            self.size += extra - pending.extra
        pending.size += extra - pending.extra
        pending.extra = extra

    def still(self, some: list[Pending]) -> list[Pending]:
        """Those of ``some`` that are not over."""
        return [pending for pending in some if self.wire.get(pending.wire_id) is pending]

    def lane_of(self, calls: list[Pending]) -> int:
        """The stream for what belongs to one of ``calls``: that of the oldest still in flight, else the standalone one."""
        return next((pending.lane for pending in self.still(calls)), STANDALONE)

    def open_calls(self) -> list[OpenCall]:
        """The clients' requests among them, without those that stay open by design."""
        some = (p for p in self.asked.values() if p.lane >= 0 and p.method != LISTEN)
        return [OpenCall(p.lane, p.id, p.method, None if p.call is None else p.call.tool) for p in some]

    def opening(self, *, answered: bool) -> float | None:
        """When the oldest request came that a server answers first. ``answered``: it has answered some request already.

        A modern call is none of these, since it may rightly take long: where one comes first, the gate's own ``server/discover`` goes before it.
        """
        return min((p.started for p in self.asked.values() if _opens(p, answered)), default=None)

    def overdue(self, now: float, seconds: float, held: set[int]) -> list[Pending]:
        """Those that the server has not answered in so many seconds. The time in which the gate itself works on a call does not count.

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
    """Whether a session waits for this answer before anything else; ``answered``: the server has answered some request."""
    if pending.method == INITIALIZE or (pending.method == DISCOVER and pending.lane < 0):
        return not (answered and pending.id == PROBE)
    return not (answered or (pending.modern and pending.call is not None) or pending.method == LISTEN)


def _is_timed(pending: Pending) -> bool:
    """Whether it has a `call_timeout`: not what the gate itself asked, a listen, or ``initialize``, which is never cancelled (R99)."""
    return pending.lane >= 0 and pending.method not in (LISTEN, INITIALIZE)
