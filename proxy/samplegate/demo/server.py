"""A stdio MCP server that asks before it acts: `python -m samplegate.demo.server DATABASE`. It is not part of the gate.

One tool, purge_inactive_users, asks a model twice and a person once. In the legacy eras the SDK pushes the questions.
From 2026-07-28 on it puts them into `input_required` results, and the steps run again in every round.

So each step is safe to repeat: a purge is stored under its ticket and is done only once. Users and purges are in a
SQLite file.

No `from __future__ import annotations`: the SDK reads the annotations of functions made inside build().
"""

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from mcp.server.mcpserver import Elicit, MCPServer, Resolve, Sample
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CreateMessageResult, SamplingMessage, TextContent
from pydantic import BaseModel, Field

USERS: Final = (
    ("ada", "2026-07-30", 1),
    ("boris", "2023-02-11", 0),
    ("chen", "2026-07-29", 1),
    ("dora", "2022-12-01", 0),
    ("emil", "2026-06-17", 1),
    ("fatou", "2023-05-09", 0),
    ("gita", "2026-07-28", 1),
    ("hugo", "2021-10-23", 0),
)
"""Name, day last seen, whether the account is active."""

_SCHEMA: Final = """
CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT NOT NULL, last_seen TEXT NOT NULL, active INTEGER NOT NULL);
CREATE TABLE purges (ticket TEXT PRIMARY KEY, found INTEGER NOT NULL, total INTEGER NOT NULL, deleted INTEGER, reason TEXT, audit TEXT);
"""  # noqa: E501


@dataclass(frozen=True, slots=True)
class Found:
    """Number of inactive accounts, and of all accounts, when the purge was opened."""

    inactive: int
    total: int


@dataclass(frozen=True, slots=True)
class Purge:
    """Stored result of a purge."""

    deleted: int | None
    reason: str | None
    audit: str | None


@contextmanager
def _open(path: Path) -> Iterator[sqlite3.Connection]:
    """Open one connection with one transaction."""
    with closing(sqlite3.connect(path, timeout=5)) as connection, connection:
        yield connection


def create(path: Path) -> None:
    """Create the database with its users."""
    with _open(path) as db:
        db.executescript(_SCHEMA)
        db.executemany("INSERT INTO users (name, last_seen, active) VALUES (?, ?, ?)", USERS)


def names(path: Path) -> list[str]:
    """Names of the remaining users."""
    with _open(path) as db:
        return [name for (name,) in db.execute("SELECT name FROM users ORDER BY id")]


def count_inactive(path: Path, ticket: str) -> Found:
    """Open a purge and count the accounts. An open ticket returns its first count."""
    with _open(path) as db:
        db.execute(
            "INSERT OR IGNORE INTO purges (ticket, found, total) SELECT ?, count(*) FILTER (WHERE active = 0), count(*)"
            " FROM users",
            (ticket,),
        )
        inactive, total = db.execute("SELECT found, total FROM purges WHERE ticket = ?", (ticket,)).fetchone()
        return Found(inactive, total)


def delete_inactive(path: Path, ticket: str, reason: str) -> int:
    """Delete the inactive accounts, once per ticket. Returns the number of deleted rows."""
    with _open(path) as db:
        (done,) = db.execute("SELECT deleted FROM purges WHERE ticket = ?", (ticket,)).fetchone()
        if done is not None:
            return int(done)
        deleted = db.execute("DELETE FROM users WHERE active = 0").rowcount
        db.execute("UPDATE purges SET deleted = ?, reason = ? WHERE ticket = ?", (deleted, reason, ticket))
        return deleted


def write_audit(path: Path, ticket: str, entry: str) -> None:
    """Store the audit entry of a purge."""
    with _open(path) as db:
        db.execute("UPDATE purges SET audit = ? WHERE ticket = ?", (entry, ticket))


def purge(path: Path, ticket: str) -> Purge | None:
    """The stored result of a purge; None if there is none."""
    with _open(path) as db:
        row = db.execute("SELECT deleted, reason, audit FROM purges WHERE ticket = ?", (ticket,)).fetchone()
    return None if row is None else Purge(*row)


class Confirmation(BaseModel):
    """The form for a person."""

    confirm: bool = Field(description="Delete these accounts for good")
    reason: str = Field(description="Why, for the audit entry", min_length=3, max_length=200)


class Purged(BaseModel):
    """The tool's result, which gives its outputSchema."""

    ticket: str
    found: int
    deleted: int
    remaining: int
    risk: str
    reason: str
    audit: str


def build(path: Path) -> MCPServer[Any]:
    """Build the server for one database file."""
    server: MCPServer[Any] = MCPServer("users", version="1.0.0", log_level="WARNING")

    def found(ticket: str) -> Found:
        return count_inactive(path, ticket)

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
            raise ToolError("nothing was deleted: the form was not confirmed")
        return delete_inactive(path, ticket, confirmation.reason)

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
        write_audit(path, ticket, _text(audit))
        return Purged(
            ticket=ticket,
            found=found.inactive,
            deleted=deleted,
            remaining=len(names(path)),
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
