"""A stdio server that can push: `pushing.py SIGN SEEN`. It keeps to the protocol version of its first request, and
copies what it reads to SEEN.

SIGN is how a push fails in 2026-07-28: `error` (as the Python SDK says it), `result` (as the TypeScript SDK does) or
`request` (it writes the request and waits). `old` knows only the handshake, `new` refuses it and fails a push as
`error` does. Tools: `push` asks by a request, `round` by an `input_required` result (by a request in the legacy
versions), `task` makes a task, `plain` asks nothing.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sign, seen = sys.argv[1], Path(sys.argv[2])
VERSION = "io.modelcontextprotocol/protocolVersion"
SAMPLE = {"messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}], "maxTokens": 10}
PYTHON = (
    "Cannot send 'sampling/createMessage': this transport context has no back-channel for server-initiated requests."
)
TYPESCRIPT = (
    "Server-to-client requests are not available on protocol revision 2026-07-28: 'sampling/createMessage' cannot be"
    " sent while serving a request on that revision. Return inputRequired({ ... }) from the handler instead."
)
modern = False
calls: list[Any] = []


def write(frame: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **frame}), flush=True)


def complete(id: Any, text: str, **more: Any) -> None:
    kind = {"resultType": "complete"} if modern else {}
    write({"id": id, "result": {"content": [{"type": "text", "text": text}], **kind, **more}})


def push(id: Any) -> None:
    if modern and sign in ("error", "new"):
        write({"id": id, "error": {"code": -32600, "message": PYTHON}})
    elif modern and sign == "result":
        complete(id, TYPESCRIPT, isError=True)
    else:
        calls.append(id)
        write({"id": f"push-{id}", "method": "sampling/createMessage", "params": SAMPLE})


def call(id: Any, params: dict[str, Any]) -> None:
    match params["name"]:
        case "push":
            push(id)
        case "round" if modern and "inputResponses" not in params:
            asked = {"q": {"method": "sampling/createMessage", "params": SAMPLE}}
            write({"id": id, "result": {"resultType": "input_required", "inputRequests": asked, "requestState": "s"}})
        case "round" if modern:
            complete(id, params["inputResponses"]["q"]["content"]["text"] + " after a round")
        case "round":
            push(id)
        case "task":
            task = {
                "taskId": "t1",
                "status": "working",
                "ttl": 1000,
                "createdAt": "2026-01-01T00:00:00Z",
                "lastUpdatedAt": "2026-01-01T00:00:00Z",
            }
            write({"id": id, "result": {"task": task, **({"resultType": "task"} if modern else {})}})
        case _:
            complete(id, "plain")


def request(frame: dict[str, Any]) -> None:
    id, params = frame["id"], frame.get("params", {})
    match frame["method"]:
        case "initialize" if sign == "new":
            write(
                {
                    "id": id,
                    "error": {
                        "code": -32022,
                        "message": "unsupported protocol version",
                        "data": {"supported": ["2026-07-28"]},
                    },
                }
            )
        case "initialize" if modern:
            write({"id": id, "error": {"code": -32600, "message": "this connection is of 2026-07-28"}})
        case "initialize":
            write(
                {
                    "id": id,
                    "result": {
                        "protocolVersion": params["protocolVersion"],
                        "capabilities": {"tools": {}},
                        "serverInfo": INFO,
                    },
                }
            )
        case "server/discover" if modern:
            found = {
                "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}},
                "serverInfo": INFO,
                "resultType": "complete",
            }
            write({"id": id, "result": found})
        case "tools/call":
            call(id, params)
        case method:
            write({"id": id, "error": {"code": -32601, "message": f"method not found: {method}"}})


INFO = {"name": "pushing", "version": "1"}
first = True
for line in sys.stdin:
    with seen.open("a") as file:
        file.write(line)
    frame = json.loads(line)
    if "method" not in frame:
        complete(
            calls.pop(0),
            frame["result"]["content"]["text"] if "result" in frame else f"refused with {frame['error']['code']}",
        )
    elif "id" in frame:
        if first:
            modern, first = (
                sign == "new" or (VERSION in frame.get("params", {}).get("_meta", {}) and sign != "old"),
                False,
            )
        request(frame)
