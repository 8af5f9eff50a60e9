"""A real HTTP server on loopback, shared by the fakes of model providers. The model's name selects the answer.

A name is a ``Said`` (what a model says), which each shape puts into its own words, whole or as a stream; or something
that goes wrong on the way (``FAULTS``). The endpoint keeps what arrived, and notices when a client hangs up on a
request that it holds.
"""

from __future__ import annotations

import json
import queue
import select
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Final, Self

WAIT: Final = 90.0  # seconds; ends a hang: a busy machine can take half a minute to start a worker that imports litellm
BIG: Final = 2 * 1024 * 1024


@dataclass(frozen=True)
class Arrived:
    """A request that the endpoint received."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass(frozen=True)
class Use:
    """A tool call of the model. ``arguments`` are text because they may be malformed. Without ``name``, it is the first
    tool that was offered."""

    arguments: str = '{"city": "Bern"}'
    name: str | None = None
    id: str | None = "use-1"
    signature: str | None = None
    namespace: str | None = None
    """The group of tools that it belongs to, in the responses format."""


@dataclass(frozen=True)
class Said:
    """A model's answer. ``texts`` are the pieces of a stream; ``stop`` is stop, length, tool, sequence, filter, or the
    provider's own word."""

    texts: tuple[str, ...] = ()
    uses: tuple[Use, ...] = ()
    stop: str = "stop"
    output: int = 3
    """The output tokens it claims; below 0 for no usage at all."""
    refusal: str | None = None
    image: str | None = None
    """Base64 of an image/png in the answer."""
    after: str = "end"
    """What follows the last piece of a stream: end, or cut (the connection breaks), silence (it ends without a word),
    hold, fail (an error event)."""
    plain: bool = False
    """A stream was asked for, and plain JSON comes."""


