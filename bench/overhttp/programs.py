"""Programs between a client and a server: the daemon, the floor and the peers, each with the command that makes it
listen on a port."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import peer, variants
from bench.variants import SERVER

HERE: Final = Path(__file__).resolve().parent
BARE: Final = str(HERE / "bare_endpoint.py")
PEER: Final = str(HERE / "fastmcp_proxy.py")
POLICY: Final = variants.HERE / "policy.yaml"
MCP: Final = "/mcp"
FLOOR: Final = "floor"


@dataclass(frozen=True, slots=True)
class Program:
    """A program. ``words`` contain ``{port}`` in place of the port. ``plain`` means that ``path`` has no protocol and
    thus no eras."""

    name: str
    words: tuple[str, ...]
    path: str = MCP
    plain: bool = False

    def command(self, port: int) -> Sequence[str]:
        """The command for a port."""
        return [word.replace("{port}", str(port)) for word in self.words]


def bare() -> Program:
    """The bare endpoint: the floor."""
    return Program(FLOOR, (sys.executable, BARE, "{port}"), "/bare", plain=True)


def server() -> Program:
    """The bare endpoint as a server for both eras."""
    return Program("server", (sys.executable, BARE, "{port}"))


def forwarding(to: str) -> Program:
    """The bare endpoint that forwards to another one: the minimum cost of Python in front of an HTTP server."""
    return Program("forwarding", (sys.executable, BARE, "{port}", to), "/bare", plain=True)


def gate(
    name: str,
    state: Path,
    *behind: str,
    policy: Path = POLICY,
    log: str = "none",
    python: Sequence[str] = (sys.executable,),
) -> Program:
    """`samplegate serve` as a user would start it. ``behind`` is ``--url URL``, or ``--`` and a command; other options
    come before.

    ``python`` is the interpreter whose environment has the gate.
    """
    listen = ("--listen", "127.0.0.1:{port}", "--state", str(state), "--decision-log", log)
    return Program(name, (*python, "-m", "samplegate", "serve", "--policy", str(policy), *listen, *behind))


def peers() -> list[Program]:
    """The installed other proxies, each in front of the bare stdio server."""
    found = []
    node, modules = _node(), peer.npm()
    if node is not None and modules is not None:
        gateway = (node, str(modules / "supergateway" / "dist" / "index.js"), "--stdio", shlex.join(SERVER))
        found.append(
            Program(
                "supergateway",
                (
                    *gateway,
                    "--outputTransport",
                    "streamableHttp",
                    "--stateful",
                    "--logLevel",
                    "none",
                    "--port",
                    "{port}",
                ),
            )
        )
        proxy = (
            node,
            str(modules / "mcp-proxy" / "dist" / "bin" / "mcp-proxy.mjs"),
            "--host",
            "127.0.0.1",
            "--port",
            "{port}",
            "--server",
            "stream",
        )
        found.append(Program("mcp-proxy (npm)", (*proxy, "--upstreamProtocol", "auto", "--", *SERVER)))
    python = peer.python("mcp-proxy")
    if python is not None:
        program = str(python.with_name("mcp-proxy"))
        found.append(Program("mcp-proxy (PyPI)", (program, "--port", "{port}", "--log-level", "ERROR", "--", *SERVER)))
    python = peer.python("fastmcp")
    if python is not None:
        found.append(Program("fastmcp proxy", (str(python), PEER, "{port}", *SERVER)))
    return found


def _node() -> str | None:
    from tests.acceptance.sdk import node

    try:
        return str(node.node())
    except FileNotFoundError as problem:
        print(f"bench: {problem}; the peers from npm are skipped", file=sys.stderr)
        return None
