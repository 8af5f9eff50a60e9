"""The client under the official client suite: `python -m tests.conformance.client_driver [--silent] [WORDS...] URL`.

Without words it is the SDK's own HTTP client. With words they and the address are started as a stdio server, which is
how the gate stands between: what the suite judges is then the gate's HTTP. ``--silent`` declares no capabilities, so
that a policy has to answer. The scenario and the revision come in the environment, from the suite. Runs in the
environment sdk2, from the repository's top folder.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Awaitable
from typing import Any, Final

import anyio
from mcp import Client, MCPError
from mcp.client.context import ClientRequestContext
from mcp.client.stdio import StdioServerParameters
from mcp_types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    ListRootsResult,
    TextContent,
    Tool,
)

ADD: Final = ("add_numbers", {"a": 5, "b": 3})
CALLS: Final[dict[str, list[tuple[str, dict[str, Any]]]]] = {
    "initialize": [],
    "json-schema-ref-no-deref": [],
    "tools_call": [ADD],
    "request-metadata": [ADD],
    "sse-retry": [("test_reconnection", {})],
    "elicitation-sep1034-client-defaults": [("test_client_elicitation_defaults", {})],
    "sep-2322-client-request-state": [
        ("test_mrtr_echo_state", {}),
        ("test_mrtr_unrelated", {}),
        ("test_mrtr_no_state", {}),
        ("test_mrtr_no_result_type", {}),
    ],
}
SAMPLE_OF_TYPE: Final = {"string": "x", "integer": 1, "number": 1.5, "boolean": True, "object": {}, "array": []}
scenario: Final = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
revision: Final = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "2025-11-25")


async def sample(_context: ClientRequestContext, _params: CreateMessageRequestParams) -> CreateMessageResult:
    return CreateMessageResult(
        role="assistant", content=TextContent(type="text", text="from the client"), model="client-model"
    )


async def elicit(_context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
    """Accepts with the schema's defaults, and with yes if it has none."""
    if not isinstance(params, ElicitRequestFormParams):
        return ElicitResult(action="accept")
    fields: dict[str, Any] = params.requested_schema["properties"]
    return ElicitResult(action="accept", content={name: field.get("default", True) for name, field in fields.items()})


async def list_roots(_context: ClientRequestContext) -> ListRootsResult:
    return ListRootsResult(roots=[])


def calls(tools: list[Tool]) -> list[tuple[str, dict[str, Any]]]:
    """The calls to make after the tools were listed."""
    match scenario:
        case "http-invalid-tool-headers" | "http-standard-headers":  # call every listed tool
            return [(tool.name, arguments(tool.input_schema)) for tool in tools]
        case "http-custom-headers":
            wanted = json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])["toolCalls"]
            return [
                (one["name"], one.get("arguments") or {})
                for one in wanted
                if one["name"] in {tool.name for tool in tools}
            ]
        case "json-schema-2020-12-preservation":
            schema = next(tool.input_schema for tool in tools if tool.name == "json_schema_2020_12_tool")
            return [("json_schema_echo", {"schema": schema})]
        case _:
            return CALLS[scenario]


def arguments(schema: dict[str, Any]) -> dict[str, Any]:
    """A value for every required argument."""
    fields = schema.get("properties", {})
    return {name: SAMPLE_OF_TYPE.get(fields.get(name, {}).get("type"), "x") for name in schema.get("required", [])}


def legacy() -> bool:
    """The server of `json-schema-ref-no-deref` speaks the handshake only, whatever revision it is run at."""
    return revision < "2026-07-28" or scenario == "json-schema-ref-no-deref"


async def main(words: list[str], silent: bool) -> None:
    server: Any = StdioServerParameters(command=words[0], args=words[1:]) if len(words) > 1 else words[0]
    answers: dict[str, Any] = (
        {}
        if silent
        else {"elicitation_callback": elicit, "sampling_callback": sample, "list_roots_callback": list_roots}
    )
    async with Client(server, mode="legacy" if legacy() else "auto", **answers) as client:
        for name, given in calls((await client.list_tools()).tools):
            await told(name, client.call_tool(name, given))
        if scenario == "http-standard-headers":
            for resource in (await client.list_resources()).resources:
                await told(str(resource.uri), client.read_resource(resource.uri))
            for prompt in (await client.list_prompts()).prompts:
                await told(
                    prompt.name, client.get_prompt(prompt.name, {one.name: "x" for one in prompt.arguments or []})
                )


async def told(name: str, doing: Awaitable[object]) -> None:
    """Waits for one request. What fails is said, and the next one follows: 2.3 itself does not read a result without
    `resultType`."""
    try:
        print(f"{name}: {str(await doing)[:200]}", file=sys.stderr)
    except (MCPError, ValueError) as error:
        print(f"{name}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # sampling is deprecated, and is what we are here for
    said_silent = sys.argv[1] == "--silent"
    anyio.run(main, sys.argv[2 if said_silent else 1 :], said_silent)
