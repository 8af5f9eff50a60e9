"""A server on the Python SDK that passes the official suite without the gate: `python -m tests.conformance.known_good
stdio|http [legacy|modern]`.

With an era it speaks that one only. It is the other side of the gate in these tests, never a part of the product. Over
HTTP it says where it listens on stderr. Runs in the environment sdk2, from the repository's top folder.
"""

from __future__ import annotations

import logging
import socket
import sys
import warnings
from typing import Final

import anyio
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    JSONRPCMessage,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
)
from mcp_types import Tool as ListedTool
from starlette.types import ASGIApp

from tests.conformance.known_good import asking, eras, lists, tasks, telling
from tests.conformance.known_good.lists import Context
from tests.conformance.known_good.offers import TOOLS, Call, Reply

NAME = "known-good"
RETRY = 100  # milliseconds a client waits before it comes back to a stream


class Events(EventStore):
    """The events of each stream, for clients that reconnect. Kept for the life of the process, which is short."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        self.sent.append((stream_id, message))
        return str(len(self.sent))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        last = int(last_event_id) if last_event_id.isdecimal() else 0
        if not 1 <= last <= len(self.sent):
            return None
        stream = self.sent[last - 1][0]
        for number, (other, message) in enumerate(self.sent[last:], last + 1):
            if other == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


async def list_tools(_context: Context, _params: PaginatedRequestParams | None) -> ListToolsResult:
    return ListToolsResult(
        tools=[
            ListedTool(name=name, description=tool.description, input_schema=tool.schema)
            for name, tool in OFFERED.items()
        ]
    )


async def call_tool(context: Context, params: CallToolRequestParams) -> Reply:
    if (tool := TOOLS.get(params.name)) is None:
        raise MCPError(INVALID_PARAMS, f"no such tool: {params.name}")
    if missing := [name for name in tool.schema.get("required", []) if name not in (params.arguments or {})]:
        return CallToolResult(content=[TextContent(type="text", text=f"missing: {', '.join(missing)}")], is_error=True)
    return await tool.run(Call(context, params.arguments or {}, params.input_responses or {}, params.request_state))


# All three modules enter their tools as they are imported. The suite takes the first tool of the list for calls where
# any will do.
OFFERED: Final = {
    name: TOOLS[name]
    for module in (telling, asking, tasks)
    for name in TOOLS
    if TOOLS[name].run.__module__ == module.__name__
}


def built() -> Server[dict[str, object]]:
    server: Server[dict[str, object]] = Server(
        NAME,
        version="1.0.0",
        get_tool_input_schema=lambda name: TOOLS[name].schema if name in TOOLS else None,
        on_list_tools=list_tools,
        on_list_resources=lists.list_resources,
        on_list_resource_templates=lists.list_templates,
        on_read_resource=lists.read_resource,
        on_subscribe_resource=lists.nothing,
        on_unsubscribe_resource=lists.nothing,
        on_subscriptions_listen=tasks.listen,
        on_list_prompts=lists.list_prompts,
        on_get_prompt=lists.get_prompt,
        on_completion=lists.complete,
        on_set_logging_level=lists.nothing,
    )
    server.add_request_handler(
        "tools/call", CallToolRequestParams, call_tool
    )  # as it is typed, `on_call_tool` has no tasks
    tasks.offer(server)
    server.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=NAME))
    return server


async def over_stdio() -> None:
    server = built()
    async with stdio_server() as (read, write):
        # what is said of them after a handshake
        changes = NotificationOptions(prompts_changed=True, tools_changed=True)
        await server.run(read, write, server.create_initialization_options(changes))


def over_http(era: str | None) -> None:
    import uvicorn  # not for stdio: the suite starts that once for each scenario

    app: ASGIApp = built().streamable_http_app(event_store=Events(), retry_interval=RETRY)
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}/mcp", file=sys.stderr, flush=True)
    uvicorn.Server(uvicorn.Config(eras.on_http(era, app) if era else app, log_level="error")).run(sockets=[listener])


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # sampling is deprecated, and is what we are here for
    logging.basicConfig(level=logging.CRITICAL)
    only = sys.argv[2] if len(sys.argv) > 2 else None
    if sys.argv[1] == "http":
        over_http(only)
    else:
        if only:
            eras.on_stdin(only)
        anyio.run(over_stdio)
