"""The HTTP endpoint's surroundings in its tests: a scripted gate, and an ASGI client without sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from samplegate.protocol import frames
from samplegate.protocol.frames import Frame, FrameId
from samplegate.protocol.identity import Identity, static
from samplegate.protocol.rounds import Note
from samplegate.transport import sse
from samplegate.transport.http_server.endpoint import App, endpoint
from samplegate.transport.http_server.http import AccessRecord, ClientStream, ConversationRefused, HttpBounds, Message
from samplegate.transport.http_server.sessions import Sessions

LEGACY = "2025-11-25"
MODERN = "2026-07-28"
META = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}


Answers: TypeAlias = "Callable[[Conversation, int, Frame], None]"


@dataclass
class Conversation:
    """A gate's conversation. ``opens`` is called with ``initialize``, ``answers`` with every other request."""

    answers: Answers
    opens: Answers
    streams: dict[int, ClientStream] = field(default_factory=dict)
    traces: dict[int, str] = field(default_factory=dict)
    got: list[tuple[int, bytes]] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    unreached: list[FrameId] = field(default_factory=list)
    ends: list[Callable[[], None]] = field(default_factory=list)
    over: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def open_stream(
        self, stream: ClientStream, *, standalone: bool = False, identity: Identity | None = None, trace: str = ""
    ) -> int:
        number = 0 if standalone else len(self.streams) + 1
        self.streams[number] = stream
        self.traces[number] = trace
        return number

    def received(self, stream: int, line: bytes | Frame) -> None:
        if not isinstance(line, bytes):
            line = line.raw
        self.got.append((stream, line))
        self.changed.set()
        for frame in map(frames.read, frames.batch(line) if frames.is_batch(line) else [line]):
            if frame.kind == "request":
                (self.opens if frame.method == "initialize" else self.answers)(self, stream, frame)

    def oversized(self, stream: int, size: int, head: bytes) -> None:
        raise AssertionError("the front refuses these itself")

    def close_stream(self, stream: int) -> None:
        self.closed.append(stream)
        self.changed.set()

    def undelivered(self, id: FrameId) -> None:
        self.unreached.append(id)
        self.changed.set()

    def on_end(self, call: Callable[[], None]) -> None:
        self.ends.append(call)

    async def aclose(self) -> None:
        if not self.over:
            self.over = True
            for call in self.ends:
                call()
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the conversation has received what the test waits for."""
        async with asyncio.timeout(10):
            while not condition():
                await self.changed.wait()
                self.changed.clear()


class Served:
    """One server, whose conversations a test can inspect."""

    def __init__(
        self,
        answers: Answers | None = None,
        *,
        name: str = "docs",
        revision: str = LEGACY,
        opens: Answers | None = None,
    ) -> None:
        self.name = name
        self.answers, self.opens = answers or echoes, opens or agrees(revision)
        self.begun: list[Conversation] = []
        self.shared: dict[str, Conversation] = {}
        self.refuses: ConversationRefused | None = None
        self._came = asyncio.Event()

    async def asked(self) -> Conversation:
        """Wait for a request of the local caller's modern conversation, and return the conversation."""
        await asyncio.wait_for(self._came.wait(), 10)
        conversation = self.shared["local"]
        await conversation.until(lambda: bool(conversation.got))
        return conversation

    async def begin(self, identity: Identity) -> Conversation:
        if self.refuses is not None:
            raise self.refuses
        self.begun.append(Conversation(self.answers, self.opens))
        return self.begun[-1]

    async def modern(self, identity: Identity, frame: Frame) -> Conversation:
        if self.refuses is not None:
            raise self.refuses
        self._came.set()
        return self.shared.setdefault(identity.name, Conversation(self.answers, self.opens))


def result(id: object, value: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "result": value}).encode()


def note(text: str) -> bytes:
    """A notification with a text, so that tests can tell it from others."""
    return json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": text}}).encode()


def error(id: object, code: int) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "no"}}).encode()


def echoes(conversation: Conversation, stream: int, frame: Frame) -> None:
    """Answer at once."""
    conversation.streams[stream].send(result(frame.id, {"echo": frame.method}), True)


def silent(_conversation: Conversation, _stream: int, _frame: Frame) -> None:
    """Leave the request open."""


def agrees(revision: str) -> Answers:
    """A server that answers with this protocol version, whichever the client requests."""
    return lambda conversation, stream, frame: conversation.streams[stream].send(
        result(frame.id, {"protocolVersion": revision}), True
    )


