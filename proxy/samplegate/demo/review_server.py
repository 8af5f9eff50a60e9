"""A stdio MCP server for the demo of reviews: `python -m samplegate.demo.review_server`.

One tool asks a model, the other a person. Each tool's result is the answer that the server got, so that a client can
show it.
"""

# No `from __future__ import annotations`: the SDK reads the annotations of functions made inside build().

from datetime import date
from typing import Annotated, Any, Literal

from mcp.server.elicitation import AcceptedElicitation, ElicitationResult
from mcp.server.mcpserver import Elicit, MCPServer, Resolve, Sample
from mcp_types import CreateMessageResult, SamplingMessage, TextContent
from pydantic import BaseModel, Field

SUMMARIZE = "summarize_incident"
RESTART = "restart_service"

REPORT = """\
## Incident {incident}: checkout slow

| time | what |
|---|---|
| 09:12 | p99 of `POST /checkout` over **4 s** |
| 09:15 | `payments-db`: 100 of 100 connections in use |
| 09:31 | pool doubled, p99 back to *180 ms* |

- Orders delayed: 312, lost: 0
- Customer named in the ticket: Ada Example, ada@example.com

Summarize this for the public status page in two sentences."""


class Restart(BaseModel):
    """The form for the person on call, with one field of each kind that forms have."""

    confirm: bool = Field(description="Restart it now")
    strategy: Literal["rolling", "all at once"] = Field(
        default="rolling", description="How the instances are restarted"
    )
    zones: list[Literal["eu-1", "eu-2", "us-1"]] = Field(description="Where", min_length=1)
    replicas: int = Field(default=3, ge=1, le=9, description="Instances to keep while it restarts")
    error_budget: float = Field(default=0.5, ge=0, le=5, description="Percentage of requests that may fail meanwhile")
    on_call: str = Field(description="Who to notify when it is done", json_schema_extra={"format": "email"})
    not_before: date | None = Field(default=None, description="Leave empty for now")
    reason: str = Field(description="For the change log", min_length=5, max_length=200)


class Summary(BaseModel):
    """The server's answer to its sampling request."""

    text: str
    model: str


class Restarted(BaseModel):
    """The server's answer to its form."""

    action: str
    form: dict[str, Any] | None = None


def build() -> MCPServer[Any]:
    """Build the server."""
    server: MCPServer[Any] = MCPServer("incidents", version="1.0.0", log_level="WARNING")

    def summary(incident: str) -> Sample:
        message = SamplingMessage(role="user", content=TextContent(text=REPORT.format(incident=incident)))
        return Sample(
            [message],
            max_tokens=200,
            system_prompt="You write for the public: calm, short, no names of people.",
            temperature=0.3,
        )

    def form(service: str) -> Elicit[Restart]:
        return Elicit(f"Restart {service}? Clients see errors for about a minute.", Restart)

    @server.tool(name=SUMMARIZE)
    def summarize(incident: str, *, summary: Annotated[CreateMessageResult, Resolve(summary)]) -> Summary:
        """Summarize an incident for the status page."""
        text = summary.content.text if isinstance(summary.content, TextContent) else f"[{summary.content.type}]"
        return Summary(text=text, model=summary.model)

    @server.tool(name=RESTART)
    def restart(service: str, *, form: Annotated[ElicitationResult[Restart], Resolve(form)]) -> Restarted:
        """Restart a service, after a person has chosen how."""
        if isinstance(form, AcceptedElicitation):
            return Restarted(action=form.action, form=form.data.model_dump(mode="json", exclude_none=True))
        return Restarted(action=form.action)

    return server


if __name__ == "__main__":
    build().run("stdio")
