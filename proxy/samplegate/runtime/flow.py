"""The two ends that a relay writes to, and backpressure: a side is read only as fast as the other side reads.

On the client's side there is one stream or many, on the server's one pipe or a stream for each request. The links have
the queues and report a peer that falls behind. What the other side sent is paid for by not reading that one, so it
never holds the side that it is for: a server that writes before it reads on would wait for us, and we for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from samplegate.protocol.frames import Frame

MOST_ANSWERS: Final = 8 * 1024 * 1024
"""Bytes of the gate's own answers that may wait for a side: a thousand open requests with answers of 8 KiB, and far
from filling a machine."""


class Link(Protocol):
    """One side's connection, as ``links`` makes them."""

    @property
    def send(self) -> Callable[[bytes], None]: ...
    @property
    def pressure(self) -> Callable[[bool], None]: ...
    @pressure.setter
    def pressure(self, call: Callable[[bool], None]) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class ReadGate:
    """Whether a side is read: while nothing holds it."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._held: set[str] = set()

    def hold(self, why: str) -> None:
        """Read it no more, until ``release`` of the same."""
        if not self._held:
            self._link.pause_reading()
        self._held.add(why)

    def release(self, why: str) -> None:
        """One reason less; without any it is read again."""
        if why in self._held:
            self._held.discard(why)
            if not self._held:
                self._link.resume_reading()


class Writer(msgspec.Struct, eq=False):
    """What goes to one side."""

    carry: Callable[[bytes], None]
    """Send a line that came from the other side."""
    own: ReadGate | None = None
    other: ReadGate | None = None
    _behind: bool = False
    _answers: int = 0

    def answer(self, line: bytes) -> None:
        """Send a line of the gate's own, which nobody else is held up for."""
        self.carry(line)
        if self._behind and self.own is not None:
            self._answers += len(line) + 1
            if self._answers > MOST_ANSWERS:
                self.own.hold("it takes no answers")

    def pressed(self, over: bool) -> None:
        """The link's word that the peer has fallen behind, or that it has caught up or gone."""
        self._behind = over
        if over:
            if self.other is not None:
                self.other.hold("the other side is behind")
            return
        self._answers = 0
        if self.other is not None:
            self.other.release("the other side is behind")
        if self.own is not None:
            self.own.release("it takes no answers")


def outlets(client: Link, server: Link) -> tuple[Writer, Writer]:
    """What goes to the client and what to the server, each with its marks."""
    clients, servers = ReadGate(client), ReadGate(server)
    to_client, to_server = Writer(client.send, clients, servers), Writer(server.send, servers, clients)
    client.pressure, server.pressure = to_client.pressed, to_server.pressed
    return to_client, to_server


MOST_QUEUED: Final = 64 * 1024 * 1024
"""Bytes that may wait for a server that many clients write to: one frame of the longest kind; the next request is
refused, nobody is held up."""


STANDALONE: Final = 0
"""The stream of what belongs to no request."""


class Sink(Protocol):
    """One stream to a client, as the HTTP front makes them: nothing of it blocks or raises."""

    def send(self, line: bytes, last: bool) -> None: ...
    def ask(self, id: str | int, line: bytes) -> None: ...
    def take_back(self, id: str | int, line: bytes) -> None: ...
    def over(self) -> None: ...
    def close(self) -> None: ...


class Streams(Protocol):
    """A server that answers each request on a stream of its own, as ``links.remote`` makes them."""

    def send(self, stream: int, line: bytes | Frame) -> None: ...
    def close_stream(self, stream: int) -> None: ...


class Pipe(Link, Protocol):
    """A link that tells how many bytes wait for its peer."""

    @property
    def buffered(self) -> int: ...


class ClientEnd(Protocol):
    """What goes to the client. ``own``: the line is the gate's, not the server's."""

    def send(self, stream: int, line: bytes, last: bool, own: bool) -> None: ...
    def ask(self, stream: int, id: str | int, line: bytes, own: bool) -> None: ...
    def take_back(self, stream: int, id: str | int, line: bytes, own: bool) -> None: ...
    def over(self, stream: int) -> None: ...
    def close(self) -> None: ...


class ServerEnd(Protocol):
    """What goes to the server. ``own``: the line is the gate's, not the client's. ``frame``: the line as it was read,
    if it was."""

    def send(self, stream: int, line: bytes, own: bool, frame: Frame | None = None) -> None: ...
    def close_stream(self, stream: int) -> None: ...
    @property
    def full(self) -> bool: ...


class StdioClientWriter(msgspec.Struct, eq=False):
    """A client with one stream: stdio."""

    outlet: Writer

    def send(self, stream: int, line: bytes, last: bool, own: bool) -> None:
        """Write one line."""
        self.outlet.answer(line) if own else self.outlet.carry(line)

    def ask(self, stream: int, id: str | int, line: bytes, own: bool) -> None:
        """Write a request, which the client reads as it reads everything."""
        self.send(stream, line, False, own)

    def take_back(self, stream: int, id: str | int, line: bytes, own: bool) -> None:
        """Write its cancellation."""
        self.send(stream, line, False, own)

    def over(self, stream: int) -> None:
        """A stream of stdio is never over."""

    def close(self) -> None:
        """It ends with its process."""


