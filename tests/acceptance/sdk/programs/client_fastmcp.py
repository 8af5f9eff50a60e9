"""A client on fastmcp 4.1 that declares tasks, because it imports fastmcp_tasks; how it is told what to do stands in
sessions.py. Runs in the environment fastmcp.

What the scenario says and what is printed stands in `tests/acceptance/sdk/peers.py`. `task` starts a task, prints a
line, and follows the task to its result. `cancel_task` starts a task, cancels it and waits for its end.
"""

import json
import os
from typing import Any

os.environ |= {"FASTMCP_LOG_ENABLED": "false", "FASTMCP_CHECK_FOR_UPDATES": "off"}

import fastmcp_tasks
import mcp_types as types
import sessions
from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StdioTransport
from fastmcp.exceptions import ToolError
from mcp.shared.exceptions import MCPError


def plain(result: Any) -> dict[str, Any]:
    text = "".join(block.text for block in result.content if block.type == "text")
    return {"error": bool(result.is_error), "text": text}


async def do(client: Client[Any], step: dict[str, Any], progress: list[Any]) -> Any:
    match step["do"]:
        case "tools":
            return sorted(tool.name for tool in await client.list_tools())
        case "call":
            return plain(await client.call_tool(step["name"], step.get("arguments", {}), raise_on_error=False))
        case "task":
            task = await fastmcp_tasks.call_tool_task(
                client, step["name"], step.get("arguments", {}), raise_on_error=False
            )
            print(json.dumps({"task": step["name"]}), flush=True)
            result = plain(await task.result())
            progress.append(["task", task.create_result.status, (await task.status()).status])
            return result
        case "cancel_task":
            task = await fastmcp_tasks.call_tool_task(client, step["name"], step.get("arguments", {}))
            await task.cancel()
            return {"status": (await task.wait(timeout=20)).status}
    raise ValueError(step["do"])


async def session(scenario: dict[str, Any], at: list[str]) -> dict[str, Any]:
    seen: dict[str, Any] = {"asked": [], "progress": [], "logs": [], "notifications": [], "results": []}

    async def elicit(_message: str, _type: Any, params: types.ElicitRequestParams, _context: Any) -> Any:
        asked = params.model_dump(mode="json", by_alias=True, exclude_none=True)
        seen["asked"].append({"kind": "elicitation", "params": asked})
        if scenario.get("refuse"):
            return ElicitResult(action="decline")
        return ElicitResult(
            action="accept", content=scenario.get("content", {"confirm": True, "reason": "from the client"})
        )

    async def sample(_messages: Any, params: types.CreateMessageRequestParams, _context: Any) -> str:
        asked = params.model_dump(mode="json", by_alias=True, exclude_none=True)
        seen["asked"].append({"kind": "sampling", "params": asked})
        return "from the client"

    declare = scenario.get("declare", [])
    place: Any = at[0] if at[0].startswith("http://") else StdioTransport(at[0], at[1:], keep_alive=False)
    options: dict[str, Any] = {
        "mode": scenario.get("mode", "auto"),
        "elicitation_handler": elicit if "elicitation" in declare else None,
        "sampling_handler": sample if "sampling" in declare else None,
    }
    async with Client(place, **options) as client:
        seen["revision"] = client.session.protocol_version
        for step in scenario["steps"]:
            try:
                seen["results"].append(await do(client, step, seen["progress"]))
            except MCPError as error:
                failed = {"code": error.error.code, "message": error.error.message, "data": error.error.data}
                seen["results"].append({"failed": failed})
            except ToolError as error:  # fastmcp's own refusal to go on, not the server's
                seen["results"].append({"stopped": str(error)})
    return seen


if __name__ == "__main__":
    sessions.run(session)
