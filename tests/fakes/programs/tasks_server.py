"""A server of 2026-07-28 with tasks, without an SDK: ``tasks_server.py stdio|http [LOG]``. The tool's name selects what
its task does; the arguments ``ttlMs`` and ``pollIntervalMs`` change the task, and ``count`` says how many.

- ``asks``: a form under the key ``k1``, and then the result. ``asks_both``: also a sampling request under ``k2``.
- ``asks_many``: ``count`` forms at once. ``asks_again``: a form, and after its answer another under a new key.
- ``renames``: the same form under a new key in each poll. ``repeats``: the same key again after its answer.
- ``changes``: another form under the same key in each poll. ``unanswered``: asks on after the answer.
- ``floods``: answers the call with ``count`` tasks (stdio: with ``count`` messages). ``never``: does not end, and only
  acknowledges a cancellation. ``forgets``: the task is unknown at once. ``foreign``: views name another task.
- ``deaf``: asks, and does not answer ``tasks/update``. ``refuses``: answers it with an error.
- ``notifies``: tells ``notifications/tasks`` of its form and its end, without being subscribed to on stdio.
- ``completed``, ``failed``, ``cancelled``: the end that the name says. ``round``: a round, and then a task.

The argument ``hold`` names the place where the server stops in a task, once, so that a test can kill the client there.
That request is never answered. ``reading`` (HTTP only): before it reads the body of a ``tasks/update``. ``taking``:
before it takes the answers in one. ``acknowledging``: after that. ``viewing``: in the first ``tasks/get`` after that.

Each message becomes a line of JSON in the file LOG: ``method``, ``params``, and over HTTP ``headers``. Two more lines
are the server's own: ``held``, where it stopped, and ``ran``, when a task has all its answers and does its work.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

TASKS = "io.modelcontextprotocol/tasks"
META = "io.modelcontextprotocol/"
TIME = "2026-11-27T00:00:00Z"
KEPT = ("mcp-method", "mcp-name", "authorization")
NEEDED: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
SAMPLE = {
    "method": "sampling/createMessage",
    "params": {"messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}], "maxTokens": 10},
}
NAMES = (
    "asks asks_both asks_many asks_again renames repeats changes unanswered floods never forgets foreign deaf refuses"
    " notifies completed failed cancelled round"
).split()

Frame = dict[str, Any]
Send = Callable[[Frame], None]
lock = threading.RLock()
tasks: dict[str, Task] = {}
listening: dict[str, list[tuple[Any, Send]]] = {}
"""The subscriptions to each task: the ID of the request, and where its notifications go."""


def form(message: str = "sure?") -> Frame:
    schema = {"type": "object", "properties": {"confirm": {"type": "boolean"}}, "required": ["confirm"]}
    return {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}}


def log(frame: Frame, headers: dict[str, str] | None = None) -> None:
    if len(sys.argv) > 2:
        with lock, Path(sys.argv[2]).open("a", encoding="utf-8") as file:
            file.write(json.dumps({**frame, **({} if headers is None else {"headers": headers})}) + "\n")


class Task:
    """One task. Its tool decides what it asks."""

    def __init__(self, tool: str, arguments: Frame) -> None:
        self.id = str(uuid.uuid4())
        self.tool, self.arguments = tool, arguments
        self.polls = 0
        self.answers: Frame = {}
        self.cancelled = False
        self.held = False

    def holds(self, place: str) -> bool:
        """Whether the server stops here now."""
        if self.held or self.arguments.get("hold") != place:
            return False
        self.held = True
        log({"method": "held", "params": {"taskId": self.id, "place": place}})
        return True

    def head(self, status: str) -> Frame:
        times = {
            "ttlMs": self.arguments.get("ttlMs", 60_000),
            "pollIntervalMs": self.arguments.get("pollIntervalMs", 20),
        }
        return {"taskId": self.id, "status": status, "createdAt": TIME, "lastUpdatedAt": TIME, **times}

    def asks(self) -> Frame:
        """What it asks now, by key."""
        match self.tool:
            case "renames":
                return {f"k{self.polls}": form()}
            case "repeats":
                return {"k1": form()}
            case "changes":
                return {"k1": form(f"sure {self.polls}?")}
            case "unanswered":
                return {f"k{len(self.answers) + 1}": form()}
            case "never" | "completed" | "failed" | "cancelled" | "floods" | "foreign" | "round" | "forgets":
                return {}
        asks = {"k1": form()}
        if self.tool == "asks_both":
            asks["k2"] = SAMPLE
        elif self.tool == "asks_many":
            asks = {f"k{number}": form() for number in range(self.arguments.get("count", 3))}
        elif self.tool == "asks_again" and "k1" in self.answers:
            asks["k2"] = form("really?")
        return {key: ask for key, ask in asks.items() if key not in self.answers}

    def view(self) -> Frame:
        """What ``tasks/get`` returns now."""
        if self.cancelled or self.tool == "cancelled":
            return self.head("cancelled")
        if asks := self.asks():
            return {**self.head("input_required"), "inputRequests": asks}
        if self.tool == "never":
            return self.head("working")
        if self.tool == "failed":
            return {**self.head("failed"), "error": {"code": -32603, "message": "the tool broke"}}
        content = [{"type": "text", "text": json.dumps(self.answers, sort_keys=True)}]
        done = {**self.head("completed"), "result": {"resultType": "complete", "content": content}}
        return {**done, "taskId": str(uuid.uuid4())} if self.tool == "foreign" else done


def tell(task: Task, also: Send | None = None) -> None:
    """Send the task's view to its subscriptions, and unasked where ``also`` is."""
    for id, send in listening.get(task.id, []):
        meta = {f"{META}subscriptionId": id}
        send({"method": "notifications/tasks", "params": {"_meta": meta, **task.view()}})
    if also is not None:
        also({"method": "notifications/tasks", "params": task.view()})