@dataclass
class Endpoint:
    """A running endpoint. ``arrived`` has every request, ``hung_up`` the model's name of each held request whose client
    disconnected."""

    handler: ClassVar[type[Handler]]
    prefix: ClassVar[str] = ""
    """What litellm's base address has behind the port."""
    provider: ClassVar[str] = ""

    url: str = ""
    arrived: queue.Queue[Arrived] = field(default_factory=queue.Queue)
    hung_up: queue.Queue[str] = field(default_factory=queue.Queue)
    answer: Callable[[str], str] = field(default=lambda text: f"you said: {text}")
    """The text of ``normal`` to the last text of the request."""
    closing: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        bound = type("Bound", (self.handler,), {"at": self})
        self._server = _Server(("127.0.0.1", 0), bound)
        self.url = f"http://127.0.0.1:{self._server.server_port}{self.prefix}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(WAIT)

    def next(self) -> Arrived:
        """Wait for the next request. Raises queue.Empty after WAIT seconds."""
        return self.arrived.get(timeout=WAIT)

    def next_hang_up(self) -> str:
        """Wait for the next held request whose client disconnects, and return its model's name. Raises queue.Empty
        after WAIT seconds."""
        return self.hung_up.get(timeout=WAIT)

    def forget(self) -> None:
        """Drop all requests so far, so that the next test does not see them."""
        for kept in (self.arrived, self.hung_up):
            while not kept.empty():
                kept.get_nowait()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that disconnected: they are not errors of the endpoint."""


class Handler(BaseHTTPRequestHandler, ABC):
    """One connection. A subclass reads and writes the format of a provider."""

    at: Endpoint
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    # the provider's format

    def model_of(self, body: dict[str, Any]) -> str:
        return str(body.get("model"))

    def is_stream(self, body: dict[str, Any]) -> bool:
        return bool(body.get("stream"))

    @abstractmethod
    def last_text(self, body: dict[str, Any]) -> str:
        """The text of the last message."""

    @abstractmethod
    def first_tool(self, body: dict[str, Any]) -> str:
        """The name of the first tool on offer."""

    @abstractmethod
    def has_result(self, body: dict[str, Any]) -> bool:
        """Whether the last message contains the result of a tool."""

    @abstractmethod
    def whole(self, model: str, said: Said) -> object:
        """The answer as one body."""

    @abstractmethod
    def events(self, model: str, said: Said) -> Iterator[bytes]:
        """The events of a stream up to the last piece. ``ending`` returns the rest."""

    @abstractmethod
    def ending(self, model: str, said: Said) -> Iterator[bytes]:
        """The last events of a stream, with the stop reason."""

    @abstractmethod
    def broken(self) -> bytes:
        """An error in the middle of a stream."""

    @abstractmethod
    def error(self, status: int, message: str) -> object:
        """The body of an error."""

    # common to all formats

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.at.arrived.put(Arrived(self.path, {k.lower(): v for k, v in self.headers.items()}, body))
        model = self.model_of(body)
        if model.startswith("status-"):
            self.fail(int(model.removeprefix("status-")), "this is how it is")
        elif model in FAULTS:
            FAULTS[model](self, body)
        else:
            self.say(body, self.said(model, body))

    def said(self, model: str, body: dict[str, Any]) -> Said:
        """The answer of ``model`` to this request. A tool without a name becomes the first on offer."""
        if model == "loop" and self.has_result(body):
            return Said((f"it answered: {self.last_text(body)}",))
        if model == "leak-answer":
            return Said(("your key is ", self.key()))
        made = SAID.get("call" if model == "loop" else model)
        return Said((self.at.answer(self.last_text(body)),)) if made is None else made

    def key(self) -> str:
        """The API key of the request."""
        headers = self.headers
        return str(headers.get("authorization") or headers.get("x-api-key") or headers.get("x-goog-api-key"))

    def say(self, body: dict[str, Any], said: Said) -> None:
        model = self.model_of(body)
        uses = tuple(replace(use, name=use.name or self.first_tool(body)) for use in said.uses)
        said = replace(said, uses=uses)
        if self.is_stream(body) and not said.plain:
            self.stream(model, said)
        elif said.after == "hold":
            self.hold(model)
        elif said.after == "cut":
            self.drop()
        else:
            self.send(200, self.whole(model, said))

    def stream(self, model: str, said: Said) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        if said.after == "hold":
            self.hold(model, self.events(model, said))
            return
        for event in self.events(model, said):
            self.chunk(event)
        if said.after == "cut":
            self.drop()
        else:
            last = {"end": self.ending(model, said), "fail": iter([self.broken()])}
            for event in last.get(said.after, ()):
                self.chunk(event)
            self.wfile.write(b"0\r\n\r\n")

    def raw(self, *payloads: str) -> None:
        """Send a stream of exactly these bytes."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for payload in payloads:
            self.chunk(f"data: {payload}\n\n".encode())
        self.wfile.write(b"0\r\n\r\n")

    def chunk(self, raw: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(raw), raw))
        self.wfile.flush()

    def fail(self, status: int, message: str, **headers: str) -> None:
        self.send(status, self.error(status, message), **headers)

    def send(self, status: int, payload: object, **headers: str) -> None:
        raw = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(raw)

    def hold(self, model: str, events: Iterable[bytes] = ()) -> None:
        """Send the events and nothing more, and notice when the client disconnects."""
        try:
            for event in events:
                self.chunk(event)
            while not self.at.closing.is_set():
                readable, _, _ = select.select([self.connection], [], [], 0.05)
                if readable and not self.connection.recv(1):
                    self.at.hung_up.put(model)
                    break
        except ConnectionError:  # the client disconnected before it had read all events, which resets the connection
            self.at.hung_up.put(model)
        self.close_connection = True

    def flood(self, model: str, status: int, kind: str, start: bytes) -> None:
        """Send one endless line, and notice when the client disconnects."""
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("connection", "close")
        self.end_headers()
        try:
            self.wfile.write(start)
            while not self.at.closing.is_set():
                self.wfile.write(FLOOD)
        except OSError:
            self.at.hung_up.put(model)
        self.close_connection = True

    def drop(self) -> None:
        self.connection.close()
        self.close_connection = True


def event(payload: object, name: str | None = None) -> bytes:
    """One server-sent event."""
    head = "" if name is None else f"event: {name}\n"
    return f"{head}data: {json.dumps(payload)}\n\n".encode()


def joined(texts: Sequence[str]) -> str:
    """The pieces of an answer as one."""
    return "".join(texts)


FLOOD: Final = b"x" * 1024 * 1024
WORDS: Final = ("so ", "many ", "little ", "words")

