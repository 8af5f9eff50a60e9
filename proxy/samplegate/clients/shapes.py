"""Pure. Shapes of the servers in clients' files: the names of an entry's members.

`--shape` names one of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How a client writes a server."""

    clients: str
    """Clients with this shape, for the documentation."""
    joined: bool = False
    """Whether ``command`` is one list of the command and its arguments."""
    env: str = "env"
    url: tuple[str, ...] = ("url",)
    """Members with the URL of a Streamable HTTP server."""
    sse: tuple[str, ...] = ()
    """Members with the URL of a server over SSE."""
    headers: str = "headers"
    local: str = "stdio"
    """The ``type`` of a server that is a command, where entries have one."""
    remote: str = "http"
    """The ``type`` of a server at a URL."""
    ignored: tuple[str, ...] = ()
    """Members that this client ignores, so that a server with one works otherwise than it seems to."""
    only_at_url: tuple[str, ...] = ()
    """Members that this client refuses in a server that is a command, and that have no counterpart there."""


SHAPES: Final = {
    "command-args": Shape(clients="Claude Code, Claude Desktop, VS Code, Cursor, Cline, Kiro, LM Studio, Zed, Amp"),
    "server-url": Shape(clients="Windsurf, Antigravity", url=("serverUrl",), sse=("url",)),
    "http-url": Shape(clients="Gemini CLI", url=("httpUrl",), sse=("url",)),
    "command-array": Shape(clients="opencode", joined=True, env="environment", local="local", remote="remote"),
    "codex": Shape(
        clients="Codex",
        headers="http_headers",
        ignored=("headers",),
        only_at_url=("bearer_token_env_var", "bearer_token", "env_http_headers", "oauth", "oauth_resource"),
    ),
}
"""Every shape by its name."""