def error(code: int, message: str, **data: Any) -> Frame:
    return {"error": {"code": code, "message": message, **({"data": data} if data else {})}}


def call(id: Any, params: Frame, send: Send, pushes: bool) -> Frame:
    tool, arguments = params["name"], params.get("arguments", {})
    if tool == "round" and "inputResponses" not in params:
        return {"result": {"resultType": "input_required", "inputRequests": {"k1": form()}, "requestState": "s"}}
    made = [Task(tool, arguments) for _ in range(arguments.get("count", 1) if tool == "floods" and pushes else 1)]
    if tool != "forgets":
        tasks.update({task.id: task for task in made})
    created = [{"result": {"resultType": "task", **task.head("working")}} for task in made]
    for frame in created[:-1]:
        send({"id": id, **frame})
    if tool == "notifies" and pushes:
        threading.Timer(0.05, lambda: tell(made[0], send)).start()
    return created[-1]


def listen(id: Any, params: Frame, send: Send) -> None:
    """Acknowledge, and tell the present state. The subscription lasts as long as the connection."""
    wanted = [task for task in params.get("notifications", {}).get("taskIds", []) if task in tasks]
    meta = {f"{META}subscriptionId": id}
    acknowledged = {"_meta": meta, "notifications": {"taskIds": wanted}}
    send({"method": "notifications/subscriptions/acknowledged", "params": acknowledged})
    for task in wanted:
        listening.setdefault(task, []).append((id, send))
        tell(tasks[task])


