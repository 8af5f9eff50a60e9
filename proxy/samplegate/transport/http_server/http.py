"""Shared parts of the HTTP server: bounds, request headers, complete responses, access records, and ports to the
gate."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from functools import lru_cache
from typing import Any, Final, Literal, Protocol, TypeAlias, get_args

import msgspec

from samplegate.protocol import frames
from samplegate.protocol.frames import Frame, FrameId
from samplegate.protocol.identity import Identity

MIB = 1024 * 1024


class HttpBounds(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the HTTP server. Sizes are in bytes, times in seconds.

    Counts apply to a process with all its servers, unless a field says otherwise.
    """

    connections: int = 2000
    """Open connections of one listener, idle ones included: each costs a descriptor and some KiB."""
    pipelined: int = 100
    """Requests of one connection that wait for their answers. Real clients send one at a time."""
    lingering: int = 64
    """Connections beyond ``connections`` that stay open for a second, so that their clients can read the 503."""
    head: int = 64 * 1024
    """Size of one request's line and headers; tokens and names need a few KiB."""
    head_time: float = 20.0
    """From the first byte of a connection or request to the end of its headers."""
    body: int = 64 * MIB
    """Size of one POST body, the same as a line over stdio."""
    body_time: float = 30.0
    """From a request's headers to the end of its body."""
    connection_idle: float = 90.0
    """From a connection's last answer to its next request. uvicorn closes it earlier, unless a body ended after its
    answer."""
    commit: float = 5.0
    """Delay after which a call without an answer gets a stream.

    Early enough that intermediaries see the first byte (some give up after 10 s) and that a client of 2025-11-25 can
    resume. Late enough that errors that need an HTTP status of their own rarely come after it.
    """
    keep_alive: float = 15.0
    """Interval between comments on a silent stream (R102): the strictest intermediaries close after 30 s."""
    stalled: float = 30.0
    """Time without a single byte read after which a client is disconnected."""
    opening: float = 120.0
    """For a server's answer to ``initialize``: the server may install itself first."""
    sessions: int = 4000
    """Open legacy sessions."""
    sessions_per_caller: int = 2000
    """Open legacy sessions of one caller. Without authentication, all clients are one caller."""
    idle: float = 1800.0
    """A legacy session without a connection and without requests in flight ends after this time."""
    detached: float = 3600.0
    """A legacy session without a connection but with requests in flight, which continue (T35), ends after this time."""
    streams: int = 64
    """Requests in flight and open streams of one legacy session."""
    requests_per_caller: int = 1000
    """Modern requests in flight of one caller, subscriptions included."""
    events: int = 1000
    """Events of one stream that are kept for resumption."""
    event_bytes: int = 4 * MIB
    """Size of the events that one stream keeps; a single larger event is still kept.

    The same limit applies to the events that follow the one that a client reads next. More events may wait as long as
    the client reads some bytes while that many bytes arrive.
    """
    held_bytes: int = 256 * MIB
    """Size of the events of all streams, waiting or kept. Above it, the largest stream loses events."""
    finished: int = 32
    """Ended streams of one session that can still be resumed."""
    resume: float = 300.0
    """Time for which an ended stream can be resumed."""
    unread: float = 60.0
    """For a request to a client that reads no stream: the time that most peers wait for an answer. Then the request
    fails."""
    retry: int = 1000
    """Milliseconds that clients are asked to wait before they reconnect (R95)."""


