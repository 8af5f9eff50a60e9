"""The bodies of responses, read no faster than they are taken and no further than their bound. Not a judge of what they say."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Final

import aiohttp
import msgspec

from samplegate.core import frames
from samplegate.core.jsontext import MAX_TOLERATED, Malformed
from samplegate.links.remote.faults import Fault, of_status
from samplegate.links.sse import Event, Oversized, Parser

MAX_ERROR: Final = 1024 * 1024  # bytes of the body of an HTTP error that is looked at
JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"


class Flow:
    """Whether responses are read: while nobody has paused it."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()

    def pause(self) -> None:
        """Read no further; what one read has brought is still delivered."""
        self._open.clear()

    def resume(self) -> None:
        """Go on."""
        self._open.set()

    async def clear(self) -> None:
        """Wait while it is paused."""
        if not self._open.is_set():
            await self._open.wait()


def kind_of(response: aiohttp.ClientResponse) -> str:
    """The content type, without parameters and in lower case; empty if there is none. Raises Fault for a body that is compressed."""
    if response.headers.get("Content-Encoding", "identity").strip().lower() not in ("identity", ""):
        raise Fault("its answer is compressed, which it was not asked for")
    return response.headers.get("Content-Type", "").partition(";")[0].strip().lower()


async def body(response: aiohttp.ClientResponse, most: int, flow: Flow) -> bytes:
    """The whole body. Raises Fault if it is larger than ``most`` bytes, and what aiohttp raises."""
    length = response.content_length
    if length is not None and length > most:
        raise Fault(f"its answer has {length} bytes, more than {most}")
    chunks, size = [], 0
    while chunk := await response.content.readany():
        await flow.clear()
        chunks.append(chunk)
        size += len(chunk)
        if size > most:
            raise Fault(f"its answer has more than {most} bytes")
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def events(response: aiohttp.ClientResponse, most: int, flow: Flow, take: Callable[[Event | Oversized], None]) -> None:
    """Hand on every event until the stream ends. Raises what aiohttp raises when it breaks."""
    parser = Parser(most)
    while chunk := await response.content.readany():
        await flow.clear()
        for event in parser.feed(chunk):
            take(event)


async def answer(response: aiohttp.ClientResponse, most: int) -> frames.Frame:
    """The answer alone, of a request that is our own: what else comes on its stream is dropped. Raises Fault, Malformed and what aiohttp raises."""
    kind = kind_of(response)
    if response.status != 200 or kind not in (JSON, EVENTS):
        raise of_status(response.status)
    if kind == JSON:
        return read(await body(response, most, Flow()))
    parser = Parser(most)
    while chunk := await response.content.readany():
        for event in parser.feed(chunk):
            if isinstance(event, Event) and event.data and (frame := read(event.data)).kind in ("result", "error"):
                return frame
    raise Fault("its stream ended without an answer", transport="broken")


def one_line(text: bytes) -> bytes:
    """JSON as one line, since frames are lines elsewhere. Raises Malformed where a line end stands in a string: it would become another text."""
    text = text.strip(b" \t\r\n")
    if b"\n" not in text and b"\r" not in text:
        return text
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        _tolerant(text)
    return text.replace(b"\r", b" ").replace(b"\n", b" ")


def _tolerant(text: bytes) -> None:
    try:
        if len(text) > MAX_TOLERATED:
            raise ValueError
        json.loads(text)
    except (ValueError, RecursionError):
        raise Malformed("it is not JSON") from None


def read(text: bytes) -> frames.Frame:
    """A body or an event's data as a frame. Raises Malformed."""
    return frames.read(one_line(text))
