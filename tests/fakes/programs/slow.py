"""A stdio server of both protocol versions. The arguments of a call select when it answers: after some seconds, after a
request to its client, or never."""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

META = "io.modelcontextprotocol/"
FORM = {
    "message": "Sure?",
    "requestedSchema": {"type": "object", "properties": {"confirm": {"type": "boolean"}}, "required": ["confirm"]},
}
SAMPLE = {"messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}], "maxTokens": 10}
REQUESTS = {
    "form": ("elicitation/create", FORM),
    "sample": ("sampling/createMessage", SAMPLE),
    "roots": ("roots/list", {}),
    "ping": ("ping", {}),
}
lock = threading.Lock()
answers: dict[Any, Any] = {}
answered = threading.Condition()


def write(frame: dict[str, Any]) -> None:
    """Write a line to the client."""
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **frame}, separators=(",", ":")) + "\n")
        sys.stdout.flush()


def ask(id: Any, what: str) -> Any:
    """Push a request and return the whole answer."""
    method, params = REQUESTS[what]
    write({"id": f"q{id}", "method": method, "params": params})
    with answered:
        answered.wait_for(lambda: f"q{id}" in answers)
    return answers[f"q{id}"]


def call(id: Any, params: dict[str, Any], modern: bool) -> None:
    """Serve a tools/call as its arguments say."""
    arguments = params.get("arguments", {})
    if params["name"] == "never":
        return
    for step in range(arguments.get("progress", 0)):
        time.sleep(arguments["pause"])
        write(
            {
                "method": "notifications/progress",
                "params": {"progressToken": params["_meta"]["progressToken"], "progress": step + 1},
            }
        )
    time.sleep(arguments.get("seconds", 0))
    if modern and "ask" in arguments and "inputResponses" not in params:
        method, asked = REQUESTS[arguments["ask"]]
        write(
            {
                "id": id,
                "result": {"resultType": "input_required", "inputRequests": {"k": {"method": method, "params": asked}}},
            }
        )
        return
    got = None if "ask" not in arguments else params["inputResponses"] if modern else ask(id, arguments["ask"])
    time.sleep(arguments.get("then", 0))
    content = [{"type": "text", "text": json.dumps(got)}]
    write({"id": id, "result": {"content": content, **({"resultType": "complete"} if modern else {})}})


def main() -> None:
    """``silent``: answers nothing. ``modern``: does not know initialize. ``note=FILE``: writes cancellations to
    FILE."""
    silent, modern = "silent" in sys.argv, "modern" in sys.argv
    notes = next((word[5:] for word in sys.argv if word.startswith("note=")), None)
    print("Listening on stdio", flush=True)  # a banner is not an answer
    for line in sys.stdin:
        frame = json.loads(line)
        method, id = frame.get("method"), frame.get("id")
        if method == "notifications/cancelled" and notes is not None:
            with open(notes, "a") as file:  # noqa: PTH123
                file.write(json.dumps(frame["params"]) + "\n")
        if silent:
            continue
        if method is None:
            with answered:
                answers[id] = frame
                answered.notify_all()
        elif method == "initialize" and not modern:
            version = frame["params"]["protocolVersion"]
            write(
                {
                    "id": id,
                    "result": {
                        "protocolVersion": version,
                        "capabilities": {"tools": {}},
                        "serverInfo": {"name": "slow", "version": "1"},
                    },
                }
            )
        elif method == "server/discover" and modern:
            info = {f"{META}serverInfo": {"name": "slow", "version": "1"}}
            found = {
                "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}},
                "_meta": info,
                "ttlMs": 0,
                "cacheScope": "public",
            }
            write({"id": id, "result": {"resultType": "complete", **found}})
        elif method == "tools/call":
            threading.Thread(target=call, args=(id, frame["params"], modern), daemon=True).start()
        elif id is not None and method != "subscriptions/listen":
            write({"id": id, "error": {"code": -32601, "message": "method not found"}})


if __name__ == "__main__":
    main()