class Call:
    """One HTTP request. While ``stuck``, its client reads nothing."""

    def __init__(
        self,
        app: App,
        method: str,
        headers: Mapping[str, str] | list[tuple[str, str]],
        body: bytes = b"",
        caller: str = "",
    ) -> None:
        pairs = headers if isinstance(headers, list) else list(headers.items())
        self.scope: dict[str, Any] = {
            "type": "http",
            "method": method,
            "path": "/mcp",
            "headers": [(k.encode(), v.encode()) for k, v in pairs],
        }
        if caller:
            self.scope["samplegate.caller"] = static(caller)
        self.sent: list[Message] = []
        self.incoming: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        self.stuck = False
        self._changed = asyncio.Event()
        self._gone = asyncio.Event()
        self._parser = sse.Parser(10_000_000)
        self.events: list[sse.ServerSentEvent] = []
        self.task = asyncio.ensure_future(self._run(app))

    async def _run(self, app: App) -> None:
        try:
            await app(self.scope, self.receive, self.send)
        finally:
            self._changed.set()

    async def receive(self) -> Message:
        if self.incoming:
            return self.incoming.pop(0)
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if self.stuck and not self._gone.is_set():
            await self._gone.wait()
        if self._gone.is_set():
            return
        self.sent.append(message)
        if message["type"] == "http.response.body" and self.is_stream:
            self.events += [
                event for event in self._parser.feed(message["body"]) if isinstance(event, sse.ServerSentEvent)
            ]
        self._changed.set()

    def disconnect(self) -> None:
        self._gone.set()

    async def until(self, condition: Callable[[Call], bool]) -> Call:
        async with asyncio.timeout(10):
            while not condition(self):
                assert not self.task.done(), f"it is over, with {self.sent}"
                await self._changed.wait()
                self._changed.clear()
        return self

    async def begun(self) -> Call:
        """Wait for the head of the response."""
        return await self.until(lambda call: bool(call.sent))

    async def heard(self, count: int) -> list[sse.ServerSentEvent]:
        """Wait for this many events with data."""
        await self.until(lambda call: len(call.data) >= count)
        return [event for event in self.events if event.data]

    async def done(self) -> Call:
        await asyncio.wait_for(asyncio.shield(self.task), 10)
        return self

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def is_stream(self) -> bool:
        return bool(self.sent) and self.headers.get("content-type") == "text/event-stream"

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent[1:])

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def data(self) -> list[Any]:
        """The data of the events, decoded."""
        return [json.loads(event.data) for event in self.events if event.data]

    @property
    def complete(self) -> bool:
        return bool(self.sent) and not self.sent[-1].get("more_body", True)


class Front:
    """A client at an endpoint with a fake gate."""

    def __init__(
        self, served: Served | None = None, bounds: HttpBounds | None = None, sessions: Sessions | None = None
    ) -> None:
        self.now = 0.0
        self.access_log: list[AccessRecord] = []
        self.notes: list[Note] = []
        self.served = served or Served()
        self.sessions = sessions or Sessions(bounds or HttpBounds(), note=self.notes.append, clock=lambda: self.now)
        self.app = endpoint(self.served, self.sessions, tell=self.access_log.append)

    def call(
        self, method: str, message: object = None, caller: str = "", body: bytes | None = None, **headers: str
    ) -> Call:
        """Make a request with the headers that every client sends. ``_`` in a name becomes a hyphen, and an empty value
        leaves the header out."""
        wanted = (
            {"content-type": "application/json", "accept": "application/json, text/event-stream"}
            if method == "POST"
            else {}
        )
        wanted |= {"accept": "text/event-stream"} if method == "GET" else {}
        wanted |= {name.replace("_", "-"): value for name, value in headers.items()}
        raw = body if body is not None else b"" if message is None else json.dumps(message).encode()
        return Call(self.app, method, {name: value for name, value in wanted.items() if value}, raw, caller)

    def post(self, message: object, caller: str = "", **headers: str) -> Call:
        return self.call("POST", message, caller, None, **headers)

    def modern(
        self, method: str, params: Mapping[str, object] | None = None, id: object = 1, caller: str = "", **headers: str
    ) -> Call:
        """Make a request of 2026-07-28 with the headers that it needs."""
        wanted = {"mcp_protocol_version": MODERN, "mcp_method": method} | headers
        return self.post(
            {"jsonrpc": "2.0", "id": id, "method": method, "params": {**(params or {}), "_meta": META}},
            caller,
            **wanted,
        )

    async def opened(self, caller: str = "", revision: str = LEGACY) -> Legacy:
        """Open a legacy session."""
        call = await self.post(initialize(revision), caller).done()
        assert call.status == 200, call.body
        return Legacy(self, call.headers["mcp-session-id"], caller)


@dataclass
class Legacy:
    """A client's legacy session."""

    front: Front
    id: str
    caller: str = ""

    @property
    def conversation(self) -> Conversation:
        return self.front.served.begun[-1]

    def post(self, message: object, **headers: str) -> Call:
        return self.front.post(message, self.caller, **({"mcp_session_id": self.id} | headers))

    def ask(self, id: object = 1, method: str = "tools/call", **headers: str) -> Call:
        return self.post({"jsonrpc": "2.0", "id": id, "method": method, "params": {}}, **headers)

    def get(self, **headers: str) -> Call:
        return self.front.call("GET", None, self.caller, None, **({"mcp_session_id": self.id} | headers))

    def delete(self) -> Call:
        return self.front.call("DELETE", None, self.caller, mcp_session_id=self.id)


def initialize(revision: str = LEGACY, id: object = 0) -> dict[str, object]:
    return {
        "jsonrpc": "2.0",
        "id": id,
        "method": "initialize",
        "params": {"protocolVersion": revision, "capabilities": {}},
    }
