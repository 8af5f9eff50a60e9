"""Bare stdio MCP server for both eras, as fast as Python allows: it does not parse calls that have the form of our
client's.

It is not a model of a server. It is the other end of every lap, so its own time must be small and the same behind every
variant.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Final

OURS: Final = re.compile(
    rb'\{"jsonrpc":"2\.0","id":(\d+),"method":"tools/call","params":\{"name":"echo","arguments":\{"reply":(\d+),'
)
TOOL: Final = b'{"name":"echo","inputSchema":{"type":"object","properties":{"reply":{"type":"integer"},"text":{"type":"string"}}}}'  # noqa: E501


DISCOVER: Final = b'{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}'  # noqa: E501


def _reply(size: int) -> bytes:
    """A result for both eras: legacy clients ignore the members that they do not know."""
    return b'{"resultType":"complete","content":[{"type":"text","text":"' + b"x" * size + b'"}]}'


def _result(method: str, params: dict[str, object]) -> bytes:
    if method == "server/discover":
        return DISCOVER
    if method == "initialize":
        version = json.dumps(params.get("protocolVersion", "2025-11-25")).encode()
        return (
            b'{"protocolVersion":'
            + version
            + b',"capabilities":{"tools":{}},"serverInfo":{"name":"bare","version":"1"}}'
        )
    if method == "tools/list":
        return b'{"tools":[' + TOOL + b"]}"
    if method == "tools/call":
        arguments = params["arguments"]
        assert isinstance(arguments, dict)
        return _reply(int(arguments["reply"]))
    return b"{}"


def serve() -> None:
    """Answer requests until the end of the input."""
    replies: dict[int, bytes] = {}
    out = sys.stdout.buffer
    for line in open(0, "rb", buffering=1 << 20):  # noqa: SIM115  the default of 8 KiB makes a large frame slow
        quick = OURS.match(line)
        if quick is not None:
            size = int(quick[2])
            id, result = quick[1], replies.get(size) or replies.setdefault(size, _reply(size))
        else:
            frame = json.loads(line)
            if "id" not in frame or "method" not in frame:
                continue
            id, result = json.dumps(frame["id"]).encode(), _result(frame["method"], frame.get("params") or {})
        out.write(b'{"jsonrpc":"2.0","id":' + id + b',"result":')
        out.write(result)
        out.write(b"}\n")
        out.flush()


if __name__ == "__main__":
    serve()