def answer(frame: Frame, send: Send, pushes: bool) -> Frame | None:
    """The result or error for a request, or None if none is sent now."""
    method, params = frame["method"], frame.get("params", {})
    capabilities = params.get("_meta", {}).get(f"{META}clientCapabilities", {})
    declared = TASKS in capabilities.get("extensions", {})
    if method == "server/discover":
        offered: Frame = {"tools": {}, "extensions": {TASKS: {}}}
        info = {"serverInfo": {"name": "tasks", "version": "1"}}
        known = {"supportedVersions": ["2026-07-28"], "capabilities": offered, **info}
        return {"result": {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **known}}
    if method == "tools/list":
        listed = [{"name": name, "inputSchema": {"type": "object"}} for name in NAMES]
        return {"result": {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "tools": listed}}
    if method == "initialize":
        return error(-32022, "unsupported protocol version", supported=["2026-07-28"], requested="older")
    if method not in ("tools/call", "tasks/get", "tasks/update", "tasks/cancel", "subscriptions/listen"):
        return error(-32601, "method not found")
    if not declared and (method != "subscriptions/listen" or "taskIds" in params.get("notifications", {})):
        return error(-32021, "the client must declare tasks", **NEEDED)
    if method == "tools/call":
        return call(frame["id"], params, send, pushes)
    if method == "subscriptions/listen":
        listen(frame["id"], params, send)
        return None
    task = tasks.get(params["taskId"])
    if task is None:
        return error(-32602, "no such task")
    return followed(method, params, task, send if pushes else None)


def followed(method: str, params: Frame, task: Task, push: Send | None) -> Frame | None:
    """The answer to a request about a known task."""
    if method == "tasks/get":
        task.polls += 1
        if task.answers and task.holds("viewing"):
            return None
        return {"result": {"resultType": "complete", **task.view()}}
    if method == "tasks/cancel":
        task.cancelled = task.tool != "never"
    elif task.tool == "deaf" or task.holds("taking"):
        return None
    elif task.tool == "refuses":
        return error(-32603, "not now")
    else:
        asked = task.asks()
        task.answers |= params.get("inputResponses", {})
        if asked and not task.asks():
            log({"method": "ran", "params": {"taskId": task.id, "answers": task.answers}})
        if task.holds("acknowledging"):
            return None
    if task.tool == "notifies":
        tell(task, push)
    return {"result": {"resultType": "complete"}}


def over_stdio() -> None:
    def send(frame: Frame) -> None:
        with lock:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", **frame}, separators=(",", ":")) + "\n")
            sys.stdout.flush()

    for line in sys.stdin:
        frame = json.loads(line)
        log(frame)
        if "id" in frame and "method" in frame:
            with lock:
                reply = answer(frame, send, pushes=True)
            if reply is not None:
                send({"id": frame["id"], **reply})


class Handler(BaseHTTPRequestHandler):
    """JSON answers, and a stream for ``subscriptions/listen``."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        task = tasks.get(self.headers.get("mcp-name", ""))
        if self.headers.get("mcp-method") == "tasks/update" and task is not None and task.holds("reading"):
            time.sleep(3600)
        frame = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        log(frame, {name: self.headers[name] for name in KEPT if name in self.headers})
        if "id" not in frame:
            self.whole(202, b"")
        elif frame["method"] == "subscriptions/listen":
            self.stream(frame)
        else:
            with lock:
                reply = answer(frame, self.event, pushes=False)
            if reply is None:
                time.sleep(3600)
            self.whole(200, json.dumps({"jsonrpc": "2.0", "id": frame["id"], **(reply or {})}).encode())

    def whole(self, status: int, body: bytes) -> None:
        self.send_response(status)
        if body:
            self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, frame: Frame) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        with lock:
            reply = answer(frame, self.event, pushes=False)
        if reply is not None:
            self.event({"id": frame["id"], **reply})
            self.close_connection = True
            return
        while True:  # until the client leaves, which a write notices
            time.sleep(1)
            self.wfile.write(b": still here\n\n")

    def event(self, frame: Frame) -> None:
        self.wfile.write(b"data: " + json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\n\n")
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        over_stdio()
    else:
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        print(f"listening on http://127.0.0.1:{server.server_port}/mcp", file=sys.stderr, flush=True)
        server.serve_forever()
