"""A real OpenAI-compatible HTTP endpoint on loopback, for tests that let a sampler call one. Not a model, and no mock: it listens on a port.

What it does is told by the model's name in the request, so one endpoint serves every case at once: ``normal``, ``status-401``,
``retry-after``, ``garbage``, ``hang``, ... (see ``ANSWERS``); any other name is answered as ``normal``. It keeps what arrived, and notices when
a client hangs up on ``hang``.
"""

from __future__ import annotations

import json
import queue
import select
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

WAIT: Final = 30.0  # seconds; a bound, not a duration
BIG: Final = 2 * 1024 * 1024


@dataclass(frozen=True)
class Arrived:
    """One request as it came."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class Endpoint:
    """A running endpoint. ``arrived`` holds every request, ``hung_up`` the model's name of each held request whose client went away."""

    url: str = ""
    arrived: queue.Queue[Arrived] = field(default_factory=queue.Queue)
    hung_up: queue.Queue[str] = field(default_factory=queue.Queue)
    answer: Callable[[dict[str, Any]], str] = field(default=lambda body: f"you said: {_last_text(body)}")
    closing: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Endpoint:
        endpoint = self

        class Handler(_Handler):
            at = endpoint

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(WAIT)

    def next(self) -> Arrived:
        """The next request that arrived; blocks, raises queue.Empty after WAIT seconds."""
        return self.arrived.get(timeout=WAIT)

    def next_hang_up(self) -> str:
        """The model's name of the next held request whose client hung up; blocks, raises queue.Empty after WAIT seconds."""
        return self.hung_up.get(timeout=WAIT)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no fault of the endpoint's."""


class _Handler(BaseHTTPRequestHandler):
    at: Endpoint
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.at.arrived.put(Arrived(self.path, {k.lower(): v for k, v in self.headers.items()}, body))
        model = str(body.get("model"))
        if model.startswith("status-"):
            self._fail(int(model.removeprefix("status-")), "this is how it is")
        else:
            ANSWERS.get(model, _normal)(self, body)

    def _fail(self, status: int, message: str, **headers: str) -> None:
        self.send(status, {"error": {"message": message, "type": "test", "code": None}}, **headers)

    def send(self, status: int, payload: object, **headers: str) -> None:
        raw = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(raw)

    def say(self, body: dict[str, Any], text: str | None, *, finish: str = "stop", output: int = 3, **message: object) -> None:
        """A chat completion. ``output``: the completion tokens it claims; below 0 for no usage at all."""
        answer: dict[str, Any] = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": f"{body['model']}-2026-01",
            "choices": [{"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text, **message}}],
        }
        if output >= 0:
            answer["usage"] = {"prompt_tokens": 7, "completion_tokens": output, "total_tokens": 7 + output}
        self.send(200, answer)

    def hold(self, body: dict[str, Any]) -> None:
        """Never answer; notice when the client hangs up."""
        while not self.at.closing.is_set():
            readable, _, _ = select.select([self.connection], [], [], 0.05)
            if readable and not self.connection.recv(1):
                self.at.hung_up.put(str(body["model"]))
                break
        self.close_connection = True

    def drop(self) -> None:
        self.connection.close()
        self.close_connection = True


def _last_text(body: dict[str, Any]) -> str:
    content = body["messages"][-1]["content"]
    return content if isinstance(content, str) else " ".join(part["text"] for part in content)


def _normal(handler: _Handler, body: dict[str, Any]) -> None:
    handler.say(body, handler.at.answer(body))


def _authorization(handler: _Handler) -> str:
    return str(handler.headers.get("authorization"))


_CALL: Final = [{"id": "c1", "type": "function", "function": {"name": "rm", "arguments": "{}"}}]

ANSWERS: Final[dict[str, Callable[[_Handler, dict[str, Any]], None]]] = {
    "normal": _normal,
    "retry-after": lambda h, _b: h._fail(429, "slow down", Retry_After="17"),
    "garbage": lambda h, _b: h.send(200, b"<html>not what you think</html>"),
    "wrong-shape": lambda h, _b: h.send(200, b"[1, 2]"),
    "no-choices": lambda h, b: h.send(200, {"id": "1", "object": "chat.completion", "created": 1, "model": b["model"], "choices": []}),
    "empty": lambda h, b: h.say(b, ""),
    "none": lambda h, b: h.say(b, None),
    "length": lambda h, b: h.say(b, "cut sho", finish="length"),
    "filtered": lambda h, b: h.say(b, "", finish="content_filter"),
    "filtered-part": lambda h, b: h.say(b, "so far", finish="content_filter"),
    "refusal": lambda h, b: h.say(b, None, refusal="I would rather not"),
    "own-word": lambda h, b: h.say(b, "done", finish="ran_out_of_ink"),
    "too-much": lambda h, b: h.say(b, "more and more", output=10_000),
    "no-usage": lambda h, b: h.say(b, "free", output=-1),
    "tool-call": lambda h, b: h.say(b, None, finish="tool_calls", tool_calls=_CALL),
    "surrogate": lambda h, b: h.say(b, "half \ud83d an emoji"),
    "big": lambda h, b: h.say(b, "x" * BIG),
    "leak-401": lambda h, _b: h._fail(401, f"wrong key: {_authorization(h)}"),
    "leak-400": lambda h, _b: h._fail(400, f"wrong field: {_authorization(h)}"),
    "leak-500": lambda h, _b: h._fail(500, f"oops: {_authorization(h)}"),
    "leak-answer": lambda h, b: h.say(b, f"your key is {_authorization(h)}"),
    "policy": lambda h, _b: h.send(
        400, {"error": {"message": "content policy", "type": "invalid_request_error", "code": "content_policy_violation"}}
    ),
    "hang": lambda h, b: h.hold(b),
    "hang-2": lambda h, b: h.hold(b),
    "drop": lambda h, _b: h.drop(),
}
