"""A server that reads as the Python SDKs do: in text mode, in which a carriage return also ends a line.
``text_reader.py FILE [WRITE]``

It keeps every line that it read in FILE, answers each that is a request, and writes WRITE, a file of bytes, after its
first call.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(seen: Path, write: Path | None) -> None:
    with seen.open("a", encoding="utf-8") as kept:
        for line in sys.stdin:
            kept.write(json.dumps(line) + "\n")
            kept.flush()
            try:
                frame = json.loads(line)
            except ValueError:
                continue
            if "method" not in frame or "id" not in frame:
                continue
            if frame["method"] == "tools/call" and write is not None:
                sys.stdout.buffer.write(write.read_bytes())
            result = {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "serverInfo": {"name": "text", "version": "1"},
            }
            answer = {
                "jsonrpc": "2.0",
                "id": frame["id"],
                "result": result if frame["method"] == "initialize" else {"content": []},
            }
            sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
