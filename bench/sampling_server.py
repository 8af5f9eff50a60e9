"""Stdio MCP server with one tool that asks its client for many samples: ``sample {count, at_once}``. It uses little
time of its own.

If a sample is refused, it exits with a message on stderr, because such a lap is invalid.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final

TEXT: Final = "Say in one sentence what this change does: " + "- a\n+ b\n" * 40
MAX_TOKENS: Final = 200
ASK: Final = (
    b'{"jsonrpc":"2.0","id":%d,"method":"sampling/createMessage","params":{"messages":[{"role":"user","content":{"type":"text","text":'
    + json.dumps(TEXT).encode()
    + b'}}],"maxTokens":%d}}\n'
)
INITIALIZED: Final = (
    b'{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"sampling","version":"1"}}'
)


def _say(frame: bytes) -> None:
    sys.stdout.buffer.write(frame)
    sys.stdout.buffer.flush()


def _sample(source: Any, count: int, at_once: int) -> None:
    for id in range(min(count, at_once)):
        _say(ASK % (id, MAX_TOKENS))
    asked = min(count, at_once)
    answered = 0
    while answered < count:
        line = source.readline()
        if not line:
            return
        if b'"result"' not in line[:200] and b'"result"' not in line[-200:]:
            if b'"method"' in line[:200]:
                continue
            sys.exit(f"a sample was refused: {line[:300]!r}")
        answered += 1
        if asked < count:
            _say(ASK % (asked, MAX_TOKENS))
            asked += 1


def serve() -> None:
    """Answer requests until the end of the input."""
    source = open(0, "rb", buffering=1 << 20)  # noqa: SIM115
    while line := source.readline():
        frame = json.loads(line)
        if "id" not in frame or "method" not in frame:
            continue
        result = INITIALIZED
        if frame["method"] == "tools/call":
            arguments = frame["params"]["arguments"]
            _sample(source, arguments["count"], arguments["at_once"])
            result = b'{"content":[]}'
        _say(b'{"jsonrpc":"2.0","id":' + json.dumps(frame["id"]).encode() + b',"result":' + result + b"}\n")


if __name__ == "__main__":
    serve()
