"""Our server's connections: uvicorn's, with what it has no setting for. How many there are, idle ones too, how long and large a head may be, and
an end for clients that take nothing.

Trailers are bounded as a head is, and dropped: who decides by headers has decided before them. Asking for another protocol is ignored, a tunnel
refused. A refusal of its own is written only where it cannot be taken for another request's answer.

Given to uvicorn as ``http=connection.bounded(bounds)``. Not on Windows, where there is no httptools: there uvicorn bounds the head itself, and a
client that takes nothing holds its connection. What it knows of uvicorn's insides (pinned to 0.54): the methods that it overrides, what they go
on with (``cycle``, ``pipeline``, ``flow``, ``server_state``, ``timeout_keep_alive``, ``timeout_keep_alive_task``, ``_start_asgi_task``, ``parser``,
``headers``, ``url``), and what ``atonce`` lists.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import httptools  # type: ignore[import-untyped]
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from samplegate.links.front import atonce, upgrades
from samplegate.links.front.bounds import Bounds
from samplegate.links.front.patience import Patience
from samplegate.links.front.replies import Reply, Send
from samplegate.links.front.visit import CONNECTION

_FAULT: Final = b"the request's head is too large"
_NONE: Final = "Invalid HTTP request received."
_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(_FAULT), _FAULT)
)  # fmt: skip
_CROWDED: Final = b"as many connections are open as may be; come back later"
_BUSY: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\nretry-after: 5\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(_CROWDED), _CROWDED)
)  # fmt: skip
_LINGER: Final = 1.0  # seconds for who is turned away to read why: closed at once, what it has sent meanwhile would have it lose the answer


class Connection(HttpToolsProtocol):
    """One connection. ``bounds``, ``refused`` and ``away`` are set by ``bounded``, for all connections of a listener."""

    bounds: Bounds
    refused: Callable[[], object]
    """Told of each connection that is one too many."""
    away: set[Connection]
    """Those that were one too many and are still being told so."""
    _timer: asyncio.TimerHandle | None = None
    """Runs while a head is awaited that has begun, or the first one."""
    _stall: Patience | None = None
    _head = 0
    """Bytes of the head that is being read, or of what else came since the last byte of a body: trailers, and what frames chunks."""
    _reading = False
    """Whether a head has begun that is not complete."""
    _asks = False
    """Whether the head asks for another protocol, so that the parser has read it as no other."""
    stalled = False
    """Whether it was ended because its client took nothing."""
    _idle_since = 0.0
    """When the last answer was given, by the loop's clock."""
    _left = 0
    """What was unsent when the last time for another request was up."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) - len(self.away) > self.bounds.connections:
            self._turn_away()
        else:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        self.away.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """In place of uvicorn's, which loses the body of a request that asks for another protocol."""
        if self.away and self in self.away:
            self.transport.close()
            return
        self._head += len(data)
        try:
            self._parse(data)
        except (httptools.HttpParserError, ValueError):
            self.send_400_response(_NONE)
        if self.transport.is_closing():
            return
        if self._head > self.bounds.head:
            self._refuse()
        elif self._reading and self._timer is None:
            self._await_head()

    def _parse(self, data: bytes) -> None:
        rest = memoryview(data)
        while True:
            try:
                self.parser.feed_data(rest)
            except httptools.HttpParserUpgrade as found:
                rest = rest[found.args[0] :]
            else:
                return
            head = upgrades.ignored(self.parser.get_method(), self.url, self.parser.get_http_version(), self.headers)
            self._asks = False
            self.parser = parser = _parser(self)
            parser.feed_data(head)

    def on_message_begin(self) -> None:
        self._reading = True
        super().on_message_begin()
        self.scope[CONNECTION] = self  # type: ignore[typeddict-unknown-key]

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._reading:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._head > self.bounds.head and sum(len(name) + len(value) for name, value in self.headers) + len(self.url) > self.bounds.head:
            self._refuse()
            raise ValueError(_FAULT)  # the parser goes no further
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise ValueError("a tunnel")
            self._asks = True
            return
        if not _is_plain(self.url, self.headers):
            raise ValueError("a target that others may read as another")
        self._reading = False
        self._head = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._head = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._asks:
            return
        super().on_message_complete()
        self._head = 0

    def send_400_response(self, msg: str) -> None:
        if self.transport.is_closing():
            return
        if self._answerable():
            super().send_400_response(msg)
        else:
            self.transport.close()

    def _answerable(self) -> bool:
        """Whether what is refused is the only request without an answer."""
        cycle: Any = self.cycle
        if cycle is None or self.pipeline:
            return cycle is None
        if self._reading or not cycle.more_body:
            return bool(cycle.response_complete)
        return not cycle.response_started

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stall is None:
            self._stall = Patience(self.loop, self.bounds.stalled, self.unsent, self._cut_off)

    def _cut_off(self) -> None:
        self.stalled = True
        self.cut()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall is not None:
            self._stall.over()
            self._stall = None

    def on_response_complete(self) -> None:
        """In place of uvicorn's, which starts a timer after each answer and cancels it for the next request: this one is left to run."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        self._idle_since, self._left = self.loop.time(), 0
        if self.timeout_keep_alive_task is None:
            self._await_request(self.timeout_keep_alive)

    def _unset_keepalive_if_required(self) -> None:
        """Nothing: what comes is looked at when the time is up."""

    def timeout_keep_alive_handler(self) -> None:
        """The time for another request may be up. With a request in hand it is not counted; its answer starts it again."""
        self.timeout_keep_alive_task = None
        if self._reading or not self.cycle.response_complete:
            return
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._await_request(left)
        else:
            self._give_up()

    def _give_up(self) -> None:
        """No further request. An answer that is not taken yet has as long again, as long as it becomes less."""
        before, self._left = self._left, self.unsent()
        if self._left and before and self._left >= before:
            self.cut()
        elif self._left:
            self._await_request(self.timeout_keep_alive)
        elif not self.transport.is_closing():
            self.transport.close()

    def _await_request(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def answer(self, send: Send, reply: Reply) -> bool:
        """Give a whole answer in one write. False, with nothing done, where it has to go by ``send``."""
        return atonce.given(send, reply)

    def unsent(self) -> int:
        """Bytes that the client has not taken yet."""
        return 0 if self.transport.is_closing() else self.transport.get_write_buffer_size()

    def gone(self) -> bool:
        """Whether the client has closed it."""
        return self.transport.is_closing()

    def complete(self) -> bool:
        """Whether the body of the newest request is there, so that reading it waits for nobody."""
        return not self.cycle.more_body

    def cut(self) -> None:
        """End it now, whatever is still to be sent."""
        self.transport.abort()

    def _await_head(self) -> None:
        self._timer = self.loop.call_later(self.bounds.head_time, self.cut)

    def _refuse(self) -> None:
        if self.transport.is_closing():
            return
        if self._answerable():
            self.transport.write(_TOO_LARGE)
        self.transport.close()

    def _turn_away(self) -> None:
        """One connection too many: whatever it asks, the answer is there before."""
        self.away.add(self)
        self.refused()
        self.transport.write(_BUSY)
        if len(self.away) > self.bounds.lingering:
            self.transport.close()
            return
        self._timer = self.loop.call_later(_LINGER, self.cut)
        self.transport.write_eof()

    def _stop(self) -> None:
        for timer in (self._timer, self.timeout_keep_alive_task):
            if timer is not None:
                timer.cancel()
        if self._stall is not None:
            self._stall.over()
        self._timer = self._stall = self.timeout_keep_alive_task = None


def _is_plain(url: bytes, headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Whether a request's target is spelled as our paths are, and names no other host than its header: a proxy before us that goes by paths or
    hosts must have read the same. No path of ours needs an escape.
    """
    if not url.startswith(b"/"):
        scheme, _, rest = url.partition(b"://")
        hosts = [value.lower() for name, value in headers if name == b"host"]
        if scheme.lower() not in (b"http", b"https") or [rest.partition(b"/")[0].lower()] != hosts:
            return False
    return b"%" not in url.partition(b"?")[0] and b"#" not in url


def _parser(connection: Connection) -> Any:
    """As uvicorn makes its own: what follows a last request is passed over."""
    parser: Any = httptools.HttpRequestParser(connection)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


def _untold() -> None:
    """Where nobody counts."""


def bounded(bounds: Bounds, *, refused: Callable[[], object] = _untold) -> type[Any]:
    """The class of connections with these bounds, for ``uvicorn.Config(http=...)``. ``refused`` is called for each that is one too many."""
    return type("BoundedConnection", (Connection,), {"bounds": bounds, "refused": staticmethod(refused), "away": set()})
