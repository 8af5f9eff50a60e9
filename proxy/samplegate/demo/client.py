"""An MCP client (the SDK's) without sampling and elicitation: one connection, one tool call. It knows nothing of the
gate.

Over HTTP it is a separate process, `python -m samplegate.demo.client URL ERA TOOL ARGUMENTS`, which prints its report
as one line of JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import anyio
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, TextContent

from samplegate.durations import duration_text

Era: TypeAlias = Literal["legacy", "modern"]

TOOL: Final = "purge_inactive_users"
TIMEOUT: Final = 40.0
"""Seconds for a whole connection: a cold start of three Python processes on a slow disk takes ten."""

REVIEW_TIMEOUT: Final = 1_800.0
"""Seconds for a call over HTTP: long, because a person answers. The user of the demo can end it."""

MODES: Final[dict[Era, str]] = {"legacy": "legacy", "modern": "2026-07-28"}
"""The SDK client's mode for each era: a handshake, or the fixed stateless revision."""


@dataclass(frozen=True, slots=True)
class CallReport:
    """Result of the client's call. ``failure`` is set if there was no good result."""

    revision: str = ""
    structured: dict[str, Any] | None = None
    failure: str | None = None


def call(command: Sequence[str], environment: dict[str, str], era: Era, ticket: str, stderr: Path) -> CallReport:
    """Start the command, call the tool, and end the command. ``stderr`` receives the command's stderr."""
    return anyio.run(_bounded, command, environment, era, ticket, stderr)


async def _bounded(
    command: Sequence[str], environment: dict[str, str], era: Era, ticket: str, stderr: Path
) -> CallReport:
    parameters = StdioServerParameters(command=command[0], args=list(command[1:]), env=environment)
    try:
        with anyio.fail_after(TIMEOUT):
            return await _call(parameters, era, ticket, stderr)
    except TimeoutError:
        return CallReport(failure=f"no result within {duration_text(TIMEOUT)}")
    except (OSError, MCPError) as problem:
        return CallReport(failure=str(problem))
    except BaseExceptionGroup as problems:
        matched, rest = problems.split((OSError, MCPError))
        if rest is not None:
            raise
        return CallReport(failure="; ".join(map(str, _leaves(matched))))


def _leaves(problem: BaseException | None) -> list[BaseException]:
    """The exceptions in a group, because the group's own message names none of them."""
    if isinstance(problem, BaseExceptionGroup):
        return [leaf for inner in problem.exceptions for leaf in _leaves(inner)]
    return [] if problem is None else [problem]


async def _call(parameters: StdioServerParameters, era: Era, ticket: str, stderr: Path) -> CallReport:
    with stderr.open("a", encoding="utf-8") as errors:
        async with Client(stdio_client(parameters, errlog=errors), mode=MODES[era]) as client:
            return await _call_tool(client, TOOL, {"ticket": ticket})


async def _over_http(url: str, era: Era, tool: str, arguments: dict[str, Any]) -> CallReport:
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    http = httpx2.AsyncClient(timeout=httpx2.Timeout(30.0, read=REVIEW_TIMEOUT))
    async with http, Client(streamable_http_client(url, http_client=http), mode=MODES[era]) as client:
        return await _call_tool(client, tool, arguments)


async def _call_tool(client: Client, tool: str, arguments: dict[str, Any]) -> CallReport:
    try:
        await client.list_tools()  # the SDK validates structuredContent only for tools that it has listed
        return _report(client.protocol_version, await client.call_tool(tool, arguments))
    except MCPError as problem:
        return CallReport(client.protocol_version, failure=str(problem))


def _report(revision: str, result: CallToolResult) -> CallReport:
    if result.is_error:
        return CallReport(
            revision, failure=" ".join(block.text for block in result.content if isinstance(block, TextContent))
        )
    if not isinstance(result.structured_content, dict):
        return CallReport(revision, failure="the tool's result has no structuredContent")
    return CallReport(revision, result.structured_content)


if __name__ == "__main__":
    url, era, tool, arguments = sys.argv[1:]
    print(
        json.dumps(
            asdict(anyio.run(_over_http, url, "legacy" if era == "legacy" else "modern", tool, json.loads(arguments)))
        )
    )
