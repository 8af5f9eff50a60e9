"""A server that can push, in the test's process or on stdio: `pushing.py SIGN SEEN`. It uses the protocol version of
its first request, and copies its input to SEEN.

SIGN is how a push fails in 2026-07-28: `error` (as the Python SDK says it), `result` (as the TypeScript SDK does) or
`request` (it writes the request and waits). `old` knows only the handshake, `new` refuses it and fails a push as
`error` does. Tools: `push` asks by a request, `round` by an `input_required` result (by a request in the legacy
versions), `task` makes a task, `plain` asks nothing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

VERSION = "io.modelcontextprotocol/protocolVersion"
SAMPLE = {"messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}], "maxTokens": 10}
PYTHON = (
    "Cannot send 'sampling/createMessage': this transport context has no back-channel for server-initiated requests."
)
TYPESCRIPT = (
    "Server-to-client requests are not available on protocol revision 2026-07-28: 'sampling/createMessage' cannot be"
    " sent while serving a request on that revision. Return inputRequired({ ... }) from the handler instead."
)
INFO = {"name": "pushing", "version": "1"}


class Pushing:
    """One connection."""

    def __init__(self, sign: str, write: Callable[[dict[str, Any]], None]) -> None:
        self.sign, self.modern, self.calls = sign, False, list[Any]()
        self._write = write
        self._first = True

    def took(self, frame: dict[str, Any]) -> None:
        """Handle a frame."""
        if "method" not in frame:
            got = frame["result"]["content"]["text"] if "result" in frame else f"refused with {frame['error']['code']}"
            self.complete(self.calls.pop(0), got)
        elif "id" in frame:
            if self._first:
                asked = VERSION in frame.get("params", {}).get("_meta", {}) and self.sign != "old"
                self.modern, self._first = self.sign == "new" or asked, False
            self.request(frame)

    def write(self, frame: dict[str, Any]) -> None:
        self._write({"jsonrpc": "2.0", **frame})

    def complete(self, id: Any, text: str, **more: Any) -> None:
        kind = {"resultType": "complete"} if self.modern else {}
        self.write({"id": id, "result": {"content": [{"type": "text", "text": text}], **kind, **more}})

    def push(self, id: Any) -> None:
        if self.modern and self.sign in ("error", "new"):
            self.write({"id": id, "error": {"code": -32600, "message": PYTHON}})
        elif self.modern and self.sign == "result":
            self.complete(id, TYPESCRIPT, isError=True)
        else:
            self.calls.append(id)
            self.write({"id": f"push-{id}", "method": "sampling/createMessage", "params": SAMPLE})

    def call(self, id: Any, params: dict[str, Any]) -> None:
        match params["name"]:
            case "push":
                self.push(id)
            case "round" if self.modern and "inputResponses" not in params:
                asked = {"q": {"method": "sampling/createMessage", "params": SAMPLE}}
                self.write(
                    {"id": id, "result": {"resultType": "input_required", "inputRequests": asked, "requestState": "s"}}
                )
            case "round" if self.modern:
                self.complete(id, params["inputResponses"]["q"]["content"]["text"] + " after a round")
            case "round":
                self.push(id)
            case "task":
                task = {
                    "taskId": "t1",
                    "status": "working",
                    "ttl": 1000,
                    "createdAt": "2026-01-01T00:00:00Z",
                    "lastUpdatedAt": "2026-01-01T00:00:00Z",
                }
                self.write({"id": id, "result": {"task": task, **({"resultType": "task"} if self.modern else {})}})
            case _:
                self.complete(id, "plain")

    def request(self, frame: dict[str, Any]) -> None:
        id, params = frame["id"], frame.get("params", {})
        match frame["method"]:
            case "initialize" if self.sign == "new":
                self.write(
                    {
                        "id": id,
                        "error": {
                            "code": -32022,
                            "message": "unsupported protocol version",
                            "data": {"supported": ["2026-07-28"]},
                        },
                    }
                )
            case "initialize" if self.modern:
                self.write({"id": id, "error": {"code": -32600, "message": "this connection is of 2026-07-28"}})
            case "initialize":
                self.write(
                    {
                        "id": id,
                        "result": {
                            "protocolVersion": params["protocolVersion"],
                            "capabilities": {"tools": {}},
                            "serverInfo": INFO,
                        },
                    }
                )
            case "server/discover" if self.modern:
                found = {
                    "supportedVersions": ["2026-07-28"],
                    "capabilities": {"tools": {}},
                    "serverInfo": INFO,
                    "resultType": "complete",
                }
                self.write({"id": id, "result": found})
            case "tools/call":
                self.call(id, params)
            case method:
                self.write({"id": id, "error": {"code": -32601, "message": f"method not found: {method}"}})


def main() -> None:
    sign, seen = sys.argv[1], Path(sys.argv[2])
    server = Pushing(sign, lambda frame: print(json.dumps(frame), flush=True))
    for line in sys.stdin:
        with seen.open("a") as file:
            file.write(line)
        server.took(json.loads(line))


if __name__ == "__main__":
    main()
