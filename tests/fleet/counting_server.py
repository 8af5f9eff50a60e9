"""A stdio server of both protocol versions that writes down each call: ``counting_server.py FILE``. Calls are answered
at the same time, each in a thread.

Arguments of a call: ``note`` is appended to FILE. With ``door``, the call waits until the test closes a connection to
this address. With ``ask``, it asks the client to confirm; in 2026-07-28 it gives a state that only this process
accepts.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
import threading
from pathlib import Path
from typing import Any, Final

NOTES: Final = os.open(Path(sys.argv[1]), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
OWN: Final = secrets.token_hex(8)
MODERN: Final = "io.modelcontextprotocol/protocolVersion"
FORM: Final = {
    "message": "sure?",
    "requestedSchema": {"type": "object", "properties": {"confirm": {"type": "boolean"}}, "required": ["confirm"]},
}
INFO: Final = {"name": "counting", "version": "1"}
TOOL: Final = {"name": "do", "inputSchema": {"type": "object"}}
writing: Final = threading.Lock()
waiting: Final[dict[str, tuple[threading.Event, list[Any]]]] = {}
"""Pushed requests by id, each with the client's answer."""


def write(frame: dict[str, Any]) -> None:
    line = json.dumps({"jsonrpc": "2.0", **frame}) + "\n"
    with writing:
        sys.stdout.write(line)
        sys.stdout.flush()


def pushed() -> Any:
    """In legacy versions: ask now and wait for the answer."""
    id, arrived = f"q{secrets.token_hex(4)}", threading.Event()
    waiting[id] = arrived, []
    write({"id": id, "method": "elicitation/create", "params": FORM})
    arrived.wait()
    return waiting.pop(id)[1][0]


def call(id: Any, params: dict[str, Any]) -> None:
    arguments, modern = params.get("arguments", {}), MODERN in params.get("_meta", {})
    returns = "inputResponses" in params or "requestState" in params
    if "note" in arguments:
        os.write(NOTES, f"{arguments['note']}{' again' if returns else ''}\n".encode())
    if "door" in arguments:
        with socket.create_connection(tuple(arguments["door"])) as door:
            door.recv(1)
    given: Any = None
    if "ask" in arguments and modern and not returns:
        asks = {"k": {"method": "elicitation/create", "params": FORM}}
        write({"id": id, "result": {"resultType": "input_required", "inputRequests": asks, "requestState": OWN}})
        return
    if returns and params.get("requestState") != OWN:
        write({"id": id, "error": {"code": -32602, "message": "this state is of another process"}})
        return
    if "ask" in arguments:
        given = params["inputResponses"]["k"] if modern else pushed()
    done = {"content": [{"type": "text", "text": OWN}], "structuredContent": {"given": given}}
    write({"id": id, "result": {**({"resultType": "complete"} if modern else {}), **done}})


def answer(frame: dict[str, Any]) -> None:
    id, method, params = frame["id"], frame["method"], frame.get("params", {})
    modern = MODERN in params.get("_meta", {})
    listed = {"ttlMs": 0, "cacheScope": "private"}
    match method:
        case "initialize":
            found = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": INFO}
            write({"id": id, "result": found})
        case "server/discover":
            found = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **listed}
            meta = {"io.modelcontextprotocol/serverInfo": INFO}
            write({"id": id, "result": {"resultType": "complete", **found, "_meta": meta}})
        case "tools/list":
            more = {"resultType": "complete", **listed} if modern else {}
            write({"id": id, "result": {"tools": [TOOL], **more}})
        case "tools/call":
            threading.Thread(target=call, args=(id, params), daemon=True).start()
        case _:
            write({"id": id, "result": {"resultType": "complete"} if modern else {}})


for line in sys.stdin:
    frame = json.loads(line)
    if "method" in frame and "id" in frame:
        answer(frame)
    elif frame.get("id") in waiting:
        arrived, given = waiting[frame["id"]]
        given.append(frame.get("result"))
        arrived.set()
