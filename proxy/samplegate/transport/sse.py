"""Server-sent events: a parser from bytes to events, and a formatter back to bytes.

The parser bounds the size of events and lines, and makes one pass over the bytes whatever their chunking. The reader
handles resumption and pauses. Nothing here interprets an event's data.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

HEAD: Final = 1024
"""Bytes from the start of a discarded event that the reader gets: they contain the envelope if the peer wrote it
first."""
MAX_ID: Final = 1024  # bytes of an event's id: it goes back to the server in a header
MAX_RETRY: Final = 86_400_000  # milliseconds: one day
_BOM: Final = b"\xef\xbb\xbf"
_ends: Final = re.compile(rb"\r\n|\r|\n")


class ServerSentEvent(msgspec.Struct, frozen=True):
    """A server-sent event.

    An event without data only updates ``id`` or ``retry``. Servers send one to make a stream resumable.
    """

    data: bytes = b""
    """The values of the data lines, joined by line ends."""
    name: bytes = b""
    """The event's type; empty if absent, which means ``message``."""
    id: bytes | None = None
    """The event's id. None if absent; empty resets the last id."""
    retry: int | None = None
    """Reconnection delay in milliseconds."""


class Oversized(msgspec.Struct, frozen=True):
    """An event or line over the bound, discarded whole.

    ``size`` is how many bytes of it were read when the bound was hit, and ``head`` the first HEAD bytes of its data.
    """

    size: int
    head: bytes


class Parser:
    """Parser of one event stream. An event's data and a line have at most ``max_event`` bytes each."""

    def __init__(self, max_event: int) -> None:
        self._max = max_event
        self._line = bytearray()
        """The start of an incomplete line."""
        self._data: bytes | bytearray | None = None
        self._name = b""
        self._id: bytes | None = None
        self._retry: int | None = None
        self._skipping = False
        """True until the end of an event that is being discarded."""
        self._cut = False
        """True until the end of a line that is being discarded."""
        self._first = True
        self._after_cr = False

    def feed(self, chunk: bytes) -> list[ServerSentEvent | Oversized]:
        """The events that ``chunk`` completes, in order. Fields after the last blank line stay pending."""
        out: list[ServerSentEvent | Oversized] = []
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk[1:] if chunk[:1] == b"\n" else chunk
        if b"\r" in chunk:
            self._after_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        first, *others = chunk.split(b"\n")
        if not others:
            self._hold(first, out)
            return out
        rest = others.pop()
        self._complete(first, out)
        for line in others:
            self._take(line, out)
        self._hold(rest, out)
        return out

    def _hold(self, part: bytes, out: list[ServerSentEvent | Oversized]) -> None:
        if self._cut or not part:
            return
        self._line += part
        if len(self._line) > self._max + HEAD:  # the line also contains the field's name
            self._over(len(self._line), bytes(self._line[: HEAD * 2]), out)
            self._line, self._cut = bytearray(), True

    def _complete(self, last: bytes, out: list[ServerSentEvent | Oversized]) -> None:
        if self._cut:
            self._cut = self._first = False
        elif self._line:
            self._line += last
            line, self._line = self._line, bytearray()
            self._take(line, out)
        else:
            self._take(last, out)

    def _take(self, line: bytes | bytearray, out: list[ServerSentEvent | Oversized]) -> None:
        if self._first:
            self._first = False
            line = line.removeprefix(_BOM)
        if line:
            self._field(line, out)
        else:
            self._dispatch(out)

    def _field(self, line: bytes | bytearray, out: list[ServerSentEvent | Oversized]) -> None:
        colon = line.find(b":")
        name = bytes(line if colon < 0 else line[:colon])
        start = len(line) if colon < 0 else colon + 1 + (line[colon + 1 : colon + 2] == b" ")
        if name == b"data":
            self._add(line, start, out)
        elif name == b"event":
            self._name = bytes(line[start : start + HEAD])
        elif name == b"id" and b"\0" not in line:
            self._id = bytes(line[start:]) if len(line) - start <= MAX_ID else b""
        elif name == b"retry" and re.fullmatch(rb"[0-9]{1,20}", line[start:]):
            self._retry = min(int(line[start:]), MAX_RETRY)

    def _add(self, line: bytes | bytearray, start: int, out: list[ServerSentEvent | Oversized]) -> None:
        if self._skipping:  # of a discarded event only the id counts: the server must not send the event again
            return
        size = len(line) - start + (0 if self._data is None else len(self._data) + 1)
        if size > self._max:
            begin = bytes(line[start : start + HEAD]) if self._data is None else bytes(self._data[:HEAD])
            self._over(size, begin, out)
        elif self._data is None:
            self._data = bytes(memoryview(line)[start:])
        else:
            if isinstance(self._data, bytes):
                self._data = bytearray(self._data)
            self._data += b"\n"
            self._data += memoryview(line)[start:]

    def _over(self, size: int, head: bytes, out: list[ServerSentEvent | Oversized]) -> None:
        if not self._skipping:
            out.append(Oversized(size, head.removeprefix(b"data:").lstrip(b" ")[:HEAD]))
        self._skipping = True
        self._data = None

    def _dispatch(self, out: list[ServerSentEvent | Oversized]) -> None:
        if self._data is not None or self._id is not None or self._retry is not None:
            out.append(
                ServerSentEvent(b"" if self._data is None else bytes(self._data), self._name, self._id, self._retry)
            )
        self._data, self._name, self._id, self._retry, self._skipping = None, b"", None, None, False


def event(data: bytes, id: str | None = None, retry: int | None = None) -> bytes:
    """Format an event for the wire.

    ``retry`` is in milliseconds, and ``id`` has no line end. With empty ``data``, the event only sets these two.
    """
    parts = [] if id is None else [b"id: ", id.encode(), b"\n"]
    if retry is not None:
        parts += [b"retry: %d\n" % retry]
    if data:
        parts.append(b"event: message\n")
    if b"\n" in data or b"\r" in data:
        data = b"\ndata: ".join(_ends.split(data))
    return b"".join([*parts, b"data: ", data, b"\n\n"])


def comment(text: str = "") -> bytes:
    """Format a comment. Readers ignore it; it keeps the connection open (R102)."""
    return b": " + _ends.sub(b" ", text.encode()) + b"\n\n"
