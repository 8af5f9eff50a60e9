"""Shared parts of the HTTP front: bounds, complete answers, the facts reported about each request, and the ports to the
rest of the gate."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from functools import lru_cache
from typing import Any, Final, Literal, Protocol, TypeAlias, get_args

import msgspec

from samplegate.protocol import frames
from samplegate.protocol.frames import Frame, FrameId

MIB = 1024 * 1024


class HttpBounds(msgspec.Struct, frozen=True, kw_only=True):
    """Counts are for a process, all servers together, unless they say otherwise; sizes in bytes, times in seconds."""

    connections: int = 2000
    """Open at a time on one listener, idle ones too: each costs a descriptor and some KiB."""
    pipelined: int = 100
    """Requests of one connection that wait for their answers; real clients send one at a time."""
    lingering: int = 64
    """Beside them, for a second each: those that are told to come back, so that they can read it."""
    head: int = 64 * 1024
    """Of one request's line and headers; tokens and names take a few KiB."""
    head_time: float = 20.0
    """From a connection's or a request's first byte to the end of its headers."""
    body: int = 64 * MIB
    """Of one POST: as a line over stdio."""
    body_time: float = 30.0
    """From a request's headers to the end of its body."""
    connection_idle: float = 90.0
    """From a connection's last answer to its next request. uvicorn ends it sooner, unless a body ended after its
    answer."""
    commit: float = 5.0
    """A call that takes longer is answered by a stream: the first byte is out before an intermediary gives up (some
    after 10), a client of 2025-11-25 can resume, and hardly an error that needs a status of its own comes later."""
    keep_alive: float = 15.0
    """Between two comments on a silent stream (R102): the least patient intermediaries close after 30."""
    stalled: float = 30.0
    """A client that takes no byte for so long is not waited for."""
    opening: float = 120.0
    """For a server's answer to ``initialize``: it may install itself first."""
    sessions: int = 4000
    """Legacy sessions."""
    sessions_per_caller: int = 2000
    """Without authentication everybody is one caller."""
    idle: float = 1800.0
    """A legacy session without a connection and nothing in flight ends after it."""
    detached: float = 3600.0
    """The same with something in flight, which goes on without its client (T35)."""
    streams: int = 64
    """Of one legacy session, requests in flight and streams that are open."""
    requests_per_caller: int = 1000
    """Modern requests in flight, subscriptions too."""
    events: int = 1000
    """Kept of one stream for whoever comes back."""
    event_bytes: int = 4 * MIB
    """The same; one event larger than this is still kept. Also how much may wait behind the event that a client is
    about to read, or more as long as the client has taken something while so much came."""
    held_bytes: int = 256 * MIB
    """Of all streams' events, waiting and kept: over it the largest gives way."""
    finished: int = 32
    """Streams of one session that are over and can be asked for again."""
    resume: float = 300.0
    """For so long after their end."""
    unread: float = 60.0
    """For a request to a client that reads no stream at all: as long as most peers wait for an answer. Then the request
    gets an error."""
    retry: int = 1000
    """Milliseconds that a client is told to wait before it comes back (R95)."""


