"""Legacy stdio MCP server whose tool asks for a form. Its result has the moments at which it asked and got the answer.

The moments are nanoseconds of the system's monotonic clock, which all processes of the machine share.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from typing import Any, Final

INITIALIZED: Final = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "form", "version": "1"},
}
SCHEMA: Final = {"type": "object", "properties": {"confirm": {"type": "boolean"}}, "required": ["confirm"]}


def _write(**frame: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **frame}) + "\n")
    sys.stdout.flush()


def _read() -> dict[str, Any]:
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    frame: dict[str, Any] = json.loads(line)
    return frame


def _form(number: int) -> dict[str, Any]:
    """Ask for a form that differs from the others."""
    asked = time.monotonic_ns()
    id = f"form-{number}"
    _write(id=id, method="elicitation/create", params={"message": f"form {number}", "requestedSchema": SCHEMA})
    while (answer := _read()).get("id") != id:
        pass
    if answer.get("result", {}).get("action") != "accept":
        sys.exit(f"a form was not answered: {answer}")
    return {"asked": asked, "answered": time.monotonic_ns()}


def serve() -> None:
    """Answer requests until the end of the input."""
    numbers = itertools.count()
    while True:
        frame = _read()
        if "id" not in frame or "method" not in frame:
            continue
        result: dict[str, Any] = {}
        if frame["method"] == "initialize":
            result = INITIALIZED
        elif frame["method"] == "tools/call":
            result = {"content": [], "structuredContent": _form(next(numbers))}
        _write(id=frame["id"], result=result)


if __name__ == "__main__":
    serve()
