"""One HTTP request in hand: how it reached us, what is known of it so far, and the way back to its connection. Decides
nothing."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from samplegate.links.front.heading import Found
from samplegate.protocol.frames import Frame
from samplegate.transport.http_server.http import Access, Message, Reason, Receive, Reply, Scope, Send, deliver
from samplegate.transport.http_server.stream import GONE, SLOW, Reader

CALLER: Final = "samplegate.caller"
CONNECTION: Final = "samplegate.connection"
"""Where the scope holds the connection (``connection.Connection``), if the server is ours."""
CUT: Final = 1.0  # seconds for a connection that was cut to be gone


class Visit:
    """One HTTP request, from its headers to the end of its answer."""

    __slots__ = (
        "_watch", "caller", "end", "era", "form", "found", "http", "method", "posted", "reader", "reason", "receive",
        "scope", "send",
        "server", "session", "started", "status", "trace", "twice", "waits",
    )  # fmt: skip

    def __init__(self, scope: Scope, receive: Receive, send: Send, server: str, started: float) -> None:
        self.scope, self.receive, self.send = scope, receive, send
        self.server, self.started = server, started
        self.caller: str = scope.get(CALLER, "local")
        self.http: str = scope["method"]
        self.found: Found = {}
        self.twice: frozenset[bytes] = frozenset()
        self.era = self.method = self.form = self.end = self.session = self.trace = ""
        self.reason: Reason = ""
        self.status = 0
        self.reader: Reader | None = None
        self.posted: bytes | Frame | None = None
        """What was posted, until the conversation has it: a large one must not be kept for as long as its answer takes.
        """
        self.waits = False
        """Whether it is a call whose answer a drain waits for."""
        self._watch: asyncio.Task[None] | None = None

    def told(self, now: float) -> Access:
        """What is told of it."""
        http = self.http if self.http in ("POST", "GET", "DELETE") else "other"
        return Access(
            self.server, self.caller, http, self.era, self.method, self.status, self.form, self.reason,
            self.end, now - self.started, self.session, self.trace,
        )  # fmt: skip

    def handed_over(self) -> bytes | Frame:
        """What was posted; it is the conversation's from here on."""
        posted, self.posted = self.posted, None
        assert posted is not None
        return posted

    def watch(self, reader: Reader) -> None:
        """From here on the client's disconnect stops the reader. A task of its own, so not for what is answered at
        once."""
        if self._watch is None:
            self._watch = asyncio.ensure_future(self._until_gone(reader))

    async def _until_gone(self, reader: Reader) -> None:
        with contextlib.suppress(Exception):  # a connection that cannot be read is gone
            while (await self.receive())["type"] != "http.disconnect":
                pass
        reader.stop(self.lost)

    def unwatch(self) -> None:
        """The answer is out."""
        if self._watch is not None:
            self._watch.cancel()

    async def answer(self, reply: Reply) -> None:
        """Give a whole answer."""
        self.status, self.reason, self.form = reply.status, reply.reason, "json" if reply.body else ""
        await deliver(self.send, reply)

    async def put(self, body: bytes, reader: Reader, *, more: bool = True) -> None:
        """Send a piece of a stream. Stopping the reader ends it too, except before anything has gone out: what ends the
        stream needs a beginning."""
        await self.piece({"type": "http.response.body", "body": body, "more_body": more}, reader)

    async def piece(self, message: Message, reader: Reader) -> None:
        """The same for any piece. The connection cuts off a client that reads none of it."""
        try:
            async with asyncio.timeout(None) as limit:
                reader.sending = limit if message["type"] == "http.response.body" else None
                await self.send(message)
        except TimeoutError:
            reader.stop(SLOW)
        finally:
            reader.sending = None

    def complete(self) -> bool:
        """Whether the body is all there; False where the server does not tell."""
        connection = self.scope.get(CONNECTION)
        return connection is not None and bool(connection.complete())

    def gone(self) -> bool:
        """Whether the client has closed the connection; False where the server does not tell."""
        connection = self.scope.get(CONNECTION)
        return connection is not None and bool(connection.gone())

    @property
    def lost(self) -> str:
        """What the end of the connection means: the client closed it, or was cut off because it took nothing."""
        connection = self.scope.get(CONNECTION)
        return SLOW if connection is not None and connection.stalled else GONE

    def unsent(self) -> int:
        """Bytes that the client has not taken yet; 0 where the server does not tell."""
        connection = self.scope.get(CONNECTION)
        return 0 if connection is None else int(connection.unsent())

    async def cut(self) -> None:
        """End the connection though bytes are left in it: waiting for them would be waiting for the client."""
        connection = self.scope.get(CONNECTION)
        if connection is None:
            return
        connection.cut()
        if self._watch is not None:
            # the server logs an answer that is left open, unless the client is gone
            await asyncio.wait([self._watch], timeout=CUT)
