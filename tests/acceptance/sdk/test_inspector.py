"""The MCP inspector's command line: the same output with and without a gate, over HTTP and with the gate as its stdio
server."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.acceptance.sdk import node, peers
from tests.acceptance.sdk.http_peers import Places
from tests.acceptance.sdk.peers import Server

PROGRAM = (
    peers.HERE / "node_modules" / "@modelcontextprotocol" / "inspector" / "clients" / "launcher" / "build" / "index.js"
)
ASKED = {
    "tools": ("tools/list",),
    "call": ("tools/call", "--tool-name", "add", "--tool-arg", "a=1", "b=2"),
    "refused": ("tools/call", "--tool-name", "confirm"),
    "resource": ("resources/read", "--uri", "counterpart://greeting"),
}


def inspected(server: Server, asked: Sequence[str], home: Path) -> tuple[int, object]:
    """The exit code and the JSON output. The folder replaces the user's home."""
    over_http = server.words[0].startswith("http://")
    target = [*server.words, "--transport", "http"] if over_http else []
    if not over_http:
        catalog = home / "servers.json"
        catalog.write_text(
            json.dumps({"mcpServers": {"gate": {"command": server.words[0], "args": list(server.words[1:])}}}), "utf-8"
        )
        target = ["--config", str(catalog), "--server", "gate"]
    words = [str(node.node()), str(PROGRAM), "--cli", *target, "--method", *asked]
    environment = {
        **os.environ,
        "HOME": str(home),
        "USERPROFILE": str(home),
        "NO_COLOR": "1",
        "MCP_INSPECTOR_SECRET_STORE": "memory",
    }
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=peers.WAIT, check=False)
    # an error is one line, the last
    said = done.stdout if done.returncode == 0 else done.stderr.strip().rpartition("\n")[2]
    try:
        return done.returncode, json.loads(said)
    except json.JSONDecodeError:
        raise AssertionError(
            f"the inspector ended with {done.returncode}:\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}"
        ) from None


@pytest.mark.parametrize(
    ("server", "front", "asked"),
    [("sdk1", "serve", ["tools", "call"]), ("sdk2", "run", ["refused", "resource"])],
)
def test_the_inspector_prints_the_same(
    server: str, front: str, asked: list[str], places: Places, tmp_path: Path
) -> None:
    gated = places.gated(server, front=front, behind="http", policy="forwards").server
    alone = {name: inspected(places.server(server), ASKED[name], tmp_path) for name in asked}
    assert alone == {name: inspected(gated, ASKED[name], tmp_path) for name in asked}