class ConversationRefused(Exception):
    """A conversation cannot begin or continue.

    ``status`` is the HTTP status, ``message`` the text for the client, ``retry_after`` in seconds.
    """

    def __init__(self, status: int, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after = retry_after


class ClientStream(Protocol):
    """An ordered stream of frames to the client: the response of one POST, or a session's standalone stream.

    The HTTP server implements this protocol.
    """

    def send(self, line: bytes, last: bool) -> None:
        """Send one frame, without a line end. Returns at once and never raises.

        ``last`` marks the answer to a request that arrived on this stream.
        """

    def ask(self, id: FrameId, line: bytes) -> None:
        """Send a request to the client. Returns at once and never raises.

        The request goes to this stream if the client reads it, otherwise to another stream of the same session.
        """

    def cancel(self, id: FrameId, line: bytes) -> None:
        """Send the cancellation of such a request. Returns at once and never raises."""

    def over(self) -> None:
        """A request that arrived on this stream was cancelled and gets no answer. Counts as ``last``. Returns at
        once."""

    def close(self) -> None:
        """End the stream, because the conversation is over. Returns at once. All waiting requests have got an error
        through ``send`` before."""


class Conversation(Protocol):
    """The path from one client to one server: a legacy session, or shared by all modern requests of one caller.

    The gate implements this protocol.
    """

    def open_stream(
        self, stream: ClientStream, *, standalone: bool = False, identity: Identity | None = None, trace: str = ""
    ) -> int:
        """Register a stream and return its number.

        ``standalone``: frames that belong to no request go to this stream (number 0; a second one replaces the first).
        ``identity`` is the caller of the stream's requests, with the token of this HTTP request.
        ``trace`` is the HTTP request's traceparent, valid or empty. It is recorded with the stream's requests.
        """
        ...

    def received(self, stream: int, line: bytes | Frame) -> None:
        """Receive one frame of the client on a stream. Never raises."""

    def close_stream(self, stream: int) -> None:
        """The client no longer reads a stream. Its requests are cancelled in the modern era, and continue in the legacy
        eras (T35).

        Called after the last answer when the stream has no reader, or earlier if a modern client disconnects. Called at
        most once for a stream, and never while this object sends on it. Not called for streams that live as long as
        their session, and not after ``on_end``, which ends all streams.
        """

    def undelivered(self, id: FrameId) -> None:
        """The client has read no stream for too long, so a request to it was not delivered. Never called while this
        object sends."""

    def on_end(self, call: Callable[[], None]) -> None:
        """Register ``call``, which is called once when the conversation is over, for any reason."""

    async def aclose(self) -> None:
        """End the conversation: withdraw its rounds and close the server's side. May be called again."""


class ServerEndpoint(Protocol):
    """One configured server, as the HTTP server sees it."""

    @property
    def name(self) -> str: ...

    async def begin(self, identity: Identity) -> Conversation:
        """A new conversation for one legacy session (R119). Raises ConversationRefused."""
        ...

    async def modern(self, identity: Identity, frame: Frame) -> Conversation:
        """The conversation that all modern frames of this caller share while it lives; ``frame`` is the one to be sent.
        Raises ConversationRefused."""
        ...


METHODS: Final = frozenset(
    "completion/complete initialize logging/setLevel notifications/cancelled notifications/initialized"
    " notifications/progress notifications/roots/list_changed ping prompts/get prompts/list resources/list"
    " resources/read resources/subscribe resources/templates/list resources/unsubscribe server/discover"
    " subscriptions/listen tasks/cancel tasks/get tasks/list tasks/result tasks/update tools/call tools/list".split()
)
"""The methods with a metric label of their own. All others become ``other``, because clients must not choose label
values."""

Reason: TypeAlias = Literal[
    "accept", "batch", "body_size", "body_time", "busy", "content_type", "draining", "event", "failed", "header",
    "meta", "method", "mismatch",
    "opening", "parse", "protocol", "refused", "session", "session_full", "version", "",
]  # fmt: skip
"""Why the HTTP server itself refused a request, or empty."""
REASONS: Final[frozenset[str]] = frozenset(get_args(Reason)) - {""}


class AccessRecord(msgspec.Struct, frozen=True):
    """The access log record of one HTTP request, made at its end or at the end of its stream."""

    server: str
    caller: str
    http: str
    """``POST``, ``GET``, ``DELETE`` or ``other``."""
    era: str
    """``legacy``, ``modern``, or empty if refused before the era was known."""
    method: str
    """One of METHODS or ``other``; ``answer`` for a client's answer; ``batch``; ``resume`` or ``listen`` for a GET;
    empty if no body was read."""
    status: int
    """HTTP status; 0 if the client disconnected before the response."""
    form: str
    """``json``, ``sse``, or empty for a response without content."""
    reason: Reason
    """Why the HTTP server refused the request, or empty."""
    end: str
    """How a stream ended: ``ended``, ``gone``, ``slow``, ``displaced`` or ``closing``; empty without a stream."""
    seconds: float
    session: str
    """Eight hexadecimal digits that identify the session in logs; empty without a session."""
    traceparent: str
    """The client's traceparent if valid, otherwise empty."""


def method_label(method: str) -> str:
    """The method as a metric label."""
    return method if method in METHODS else "other"


Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
BAD_PARAMS: Final = -32602
INTERNAL: Final = -32603
UNSUPPORTED_VERSION: Final = -32022
STATUSES: Final = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    BAD_PARAMS: 400,
    -32020: 400,
    -32021: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}
