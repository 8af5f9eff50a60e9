"""Request targets that a proxy in front may parse as another path or host: rejected on every listener of a daemon."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.fakes.daemon import BOUND, asking, serving

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

PARAMS = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
HELLO = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": PARAMS})


async def status(url: str, method: str, target: str) -> int:
    """The status of a request with exactly this target. ``{host}`` in it becomes the listener's."""
    host = urlsplit(url).netloc
    reader, writer = await asyncio.open_connection(*host.split(":"))
    try:
        async with asyncio.timeout(BOUND):
            head = (
                f"{method} {target.replace('{host}', host)} HTTP/1.1\r\nhost: {host}\r\ncontent-type:"
                " application/json\r\n"
            )
            writer.write(
                f"{head}accept: application/json, text/event-stream\r\ncontent-length: {len(HELLO)}\r\nconnection:"
                f" close\r\n\r\n{HELLO}".encode()
            )
            return int((await reader.readline()).split()[1])
    finally:
        writer.close()


async def test_a_path_has_one_spelling_and_the_target_no_other_host(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("version: 1\nrules: []\n")
    command, *arguments = asking("legacy+modern")
    servers = {name: {"command": command, "args": arguments} for name in ("s", "t")}
    (tmp_path / "samplegate.yaml").write_text(json.dumps({"policy": "policy.yaml", "servers": servers}))
    async with serving(tmp_path, "--settings", "samplegate.yaml") as gate:
        served = ("/servers/s/mcp", "/servers/s/mcp?a=%2f", "http://{host}/servers/s/mcp")
        assert dict.fromkeys(served, 200) == {target: await status(gate.url, "POST", target) for target in served}
        for target in (
            "/servers/s%2fmcp",
            "/servers/%73/mcp",
            "/servers/s/mcp%3f",
            "/servers/t%2f..%2fs/mcp",
            "/servers/s/mcp#t",
            "http://other.example/servers/s/mcp",
            "http://user@{host}/servers/s/mcp",
            "ftp://{host}/servers/s/mcp",
        ):
            assert 400 == await status(gate.url, "POST", target), target
        assert [200, 400, 400] == [
            await status(gate.admin, "GET", target)
            for target in ("/healthz", "/health%7a", "http://other.example/healthz")
        ]