class Silent(msgspec.Struct, eq=False):
    """A client that has ended its input: it still reads, and can answer nothing."""

    end: ClientEnd
    asked: Callable[[str | int, bytes], None]
    """Told each request that would wait for it in vain, by id and line."""
    answered: Callable[[], None]
    """Told when one of its own requests may be over."""

    def send(self, stream: int, line: bytes, last: bool, own: bool) -> None:
        """Write one line."""
        self.end.send(stream, line, last, own)
        if last:
            self.answered()

    def ask(self, stream: int, id: str | int, line: bytes, own: bool) -> None:
        """Do not ask it."""
        self.asked(id, line)

    def take_back(self, stream: int, id: str | int, line: bytes, own: bool) -> None:
        """Write a cancellation."""
        self.end.take_back(stream, id, line, own)

    def over(self, stream: int) -> None:
        """One request of the stream needs no answer."""
        self.end.over(stream)
        self.answered()

    def close(self) -> None:
        """The conversation is over."""
        self.end.close()


class HttpClientWriter(msgspec.Struct, eq=False):
    """A client, or several, with many streams. What comes for a stream that is gone goes to the standalone one; without
    one it is dropped and logged."""

    lost: Callable[[int, bool], None]
    """Told the stream, and whether an answer was lost."""
    unreached: Callable[[str | int], None]
    """Told the id of a request for which there is no stream."""
    sinks: dict[int, Sink] = msgspec.field(default_factory=dict)

    def send(self, stream: int, line: bytes, last: bool, own: bool) -> None:
        """Write one line."""
        sink = self.sinks.get(stream) or (None if last else self.sinks.get(STANDALONE))
        sink.send(line, last) if sink is not None else self.lost(stream, last)

    def ask(self, stream: int, id: str | int, line: bytes, own: bool) -> None:
        """Write a request to the client."""
        sink = self.sinks.get(stream) or self.sinks.get(STANDALONE)
        sink.ask(id, line) if sink is not None else self.unreached(id)

    def take_back(self, stream: int, id: str | int, line: bytes, own: bool) -> None:
        """Write the cancellation of one."""
        sink = self.sinks.get(stream) or self.sinks.get(STANDALONE)
        sink.take_back(id, line) if sink is not None else self.lost(stream, False)

    def over(self, stream: int) -> None:
        """One request of the stream needs no answer."""
        sink = self.sinks.get(stream)
        if sink is not None:
            sink.over()

    def close(self) -> None:
        """The conversation is over."""
        for sink in list(self.sinks.values()):
            sink.close()
        self.sinks.clear()


class StdioServerWriter(msgspec.Struct, eq=False):
    """A server with one stream for everything: stdio."""

    outlet: Writer
    pipe: Pipe | None = None
    """Where many clients write to it, and none can be held up for the others."""

    def send(self, stream: int, line: bytes, own: bool, frame: Frame | None = None) -> None:
        """Write one line."""
        self.outlet.answer(line) if own else self.outlet.carry(line)

    def close_stream(self, stream: int) -> None:
        """It has none to close."""

    @property
    def full(self) -> bool:
        """Whether so much waits for it already that nothing may be added."""
        return self.pipe is not None and self.pipe.buffered > MOST_QUEUED


class HttpServerWriter(msgspec.Struct, eq=False):
    """A server with a stream for each request: HTTP."""

    streams: Streams

    def send(self, stream: int, line: bytes, own: bool, frame: Frame | None = None) -> None:
        """Send one frame."""
        self.streams.send(stream, frame or line)

    def close_stream(self, stream: int) -> None:
        """End the stream of a request."""
        self.streams.close_stream(stream)

    @property
    def full(self) -> bool:
        """Its own bounds refuse what is too much, one request at a time."""
        return False


def piped(pipe: Pipe) -> StdioServerWriter:
    """A child that many streams write to; one that takes no answers is read no more."""
    outlet = Writer(pipe.send, ReadGate(pipe))
    pipe.pressure = outlet.pressed
    return StdioServerWriter(outlet, pipe)


def facing(pipe: Link) -> StdioClientWriter:
    """A client on stdio whose server is not one pipe; one that takes no answers is read no more."""
    outlet = Writer(pipe.send, ReadGate(pipe))
    pipe.pressure = outlet.pressed
    return StdioClientWriter(outlet)


class NoClient(msgspec.Struct, eq=False):
    """Before there is an end nothing can be sent: lines come only from links."""

    def send(self, stream: int, line: bytes, last: bool, own: bool) -> None:
        """Drop it."""

    def ask(self, stream: int, id: str | int, line: bytes, own: bool) -> None:
        """Drop it."""

    def take_back(self, stream: int, id: str | int, line: bytes, own: bool) -> None:
        """Drop it."""

    def over(self, stream: int) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class NoServer(msgspec.Struct, eq=False):
    """The same for the server's side."""

    full: bool = False

    def send(self, stream: int, line: bytes, own: bool, frame: Frame | None = None) -> None:
        """Drop it."""

    def close_stream(self, stream: int) -> None:
        """Nothing."""
