"""A client on the Python SDK 2.3, either era: `client_sdk2.py SCENARIO COMMAND...|URL` prints one JSON line of what it saw. In the environment sdk2.

What the scenario says and what is printed stands in `tests/real/peers.py`.
"""

import itertools
import json
import sys
import warnings
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters

warnings.simplefilter("ignore")  # sampling is deprecated, and is what we are here for
scenario = json.loads(sys.argv[1])
declare = scenario.get("declare", [])
seen: dict[str, Any] = {"asked": [], "progress": [], "logs": [], "notifications": [], "results": []}


async def sample(_context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult | types.ErrorData:
    seen["asked"].append({"kind": "sampling", "params": params.model_dump(mode="json", by_alias=True, exclude_none=True)})
    if scenario.get("refuse"):
        return types.ErrorData(code=-1, message="User rejected sampling request")
    content = types.TextContent(type="text", text="from the client")
    return types.CreateMessageResult(role="assistant", content=content, model="client-model", stop_reason="endTurn")


async def elicit(_context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    seen["asked"].append({"kind": "elicitation", "params": params.model_dump(mode="json", by_alias=True, exclude_none=True)})
    if scenario.get("refuse"):
        return types.ElicitResult(action="decline")
    if getattr(params, "mode", "form") == "url":
        return types.ElicitResult(action="accept")
    return types.ElicitResult(action="accept", content=scenario.get("content", {"confirm": True, "reason": "from the client"}))


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


class Storm:
    """Many calls at once for some seconds; every answer must carry its own mark, and every log line must come once."""

    def __init__(self, call: Any, step: dict[str, Any]) -> None:
        self.call, self.step = call, step
        self.calls = 0
        self.wrong: list[str] = []
        self.numbers = itertools.count()

    def fail(self, what: str) -> None:
        if len(self.wrong) < 20:
            self.wrong.append(what)

    async def one(self, which: int, number: int) -> None:
        mark = f"{self.step['mark']}-{number}"
        match which:
            case 0:
                await self.expect("add", {"a": number, "b": 1}, str(number + 1))
            case 1 | 2:
                await self.expect("classify", {"text": mark}, f"seen {mark}.")
            case 3:
                await self.expect("confirm", {}, "accept|True|from the client")
            case 4:
                steps: list[float] = []

                async def progress(value: float, _total: float | None, _message: str | None) -> None:
                    steps.append(value)

                await self.expect("count", {"to": 3}, "3", progress)
                if [value for value in steps if value == int(value)] != [1, 2, 3] or steps != sorted(set(steps)):
                    self.fail(f"{mark}: progress {steps}")  # in between may come steps of the gate, of less than one
            case _:
                await self.expect("tell", {"mark": mark, "times": 3}, mark)

    async def expect(self, name: str, arguments: dict[str, Any], says: str, progress: Any = None) -> None:
        result = plain(await self.call(name, arguments, progress_callback=progress))
        self.calls += 1
        if result["error"] or says not in result["text"]:
            self.fail(f"{name} {arguments}: {result}")

    async def worker(self, until: float) -> None:
        while anyio.current_time() < until:
            number = next(self.numbers)
            try:
                with anyio.fail_after(self.step["patience"]):
                    await self.one(number % 6, number)
            except TimeoutError:
                self.fail(f"call {number} of kind {number % 6} was not answered within {self.step['patience']} s")
            except MCPError as error:
                self.fail(f"call {number} of kind {number % 6}: {error.error.code} {error.error.message}")

    async def run(self) -> dict[str, Any]:
        before = len(seen["logs"])
        async with anyio.create_task_group() as group:
            for _ in range(self.step["at_once"]):
                group.start_soon(self.worker, anyio.current_time() + self.step["seconds"])
        await anyio.sleep(0.5)  # log lines may come after the answer of their call, on a stream of their own
        told = [str(line) for line in seen["logs"][before:] if str(line).startswith(self.step["mark"])]
        turns: dict[str, list[int]] = {}
        for line in told:
            mark, _, n = line.rpartition(":")
            turns.setdefault(mark, []).append(int(n))
        for mark, order in turns.items():
            if (order if self.step["in_order"] else sorted(order)) != [0, 1, 2]:
                self.fail(f"{mark}: log lines {order}")
        for key in ("logs", "asked", "notifications"):
            seen[key].clear()
        return {"calls": self.calls, "told": len(told), "wrong": self.wrong}


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
            return await Storm(client.call_tool, step).run()
        case "hang":
            print(json.dumps({"hanging": True}), flush=True)
            await anyio.sleep(3600)
    raise ValueError(step["do"])


async def main() -> None:
    options: dict[str, Any] = {"logging_callback": logged, "message_handler": told, "mode": scenario.get("mode", "auto"), "log_level": "info"}
    if "sampling" in declare:
        options["sampling_callback"] = sample
    if "elicitation" in declare or "url" in declare:
        options["elicitation_callback"] = elicit
    if "roots" in declare:
        options["list_roots_callback"] = list_roots
    over_http = sys.argv[2].startswith("http://")
    async with Client(sys.argv[2] if over_http else StdioServerParameters(command=sys.argv[2], args=sys.argv[3:]), **options) as client:
        seen["revision"] = client.session.protocol_version
        for step in scenario["steps"]:
            try:
                seen["results"].append(await do(client, step))
            except MCPError as error:
                seen["results"].append({"failed": {"code": error.error.code, "message": error.error.message, "data": error.error.data}})
    print(json.dumps(seen), flush=True)


if __name__ == "__main__":
    anyio.run(main)
