"""A client on the Python SDK 2.3, either era; how it is told what to do stands in sessions.py. Runs in the
environment sdk2.

What the scenario says and what is printed stands in `tests/acceptance/sdk/peers.py`.
"""

import json
import sys
import warnings
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
import sessions
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters
from storm import Storm

warnings.simplefilter("ignore")  # sampling is deprecated, and is what we are here for
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
    return types.CreateMessageResult(role="assistant", content=content, model="client-model", stop_reason="endTurn")


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
    if not isinstance(message, Exception):
        seen["notifications"].append(message.method)


async def progressed(progress: float, total: float | None, message: str | None) -> None:
    seen["progress"].append([progress, total, message])


def plain(result: types.CallToolResult) -> dict[str, Any]:
    text = "".join(block.text for block in result.content if block.type == "text")
    return {"error": bool(result.is_error), **({"text": text} if len(text) < 2000 else {"length": len(text)})}


async def cancel(client: Client, step: dict[str, Any]) -> dict[str, Any]:
    """Calls, waits for the first progress (or a line on stdin), takes the call back; the session goes on."""
    async with anyio.create_task_group() as group:

        async def first(progress: float, total: float | None, message: str | None) -> None:
            await progressed(progress, total, message)
            if step.get("when") != "told":
                group.cancel_scope.cancel()

        async def told_to() -> None:
            await anyio.to_thread.run_sync(sys.stdin.readline)
            group.cancel_scope.cancel()

        if step.get("when") == "told":
            group.start_soon(told_to)
        return plain(await client.call_tool(step["name"], step.get("arguments", {}), progress_callback=first))
    return {"cancelled": True}


async def do(client: Client, step: dict[str, Any]) -> Any:
    match step["do"]:
        case "tools":
            return sorted(tool.name for tool in (await client.list_tools()).tools)
        case "ping":
            await client.send_ping()
            return "pong"
        case "call":
            return plain(await client.call_tool(step["name"], step.get("arguments", {}), progress_callback=progressed))
        case "cancel":
            return await cancel(client, step)
        case "resource":
            return (await client.read_resource(step["uri"])).contents[0].text
        case "prompt":
            return (await client.get_prompt(step["name"], step.get("arguments", {}))).messages[0].content.text
        case "storm":
            return await Storm(client.call_tool, plain, MCPError, seen, step).run()
        case "hang":
            print(json.dumps({"hanging": True}), flush=True)
            await anyio.sleep(3600)
    raise ValueError(step["do"])


async def session(wanted: dict[str, Any], at: list[str]) -> dict[str, Any]:
    scenario.clear()
    scenario.update(wanted)
    seen.clear()
    seen.update(asked=[], progress=[], logs=[], notifications=[], results=[])
    declare = scenario.get("declare", [])
    options: dict[str, Any] = {
        "logging_callback": logged,
        "message_handler": told,
        "mode": scenario.get("mode", "auto"),
        "log_level": "info",
    }
    if "sampling" in declare:
        options["sampling_callback"] = sample
    if "elicitation" in declare or "url" in declare:
        options["elicitation_callback"] = elicit
    if "roots" in declare:
        options["list_roots_callback"] = list_roots
    over_http = at[0].startswith("http://")
    async with Client(at[0] if over_http else StdioServerParameters(command=at[0], args=at[1:]), **options) as client:
        seen["revision"] = client.session.protocol_version
        for step in scenario["steps"]:
            try:
                seen["results"].append(await do(client, step))
            except MCPError as error:
                seen["results"].append(
                    {"failed": {"code": error.error.code, "message": error.error.message, "data": error.error.data}}
                )
    return seen


if __name__ == "__main__":
    sessions.run(session)
