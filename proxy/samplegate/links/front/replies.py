"""Whole HTTP answers: of the front's own, and of one frame as JSON with the status that it demands. Not streams, and no headers of a request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from samplegate.core import frames
from samplegate.core.frames import FrameId
from samplegate.links.front.served import Refused
from samplegate.links.front.told import Reason

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
STATUSES: Final = {PARSE_ERROR: 400, INVALID_REQUEST: 400, BAD_PARAMS: 400, -32020: 400, -32021: 400, UNSUPPORTED_VERSION: 400, METHOD_NOT_FOUND: 404}
"""The HTTP status of a modern error by its code (R76); every other error is an answer like a result: 200."""
JSON: Final = (b"content-type", b"application/json")
_ALLOW: Final = (b"allow", b"POST, GET, DELETE")


class Reply(msgspec.Struct, frozen=True):
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
) -> Reply:
    """A refusal of the front's own, as a JSON-RPC error on the request's id where that is known (R73, R76)."""
    return Reply(status, (JSON, *extra), frames.error(id, code, message, data), reason)


def busy(status: int, reason: Reason, message: str, id: FrameId | None, seconds: int) -> Reply:
    """Not now: 503 where there is no room at all, 429 where the caller has had its share."""
    return refusal(status, reason, message, id, code=INTERNAL, extra=((b"retry-after", b"%d" % max(1, seconds)),))


def refused(problem: Refused, id: FrameId | None) -> Reply:
    """What the gate says where it begins no conversation."""
    extra = () if problem.retry_after is None else ((b"retry-after", b"%d" % problem.retry_after),)
    return refusal(problem.status, "refused", problem.message, id, code=INTERNAL, extra=extra)


def not_allowed(message: str) -> Reply:
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


async def deliver(send: Send, reply: Reply) -> None:
    """Give it to any ASGI server: one send for the head, one for the body."""
    headers = [*reply.headers, (b"content-length", b"%d" % len(reply.body))] if reply.status != 204 else [*reply.headers]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
