"""The tools that do not ask the client: content of every type, progress, logs, errors, headers, list changes."""

from __future__ import annotations

import anyio
from mcp.server.subscriptions import PromptsListChanged, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp_types import (
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    AudioContent,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    TextContent,
    TextResourceContents,
)

from tests.conformance.known_good.content import PIXEL, SILENCE, WIDE_SCHEMA
from tests.conformance.known_good.offers import BUS, Call, Reply, said, tool

PAUSE = 0.05  # seconds between reports: the suite wants to see them come one by one


@tool("test_simple_text")
async def simple_text(_call: Call) -> Reply:
    """Returns a text."""
    return said("This is a simple text response for testing.")


@tool("test_image_content")
async def image(_call: Call) -> Reply:
    """Returns an image."""
    return CallToolResult(content=[ImageContent(type="image", data=PIXEL, mime_type="image/png")])


@tool("test_audio_content")
async def audio(_call: Call) -> Reply:
    """Returns a sound."""
    return CallToolResult(content=[AudioContent(type="audio", data=SILENCE, mime_type="audio/wav")])


def embedded(uri: str, kind: str, text: str) -> EmbeddedResource:
    return EmbeddedResource(type="resource", resource=TextResourceContents(uri=uri, mime_type=kind, text=text))


@tool("test_embedded_resource")
async def embedded_resource(_call: Call) -> Reply:
    """Returns a resource."""
    return CallToolResult(
        content=[embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")]
    )


@tool("test_multiple_content_types")
async def mixed(_call: Call) -> Reply:
    """Returns a text, an image and a resource."""
    return CallToolResult(
        content=[
            TextContent(type="text", text="Multiple content types test:"),
            ImageContent(type="image", data=PIXEL, mime_type="image/png"),
            embedded("test://mixed-content-resource", "application/json", '{"test": "data", "value": 123}'),
        ]
    )


async def log(call: Call, text: str) -> None:
    await call.context.session.send_log_message("info", text, related_request_id=call.context.request_id)


@tool("test_tool_with_logging")
async def logging(call: Call) -> Reply:
    """Logs three times, with pauses."""
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await log(call, text)
        await anyio.sleep(PAUSE)
    return said("logged")


@tool("test_logging_tool")
async def logs_once(call: Call) -> Reply:
    """Logs once, for clients that requested logs."""
    await log(call, "logged")
    return said("done")


@tool("test_tool_with_progress")
async def progress(call: Call) -> Reply:
    """Reports progress three times, with pauses."""
    for done in (0, 50, 100):
        await call.context.session.report_progress(done, 100, f"Completed step {done} of 100")
        await anyio.sleep(PAUSE)
    return said("done")


@tool("test_error_handling")
async def fails(_call: Call) -> Reply:
    """Always fails."""
    text = "This tool intentionally returns an error for testing"
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)


@tool("test_x_mcp_header", {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}})
async def header(call: Call) -> Reply:
    """Has an argument that is also in a header (SEP-2243)."""
    return said(f"region={call.arguments.get('region')}")


@tool("json_schema_2020_12_tool", WIDE_SCHEMA)
async def wide(_call: Call) -> Reply:
    """Exists for its schema."""
    return said("called")


@tool("test_missing_capability")
async def needs_sampling(call: Call) -> Reply:
    """Rejects clients that did not declare sampling."""
    declared = call.context.session.client_capabilities
    if declared is None or declared.sampling is None:
        raise MCPError(
            MISSING_REQUIRED_CLIENT_CAPABILITY,
            "the client did not declare sampling",
            {"requiredCapabilities": {"sampling": {}}},
        )
    return said("declared")


@tool("test_reconnection")
async def reconnection(call: Call) -> Reply:
    """Closes its stream in the middle of the call: the result goes to clients that reconnect (SEP-1699)."""
    await log(call, "Before disconnect")
    if call.context.close_sse_stream is not None:
        await call.context.close_sse_stream()
        await anyio.sleep(4 * PAUSE)
    await log(call, "After reconnect")
    return said("Reconnection test completed")


@tool("test_trigger_tool_change")
async def tools_changed(call: Call) -> Reply:
    """Notifies the client that the list of tools has changed."""
    await BUS.publish(ToolsListChanged())
    if not call.modern:
        await call.context.session.send_tool_list_changed()
    return said("told")


@tool("test_trigger_prompt_change")
async def prompts_changed(call: Call) -> Reply:
    """Notifies the client that the list of prompts has changed."""
    await BUS.publish(PromptsListChanged())
    if not call.modern:
        await call.context.session.send_prompt_list_changed()
    return said("told")
