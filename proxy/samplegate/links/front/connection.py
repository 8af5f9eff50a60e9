"""Our server's connections: uvicorn's, with what it has no setting for. How long and large a head may be, and an end for clients that take nothing.

Given to uvicorn as ``http=connection.bounded(bounds)``. Not on Windows, where there is no httptools: there uvicorn bounds the head itself, and a
client that takes nothing holds its connection.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from samplegate.links.front.bounds import Bounds
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

    def timeout_keep_alive_handler(self) -> None:
        """No further request. An answer that is not taken yet has as long again, as long as it becomes less."""
        before, self._left = self._left, self.unsent()
        if self._left and (not before or self._left < before):
            self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)
        elif self._left:
            self.cut()
        else:
            super().timeout_keep_alive_handler()

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
        for timer in (self._timer, self._stall):
            if timer is not None:
                timer.cancel()
        self._timer = self._stall = None


def bounded(bounds: Bounds) -> type[Any]:
    """The class of connections with these bounds, for ``uvicorn.Config(http=...)``."""
    return type("BoundedConnection", (Connection,), {"bounds": bounds})
