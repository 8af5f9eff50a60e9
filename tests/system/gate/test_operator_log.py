"""A daemon's stderr when it is not a terminal: every line parses and names its server, and levels mean something."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.daemon import ASK_SAMPLE, BOUND, Gate, asking, client, serving
from tests.fakes.openai_endpoint import Endpoint
from tests.paths import PROGRAMS

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]
NOISY = str(PROGRAMS / "noisy.py")
MODELS = {
    "refused": "openai/status-401",
    "unknown": "openai/status-404",
    "dead": "openai/normal",
    "fine": "openai/normal",
}


def write(folder: Path, policy: dict[str, Any], servers: dict[str, Any], **more: Any) -> str:
    """Write a settings file. JSON is YAML."""
    (folder / "policy.yaml").write_text(json.dumps({"version": 1, **policy}))
    (folder / "samplegate.yaml").write_text(json.dumps({"policy": "policy.yaml", "servers": servers, **more}))
    return "samplegate.yaml"


def events(gate: Gate) -> list[dict[str, Any]]:
    """Every line of stderr, parsed."""
    found = [json.loads(line) for line in gate.lines]
    assert [] == [line for line in found if not {"time", "level", "event"} <= line.keys()]
    return found


async def test_every_line_parses_and_the_servers_lines_name_it(tmp_path: Path) -> None:
    servers = {"noisy": {"command": sys.executable, "args": [NOISY]}}
    async with serving(tmp_path, "--settings", write(tmp_path, {"rules": []}, servers)) as gate, client(gate) as c:
        await c.begin()
        await gate.said("noisy: started")
        assert "result" in await c.call("legacy", flood=20_000)
        assert 0 == await gate.end()
    found = events(gate)
    said = [event for event in found if event["event"] == "server.logged"]
    assert {"noisy"} == {event["server"] for event in said}
    lines = [event["line"] for event in said]
    assert ["noisy: started", '{"event": "its own", "level": "error"}', "\ufffd\ufffd \x1b[31mred"] == lines[:3]
    assert "x" * 999 + "…" == lines[3]
    assert "noisy: last words" == lines[-1]
    floods = [event for event in said if event["line"] == "flood"]
    assert 20_000 > len(floods), "a flood is not told whole"
    assert 20_000 == len(floods) + sum(event.get("left_out", 0) for event in said), "and what is left out is counted"
    assert "listener.opened" in [event["event"] for event in found]
    assert ("settings.warned", "warning") == (found[0]["event"], found[0]["level"])
    assert "daemon.ended" == found[-1]["event"]


def test_what_keeps_a_daemon_from_starting_parses_too(tmp_path: Path) -> None:
    settings = write(tmp_path, {"rules": []}, {"one": {"command": "uvxx"}, "two": {"command": "uvyy"}})
    words = [sys.executable, "-m", "samplegate", "serve", "--settings", settings, "--state", str(tmp_path / "state")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=BOUND, check=False, cwd=tmp_path)
    found = [json.loads(line) for line in done.stderr.splitlines()]
    assert [("error", "start.refused")] * 2 == [(event["level"], event["event"]) for event in found]
    assert "uvyy" in found[1]["message"]


async def test_an_operators_mistake_is_an_error_and_what_is_not_answered_a_warning(tmp_path: Path) -> None:
    with Endpoint() as endpoint:
        urls = {"dead": "http://127.0.0.1:9/v1"}
        models = [
            {"name": name, "model": model, "api_base": urls.get(name, endpoint.url), "api_key_env": "A_KEY"}
            for name, model in MODELS.items()
        ]
        rules = [
            {"name": name, "match": {"kind": "sampling", "server": name}, "effect": "allow", "with": {"models": [name]}}
            for name in MODELS
        ]
        rules[-1]["limits"] = ["once"]
        limits = {"once": {"requests": 1, "per": "process"}}
        command, *arguments = asking("legacy+modern")
        servers = {name: {"command": command, "args": arguments} for name in MODELS}
        settings = write(tmp_path, {"models": models, "rules": rules, "limits": limits}, servers)
        async with serving(tmp_path, "--settings", settings, env={"A_KEY": "k" * 20}) as gate:
            for name in (*MODELS, "fine"):
                async with client(gate, f"/servers/{name}/mcp") as c:
                    await c.call("modern", **ASK_SAMPLE)
            assert 0 == await gate.end()
    told = [event for event in events(gate) if event["event"] == "request.decided"]
    assert {("local", "do", 8)} == {(event["caller"], event["tool"], len(event["session"])) for event in told}
    decided = [(event["server"], event["level"], event["reason"]) for event in told]
    assert [
        ("refused", "error", "model"),
        ("unknown", "error", "model"),
        ("dead", "warning", "model"),
        ("fine", "info", "rule"),
        ("fine", "warning", "limit"),
    ] == decided
