"""How a request is answered: as JSON if the first thing that comes is its answer, else as a stream of events. The same
in both eras.

Not what is answered, and not who may come back for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeAlias

from samplegate.links.front.visit import Visit
from samplegate.transport import sse
from samplegate.transport.http_server.http import Bounds, Headers, Ticks
from samplegate.transport.http_server.stream import CLOSING, DISPLACED, SLOW, Reader
from samplegate.transport.lines import one_line

GRACE: Final = 0.05
"""Seconds in which most answers come: the client's disconnect is watched for only after them, and before twice as many;
that takes a task."""
SSE: Final[Headers] = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),  # a proxy in between that collects events would hold up the peers
)
ENDED: Final = "ended"
Form: TypeAlias = Callable[[int, bytes], bytes]


def plain(_: int, line: bytes) -> bytes:
    """A frame as an event without an ID, so that no client can resume from it.

    Its data is one line: a reader that takes each line of data for a frame finds no other.
    """
    return sse.event(one_line(line))


def named(stream: int) -> Form:
    """A frame as an event of a stream: its id says which stream and how far (R95)."""
    return lambda seq, line: sse.event(one_line(line), f"{stream}-{seq}")


async def first(visit: Visit, reader: Reader, bounds: Bounds, ticks: Ticks) -> None:
    """Wait for the first thing that comes, for the time to begin a stream without one, or for the client to go.
    ``ticks`` are of GRACE."""
    clock = asyncio.get_running_loop().time
    until = clock() + bounds.commit
    if not await (reader.soon(ticks) if bounds.commit > 2 * GRACE else reader.more(min(GRACE, bounds.commit))):
        visit.watch(reader)
        await reader.more(max(0.0, until - clock()))


def whole(reader: Reader) -> bytes | None:
    """The answer, if it is all there is."""
    stream = reader.stream
    return stream.events[0][1] if stream.ended and stream.seq == 1 and len(stream.events) == 1 else None


async def stream(
    visit: Visit,
    reader: Reader,
    bounds: Bounds,
    form: Form,
    *,
    prime: bytes = b"",
    farewell: bytes = b"",
    headers: Headers = (),
) -> None:
    """Write events until the stream ends or the reader is stopped; ``visit.end`` says which. ``prime`` goes out first,
    ``farewell`` if we end it."""
    visit.form, visit.status = "sse", 200
    visit.watch(reader)
    try:
        await _opened(visit, reader, bounds, (*SSE, *headers), prime)
        await _written(visit, reader, bounds, form)
        if visit.lost == SLOW:  # cut off while the last piece went out
            reader.stop(SLOW)
    finally:
        reader.leave()
    visit.end = reader.stopped or ENDED
    if reader.stopped in (DISPLACED, CLOSING):
        await visit.put(farewell if reader.stopped == CLOSING else b"", reader, more=False)
    if reader.stopped == SLOW:
        await visit.cut()


async def _opened(visit: Visit, reader: Reader, bounds: Bounds, headers: Headers, prime: bytes) -> None:
    await visit.piece({"type": "http.response.start", "status": 200, "headers": headers}, reader)
    if prime and reader.stopped != SLOW:
        await visit.put(prime, reader)


async def _written(visit: Visit, reader: Reader, bounds: Bounds, form: Form) -> None:
    unsent = 0
    while not reader.stopped:
        if visit.gone():  # nothing is handed to a connection that is closed: it goes to another
            reader.stop(visit.lost)
            return
        events = reader.take()
        done = reader.stream.ended and reader.stream.newest <= reader.given
        if events or done:
            await visit.put(b"".join([form(seq, line) for seq, line in events]), reader, more=not done)
        if done:
            return
        if not await reader.more(bounds.keep_alive):
            before, unsent = unsent, visit.unsent()
            if before and unsent >= before:
                reader.stop(SLOW)
            else:
                await visit.put(sse.comment(), reader)
