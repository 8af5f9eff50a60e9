"""A whole answer in one write, with uvicorn's request completed by hand: its two sends cost several times as much. Not streams, and not what is said.

Of uvicorn (pinned to 0.54) it knows ``protocols.http.httptools_impl``: STATUS_LINE, HEADER_RE, HEADER_VALUE_RE, and RequestResponseCycle, whose
bound ``send`` is what an application is given. Read there: ``access_log``, ``default_headers``, ``disconnected``, ``flow.write_paused``,
``keep_alive``, ``scope``, ``transport``; written: ``response_started``, ``response_complete``, ``chunked_encoding``, ``waiting_for_100_continue``,
``message_event``; called: ``on_response``. Whatever is not an ordinary answer is left to ``send``. The tests hold both ways against each other.
"""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.httptools_impl import HEADER_RE, HEADER_VALUE_RE, STATUS_LINE, RequestResponseCycle

from samplegate.links.front.replies import Reply, Send

LARGE: Final = 64 * 1024  # bytes of a body from which copying it behind its head costs more than a second write
_FRAMING: Final = frozenset({b"connection", b"content-length", b"transfer-encoding"})
"""Headers that say where an answer ends: uvicorn reads them, so an answer that brings its own is uvicorn's."""


def given(send: Send, reply: Reply) -> bool:
    """Give an answer at once. False, with nothing done, where ``send`` has to: it is not uvicorn's own, or waits, or the answer has no body."""
    cycle = getattr(send, "__self__", None)
    if type(cycle) is not RequestResponseCycle or not _ordinary(cycle, reply):
        return False
    head = _head(cycle, reply)
    if head is None:
        return False
    _write(cycle.transport, head, reply.body)
    _complete(cycle)
    return True


def _ordinary(cycle: RequestResponseCycle, reply: Reply) -> bool:
    """Whether nothing has to be waited for or told, and the answer has a body, if an empty one."""
    if cycle.response_started or cycle.disconnected or cycle.flow.write_paused or cycle.access_log:
        return False
    return reply.status >= 200 and reply.status not in (204, 304) and cycle.scope["method"] != "HEAD"


def _head(cycle: RequestResponseCycle, reply: Reply) -> bytes | None:
    """None where a header is none, or says where the answer ends."""
    parts = [STATUS_LINE[reply.status]]
    for name, value in (*cycle.default_headers, *reply.headers):
        if name.lower() in _FRAMING or HEADER_RE.search(name) or HEADER_VALUE_RE.search(value):
            return None
        parts += (name, b": ", value, b"\r\n")
    parts.append(b"content-length: %d\r\n" % len(reply.body))
    parts.append(b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n")
    return b"".join(parts)


def _write(transport: asyncio.Transport, head: bytes, body: bytes) -> None:
    if len(body) < LARGE:
        transport.write(head + body)
    else:
        transport.write(head)
        transport.write(body)


def _complete(cycle: RequestResponseCycle) -> None:
    """What uvicorn's ``send`` does after the last piece."""
    cycle.response_started = cycle.response_complete = True
    cycle.chunked_encoding = cycle.waiting_for_100_continue = False
    cycle.message_event.set()
    if not cycle.keep_alive:
        cycle.transport.close()
    cycle.on_response()