"""The HTTP status of a modern error by its code (R76). All other errors get 200, like results."""
JSON: Final = (b"content-type", b"application/json")
_ALLOW: Final = (b"allow", b"POST, GET, DELETE")


class HttpReply(msgspec.Struct, frozen=True):
    """A complete response. ``reason`` is why the HTTP server itself refused the request; empty for a server's
    answer."""

    status: int
    headers: Headers = ()
    body: bytes = b""
    reason: Reason = ""


def refusal(
    status: int,
    reason: Reason,
    message: str,
    id: FrameId | None = None,
    *,
    code: int = INVALID_REQUEST,
    data: bytes | None = None,
    extra: Headers = (),
) -> HttpReply:
    """A refusal by the HTTP server itself: a JSON-RPC error with the request's id if known (R73, R76)."""
    return HttpReply(status, (JSON, *extra), frames.error(id, code, message, data), reason)


def busy(status: int, reason: Reason, message: str, id: FrameId | None, seconds: int) -> HttpReply:
    """A refusal with a retry delay: 503 if the process is full, 429 if the caller has reached its limit."""
    return refusal(status, reason, message, id, code=INTERNAL, extra=((b"retry-after", b"%d" % max(1, seconds)),))


def refused(problem: ConversationRefused, id: FrameId | None) -> HttpReply:
    """The refusal for a conversation that the gate refused."""
    extra = () if problem.retry_after is None else ((b"retry-after", b"%d" % problem.retry_after),)
    return refusal(problem.status, "refused", problem.message, id, code=INTERNAL, extra=extra)


def not_allowed(message: str) -> HttpReply:
    """The refusal of an HTTP method that this endpoint does not support (R58, R76)."""
    return refusal(405, "method", message, extra=(_ALLOW,))


class _Code(msgspec.Struct):
    code: int = 0


class _Answer(msgspec.Struct):
    error: _Code | None = None


_answer: Final = msgspec.json.Decoder(_Answer)


def status_of(line: bytes) -> int:
    """The HTTP status for a modern answer. For a result, this costs one search of its bytes."""
    if b'"error"' not in line:
        return 200
    try:
        error = _answer.decode(line).error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return 200
    return 200 if error is None else STATUSES.get(error.code, 200)


async def deliver(send: Send, reply: HttpReply) -> None:
    """Send a response to any ASGI server: one send for the headers, one for the body."""
    headers = (
        [*reply.headers, (b"content-length", b"%d" % len(reply.body))] if reply.status != 204 else [*reply.headers]
    )
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


