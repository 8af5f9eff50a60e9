"""`--header-from`: a server at a URL that lets nobody in without a token, behind `serve --url` and behind `run
--url`."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from pathlib import Path

import pytest

from tests.daemon.gate import BOUND, ROOT, asking, client, serving

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
POLICY = "version: 1\nrules: [{name: never, effect: deny}]\n"
TOKEN = "t" * 40


def guarded(folder: Path) -> str:
    """Settings of a gate that asks its callers for TOKEN, which is in the file `token`."""
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


@pytest.mark.parametrize("let_in", [True, False])
async def test_serve_sends_the_header_to_its_one_server(tmp_path: Path, let_in: bool) -> None:
    async with serving(tmp_path, "--settings", guarded(tmp_path)) as inner:
        header = ["--header-from", "Authorization=token"] if let_in else []
        async with (
            serving(tmp_path, "--policy", "policy.yaml", "--url", f"{inner.url}/mcp", *header) as gate,
            client(gate) as c,
        ):
            assert let_in == ("result" in await c.begin())


@pytest.mark.parametrize("let_in", [True, False])
async def test_run_sends_the_header_to_its_server(tmp_path: Path, let_in: bool) -> None:
    async with serving(tmp_path, "--settings", guarded(tmp_path)) as inner:
        header = ["--header-from", "Authorization=token"] if let_in else []
        ours = [
            "--policy",
            "policy.yaml",
            "--decision-log",
            "none",
            "--state",
            str(tmp_path / "state"),
            "--url",
            f"{inner.url}/mcp",
            *header,
        ]
        pipe = asyncio.subprocess.PIPE
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "proxy")}
        run = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "samplegate",
            "run",
            *ours,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            cwd=tmp_path,
            env=environment,
        )
        assert run.stdin is not None
        assert run.stdout is not None
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        run.stdin.write(
            json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}).encode() + b"\n"
        )
        async with asyncio.timeout(BOUND):
            answer = json.loads(await run.stdout.readline())
            run.stdin.close()
            _, said = await run.communicate()
    assert let_in == ("result" in answer), said
    assert TOKEN.encode() not in said
