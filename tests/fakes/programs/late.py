"""A legacy stdio server without an SDK that asks the client at awkward moments. Each tool is one such moment."""

from __future__ import annotations

import json
import sys
from typing import Any

SAMPLE = {"messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}], "maxTokens": 10}

held: list[Any] = []
"""Calls of ``hold`` that are not answered."""
asked: list[Any] = []
"""Calls that are answered after the client has answered us."""


def answer(id: Any, text: str) -> dict[str, Any]:
    return {"id": id, "result": {"content": [{"type": "text", "text": text}]}}


def question() -> dict[str, Any]:
    return {"id": "q", "method": "sampling/createMessage", "params": SAMPLE}


def write(*messages: dict[str, Any]) -> None:
    """Write all messages at once: the gate reads them before it does anything else."""
    sys.stdout.write("".join(json.dumps({"jsonrpc": "2.0", **frame}) + "\n" for frame in messages))
    sys.stdout.flush()


def news(size: int) -> dict[str, Any]:
    return {"method": "notifications/message", "params": {"level": "info", "data": "x" * size}}


def call(id: Any, tool: str) -> None:
    if tool.startswith("tell-"):  # this many notifications of this many bytes, then the answer
        _, count, size = tool.split("-")
        write(*[news(int(size))] * int(count), answer(id, "done"))
    elif tool == "hold":
        held.append(id)
    elif tool == "count":
        write(answer(id, f"{len(held)} held"))
    elif tool == "ask":
        asked.append(id)
        write(question())
    elif tool == "ask_and_end_the_held_call":
        asked.append(id)
        write(question(), answer(held.pop(), "done"))
    elif tool == "ask_after_the_end":
        write(answer(id, "done"), question())


for line in sys.stdin:
    said = json.loads(line)
    if said.get("method") == "initialize":
        info = {"name": "late", "version": "1"}
        write(
            {
                "id": said["id"],
                "result": {
                    "protocolVersion": said["params"]["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": info,
                },
            }
        )
    elif said.get("method") == "tools/call":
        call(said["id"], said["params"]["name"])
    elif said.get("id") == "q":
        text = "answered" if "result" in said else "refused"
        write(*[answer(id, text) for id in (*asked, *held)])
        asked.clear()
        held.clear()
