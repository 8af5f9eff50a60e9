"""A server on fastmcp 4.1 with fastmcp-tasks, of 2026-07-28 and older: `server_fastmcp.py [--http]`. Its tools ask by
rounds, which become requests in the task where the call becomes one. Over HTTP it says where on stderr. Runs in the
environment fastmcp.
"""

import os
import socket
import sys
from datetime import timedelta

os.environ |= {
    "FASTMCP_LOG_ENABLED": "false",
    "FASTMCP_SHOW_SERVER_BANNER": "false",
    "FASTMCP_CHECK_FOR_UPDATES": "off",
}

import anyio
import uvicorn
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.utilities.tasks import TaskConfig
from fastmcp_tasks import TasksExtension
from mcp_types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    InputRequiredResult,
    SamplingMessage,
    TextContent,
)

FORM = {
    "type": "object",
    "properties": {"confirm": {"type": "boolean"}, "reason": {"type": "string", "minLength": 1}},
    "required": ["confirm", "reason"],
}
SOON = timedelta(milliseconds=50)
OPTIONAL, REQUIRED = TaskConfig("optional", SOON), TaskConfig("required", SOON)
server = FastMCP("counterpart-fastmcp")
server.add_extension(TasksExtension(url="memory://", minimum_check_interval=timedelta(milliseconds=20)))


def sampling(text: str) -> CreateMessageRequest:
    messages = [SamplingMessage(role="user", content=TextContent(type="text", text=text))]
    return CreateMessageRequest(params=CreateMessageRequestParams(messages=messages, max_tokens=200))


def form(message: str) -> ElicitRequest:
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=FORM))


def said(result) -> str:
    """One line for a sampling result or an elicitation result."""
    if isinstance(result, CreateMessageResult):
        return f"{result.model}|{result.stop_reason}|{result.content.text}"
    return result.action + (f"|{result.content['confirm']}|{result.content['reason']}" if result.content else "")


def asking(ctx: Context, **requests) -> InputRequiredResult | str:
    """The requests, or their answers in one line."""
    answers = ctx.input_responses or {}
    if requests.keys() <= answers.keys():
        return " ".join(said(answers[key]) for key in requests)
    return InputRequiredResult(input_requests=requests)


@server.tool
async def add(a: int, b: int) -> int:
    """Never a task."""
    return a + b


@server.tool(task=REQUIRED)
async def work() -> str:
    """A task that asks nothing."""
    return "worked"


@server.tool(task=OPTIONAL)
async def confirm(ctx: Context) -> InputRequiredResult | str:
    """Sends a form."""
    return asking(ctx, form=form("Delete 3 accounts?"))


@server.tool(task=OPTIONAL)
async def classify(text: str, ctx: Context) -> InputRequiredResult | str:
    """Sends a sampling request."""
    return asking(ctx, sample=sampling(f"classify: {text}"))


@server.tool(task=OPTIONAL)
async def both(ctx: Context) -> InputRequiredResult | str:
    """Sends a form and a sampling request at once."""
    return asking(ctx, form=form("Delete both?"), sample=sampling("both"))


@server.tool(task=OPTIONAL)
async def twice(ctx: Context) -> InputRequiredResult | str:
    """Sends a form, and then another."""
    if ctx.request_state is None:
        return InputRequiredResult(input_requests={"form": form("The first?")}, request_state="1")
    if ctx.request_state == "1":
        first = said((ctx.input_responses or {})["form"])
        return InputRequiredResult(input_requests={"form": form("The second?")}, request_state=first)
    return f"{ctx.request_state} {said((ctx.input_responses or {})['form'])}"


@server.tool(task=OPTIONAL)
async def fails() -> str:
    """Fails as a tool."""
    raise ToolError("the tool failed")


@server.tool(task=OPTIONAL)
async def hangs() -> str:
    """Ends only if it is cancelled."""
    await anyio.sleep(3600)
    return "never"


if __name__ == "__main__":
    if "--http" not in sys.argv:
        server.run("stdio", show_banner=False)
        sys.exit()
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}/mcp", file=sys.stderr, flush=True)
    uvicorn.Server(uvicorn.Config(server.http_app(), log_level="error")).run(sockets=[listener])
