"""A server on the Python SDK 2.3, both eras, that asks by requests alone, which 2026-07-28 does not have. Runs in the
environment sdk2."""

import warnings

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import SamplingMessage, TextContent
from pydantic import BaseModel

warnings.simplefilter("ignore")  # sampling is deprecated, and is what we are here for
server = MCPServer("counterpart-sdk2-pushing", log_level="CRITICAL")


class Confirmation(BaseModel):
    confirm: bool
    reason: str


@server.tool()
async def classify(text: str, ctx: Context) -> str:
    """Asks a model."""
    messages = [SamplingMessage(role="user", content=TextContent(type="text", text=f"classify: {text}"))]
    result = await ctx.session.create_message(messages, max_tokens=200)
    return f"{result.model}|{result.stop_reason}|{result.content.text}"


@server.tool()
async def confirm(ctx: Context) -> str:
    """Asks a person."""
    result = await ctx.elicit("Delete 3 accounts?", Confirmation)
    return result.action + (f"|{result.data.confirm}|{result.data.reason}" if result.action == "accept" else "")


if __name__ == "__main__":
    server.run("stdio")
