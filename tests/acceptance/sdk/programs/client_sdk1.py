"""A client on the Python SDK 1.30, run in the environment sdk1. sessions.py reads its scenarios.

`tests/acceptance/sdk/peers.py` describes a scenario and its report.
"""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import anyio.to_thread
import sessions
from anyio.abc import TaskGroup
from mcp import ClientSession, McpError, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from storm import Storm

scenario: dict[str, Any] = {}
"""Of the session under way."""
seen: dict[str, Any] = {}
"""In the session under way."""


async def sample(
    _context: Any, params: types.CreateMessageRequestParams
) -> types.CreateMessageResult | types.ErrorData:
    seen["asked"].append(
        {"kind": "sampling", "params": params.model_dump(mode="json", by_alias=True, exclude_none=True)}
    )
    if scenario.get("refuse"):
        return types.ErrorData(code=-1, message="User rejected sampling request")
    content = types.TextContent(type="text", text="from the client")
    return types.CreateMessageResult(role="assistant", content=content, model="client-model", stopReason="endTurn")


async def elicit(_context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    seen["asked"].append(
        {"kind": "elicitation", "params": params.model_dump(mode="json", by_alias=True, exclude_none=True)}
    )
    if scenario.get("refuse"):
        return types.ElicitResult(action="decline")
    if getattr(params, "mode", "form") == "url":
        return types.ElicitResult(action="accept")
    return types.ElicitResult(
        action="accept", content=scenario.get("content", {"confirm": True, "reason": "from the client"})
    )


async def list_roots(_context: Any) -> types.ListRootsResult:
    seen["asked"].append({"kind": "roots"})
    return types.ListRootsResult(roots=[types.Root(uri="file:///srv/project", name="project")])


async def logged(params: types.LoggingMessageNotificationParams) -> None:
    seen["logs"].append(params.data)


async def told(message: Any) -> None:
    if isinstance(message, types.ServerNotification):
        seen["notifications"].append(message.root.method)


async def progressed(progress: float, total: float | None, message: str | None) -> None:
    seen["progress"].append([progress, total, message])


def plain(result: types.CallToolResult) -> dict[str, Any]:
    text = "".join(block.text for block in result.content if block.type == "text")
    return {"error": bool(result.isError), **({"text": text} if len(text) < 2000 else {"length": len(text)})}


async def cancel(session: ClientSession, calls: TaskGroup, step: dict[str, Any]) -> dict[str, Any]:
    """Call a tool, wait for the first progress (or a line on stdin) and cancel the call on the wire.

    Servers may answer a cancelled call or not. Its task is not cancelled: it belongs to ``calls``, which end with the
    session. An answer that arrives while its task is being cancelled would silently end the session's receive loop
    (mcp 1.x, shared/session.py).
    """
    request_id = session._request_id
    waiting = anyio.Event()

    async def first(progress: float, total: float | None, message: str | None) -> None:
        await progressed(progress, total, message)
        waiting.set()

    async def call() -> None:
        with suppress(McpError):
            await session.call_tool(step["name"], step.get("arguments", {}), progress_callback=first)

    calls.start_soon(call)
    await (anyio.to_thread.run_sync(sys.stdin.readline) if step.get("when") == "told" else waiting.wait())
    params = types.CancelledNotificationParams(requestId=request_id, reason="taken back")
    await session.send_notification(types.ClientNotification(types.CancelledNotification(params=params)))
    await session.send_ping()
    return {"cancelled": True}


async def do(session: ClientSession, calls: TaskGroup, step: dict[str, Any]) -> Any:
    match step["do"]:
        case "tools":
            return sorted(tool.name for tool in (await session.list_tools()).tools)
        case "ping":
            await session.send_ping()
            return "pong"
        case "call":
            return plain(await session.call_tool(step["name"], step.get("arguments", {}), progress_callback=progressed))
        case "cancel":
            return await cancel(session, calls, step)
        case "resource":
            return (await session.read_resource(step["uri"])).contents[0].text
        case "prompt":
            return (await session.get_prompt(step["name"], step.get("arguments", {}))).messages[0].content.text
        case "storm":
            return await Storm(session.call_tool, plain, McpError, seen, step).run()
        case "hang":
            print(json.dumps({"hanging": True}), flush=True)
            await anyio.sleep(3600)
    raise ValueError(step["do"])


@asynccontextmanager
async def connected(at: list[str]) -> AsyncIterator[tuple[Any, Any]]:
    if at[0].startswith("http://"):
        async with streamable_http_client(at[0]) as (read, write, _session_id):
            yield read, write
    else:
        async with stdio_client(StdioServerParameters(command=at[0], args=at[1:])) as (read, write):
            yield read, write


async def session(wanted: dict[str, Any], at: list[str]) -> dict[str, Any]:
    scenario.clear()
    scenario.update(wanted)
    seen.clear()
    seen.update(asked=[], progress=[], logs=[], notifications=[], results=[])
    declare = scenario.get("declare", [])
    callbacks: dict[str, Any] = {"logging_callback": logged, "message_handler": told}
    if "sampling" in declare:
        callbacks["sampling_callback"] = sample
    if "elicitation" in declare or "url" in declare:
        callbacks["elicitation_callback"] = elicit
    if "roots" in declare:
        callbacks["list_roots_callback"] = list_roots
    async with (
        connected(at) as (read, write),
        ClientSession(read, write, **callbacks) as client,
        anyio.create_task_group() as calls,
    ):
        opened = await client.initialize()
        seen["revision"] = opened.protocolVersion
        seen["server"] = opened.serverInfo.name
        for step in scenario["steps"]:
            try:
                seen["results"].append(await do(client, calls, step))
            except McpError as error:
                failed = {"code": error.error.code, "message": error.error.message, "data": error.error.data}
                seen["results"].append({"failed": failed})
        calls.cancel_scope.cancel()
    return seen


if __name__ == "__main__":
    sessions.run(session)
