"""A client of 2026-07-28 with tasks, without an SDK: over stdio with a command, or over HTTP with an address.

with task_client("http://127.0.0.1:1/mcp") as client:
    task = client.call("asks")["result"]["taskId"]
    client.update(task, k1={"action": "accept", "content": {"confirm": True}})
"""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from time import monotonic, sleep
from typing import Any, Final, TypeAlias

import httpx

Frame: TypeAlias = dict[str, Any]
TASKS: Final = "io.modelcontextprotocol/tasks"
META: Final = "io.modelcontextprotocol/"
WAIT: Final = 30.0
CAPABILITIES: Final[Frame] = {"elicitation": {"form": {}}, "sampling": {}}
ACCEPT: Final = {"action": "accept", "content": {"confirm": True}}
ENDS: Final = ("completed", "failed", "cancelled")


class TaskClient(ABC):
    """The requests of a client. Each returns the whole response. ``told`` has the notifications."""

    def __init__(self) -> None:
        self.told: list[Frame] = []
        self._ids = count(1)

    @abstractmethod
    def exchange(self, frame: Frame) -> Frame:
        """Send a request, and return its response."""

    @abstractmethod
    def listen(self, *tasks: str) -> None:
        """Subscribe to these tasks, until the client ends."""

    def request(
        self, method: str, params: Mapping[str, Any], *, declare: bool = True, capabilities: Frame = CAPABILITIES
    ) -> Frame:
        return self.exchange(self.frame(method, params, declare=declare, capabilities=capabilities))

    def frame(
        self, method: str, params: Mapping[str, Any], *, declare: bool = True, capabilities: Frame = CAPABILITIES
    ) -> Frame:
        """A request, which declares tasks unless it is told not to."""
        declared = {**capabilities, **({"extensions": {TASKS: {}}} if declare else {})}
        info = {"name": "raw", "version": "1"}
        version = {f"{META}protocolVersion": "2026-07-28", f"{META}clientInfo": info}
        meta = {**version, f"{META}clientCapabilities": declared}
        return {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": {**params, "_meta": meta}}

    def call(self, tool: str, **arguments: Any) -> Frame:
        return self.request("tools/call", {"name": tool, "arguments": arguments})

    def create(self, tool: str, **arguments: Any) -> str:
        """The ID of the task that a call becomes."""
        reply = self.call(tool, **arguments)
        assert reply.get("result", {}).get("resultType") == "task", reply
        return str(reply["result"]["taskId"])

    def get(self, task: str) -> Frame:
        return self.request("tasks/get", {"taskId": task})

    def update(self, task: str, **answers: Any) -> Frame:
        return self.request("tasks/update", {"taskId": task, "inputResponses": answers})

    def cancel(self, task: str) -> Frame:
        return self.request("tasks/cancel", {"taskId": task})

    def until(self, task: str, *statuses: str, polls: int = 200) -> Frame:
        """Poll until the task has one of these statuses, or has ended. Returns the last view."""
        view: Frame = {}
        for _ in range(polls):
            reply = self.get(task)
            view = reply.get("result") or reply
            if "status" not in view or view["status"] in (*statuses, *ENDS):
                return view
            sleep(0.02)
        raise AssertionError(f"the task is still {view.get('status')} after {polls} polls")

    def heard(self, true: Callable[[list[Frame]], bool]) -> list[Frame]:
        """The notifications, once they are as expected."""
        end = monotonic() + WAIT
        while not true(self.told):
            assert monotonic() < end, f"only these notifications came: {self.told}"
            sleep(0.01)
        return list(self.told)


class StdioTaskClient(TaskClient):
    """Over the pipes of a process."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        super().__init__()
        self._process = process
        self._replies: dict[Any, queue.Queue[Frame | None]] = {}
        self.extra: list[Frame] = []
        """Responses to nothing that waits, such as second ones."""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            frame = json.loads(line)
            if "method" in frame:
                self.told.append(frame)
            elif waiting := self._replies.pop(frame.get("id"), None):
                waiting.put(frame)
            else:
                self.extra.append(frame)
        for waiting in list(self._replies.values()):
            waiting.put(None)

    def _write(self, frame: Frame) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(frame).encode() + b"\n")
        self._process.stdin.flush()

    def exchange(self, frame: Frame) -> Frame:
        waiting = self._replies[frame["id"]] = queue.Queue()
        self._write(frame)
        reply = waiting.get(timeout=WAIT)
        assert reply is not None, f"{frame['method']}: the process ended without a response"
        return reply

    def listen(self, *tasks: str) -> None:
        self._write(self.frame("subscriptions/listen", {"notifications": {"taskIds": list(tasks)}}))


class HttpTaskClient(TaskClient):
    """Over Streamable HTTP. ``headers`` go with each request."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        super().__init__()
        self._url, self._headers = url, headers
        self._http = httpx.Client(timeout=WAIT, trust_env=False)

    def frames(self, frame: Frame) -> Iterator[Frame]:
        """The messages of a response, which is JSON or a stream."""
        method, params = frame["method"], frame["params"]
        headers = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": method,
            **self._headers,
        }
        if name := params.get("taskId") or params.get("name"):
            headers["Mcp-Name"] = name
        with self._http.stream("POST", self._url, json=frame, headers=headers) as reply:
            if "event-stream" not in reply.headers.get("content-type", ""):
                yield json.loads(reply.read())
                return
            for line in reply.iter_lines():
                if data := line.removeprefix("data:").strip() if line.startswith("data:") else "":
                    yield json.loads(data)

    def exchange(self, frame: Frame) -> Frame:
        for reply in self.frames(frame):
            if "method" not in reply:
                return reply
            self.told.append(reply)
        raise AssertionError(f"{frame['method']}: the stream ended without a response")

    def listen(self, *tasks: str) -> None:
        frame = self.frame("subscriptions/listen", {"notifications": {"taskIds": list(tasks)}})

        def read() -> None:
            try:
                for reply in self.frames(frame):
                    self.told.append(reply)
            except httpx.HTTPError:
                pass  # the client or the server ended

        threading.Thread(target=read, daemon=True).start()

    def close(self) -> None:
        self._http.close()


@contextmanager
def task_client(
    *place: str, environment: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
) -> Iterator[TaskClient]:
    """A client at an address, or of a command that it starts and ends."""
    if place[0].startswith("http"):
        client = HttpTaskClient(place[0], headers or {})
        try:
            yield client
        finally:
            client.close()
        return
    words: Sequence[str] = place
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    try:
        yield StdioTaskClient(process)
    finally:
        process.kill()
        process.wait(10)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