SAID: Final[dict[str, Said]] = {
    "words": Said(WORDS, output=4),
    "plain": Said(("plain and whole",), plain=True),
    "empty": Said(("",)),
    "none": Said(),
    "length": Said(("cut ", "sho"), stop="length"),
    "sequence": Said(("up to here",), stop="sequence"),
    "filtered": Said((), stop="filter"),
    "filtered-part": Said(("so far",), stop="filter"),
    "refusal": Said((), refusal="I would rather not"),
    "own-word": Said(("done",), stop="ran_out_of_ink"),
    "no-reason": Said(("all ", "of it"), stop=""),
    "too-much": Said(("more and ", "more"), output=10_000),
    "no-usage": Said(("free",), output=-1),
    "surrogate": Said(("half \ud83d an emoji",)),
    "big": Said(("x" * BIG,)),
    "pieces": Said(("yes ",) * 400, output=400),
    "call": Said((), (Use(),), "tool"),
    "call-plain": Said((), (Use(),), "tool", plain=True),
    "call-and-text": Said(("let me ", "look"), (Use(),), "tool"),
    "calls": Said((), (Use(), Use('{"city": "Genf"}', id="use-2")), "tool"),
    "calls-one-id": Said((), (Use(), Use('{"city": "Genf"}')), "tool"),
    "calls-no-id": Said((), (Use(id=None), Use('{"city": "Genf"}', id=None)), "tool"),
    "call-signed": Said((), (Use(signature="c2lnbmVk"),), "tool"),
    "call-nothing": Said((), (Use("{}"),), "tool"),
    "call-unknown": Said(("hm",), (Use("{}", name="rm"),), "tool"),
    "call-half": Said((), (Use('{"city": "Be'),), "tool"),
    "call-list": Said((), (Use("[1, 2]"),), "tool"),
    "image": Said(("here",), image="aW1n"),
    "cut": Said(("so ", "far"), after="cut"),
    "silence": Said(("so ", "far"), after="silence"),
    "breaks": Said(("so ", "far"), after="fail"),
    "hang-later": Said(("so ", "far"), after="hold"),
}

FAULTS: Final[dict[str, Callable[[Handler, dict[str, Any]], None]]] = {
    "retry-after": lambda h, _b: h.fail(429, "slow down", Retry_After="17"),
    "retry-date": lambda h, _b: h.fail(429, "slow down", Retry_After="Fri, 31 Dec 2100 23:59:59 GMT"),
    "garbage": lambda h, _b: h.send(200, b"<html>not what you think</html>"),
    "wrong-shape": lambda h, _b: h.send(200, b"[1, 2]"),
    "leak-401": lambda h, _b: h.fail(401, f"wrong key: {h.key()}"),
    "leak-400": lambda h, _b: h.fail(400, f"wrong field: {h.key()}"),
    "leak-500": lambda h, _b: h.fail(500, f"oops: {h.key()}"),
    "hang": lambda h, b: h.hold(h.model_of(b)),
    "drop": lambda h, _b: h.drop(),
    "flood-event": lambda h, b: h.flood(h.model_of(b), 200, "text/event-stream", b"data: "),
    "flood-body": lambda h, b: h.flood(h.model_of(b), 200, "application/json", b'{"id": "'),
    "flood-error": lambda h, b: h.flood(h.model_of(b), 500, "application/json", b'{"error": "'),
}

STRANGE: Final = (
    "5",
    "null",
    "[]",
    "{",
    "[[[[",
    '{"choices": 5}',
    '{"choices": [null]}',
    '{"choices": [{"delta": null}]}',
    '{"choices": [{"delta": {"content": 5}}]}',
    '{"choices": [{"delta": {"tool_calls": "x"}}]}',
    '{"choices": [{"delta": {"tool_calls": [{"index": "x", "function": null}]}}]}',
    '{"choices": [{"delta": {"content": "x"}, "finish_reason": {"a": 1}}], "usage": {"prompt_tokens": "x"}}',
    '{"candidates": 5}',
    '{"candidates": [null]}',
    '{"candidates": [{"content": {"parts": [{"functionCall": 5}]}}]}',
    '{"candidates": [{"content": {"parts": [{"inlineData": {"mimeType": 5}}]}}], "usageMetadata": []}',
    '{"type": "message_start", "message": 5}',
    '{"type": "content_block_delta", "index": 0, "delta": 5}',
    '{"type": "content_block_start", "index": 0, "content_block": {"type": 5}}',
    '{"type": "message_delta", "delta": null, "usage": 5}',
    '{"error": 5}',
    '{"error": {"code": "x", "message": 5}}',
)
"""What no provider says: each is a stream of its own, for the model ``strange-N``."""


def _strange(payload: str) -> Callable[[Handler, dict[str, Any]], None]:
    return lambda handler, _body: handler.raw(payload)


FAULTS.update({f"strange-{number}": _strange(payload) for number, payload in enumerate(STRANGE)})
