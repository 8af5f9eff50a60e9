"""A stdio server of one protocol version or both, without an SDK: ``asking.py ERAS``. The arguments of a call select
what its tool does."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

ERAS = sys.argv[1].split("+")
INFO = {"name": "asking", "version": "1"}
METHODS: list[str] = []
"""The methods of all frames that came, or an empty text for an answer."""
VERSION = "io.modelcontextprotocol/protocolVersion"


def write(frame: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **frame}, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def read() -> dict[str, Any]:
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    frame: dict[str, Any] = json.loads(line)
    METHODS.append(frame.get("method", ""))
    return frame


def refuse(id: Any, code: int, message: str, **data: Any) -> None:
    write({"id": id, "error": {"code": code, "message": message, **({"data": data} if data else {})}})


def pushed(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """In legacy versions: send the request now and wait for the answer."""
    write({"id": "q1", "method": method, "params": params})
    while (frame := read()).get("id") != "q1":
        if frame.get("method") == "resources/read":
            resource(frame["id"], frame["params"], modern=False)
    return {name: frame[name] for name in ("result", "error") if name in frame}


def resource(id: Any, params: dict[str, Any], modern: bool) -> None:
    """The file ``ui.html`` or ``ui.url`` in the working directory, as the only resource. Each read is noted in
    ``reads.jsonl``."""
    with Path("reads.jsonl").open("a") as reads:
        reads.write(json.dumps(params) + "\n")
    types = {Path("ui.html"): "text/html;profile=mcp-app", Path("ui.url"): "text/uri-list"}
    found = next(filter(Path.exists, types), None)
    if found is None:
        refuse(id, -32002, "resource not found")
        return
    content = {"uri": params["uri"], "mimeType": types[found], "text": found.read_text()}
    done = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if modern else {}
    write({"id": id, "result": {**done, "contents": [content]}})


def call(id: Any, params: dict[str, Any], modern: bool) -> None:
    arguments = params.get("arguments", {})
    done = {"resultType": "complete"} if modern else {}
    if "exit" in arguments:
        sys.exit(arguments["exit"])
    if "door" in arguments:  # wait until the test opens the door
        with socket.create_connection(arguments["door"]) as door:
            door.recv(1)
    if "progress" in arguments:
        token = params["_meta"]["progressToken"]
        for value in range(arguments["progress"]):
            write({"method": "notifications/progress", "params": {"progressToken": token, "progress": value + 1}})
    if "ask" in arguments and modern and "inputResponses" not in params:
        asked = {"method": arguments["ask"]["method"], "params": arguments["ask"]["params"]}
        state = {} if "stateless" in arguments else {"requestState": "s"}
        write({"id": id, "result": {"resultType": "input_required", "inputRequests": {"k": asked}, **state}})
    elif "asks" in arguments and modern:  # several at once, by key
        if "inputResponses" not in params:
            write(
                {
                    "id": id,
                    "result": {"resultType": "input_required", "inputRequests": arguments["asks"], "requestState": "s"},
                }
            )
        else:
            write({"id": id, "result": {**done, "content": [], "structuredContent": params["inputResponses"]}})
    elif "ask" in arguments:
        answer = {"result": params["inputResponses"]["k"]} if modern else pushed(**arguments["ask"])
        write({"id": id, "result": {**done, "content": [], "structuredContent": answer}})
    elif "methods" in arguments:
        write({"id": id, "result": {**done, "content": [], "structuredContent": {"methods": METHODS}}})
    elif "metadata" in arguments:
        write({"id": id, "result": {**done, "content": [], "metadata": arguments["metadata"]}})
    else:
        text = str(os.getpid()) if "pid" in arguments else "x" * arguments.get("repeat", 1)
        write({"id": id, "result": {**done, "content": [{"type": "text", "text": text}]}})


def answer(frame: dict[str, Any]) -> None:
    id, method, params = frame["id"], frame["method"], frame.get("params", {})
    modern = VERSION in params.get("_meta", {})
    if modern and "fragile" in ERAS:  # ends at a frame that it does not know
        sys.exit(1)
    elif modern and "modern" not in ERAS:
        refuse(id, -32602, "not initialized")
    elif not modern and "legacy" not in ERAS:
        refuse(
            id,
            -32022,
            "unsupported protocol version",
            supported=["2026-07-28"],
            requested=params.get("protocolVersion", ""),
        )
    elif method == "initialize":
        capabilities: dict[str, Any] = {"tools": {}}
        write(
            {
                "id": id,
                "result": {
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": capabilities,
                    "serverInfo": {"name": "asking", "version": "1"},
                },
            }
        )
    elif method == "server/discover":
        found = {
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}},
            "ttlMs": 0,
            "cacheScope": "private",
        }
        write(
            {
                "id": id,
                "result": {
                    "resultType": "complete",
                    **found,
                    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "asking", "version": "1"}},
                },
            }
        )
    elif method == "tools/call":
        call(id, params, modern)
    elif method == "resources/read":
        resource(id, params, modern)
    elif method == "tools/list":
        tool = {"name": "do", "inputSchema": {"type": "object"}}
        write(
            {
                "id": id,
                "result": {
                    "tools": [tool],
                    **({"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if modern else {}),
                },
            }
        )
    else:
        write({"id": id, "result": {"resultType": "complete"} if modern else {}})


while True:
    frame = read()
    if "id" in frame and "method" in frame:
        answer(frame)
