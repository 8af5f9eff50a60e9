"""Servers of a daemon that cannot be started: found at the start and at a reload, and named by /readyz if they break
later."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.daemon import BOUND, admin, asking, client, serving

pytestmark = pytest.mark.timeout(120)
ANSWERS = """
import json
for line in sys.stdin:
    frame = json.loads(line)
    result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
    "id" in frame and print(json.dumps({"jsonrpc": "2.0", "id": frame["id"], "result": result}), flush=True)
"""
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}


def write(folder: Path, servers: dict[str, Any]) -> str:
    (folder / "policy.yaml").write_text("version: 1\nrules: []\n")
    (folder / "samplegate.yaml").write_text(
        json.dumps({"policy": "policy.yaml", "watch": False, "servers": servers}, indent=1)
    )
    return "samplegate.yaml"


def good() -> dict[str, Any]:
    command, *arguments = asking("legacy+modern")
    return {"command": command, "args": arguments}


def serve(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    words = [
        sys.executable,
        "-m",
        "samplegate",
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--state",
        str(folder / "state"),
        *arguments,
    ]
    return subprocess.run(words, capture_output=True, text=True, timeout=BOUND, check=False, cwd=folder)


def test_a_command_that_is_not_found_is_told_with_its_place_before_anything_is_started(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("no program")
    servers = {
        "docs": {"command": "uvxx"},
        "good": good(),
        "plain": {"command": "./plain", "cwd": "."},
        "off": {"command": "uvxx", "disabled": True},
    }
    done = serve(tmp_path, "--settings", write(tmp_path, servers))
    assert 2 == done.returncode
    first, second = [json.loads(line)["message"] for line in done.stderr.splitlines()]
    assert first.startswith("samplegate.yaml:6:"), "the line of the command"
    assert first.endswith("servers.docs.command: 'uvxx' was not found in PATH; install it, or give its full path")
    assert second.endswith(
        "servers.plain.command: './plain' is not executable; make it executable, or run it with its interpreter"
    )


def test_so_is_the_command_of_the_command_line(tmp_path: Path) -> None:
    write(tmp_path, {})
    done = serve(tmp_path, "--policy", "policy.yaml", "--", "uvxx")
    said = "command: 'uvxx' was not found in PATH; install it, or give its full path"
    assert (2, said) == (done.returncode, json.loads(done.stderr)["message"])


def test_a_path_of_the_servers_own_environment_is_searched(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "own-server").symlink_to(shutil.which("true") or "/bin/true")
    found = {"command": "own-server", "env": {"PATH": str(tmp_path / "bin")}}
    done = serve(tmp_path, "--settings", write(tmp_path, {"own": found, "other": {"command": "own-server"}}))
    assert 2 == done.returncode
    assert ["servers.other.command"] == [
        name for name in ("servers.own.command", "servers.other.command") if name in done.stderr
    ]


@pytest.mark.anyio
async def test_a_reload_refuses_it_and_readyz_names_a_server_whose_program_is_gone(tmp_path: Path) -> None:
    program = tmp_path / "server"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    one, gone = good(), {"command": str(program)}
    async with serving(tmp_path, "--settings", write(tmp_path, {"one": one, "gone": gone})) as gate:
        assert (200, "ready\n") == await admin(gate, "/readyz")
        write(tmp_path, {"one": one, "gone": gone, "docs": {"command": "uvxx"}})
        gate.process.send_signal(signal.SIGHUP)
        refused = json.loads(await gate.said("reload.refused"))
        assert "servers.docs.command: 'uvxx'" in refused["problems"][0]

        program.unlink()
        status, text = await admin(gate, "/readyz")
        assert (200, "ready") == (status, text.splitlines()[0]), "the other server is served"
        assert text.splitlines()[1].startswith("server gone: cannot start: command: ")
        assert ["server gone"] == [
            line[:11]
            for line in json.loads((await admin(gate, "/readyz", accept="application/json"))[1])["unavailable"]
        ]
        async with client(gate, "/servers/gone/mcp") as c:
            assert 502 == (await c.post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}, {}))[0]
        await gate.said("server.not_started")
        assert [] == [line for line in gate.lines if "server.died" in line], "what never lived has not died"


@pytest.mark.anyio
async def test_readyz_names_servers_that_die_early_or_answer_nothing_until_they_answer(tmp_path: Path) -> None:
    dead = {
        "command": sys.executable,
        "args": ["-S", "-c", "import os, sys; os.path.exists('well') or sys.exit(3)" + ANSWERS],
    }
    mute = {"command": sys.executable, "args": ["-S", "-c", "import sys; sys.stdin.read()"], "start_timeout": 1}
    async with serving(tmp_path, "--settings", write(tmp_path, {"one": good(), "dead": dead, "mute": mute})) as gate:
        for _ in range(2):
            async with client(gate, "/servers/dead/mcp") as c:
                await c.begin()
        async with client(gate, "/servers/mute/mcp") as c:
            assert "start_timeout" in (await c.begin())["error"]["message"]
        status, text = await admin(gate, "/readyz")
        assert (200, "ready") == (status, text.splitlines()[0])
        assert [
            "server dead: its process died 2 times in a row",
            "server mute: it did not answer its first request within 1s (start_timeout)",
        ] == sorted(text.splitlines()[1:])

        (tmp_path / "well").touch()
        async with client(gate, "/servers/dead/mcp") as c:
            answer = await c.begin()
            for _ in range(600):  # its backoff is half a second
                if "result" in answer:
                    break
                await asyncio.sleep(0.1)
                answer = await c.begin()
            assert "result" in answer
        assert ["ready", "server mute"] == [line[:11] for line in (await admin(gate, "/readyz"))[1].splitlines()]


@pytest.mark.anyio
async def test_a_daemon_with_no_server_that_can_start_is_not_ready(tmp_path: Path) -> None:
    program = tmp_path / "server"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    async with serving(tmp_path, "--settings", write(tmp_path, {"gone": {"command": str(program)}})) as gate:
        program.unlink()
        status, text = await admin(gate, "/readyz")
        assert (503, True) == (status, text.startswith("server gone: cannot start: "))


@pytest.mark.anyio
async def test_a_server_of_type_sse_is_left_out_with_a_warning(tmp_path: Path) -> None:
    servers = {"old": {"type": "sse", "url": "https://old.example.com/sse"}, "one": good()}
    async with serving(tmp_path, "--settings", write(tmp_path, servers)) as gate:
        warning = next(line for line in gate.lines if "servers.old.type" in line)
        assert "'sse', the transport of 2024-11-05, is not supported, so this server is skipped" in warning
        assert ["one"] == json.loads((await admin(gate, "/version"))[1])["servers"]
        async with client(gate) as c:
            assert "result" in await c.call("modern")
