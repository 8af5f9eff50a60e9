"""The protocol version that the gate speaks to a server: configured for each server, or learned from a call that failed
because the server pushed. tests/unit/protocol/test_protocol_versions.py has each case in process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.daemon import Client, client, serving
from tests.fakes.version_runs import (
    ANSWERS,
    CAPABLE,
    DISCOVER,
    FORWARDS,
    INITIALIZE,
    META,
    SERVER,
    WARNING,
    Run,
    call,
    legacy,
    text,
)
from tests.paths import PROXY

pytestmark = pytest.mark.timeout(120)


# -- run
# ----------------------------------------------------------------------------------------------------------------------


def test_with_legacy_a_client_that_can_fall_back_does_so_and_nothing_is_bridged(tmp_path: Path) -> None:
    run = Run(tmp_path, "error", FORWARDS, ("--protocol", "legacy"))
    asked, begun, pushed = run(DISCOVER, INITIALIZE, legacy(1, "tools/call", name="push", arguments={}))
    assert -32601 == asked["error"]["code"]
    assert "2025-11-25" == begun["result"]["protocolVersion"]
    assert "from the client" == text(pushed)
    assert ["initialize", "tools/call"] == run.at_server()


def test_a_call_that_failed_because_the_server_pushed_is_learned_from(tmp_path: Path) -> None:
    run = Run(tmp_path, "error", FORWARDS)
    found, failed, again = run(DISCOVER, call(1, "push"), call(2, "push"))
    assert ["2026-07-28"] == found["result"]["supportedVersions"]
    assert "sampling/createMessage" in str(failed)
    assert "sampling/createMessage" in str(again)  # this connection stays as it is
    assert 1 == run.stderr.count(WARNING)
    assert "--protocol legacy" in next(line for line in run.stderr.splitlines() if WARNING in line)
    assert ["server/discover+", "tools/call+", "tools/call+"] == run.at_server()  # no call is repeated
    asked, _, pushed = run(DISCOVER, INITIALIZE, legacy(1, "tools/call", name="push", arguments={}))
    assert -32601 == asked["error"]["code"]
    assert "from the client" == text(pushed)
    assert WARNING not in run.stderr
    assert ["initialize", "tools/call"] == run.at_server()


def test_a_pushed_request_on_the_wire_is_learned_from(tmp_path: Path) -> None:
    run = Run(tmp_path, "request")
    assert "plain" == text(run(call(1, "plain", {}))[0])
    frame = json.dumps(call(2, "push", {}))
    words = [sys.executable, "-c", f"import subprocess, sys, time; print({frame!r}, flush=True); sys.stdin.read()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as held:
        gate = [
            sys.executable,
            "-m",
            "samplegate",
            "run",
            "--policy",
            "policy.yaml",
            "--decision-log",
            "none",
            "--state",
            str(tmp_path / "state"),
        ]
        gate += ["--", sys.executable, SERVER, "request", str(run.seen)]
        environment = {**os.environ, "PYTHONPATH": str(PROXY)}
        with subprocess.Popen(
            gate, stdin=held.stdout, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=tmp_path, env=environment
        ) as process:
            assert process.stderr is not None
            assert any(WARNING in line.decode() for line in process.stderr)
            process.kill()
            held.kill()
    run.at_server()
    assert "from the policy" == text(run(call(3, "push", {}))[0])
    assert ["initialize", "tools/call"] == run.at_server()


# -- the daemon
# ----------------------------------------------------------------------------------------------------------------------


def settings(folder: Path, policy: str, **server: Any) -> str:
    (folder / "policy.yaml").write_text(policy)
    one = {"command": sys.executable, "args": [SERVER, "error", str(folder / "seen.jsonl")], **server}
    (folder / "samplegate.yaml").write_text(json.dumps({"policy": "policy.yaml", "servers": {"one": one}}))
    return "samplegate.yaml"


async def push(c: Client, id: int = 1) -> dict[str, Any]:
    return await c.modern("tools/call", id, name="push", arguments={})


@pytest.mark.anyio
async def test_the_daemon_learns_for_the_next_connection_of_each_client(tmp_path: Path) -> None:
    extended = {**CAPABLE, "extensions": {f"{META}tasks": {}}}
    async with (
        serving(tmp_path, "--settings", settings(tmp_path, FORWARDS), forked=True) as gate,
        client(gate, capabilities=CAPABLE) as c,
    ):
        assert ["2026-07-28"] == (await c.modern("server/discover"))["result"]["supportedVersions"]
        assert [-32600, -32600] == [(await push(c, id))["error"]["code"] for id in (1, 2)]
        line = await gate.said(WARNING)
        assert "servers: {one: {protocol: legacy}}" in line
        assert -32601 == (await c.modern("server/discover"))["error"]["code"]
        await c.begin()
        assert "a person" == text(await c.legacy("tools/call", 2, name="push", arguments={}))
        async with client(gate, capabilities=extended) as other:
            assert ["2026-07-28"] == (await other.modern("server/discover"))["result"]["supportedVersions"]
            assert -32600 == (await push(other))["error"]["code"]
        assert 1 == sum(WARNING in line for line in gate.lines)


@pytest.mark.anyio
async def test_a_client_that_declares_tasks_only_in_its_calls_stays_in_the_version_of_its_discovery(
    tmp_path: Path,
) -> None:
    reviewed = "  - {name: people, match: {kind: elicitation}, effect: escalate, reviewer: ops}\nreviewers: {ops: {}}\n"
    async with (
        serving(tmp_path, "--settings", settings(tmp_path, ANSWERS + reviewed), forked=True) as gate,
        client(gate) as c,
    ):
        assert -32600 == (await push(c))["error"]["code"]
        await gate.said(WARNING)
        found = (await c.modern("server/discover"))["result"]
        assert {f"{META}tasks": {}} == found["capabilities"]["extensions"], "so the client declares them in its calls"
        c.capabilities = {"extensions": {f"{META}tasks": {}}}
        assert "from the policy" == text(await push(c, 2))
        assert -32602 == (await c.modern("tasks/get", 3, taskId="unknown"))["error"]["code"]
        assert "from the policy" == text(await push(c, 4))


@pytest.mark.anyio
async def test_the_daemon_bridges_a_pinned_client_to_a_server_that_is_set_to_legacy(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, "--settings", settings(tmp_path, ANSWERS, protocol="legacy"), forked=True) as gate,
        client(gate) as c,
    ):
        assert "from the policy" == text(await push(c))
        assert -32601 == (await c.modern("server/discover"))["error"]["code"]
        await c.begin()
        assert "from the policy" == text(await c.legacy("tools/call", 2, name="push", arguments={}))


@pytest.mark.anyio
async def test_a_server_that_all_callers_share_is_shared_by_none_in_the_legacy_versions(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, "--settings", settings(tmp_path, ANSWERS, share="all"), forked=True) as gate,
        client(gate) as c,
    ):
        assert -32600 == (await push(c))["error"]["code"]
        assert "2026-07-28" in str(await c.modern("server/discover"))
        assert "from the policy" == text(await push(c, 2))
    seen = [json.loads(line) for line in (tmp_path / "seen.jsonl").read_text().splitlines()]
    assert 1 == sum(frame.get("method") == "initialize" for frame in seen)


def test_a_protocol_without_a_server_on_the_command_line_is_an_error(tmp_path: Path) -> None:
    words = [
        sys.executable,
        "-m",
        "samplegate",
        "serve",
        "--protocol",
        "legacy",
        "--settings",
        settings(tmp_path, ANSWERS),
    ]
    done = subprocess.run(
        words,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(PROXY)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert 2 == done.returncode
    assert "--protocol: applies only to a server on the command line" in done.stderr
