"""Writers for the two sides of a relay, and backpressure: each side is read only as fast as the other side reads.

The client's side has one stream or many. The server's side has one pipe, or a stream for each request. The links own
the queues and report a peer that falls behind.

If a peer falls behind because of the other side's lines, reading from that other side pauses. The slow peer itself is
still read: a server that writes before it reads would otherwise deadlock with the gate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from samplegate.protocol.frames import Frame

MAX_ANSWERS: Final = 8 * 1024 * 1024
"""Bytes of the gate's own answers that may be queued for a side: a thousand open requests with answers of 8 KiB, well
below the memory of a machine."""


class Link(Protocol):
    """One side's connection, as the transports make them."""

    @property
    def send(self) -> Callable[[bytes], None]: ...
    @property
    def pressure(self) -> Callable[[bool], None]: ...
    @pressure.setter
    def pressure(self, call: Callable[[bool], None]) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class ReadGate:
    """Pauses reading from a side while there is at least one reason to."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._held: set[str] = set()

    def hold(self, why: str) -> None:
        """Pause reading until ``release`` with the same reason."""
        if not self._held:
            self._link.pause_reading()
        self._held.add(why)

    def release(self, why: str) -> None:
        """Remove a reason; reading resumes when none is left."""
        if why in self._held:
            self._held.discard(why)
            if not self._held:
                self._link.resume_reading()


class Writer(msgspec.Struct, eq=False):
    """Writer to one side, with its backpressure."""

    pass_on: Callable[[bytes], None]
    """Send a line that came from the other side."""
    own: ReadGate | None = None
    other: ReadGate | None = None
    _behind: bool = False
    _answers: int = 0

    def send_own(self, line: bytes) -> None:
        """Send a line of the gate's own. It never pauses the other side, but too many unread answers pause this one."""
        self.pass_on(line)
        if self._behind and self.own is not None:
            self._answers += len(line) + 1
            if self._answers > MAX_ANSWERS:
                self.own.hold("it takes no answers")

    def set_pressure(self, over: bool) -> None:
        """The link reports that the peer has fallen behind (True), or that it has caught up or gone (False)."""
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


def connect_writers(client: Link, server: Link) -> tuple[Writer, Writer]:
    """Writers to the client and to the server, connected for backpressure in both directions."""
    clients, servers = ReadGate(client), ReadGate(server)
    to_client, to_server = Writer(client.send, clients, servers), Writer(server.send, servers, clients)
    client.pressure, server.pressure = to_client.set_pressure, to_server.set_pressure
    return to_client, to_server


MAX_QUEUED: Final = 64 * 1024 * 1024
"""Bytes that may be queued for a server that many clients share: one frame of maximum size. Beyond that, the next
request is refused instead of pausing all clients."""


STANDALONE: Final = 0
"""Stream number for frames that belong to no request."""


class Sink(Protocol):
    """One stream to a client, as ``transport/http_server`` makes them. No method blocks or raises."""

    def send(self, line: bytes, last: bool) -> None: ...
    def ask(self, id: str | int, line: bytes) -> None: ...
    def cancel(self, id: str | int, line: bytes) -> None: ...
    def over(self) -> None: ...
    def close(self) -> None: ...


class Streams(Protocol):
    """A server that answers each request on its own stream, as ``RemoteConnection`` does."""

    def send(self, stream: int, line: bytes | Frame) -> None: ...
    def close_stream(self, stream: int) -> None: ...


class Pipe(Link, Protocol):
    """A link that reports how many bytes are queued for its peer."""

    @property
    def buffered(self) -> int: ...


class ClientEnd(Protocol):
    """Writer to the client. ``own``: the line is the gate's, not the server's."""

    def send(self, stream: int, line: bytes, last: bool, own: bool) -> None: ...
    def ask(self, stream: int, id: str | int, line: bytes, own: bool) -> None: ...
    def cancel(self, stream: int, id: str | int, line: bytes, own: bool) -> None: ...
    def over(self, stream: int) -> None: ...
    def close(self) -> None: ...


class ServerEnd(Protocol):
    """Writer to the server. ``own``: the line is the gate's, not the client's. ``frame``: the parsed line, if it was
    parsed."""

    def send(self, stream: int, line: bytes, own: bool, frame: Frame | None = None) -> None: ...
    def close_stream(self, stream: int) -> None: ...
    @property
    def full(self) -> bool: ...


class StdioClientWriter(msgspec.Struct, eq=False):
    """Writer to a client with one stream: stdio."""

    writer: Writer

    def send(self, stream: int, line: bytes, last: bool, own: bool) -> None:
        """Write one line."""
        self.writer.send_own(line) if own else self.writer.pass_on(line)

    def ask(self, stream: int, id: str | int, line: bytes, own: bool) -> None:
        """Write a request, which needs no special routing on stdio."""
        self.send(stream, line, False, own)

    def cancel(self, stream: int, id: str | int, line: bytes, own: bool) -> None:
        """Write the cancellation of a request."""
        self.send(stream, line, False, own)

    def over(self, stream: int) -> None:
        """Does nothing: the stream of stdio never ends."""

    def close(self) -> None:
        """Does nothing: stdio closes with the process."""


