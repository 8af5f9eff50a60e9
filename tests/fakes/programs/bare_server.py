"""A stdio server without an SDK. The arguments of a call select what its tool does."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any


def write(frame: dict[str, Any]) -> None:
    """Write a line to the client."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **frame}, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def read() -> dict[str, Any]:
    """Read the next line. The process ends with its input."""
    line = sys.stdin.readline()
    if not line:
        sys.exit(int(os.environ.get("EXIT_AT_EOF", "0")))
    frame: dict[str, Any] = json.loads(line)
    return frame


def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Push a request and wait for its answer."""
    write({"id": "q1", "method": method, "params": params})
    while (answer := read()).get("id") != "q1":
        pass
    return answer


def call(id: Any, arguments: dict[str, Any]) -> None:
    """The tool: ``ask`` pushes a request and returns the answer, ``exit`` ends the process, ``repeat`` returns a text
    of that length."""
    if "exit" in arguments:
        sys.exit(arguments["exit"])
    if "flood" in arguments:
        for number in range(arguments["flood"]):
            write({"method": "notifications/message", "params": {"level": "info", "data": f"{number}:" + "x" * 10_000}})
        print("server: gone", file=sys.stderr, flush=True)
        sys.exit(0)
    if "ask" in arguments:
        write({"id": id, "result": {"content": [], "structuredContent": ask(**arguments["ask"])}})
    elif "environment" in arguments:
        write({"id": id, "result": {"content": [], "structuredContent": dict(os.environ)}})
    else:
        write({"id": id, "result": {"content": [{"type": "text", "text": "x" * arguments.get("repeat", 1)}]}})


def main() -> None:
    """Answer requests until the input ends."""
    print("Listening on stdio", flush=True)  # a banner, as real servers print one
    print("server: started", file=sys.stderr, flush=True)
    if "OUTLIVE" in os.environ:
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        while True:
            frame = read()
            if frame.get("method") == "initialize":
                capabilities = frame["params"]["capabilities"]
                version = frame["params"]["protocolVersion"]
                write(
                    {
                        "id": frame["id"],
                        "result": {"protocolVersion": version, "capabilities": {}, "seen": capabilities},
                    }
                )
            elif frame.get("method") == "tools/call":
                call(frame["id"], frame["params"].get("arguments", {}))
    finally:
        while "OUTLIVE" in os.environ:
            time.sleep(60)


if __name__ == "__main__":
    main()
