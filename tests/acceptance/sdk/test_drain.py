"""A daemon that shuts down while real clients wait for a tool: each gets its answer, and may still list its tools."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest

from tests.acceptance.sdk import peers
from tests.acceptance.sdk.peers import call
from tests.fakes.daemon import BOUND, asking, serving
from tests.fakes.door import door

POLICY = "version: 1\nrules: []\n"
CLIENTS = ("python1", "python2-legacy", "python2-pinned", "typescript1", "typescript2-legacy", "typescript2-pinned")


@pytest.mark.anyio
async def test_clients_that_wait_for_a_tool_are_answered_and_list_the_tools_right_after_it(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    command, *arguments = asking("legacy+modern")
    # one process of it does one call at a time
    servers = {name: {"command": command, "args": arguments} for name in CLIENTS}
    (tmp_path / "samplegate.yaml").write_text(json.dumps({"policy": "policy.yaml", "servers": servers}))
    async with door() as held, serving(tmp_path, "--settings", "samplegate.yaml") as gate:
        steps = [call("do", door=list(held.at)), {"do": "tools"}]
        programs = []
        for name in CLIENTS:
            client = peers.clients()[name]
            words = (*client.words, json.dumps({"mode": client.mode, "steps": steps}), f"{gate.url}/servers/{name}/mcp")
            pipe = asyncio.subprocess.PIPE
            programs.append(
                await asyncio.create_subprocess_exec(*words, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe)
            )
        try:
            await held.reached(len(CLIENTS))
            gate.process.send_signal(signal.SIGTERM)
            gate.ending = True
            await gate.said("drain.began")
            held.open()
            async with asyncio.timeout(BOUND):
                said = [await program.communicate() for program in programs]
        finally:
            for program in programs:
                if program.returncode is None:
                    program.kill()
        for name, (out, err) in zip(CLIENTS, said, strict=True):
            assert out.strip(), f"{name}: {err.decode()[-3000:]}"
            assert [{"error": False, "text": "x"}, ["do"]] == json.loads(out.splitlines()[-1])["results"], name
        assert 0 == await gate.end()
        assert "all calls in flight were answered" in gate.lines[-1]
