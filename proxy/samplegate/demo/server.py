"""A stdio MCP server that asks before it acts: `python -m samplegate.demo.server DATABASE`. Not a part of the gate.

One tool, purge_inactive_users, asks a model twice and a person once. The SDK pushes the questions in the legacy eras
and puts them into `input_required` results from 2026-07-28 on; there the steps run again in every round, which is why
each of them is safe to repeat.
"""

# No `from __future__ import annotations`: the SDK reads the annotations of functions made inside build().

import sys
from pathlib import Path
from typing import Annotated, Any

from mcp.server.mcpserver import Elicit, MCPServer, Resolve, Sample
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CreateMessageResult, SamplingMessage, TextContent
from pydantic import BaseModel, Field

from samplegate.demo import database
from samplegate.demo.database import Found


class Confirmation(BaseModel):
    """The form that a person would fill in."""

    confirm: bool = Field(description="Delete these accounts for good")
    reason: str = Field(description="Why, for the audit entry", min_length=3, max_length=200)


class Purged(BaseModel):
    """The tool's result: its outputSchema."""

    ticket: str
    found: int
    deleted: int
    remaining: int
    risk: str
    reason: str
    audit: str


def build(path: Path) -> MCPServer[Any]:
    """The server over one database file."""
    server: MCPServer[Any] = MCPServer("users", version="1.0.0", log_level="WARNING")

    def found(ticket: str) -> Found:
        return database.count_inactive(path, ticket)

    def risk(found: Annotated[Found, Resolve(found)]) -> Sample:
        return _sample(
            "You classify the risk of database changes. Answer with one word: low, medium or high.",
            f"Classify the risk: {found.inactive} of {found.total} user accounts are inactive and would be deleted for"
            " good.",
            max_tokens=16,
        )

    def confirmation(
        found: Annotated[Found, Resolve(found)], risk: Annotated[CreateMessageResult, Resolve(risk)]
    ) -> Elicit[Confirmation]:
        return Elicit(
            f"Delete {found.inactive} of {found.total} accounts? A model calls the risk {_text(risk)}.", Confirmation
        )

    def deleted(ticket: str, confirmation: Annotated[Confirmation, Resolve(confirmation)]) -> int:
        if not confirmation.confirm:
            raise ToolError("nothing was deleted: the form came back without a confirmation")
        return database.delete_inactive(path, ticket, confirmation.reason)

    def audit(
        ticket: str,
        deleted: Annotated[int, Resolve(deleted)],
        confirmation: Annotated[Confirmation, Resolve(confirmation)],
    ) -> Sample:
        return _sample(
            "You write audit entries. Answer with one sentence.",
            f"Write the audit entry: purge {ticket} deleted {deleted} inactive accounts. Reason given:"
            f" {confirmation.reason}",
            max_tokens=200,
        )

    @server.tool()
    def purge_inactive_users(
        ticket: str,
        *,
        found: Annotated[Found, Resolve(found)],
        risk: Annotated[CreateMessageResult, Resolve(risk)],
        confirmation: Annotated[Confirmation, Resolve(confirmation)],
        deleted: Annotated[int, Resolve(deleted)],
        audit: Annotated[CreateMessageResult, Resolve(audit)],
    ) -> Purged:
        """Delete all inactive user accounts, after a confirmation, and keep an audit entry."""
        database.write_audit(path, ticket, _text(audit))
        return Purged(
            ticket=ticket,
            found=found.inactive,
            deleted=deleted,
            remaining=len(database.names(path)),
            risk=_text(risk),
            reason=confirmation.reason,
            audit=_text(audit),
        )

    return server


def _sample(system_prompt: str, text: str, *, max_tokens: int) -> Sample:
    message = SamplingMessage(role="user", content=TextContent(text=text))
    return Sample([message], max_tokens=max_tokens, system_prompt=system_prompt, temperature=0)


def _text(result: CreateMessageResult) -> str:
    if not isinstance(result.content, TextContent):
        raise ToolError(f"a model answered with {result.content.type}, not with text")
    return result.content.text


if __name__ == "__main__":
    build(Path(sys.argv[1])).run("stdio")
