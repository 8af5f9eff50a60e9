"""How much of a provider's HTTP answer is read at most, counted as its bytes come, before anything collects them into a line or a body.

litellm, the providers' packages and httpx collect both without a bound. All of them read through one method of httpx's, which the worker replaces.
httpx is handed in.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from functools import wraps
from typing import Any, Final

MAX_BODY: Final = 128 * 1024 * 1024  # bytes, decompressed; the longest answer in the smallest pieces that occur
MAX_LINE: Final = 32 * 1024 * 1024  # bytes; the longest answer in one line, with a third of its characters escaped

DONE: Final = re.compile(rb"\ndata: ?\[DONE\]")
"""The line that ends a stream of OpenAI's shape. It cannot stand in a piece: there a line end is written as an escape."""
on_done: ContextVar[Callable[[], None] | None] = ContextVar("on_done", default=None)
"""Told when that line was read, for the call that the current task makes: litellm and OpenAI's package keep it to themselves."""

Reads = Callable[..., AsyncIterator[bytes]]


class Flood(BaseException):
    """More than that came. The message says which, for the operator. No Exception, for litellm handles all of those."""


def hold_back(response: Any) -> None:
    """Replace ``aiter_bytes`` of ``httpx.Response``, through which bodies, lines, events and errors are read, by one that raises Flood."""
    response.aiter_bytes = bounded(response.aiter_bytes)


def bounded(read: Reads) -> Reads:
    """The same bytes, as far as the bounds allow; it raises Flood where the next chunk would go past them.

    Of a long line it hands on as much as went before, each time: OpenAI's package copies what it has of an event with every chunk, which for one
    of 32 MiB would keep all other calls waiting for 15 s.
    """

    @wraps(read)
    async def bounded_read(*args: Any, **kwargs: Any) -> AsyncIterator[bytes]:
        body = line = 0
        held = bytearray()
        done, before = on_done.get(), b"\n"
        async for chunk in read(*args, **kwargs):
            body += len(chunk)
            if done is not None:
                if DONE.search(before + chunk):
                    done()
                before = (before + chunk)[-16:]
            after = len(chunk) - (chunk.rfind(b"\n") + 1)
            line = after if after < len(chunk) else line + len(chunk)
            if body > MAX_BODY:
                raise Flood(f"its answer is longer than {MAX_BODY} bytes; ask another model")
            if line > MAX_LINE:
                raise Flood(f"its answer has a line of more than {MAX_LINE} bytes; ask another model")
            held += chunk
            if after < len(chunk) or 2 * len(held) >= line:
                yield bytes(held)
                held.clear()
        if held:
            yield bytes(held)

    return bounded_read