class InputClosedClient(msgspec.Struct, eq=False):
    """Writer to a client that has ended its input: it still reads, but cannot answer."""

    end: ClientEnd
    asked: Callable[[str | int, bytes], None]
    """Called with the id and the line of each request that the client cannot answer."""
    answered: Callable[[], None]
    """Called when one of the client's own requests may be complete."""

    def send(self, stream: int, line: bytes, last: bool, own: bool) -> None:
        """Write one line."""
        self.end.send(stream, line, last, own)
        if last:
            self.answered()

    def ask(self, stream: int, id: str | int, line: bytes, own: bool) -> None:
        """Report the request instead of sending it."""
        self.asked(id, line)

    def cancel(self, stream: int, id: str | int, line: bytes, own: bool) -> None:
        """Write the cancellation of a request."""
        self.end.cancel(stream, id, line, own)

    def over(self, stream: int) -> None:
        """End one request of the stream that needs no answer."""
        self.end.over(stream)
        self.answered()

    def close(self) -> None:
        """Close the client's side."""
        self.end.close()


class HttpClientWriter(msgspec.Struct, eq=False):
    """Writer to one or several clients with many streams.

    A frame for a closed stream goes to the standalone stream; without one it is dropped and logged. A final answer
    never goes to the standalone stream.
    """

    lost: Callable[[int, bool], None]
    """Called with the stream of a dropped frame, and whether it was a final answer."""
    unreached: Callable[[str | int], None]
    """Called with the id of a request to the client for which there is no stream."""
    sinks: dict[int, Sink] = msgspec.field(default_factory=dict)

    def send(self, stream: int, line: bytes, last: bool, own: bool) -> None:
        """Write one line."""
        sink = self.sinks.get(stream) or (None if last else self.sinks.get(STANDALONE))
        sink.send(line, last) if sink is not None else self.lost(stream, last)

    def ask(self, stream: int, id: str | int, line: bytes, own: bool) -> None:
        """Write a request to the client."""
        sink = self.sinks.get(stream) or self.sinks.get(STANDALONE)
        sink.ask(id, line) if sink is not None else self.unreached(id)

    def cancel(self, stream: int, id: str | int, line: bytes, own: bool) -> None:
        """Write the cancellation of a request to the client."""
        sink = self.sinks.get(stream) or self.sinks.get(STANDALONE)
        sink.cancel(id, line) if sink is not None else self.lost(stream, False)

    def over(self, stream: int) -> None:
        """End one request of the stream that needs no answer."""
        sink = self.sinks.get(stream)
        if sink is not None:
            sink.over()

    def close(self) -> None:
        """Close all streams."""
        for sink in list(self.sinks.values()):
            sink.close()
        self.sinks.clear()


class StdioServerWriter(msgspec.Struct, eq=False):
    """Writer to a server with one stream: stdio."""

    writer: Writer
    pipe: Pipe | None = None
    """Set if many clients share the server, because then no client may be paused for the others."""

    def send(self, stream: int, line: bytes, own: bool, frame: Frame | None = None) -> None:
        """Write one line."""
        self.writer.send_own(line) if own else self.writer.pass_on(line)

    def close_stream(self, stream: int) -> None:
        """Does nothing: requests have no streams on stdio."""

    @property
    def full(self) -> bool:
        """Whether the queue is so long that new requests are refused."""
        return self.pipe is not None and self.pipe.buffered > MAX_QUEUED


class HttpServerWriter(msgspec.Struct, eq=False):
    """Writer to a server with a stream for each request: HTTP."""

    streams: Streams

    def send(self, stream: int, line: bytes, own: bool, frame: Frame | None = None) -> None:
        """Send one frame."""
        self.streams.send(stream, frame or line)

    def close_stream(self, stream: int) -> None:
        """Close the stream of a request."""
        self.streams.close_stream(stream)

    @property
    def full(self) -> bool:
        """Always False: the connection has its own bounds and refuses single requests."""
        return False


def shared_process_writer(pipe: Pipe) -> StdioServerWriter:
    """Writer to a server process that many streams share. The process is not read while it leaves too many answers
    unread."""
    writer = Writer(pipe.send, ReadGate(pipe))
    pipe.pressure = writer.set_pressure
    return StdioServerWriter(writer, pipe)


def stdio_client_writer(pipe: Link) -> StdioClientWriter:
    """Writer to a stdio client whose server is at a URL. The client is not read while it leaves too many answers
    unread."""
    writer = Writer(pipe.send, ReadGate(pipe))
    pipe.pressure = writer.set_pressure
    return StdioClientWriter(writer)


class NoClient(msgspec.Struct, eq=False):
    """Placeholder before the client is connected. It drops everything, because frames only come from links."""

    def send(self, stream: int, line: bytes, last: bool, own: bool) -> None:
        """Drop the line."""

    def ask(self, stream: int, id: str | int, line: bytes, own: bool) -> None:
        """Drop the request."""

    def cancel(self, stream: int, id: str | int, line: bytes, own: bool) -> None:
        """Drop the cancellation."""

    def over(self, stream: int) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""


class NoServer(msgspec.Struct, eq=False):
    """Placeholder before the server is connected. It drops everything."""

    full: bool = False

    def send(self, stream: int, line: bytes, own: bool, frame: Frame | None = None) -> None:
        """Drop the line."""

    def close_stream(self, stream: int) -> None:
        """Does nothing."""