class ConversationRefused(Exception):
    """A conversation cannot be begun or gone on with; what the client is told. ``status`` is the HTTP status,
    ``message`` for people."""

    def __init__(self, status: int, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after = retry_after


class ClientStream(Protocol):
    """One ordered stream of frames to the client: the response of one POST, or a session's standalone stream. Made by
    the front."""

    def send(self, line: bytes, last: bool) -> None:
        """Take one frame, without a line end. Returns at once, never raises. ``last`` marks the answer to a request
        that came on this stream."""

    def ask(self, id: FrameId, line: bytes) -> None:
        """Take a request to the client, which waits for an answer: it goes on this stream while the client reads it,
        else on another one of its session. Returns at once, never raises."""

    def take_back(self, id: FrameId, line: bytes) -> None:
        """Take the cancellation of such a request. Returns at once, never raises."""

    def over(self) -> None:
        """A request that came on this stream is over without an answer: it was cancelled. Counts as ``last`` does.
        Returns at once."""

    def close(self) -> None:
        """Nothing more comes: the conversation is over. Returns at once; whoever still waits for an answer has had an
        error on ``send`` before."""


class Conversation(Protocol):
    """One client's way to one server: a legacy session, or what the modern requests of one caller share. Made by the
    gate."""

    def open_stream(self, stream: ClientStream, *, standalone: bool = False, trace: str = "") -> int:
        """Enter a stream; its number. ``standalone``: frames that belong to no request go here (number 0; a second one
        replaces the first).

        ``trace``: the HTTP request's traceparent, right in its form or empty; what is recorded of the stream's requests
        bears it.
        """
        ...

    def received(self, stream_id: int, line: bytes | Frame) -> None:
        """One frame of the client's came on a stream. Never raises."""

    def close_stream(self, stream_id: int) -> None:
        """The client's end of a stream is gone: in the modern era its requests are cancelled, in the legacy eras they
        go on (T35).

        Called at most once for a stream, and never while this object sends on it: when its last answer is there and
        nobody reads it any more, or its modern client went before. Not for streams that live as long as their session,
        and for none after ``on_end``, which ends them all.
        """

    def undelivered(self, id: FrameId) -> None:
        """The client has not read any stream for too long for a request that it was to be sent. Never called while this
        object sends."""

    def on_end(self, call: Callable[[], None]) -> None:
        """Have ``call`` called once when the conversation is over, whoever ended it."""

    async def aclose(self) -> None:
        """End it: rounds are withdrawn, the server's side is closed. May be called again."""


class ServerEndpoint(Protocol):
    """One server of the settings, as the front sees it."""

    @property
    def name(self) -> str: ...

    async def begin(self, caller: str) -> Conversation:
        """A conversation of its own for one legacy session (R119). Raises Refused."""
        ...

    async def modern(self, caller: str, frame: Frame) -> Conversation:
        """The conversation that this caller's modern frames share, as long as it lives. ``frame`` is for it. Raises
        Refused."""
        ...


METHODS: Final = frozenset(
    "completion/complete initialize logging/setLevel notifications/cancelled notifications/initialized"
    " notifications/progress notifications/roots/list_changed ping prompts/get prompts/list resources/list"
    " resources/read resources/subscribe resources/templates/list resources/unsubscribe server/discover"
    " subscriptions/listen tasks/cancel tasks/get tasks/list tasks/result tasks/update tools/call tools/list".split()
)
"""Others are told as ``other``: a label's values are ours, not the client's."""

Reason: TypeAlias = Literal[
    "accept", "batch", "body_size", "body_time", "busy", "content_type", "draining", "event", "failed", "header",
    "meta", "method", "mismatch",
    "opening", "parse", "protocol", "refused", "session", "session_full", "version", "",
]  # fmt: skip
"""Why the front refuses a request itself, or empty."""
REASONS: Final[frozenset[str]] = frozenset(get_args(Reason)) - {""}


class AccessRecord(msgspec.Struct, frozen=True):
    """One HTTP request, told at its end; a stream's is the end of the stream."""

    server: str
    caller: str
    http: str
    """``POST``, ``GET``, ``DELETE`` or ``other``."""
    era: str
    """``legacy``, ``modern``, or empty where it was refused before that was known."""
    method: str
    """One of METHODS, ``other``; ``answer`` for a client's answer, ``batch``; empty where no body was read."""
    status: int
    """0 if the client had gone before there was one."""
    form: str
    """``json``, ``sse``, or empty for an answer without content."""
    reason: Reason
    """Why the front refused it, or empty."""
    end: str
    """How a stream came to its end: ``ended``, ``gone``, ``slow``, ``displaced``, ``closing``; empty for no stream."""
    seconds: float
    session: str
    """Eight hexadecimal digits that stand for the session, empty without one."""
    traceparent: str
    """The caller's, if its form is right, else empty."""


def method_label(method: str) -> str:
    """The method as it may stand in a label."""
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
"""The HTTP status of a modern error by its code (R76); every other error is an answer like a result: 200."""
JSON: Final = (b"content-type", b"application/json")
_ALLOW: Final = (b"allow", b"POST, GET, DELETE")


class HttpReply(msgspec.Struct, frozen=True):
    """An answer that goes out whole. ``reason`` is why the front itself gives it, empty for a server's answer."""

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
    """A refusal of the front's own, as a JSON-RPC error on the request's id where that is known (R73, R76)."""
    return HttpReply(status, (JSON, *extra), frames.error(id, code, message, data), reason)


def busy(status: int, reason: Reason, message: str, id: FrameId | None, seconds: int) -> HttpReply:
    """Not now: 503 where there is no room at all, 429 where the caller has had its share."""
    return refusal(status, reason, message, id, code=INTERNAL, extra=((b"retry-after", b"%d" % max(1, seconds)),))


def refused(problem: ConversationRefused, id: FrameId | None) -> HttpReply:
    """What the gate says where it begins no conversation."""
    extra = () if problem.retry_after is None else ((b"retry-after", b"%d" % problem.retry_after),)
    return refusal(problem.status, "refused", problem.message, id, code=INTERNAL, extra=extra)


def not_allowed(message: str) -> HttpReply:
    """A method that the endpoint does not have, or not for this (R58, R76)."""
    return refusal(405, "method", message, extra=(_ALLOW,))


class _Code(msgspec.Struct):
    code: int = 0


class _Answer(msgspec.Struct):
    error: _Code | None = None


_answer: Final = msgspec.json.Decoder(_Answer)


def status_of(line: bytes) -> int:
    """The status that a modern answer demands. A result costs a search of its bytes."""
    if b'"error"' not in line:
        return 200
    try:
        error = _answer.decode(line).error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return 200
    return 200 if error is None else STATUSES.get(error.code, 200)


async def deliver(send: Send, reply: HttpReply) -> None:
    """Give it to any ASGI server: one send for the head, one for the body."""
    headers = (
        [*reply.headers, (b"content-length", b"%d" % len(reply.body))] if reply.status != 204 else [*reply.headers]
    )
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


class Ticks:
    """Ends each wait after one to two ticks of so many seconds; runs only while there is one. Of one event loop at a
    time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._new: list[asyncio.Future[None]] = []
        self._old: list[asyncio.Future[None]] = []
        """Those that were there at the last tick."""

    def end(self, wait: asyncio.Future[None]) -> None:
        """Have a wait end, unless it ends by itself before."""
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


# A request's headers, gathered once: what it sends, what it takes, which session and revision it names. Nothing of
# 2026-07-28's mirrors (core).

Found: TypeAlias = dict[bytes, bytes]

SESSION: Final = b"mcp-session-id"
VERSION: Final = b"mcp-protocol-version"
METHOD: Final = b"mcp-method"
NAME: Final = b"mcp-name"
LAST_EVENT: Final = b"last-event-id"
_SINGLE: Final = frozenset({SESSION, LAST_EVENT, b"content-type", b"content-length"})
"""Two of these, and another reader would see another request."""
_trace: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-[ -~]{0,200})?"
)


def gathered(headers: Sequence[tuple[bytes, bytes]]) -> tuple[Found, frozenset[bytes]]:
    """Headers by name (ASGI gives names in lower case), and the names that stand more than once; of those the last
    value counts."""
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
    """Whether an Accept header takes JSON and event streams, with its wildcards; ``q=0`` says no."""
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
    """Whether a Content-Type is JSON, in UTF-8 if it says in what."""
    kind, *parameters = (part.strip() for part in content_type.lower().split(b";"))
    charsets = [
        value.strip(b'"')
        for name, _, value in (parameter.partition(b"=") for parameter in parameters)
        if name.strip() == b"charset"
    ]
    return kind == b"application/json" and all(charset in (b"utf-8", b"utf8", b"us-ascii") for charset in charsets)


def post_fault(found: Found, twice: frozenset[bytes]) -> HttpReply | None:
    """Why a POST with these headers is not read, if so (R93: both forms of an answer must be taken)."""
    fault = _single(twice)
    if fault is not None:
        return fault
    if not is_json(found.get(b"content-type", b"")):
        return refusal(415, "content_type", "the Content-Type is not application/json")
    json, stream = accepted(found.get(b"accept", b"*/*"))
    if not (json and stream):
        return refusal(406, "accept", "the Accept header must list application/json and text/event-stream")
    return None


def get_fault(found: Found, twice: frozenset[bytes]) -> HttpReply | None:
    """The same for a GET, which is answered by a stream."""
    fault = _single(twice)
    if fault is not None or accepted(found.get(b"accept", b"*/*"))[1]:
        return fault
    return refusal(406, "accept", "the Accept header must list text/event-stream")


def _single(twice: frozenset[bytes]) -> HttpReply | None:
    double = sorted(twice & _SINGLE)
    return refusal(400, "header", f"the header {double[0].decode()} stands more than once") if double else None


def text(value: bytes | None) -> str | None:
    """A header's value as text."""
    return None if value is None else value.decode("latin-1").strip(" \t")


def traceparent(value: str | None) -> str:
    """A trace context that is one by its form (W3C), else empty: whatever stands in logs is bounded and plain."""
    return value if value is not None and _trace.fullmatch(value) else ""
