"""A legacy stdio server without an SDK that serves many calls at once, each after a different delay.

``sample`` and ``form`` ask the client and answer after it has; ``echo`` and ``slow`` answer by themselves.
"""

from __future__ import annotations

import json
import random
import sys
import threading
from typing import Any

# maximum delay in seconds; long compared to the time that the gate needs for a frame, so frames meet in every order
MOMENT = 0.002
SLOW = 0.03
SAMPLE = {"messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}], "maxTokens": 10}
FORM = {
    "message": "sure?",
    "requestedSchema": {"type": "object", "properties": {"confirm": {"type": "boolean"}}, "required": ["confirm"]},
}
ASKS = {"sample": ("sampling/createMessage", SAMPLE), "form": ("elicitation/create", FORM)}

moments = random.Random(1)
writing = threading.Lock()
asked: dict[str, Any] = {}
"""The call that each request of ours belongs to."""


def write(**frame: Any) -> None:
    line = json.dumps({"jsonrpc": "2.0", **frame}, separators=(",", ":")) + "\n"
    with writing:
        sys.stdout.write(line)
        sys.stdout.flush()


def done(id: Any, text: str) -> None:
    write(id=id, result={"content": [{"type": "text", "text": text}]})


def ask(id: Any, method: str, params: dict[str, Any]) -> None:
    asked[f"q{id}"] = id
    write(id=f"q{id}", method=method, params=params)


def call(id: Any, tool: str) -> None:
    moment = (SLOW if tool == "slow" else 0) + moments.random() * MOMENT
    work = (ask, (id, *ASKS[tool])) if tool in ASKS else (done, (id, tool))
    threading.Timer(moment, *work).start()


def take(frame: dict[str, Any]) -> None:
    id, method = frame.get("id"), frame.get("method")
    if method == "initialize":
        info = {"name": "five", "version": "1"}
        write(
            id=id,
            result={
                "protocolVersion": frame["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": info,
            },
        )
    elif method == "tools/call":
        call(id, frame["params"]["name"])
    elif method is not None and id is not None:
        write(id=id, result={"tools": []} if method == "tools/list" else {})
    elif id in asked:
        threading.Timer(
            moments.random() * MOMENT, done, (asked.pop(id), "answered" if "result" in frame else "refused")
        ).start()


for line in sys.stdin:
    take(json.loads(line))
