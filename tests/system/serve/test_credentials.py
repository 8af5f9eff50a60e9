"""`--header-from`: a server at a URL that requires a token, behind `serve --url` and `run --url`."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.daemon import BOUND, asking, client, serving
from tests.paths import ROOT

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
POLICY = "version: 1\nrules: [{name: never, effect: deny}]\n"
TOKEN = "t" * 40


def guarded(folder: Path) -> str:
    """Settings of a gate that requires TOKEN, which is in the file `token`, from its callers."""
    command, *arguments = asking("legacy+modern")
    (folder / "policy.yaml").write_text(POLICY)
    (folder / "token").write_text(f"Bearer {TOKEN}\n")
    tokens = [{"name": "ada", "sha256": hashlib.sha256(TOKEN.encode()).hexdigest()}]
    wanted = {
        "policy": "policy.yaml",
        "servers": {"one": {"command": command, "args": arguments}},
        "callers": {"tokens": tokens},
    }
    (folder / "guarded.yaml").write_text(json.dumps(wanted))
    return "guarded.yaml"


@pytest.fixture
async def inner(tmp_path: Path) -> AsyncIterator[str]:
    """The URL of a gate that requires the token. Both gates in front of it are in its folder."""
    async with serving(tmp_path, "--settings", guarded(tmp_path)) as gate:
        async with client(gate) as nobody:
            hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
            assert 401 == (await nobody.post(hello, {}))[0]
        yield f"{gate.url}/mcp"


async def test_serve_and_run_send_the_header_to_their_server(tmp_path: Path, inner: str) -> None:
    header = ["--header-from", "Authorization=token", "--url", inner]
    async with serving(tmp_path, "--policy", "policy.yaml", *header) as gate, client(gate) as c:
        assert "result" in await c.begin()
    pipe = asyncio.subprocess.PIPE
    run = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "samplegate", "run", "--policy", "policy.yaml", "--decision-log", "none",
        "--state", str(tmp_path / "state"), *header,
        stdin=pipe, stdout=pipe, stderr=pipe, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT / "proxy")},
    )  # fmt: skip
    assert run.stdin is not None
    assert run.stdout is not None
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    run.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}).encode() + b"\n")
    async with asyncio.timeout(BOUND):
        answer = json.loads(await run.stdout.readline())
        run.stdin.close()
        _, said = await run.communicate()
    assert "result" in answer, said
    assert TOKEN.encode() not in said
    assert TOKEN not in "\n".join(gate.lines)
