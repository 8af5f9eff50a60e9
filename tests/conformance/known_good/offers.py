"""The form of a tool of the known-good server: a function of one `Call`, registered by a decorator."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from mcp.server import ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus
from mcp_types import BlobResourceContents, CallToolResult, InputRequiredResult, TextContent, TextResourceContents

from tests.conformance.known_good.content import PIXEL

BUS: Final = InMemorySubscriptionBus()
MODERN: Final = "2026-07-28"


@dataclass(frozen=True)
class Call:
    """One tools/call or prompts/get: its arguments, and in a later round the client's answers and our own state."""

    context: ServerRequestContext[Any, Any]
    arguments: Mapping[str, Any]
    answers: Mapping[str, Any]
    state: str | None

    @property
    def modern(self) -> bool:
        """Whether the client speaks 2026-07-28 or later, so that it cannot be asked while its call waits."""
        return bool(self.context.protocol_version >= MODERN)


Reply: TypeAlias = CallToolResult | InputRequiredResult | dict[str, Any]
"""A dict is a result of a type that the SDK does not have: a task."""
Run: TypeAlias = Callable[[Call], Awaitable[Reply]]


@dataclass(frozen=True)
class Tool:
    schema: dict[str, Any]
    description: str
    run: Run


TOOLS: Final[dict[str, Tool]] = {}


def tool(name: str, schema: dict[str, Any] | None = None, **properties: Any) -> Callable[[Run], Run]:
    """Registers a tool. The properties, all required, make its schema unless a whole one is given."""

    def enter(run: Run) -> Run:
        own: dict[str, Any] = {
            "type": "object",
            "properties": properties,
            **({"required": [*properties]} if properties else {}),
        }
        TOOLS[name] = Tool(schema or own, run.__doc__ or "", run)
        return run

    return enter


def said(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)])


def resource(uri: str) -> TextResourceContents | BlobResourceContents | None:
    """The resource at a URI, or None."""
    if uri == "test://static-text":
        return TextResourceContents(
            uri=uri, mime_type="text/plain", text="This is the content of the static text resource."
        )
    if uri == "test://static-binary":
        return BlobResourceContents(uri=uri, mime_type="image/png", blob=PIXEL)
    if uri == "test://watched-resource":
        return TextResourceContents(uri=uri, mime_type="text/plain", text="watched")
    kind, _, rest = uri.removeprefix("test://").partition("/")
    number = rest.removesuffix("/data")
    if kind == "template" and number and number != rest:
        text = f'{{"id": "{number}", "templateTest": true, "data": "Data for ID: {number}"}}'
        return TextResourceContents(uri=uri, mime_type="application/json", text=text)
    return None
