"""Our server's connections: uvicorn's, with what it has no setting for. How long and large a head may be, and an end for clients that take nothing.

Given to uvicorn as ``http=connection.bounded(bounds)``. Not on Windows, where there is no httptools: there uvicorn bounds the head itself, and a
client that takes nothing holds its connection. What it knows of uvicorn's insides (pinned to 0.54): the methods that it overrides, what they go
on with (``cycle``, ``pipeline``, ``flow``, ``server_state``, ``timeout_keep_alive``, ``timeout_keep_alive_task``, ``_start_asgi_task``), and what
``atonce`` lists.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from samplegate.links.front import atonce
from samplegate.links.front.bounds import Bounds
from samplegate.links.front.replies import Reply, Send
from samplegate.links.front.visit import CONNECTION

_FAULT: Final = b"the request's head is too large"
_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(_FAULT), _FAULT)
)  # fmt: skip


class Connection(HttpToolsProtocol):
    """One connection. ``bounds`` is set by ``bounded``."""

    bounds: Bounds
    _timer: asyncio.TimerHandle | None = None
    """Runs while a head is awaited that has begun, or the first one."""
    _stall: asyncio.TimerHandle | None = None
    _head = 0
    """Bytes of the head that is being read."""
    _reading = False
    """Whether a head has begun that is not complete."""
    _idle_since = 0.0
    """When the last answer was given, by the loop's clock."""
    _left = 0
    """What was unsent when the last time for another request was up."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._head += len(data)
        super().data_received(data)
        if not self._reading or self.transport.is_closing():
            self._head = 0
        elif self._head > self.bounds.head:
            self._refuse()
        elif self._timer is None:
            self._await_head()

    def on_message_begin(self) -> None:
        self._reading = True
        super().on_message_begin()
        self.scope[CONNECTION] = self  # type: ignore[typeddict-unknown-key]

    def on_headers_complete(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._reading = False
        if self._head > self.bounds.head and sum(len(name) + len(value) for name, value in self.headers) + len(self.url) > self.bounds.head:
            self._refuse()
            raise ValueError(_FAULT)  # the parser goes no further
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._head = 0

    def send_400_response(self, msg: str) -> None:
        if not self.transport.is_closing():
            super().send_400_response(msg)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stall is None:
            self._stall = self.loop.call_later(self.bounds.stalled, self.cut)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall is not None:
            self._stall.cancel()
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

    def complete(self) -> bool:
        """Whether the body of the newest request is there, so that reading it waits for nobody."""
        return not self.cycle.more_body

    def cut(self) -> None:
        """End it now, whatever is still to be sent."""
        self.transport.abort()

    def _await_head(self) -> None:
        self._timer = self.loop.call_later(self.bounds.head_time, self.cut)

    def _refuse(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(_TOO_LARGE)
            self.transport.close()

    def _stop(self) -> None:
        for timer in (self._timer, self._stall, self.timeout_keep_alive_task):
            if timer is not None:
                timer.cancel()
        self._timer = self._stall = self.timeout_keep_alive_task = None


def bounded(bounds: Bounds) -> type[Any]:
    """The class of connections with these bounds, for ``uvicorn.Config(http=...)``."""
    return type("BoundedConnection", (Connection,), {"bounds": bounds})
