"""A stdio server that writes to stderr at its start, and as much as a call of its tool requests."""

import json
import sys
from typing import Any

print("noisy: started", file=sys.stderr, flush=True)
print('{"event": "its own", "level": "error"}', file=sys.stderr, flush=True)
sys.stderr.buffer.write(b"\xff\xfe \x1b[31mred\n\n" + b"x" * 3000 + b"\n")
sys.stderr.flush()
for line in sys.stdin:
    frame = json.loads(line)
    if "id" not in frame:
        continue
    if frame["method"] == "initialize":
        result: dict[str, Any] = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "noisy", "version": "1"},
        }
    else:
        sys.stderr.write("flood\n" * frame["params"].get("arguments", {}).get("flood", 0))
        sys.stderr.flush()
        result = {"content": [{"type": "text", "text": "done"}]}
    print(json.dumps({"jsonrpc": "2.0", "id": frame["id"], "result": result}), flush=True)
print("noisy: last words", file=sys.stderr, flush=True)
