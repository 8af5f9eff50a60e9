"""A server on stdio that speaks 2026-07-28 alone: `modern_only.py COMMAND...` starts a server of both eras, and answers
`initialize` in its place."""

import json
import subprocess
import sys
from threading import Lock, Thread
from typing import IO

REFUSAL = {
    "code": -32022,
    "message": "Unsupported protocol version",
    "data": {"supported": ["2026-07-28"], "requested": None},
}
writing = Lock()


def write(line: bytes) -> None:
    with writing:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()


def relay(source: IO[bytes]) -> None:
    for line in source:
        write(line)


if __name__ == "__main__":
    with subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        out = Thread(target=relay, args=(server.stdout,))
        out.start()
        for line in sys.stdin.buffer:
            frame = json.loads(line)
            if frame.get("method") == "initialize":
                write(json.dumps({"jsonrpc": "2.0", "id": frame["id"], "error": REFUSAL}).encode() + b"\n")
                continue
            server.stdin.write(line)
            server.stdin.flush()
        server.stdin.close()
        out.join()
