"""The known-good server except its tools: resources, prompts, completion, subscriptions, log levels."""

from __future__ import annotations

from typing import Any, TypeAlias

from mcp.server import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    ContentBlock,
    EmptyResult,
    GetPromptRequestParams,
    GetPromptResult,
    ImageContent,
    InputRequiredResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    PaginatedRequestParams,
    Prompt,
    PromptArgument,
    PromptMessage,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextContent,
)

from tests.conformance.known_good.asking import filled, form
from tests.conformance.known_good.content import CONTEXT, PIXEL
from tests.conformance.known_good.offers import MODERN, Call, resource
from tests.conformance.known_good.telling import embedded

Context: TypeAlias = ServerRequestContext[Any, Any]
RESOURCE_NOT_FOUND = -32002  # before 2026-07-28

PROMPTS: dict[str, list[str]] = {
    "test_simple_prompt": [],
    "test_prompt_with_arguments": ["arg1", "arg2"],
    "test_prompt_with_embedded_resource": ["resourceUri"],
    "test_prompt_with_image": [],
    "test_input_required_result_prompt": [],
}


async def list_resources(_context: Context, _params: PaginatedRequestParams | None) -> ListResourcesResult:
    uris = ["test://static-text", "test://static-binary", "test://watched-resource"]
    return ListResourcesResult(resources=[Resource(uri=uri, name=uri.removeprefix("test://")) for uri in uris])


async def list_templates(_context: Context, _params: PaginatedRequestParams | None) -> ListResourceTemplatesResult:
    return ListResourceTemplatesResult(
        resource_templates=[ResourceTemplate(uri_template="test://template/{id}/data", name="by id")]
    )


async def read_resource(context: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
    found = resource(str(params.uri))
    if found is None:
        code = INVALID_PARAMS if context.protocol_version >= MODERN else RESOURCE_NOT_FOUND
        raise MCPError(code, "no such resource", {"uri": str(params.uri)})
    return ReadResourceResult(contents=[found])


async def nothing(_context: Context, _params: Any) -> EmptyResult:
    """Accepts subscriptions and log levels without effect."""
    return EmptyResult()


async def list_prompts(_context: Context, _params: PaginatedRequestParams | None) -> ListPromptsResult:
    return ListPromptsResult(
        prompts=[
            Prompt(
                name=name, description=name, arguments=[PromptArgument(name=one, required=True) for one in arguments]
            )
            for name, arguments in PROMPTS.items()
        ]
    )


def _text(text: str) -> TextContent:
    return TextContent(type="text", text=text)


def _written(call: Call, name: str) -> list[ContentBlock] | None:
    given = call.arguments
    match name:
        case "test_simple_prompt":
            return [_text("This is a simple prompt for testing.")]
        case "test_prompt_with_arguments":
            return [_text(f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'")]
        case "test_prompt_with_embedded_resource":
            return [
                embedded(given["resourceUri"], "text/plain", "Embedded resource content for testing."),
                _text("Please process it."),
            ]
        case "test_prompt_with_image":
            return [ImageContent(type="image", data=PIXEL, mime_type="image/png"), _text("Please analyze it.")]
        case "test_input_required_result_prompt":
            context = filled(call, "user_context", "context")
            return [_text(f"Use this context: {context}")] if context else None
        case _:
            raise MCPError(INVALID_PARAMS, f"no such prompt: {name}")


async def get_prompt(context: Context, params: GetPromptRequestParams) -> GetPromptResult | InputRequiredResult:
    blocks = _written(
        Call(context, params.arguments or {}, params.input_responses or {}, params.request_state), params.name
    )
    if blocks is None:
        return InputRequiredResult(
            input_requests={"user_context": form("What context should the prompt use?", CONTEXT)}
        )
    return GetPromptResult(messages=[PromptMessage(role="user", content=block) for block in blocks])


async def complete(_context: Context, _params: CompleteRequestParams) -> CompleteResult:
    return CompleteResult(completion=Completion(values=[], total=0, has_more=False))
