"""Stdio MCP server with one tool that asks its client for many samples: ``sample {count, at_once}``. It uses little
time of its own. Its result has the nanoseconds of each sample.

If a sample is refused, it exits with a message on stderr, because such a lap is invalid.
"""

from __future__ import annotations

import json
import re
import sys
import time
from typing import Any, Final

TEXT: Final = "Say in one sentence what this change does: " + "- a\n+ b\n" * 40
MAX_TOKENS: Final = 200
ASK: Final = (
    b'{"jsonrpc":"2.0","id":%d,"method":"sampling/createMessage","params":{"messages":[{"role":"user","content":{"type":"text","text":'
    + json.dumps(TEXT).encode()
    + b'}}],"maxTokens":%d}}\n'
)
ID: Final = re.compile(rb'"id": ?(\d+)')
"""The id of an answer. The gate writes it at the beginning of the frame, or at its end."""
INITIALIZED: Final = (
    b'{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"sampling","version":"1"}}'
)


def _say(frame: bytes) -> None:
    sys.stdout.buffer.write(frame)
    sys.stdout.buffer.flush()


def _sample(source: Any, count: int, at_once: int) -> list[int]:
    """Ask, and return the nanoseconds of each sample."""
    since = [0] * count
    took: list[int] = []
    asked = 0

    def ask() -> None:
        nonlocal asked
        since[asked] = time.perf_counter_ns()
        _say(ASK % (asked, MAX_TOKENS))
        asked += 1

    for _ in range(min(count, at_once)):
        ask()
    while len(took) < count:
        line = source.readline()
        if not line:
            sys.exit(0)
        if b'"result"' not in line[:200] and b'"result"' not in line[-200:]:
            if b'"method"' in line[:200]:
                continue
            sys.exit(f"a sample was refused: {line[:300]!r}")
        found = ID.search(line)
        assert found is not None, line[:300]
        took.append(time.perf_counter_ns() - since[int(found[1])])
        if asked < count:
            ask()
    return took


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
            took = _sample(source, arguments["count"], arguments["at_once"])
            result = b'{"content":[],"structuredContent":%s}' % json.dumps({"took": took}).encode()
        _say(b'{"jsonrpc":"2.0","id":' + json.dumps(frame["id"]).encode() + b',"result":' + result + b"}\n")


if __name__ == "__main__":
    serve()
