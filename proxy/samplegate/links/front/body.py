"""The body of a POST: bounded in size and time, most often in one piece. Not what it says."""

from __future__ import annotations

import asyncio
from typing import Final

from samplegate.links.front.heading import Found
from samplegate.links.front.replies import INTERNAL, Receive, Reply, refusal
from samplegate.links.lines import one_line

_CLOSE: Final = ((b"connection", b"close"),)
"""What is still to come of such a request is not read."""


async def read(receive: Receive, found: Found, most: int, seconds: float, *, there: bool = False) -> bytes | Reply | None:
    """The body as one line, the refusal, or None where the client went away before it was complete. ``there``: it need not be waited for."""
    announced = found.get(b"content-length", b"0")
    if not announced.isdigit() or len(announced) > 18 or int(announced) > most:
        return _too_large(most)
    if there:
        whole = await _whole(receive, most)
    else:
        try:
            async with asyncio.timeout(seconds):
                whole = await _whole(receive, most)
        except TimeoutError:
            return refusal(408, "body_time", f"the body was not complete after {seconds:g} seconds", code=INTERNAL, extra=_CLOSE)
    return one_line(whole) if isinstance(whole, bytes) else whole


async def _whole(receive: Receive, most: int) -> bytes | Reply | None:
    message = await receive()
    if message["type"] != "http.request":
        return None
    first: bytes = message.get("body", b"")
    if message.get("more_body"):
        return await _rest(receive, first, most)
    return _too_large(most) if len(first) > most else first


async def _rest(receive: Receive, first: bytes, most: int) -> bytes | Reply | None:
    whole = bytearray(first)
    more = True
    while more and len(whole) <= most:
        message = await receive()
        if message["type"] != "http.request":
            return None
        whole += message.get("body", b"")
        more = message.get("more_body", False)
    return _too_large(most) if len(whole) > most else bytes(whole)


def _too_large(most: int) -> Reply:
    return refusal(413, "body_size", f"the body is larger than {most} bytes", extra=_CLOSE)
