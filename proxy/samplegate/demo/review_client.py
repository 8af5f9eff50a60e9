"""One call through the gate, in a process of its own: `python -m samplegate.demo.review_client URL ERA TOOL ARGUMENTS`. Knows nothing of reviews.

A real MCP client that declares neither sampling nor elicitation. Prints the tool's result, or why there is none, as one line of JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final

import anyio
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, TextContent

from samplegate.demo.client import MODES, Era

PATIENCE: Final = 1_800.0
"""Seconds: people take their time, and whoever started this ends it."""


async def _call(url: str, era: Era, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    http = httpx2.AsyncClient(timeout=httpx2.Timeout(30.0, read=PATIENCE))
    async with http, Client(streamable_http_client(url, http_client=http), mode=MODES[era]) as client:
        try:
            await client.list_tools()  # the SDK checks structuredContent only against a tool that it has seen listed
            return _seen(await client.call_tool(tool, arguments))
        except MCPError as problem:
            return {"failure": str(problem)}


def _seen(result: CallToolResult) -> dict[str, Any]:
    if result.is_error:
        return {"failure": " ".join(block.text for block in result.content if isinstance(block, TextContent))}
    return {"result": result.structured_content}


if __name__ == "__main__":
    url, era, tool, arguments = sys.argv[1:]
    print(json.dumps(anyio.run(_call, url, "legacy" if era == "legacy" else "modern", tool, json.loads(arguments))))
