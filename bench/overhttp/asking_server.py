"""Stdio server for 2026-07-28 whose tool asks for one sample and returns it. It uses little time of its own.

Each call asks something else, so no two rounds are alike. If a sample is refused, the process exits, because a lost
round is not a result.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final

DISCOVER: Final = {
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}},
    "ttlMs": 0,
    "cacheScope": "private",
}


def _result(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "server/discover":
        return DISCOVER
    if method != "tools/call":
        return {}
    number = params["arguments"]["number"]
    if "inputResponses" not in params:
        message = {"role": "user", "content": {"type": "text", "text": f"number {number}"}}
        asked = {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": 20}}
        return {"resultType": "input_required", "inputRequests": {"sample": asked}, "requestState": str(number)}
    if params["requestState"] != str(number):
        sys.exit(f"another round's state came back: {params['requestState']!r} for {number}")
    content = params["inputResponses"]["sample"]["content"]
    return {"content": content if isinstance(content, list) else [content]}


def serve() -> None:
    """Answer requests until the end of the input."""
    for line in open(0, "rb", buffering=1 << 16):  # noqa: SIM115
        frame = json.loads(line)
        if "id" not in frame or "method" not in frame:
            continue
        result = {"resultType": "complete", **_result(frame["method"], frame.get("params") or {})}
        sys.stdout.buffer.write(json.dumps({"jsonrpc": "2.0", "id": frame["id"], "result": result}).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    serve()