class Ticks:
    """Coarse timeouts without a timer each: a wait ends after one to two ticks of ``seconds``.

    The timer runs only while there are waits. Use with one event loop at a time.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._new: list[asyncio.Future[None]] = []
        self._old: list[asyncio.Future[None]] = []
        """The waits that were present at the last tick."""

    def end(self, wait: asyncio.Future[None]) -> None:
        """End a wait after one to two ticks, unless it is done earlier."""
        if not self._new and not self._old:
            self._next(wait.get_loop())
        self._new.append(wait)

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_later(self.seconds, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        late, self._old, self._new = self._old, self._new, []
        if self._old:
            self._next(loop)
        for wait in late:
            if not wait.done():
                wait.set_result(None)


Found: TypeAlias = dict[bytes, bytes]

SESSION: Final = b"mcp-session-id"
VERSION: Final = b"mcp-protocol-version"
METHOD: Final = b"mcp-method"
NAME: Final = b"mcp-name"
LAST_EVENT: Final = b"last-event-id"
_SINGLE: Final = frozenset({SESSION, LAST_EVENT, b"content-type", b"content-length"})
"""Headers that must not be repeated: another reader could use the other value and see a different request."""
_trace: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-[ -~]{0,200})?"
)


def gathered(headers: Sequence[tuple[bytes, bytes]]) -> tuple[Found, frozenset[bytes]]:
    """Headers by name (ASGI names are in lower case), and the names that are repeated; the last value of those counts.

    The values of ``accept`` are joined.
    """
    found = dict(headers)
    if len(found) == len(headers):
        return found, frozenset()
    names = [name for name, _ in headers]
    twice = frozenset(name for name in found if names.count(name) > 1)
    if b"accept" in twice:
        found[b"accept"] = b",".join(value for name, value in headers if name == b"accept")
    return found, twice


@lru_cache(maxsize=256)
def accepted(accept: bytes) -> tuple[bool, bool]:
    """Whether an Accept header allows JSON, and event streams. Wildcards count; ``q=0`` excludes."""
    types = set()
    for entry in accept.lower().split(b","):
        kind, *parameters = (part.strip() for part in entry.split(b";"))
        if not any(re.fullmatch(rb"q=0(?:\.0*)?", parameter) for parameter in parameters):
            types.add(kind)
    every = b"*/*" in types
    return every or bool(types & {b"application/json", b"application/*"}), every or bool(
        types & {b"text/event-stream", b"text/*"}
    )


@lru_cache(maxsize=256)
def is_json(content_type: bytes) -> bool:
    """True if a Content-Type is JSON, in UTF-8 if it names a charset."""
    kind, *parameters = (part.strip() for part in content_type.lower().split(b";"))
    charsets = [
        value.strip(b'"')
        for name, _, value in (parameter.partition(b"=") for parameter in parameters)
        if name.strip() == b"charset"
    ]
    return kind == b"application/json" and all(charset in (b"utf-8", b"utf8", b"us-ascii") for charset in charsets)


def post_fault(found: Found, twice: frozenset[bytes]) -> HttpReply | None:
    """Why a POST with these headers is refused, or None (R93: the client must accept both response types)."""
    fault = _single(twice)
    if fault is not None:
        return fault
    if not is_json(found.get(b"content-type", b"")):
        return refusal(415, "content_type", "the Content-Type must be application/json")
    json, stream = accepted(found.get(b"accept", b"*/*"))
    if not (json and stream):
        return refusal(406, "accept", "the Accept header must list application/json and text/event-stream")
    return None


def get_fault(found: Found, twice: frozenset[bytes]) -> HttpReply | None:
    """Why a GET with these headers is refused, or None. A GET is answered by a stream."""
    fault = _single(twice)
    if fault is not None or accepted(found.get(b"accept", b"*/*"))[1]:
        return fault
    return refusal(406, "accept", "the Accept header must list text/event-stream")


def _single(twice: frozenset[bytes]) -> HttpReply | None:
    double = sorted(twice & _SINGLE)
    return refusal(400, "header", f"the header {double[0].decode()} appears more than once") if double else None


def text(value: bytes | None) -> str | None:
    """A header's value as text."""
    return None if value is None else value.decode("latin-1").strip(" \t")


def traceparent(value: str | None) -> str:
    """A valid W3C trace context, otherwise empty, so that the value in logs is bounded plain text."""
    return value if value is not None and _trace.fullmatch(value) else ""
