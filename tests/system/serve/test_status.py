"""`GET /status` of a daemon at work: calls in flight, a waiting review, a limit in use, a reload, a failing server."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.fakes.daemon import ASK_FORM, ASK_SAMPLE, BOUND, Client, Gate, admin, asking, client, serving

pytestmark = pytest.mark.anyio
SECRET: Final = "a secret of the prompt"
POLICY: Final = """
version: 1
models: [{name: trial, model: scripted, cases: cases.yaml}]
reviewers: {ops: {}}
limits:
  day: {requests: 5, per: day, tz: UTC, by: [caller]}
  room: {concurrent: 1}
rules:
  - {name: all, match: {kind: sampling}, effect: allow, with: {models: [trial]}, limits: [day, room], on_limit: wait}
  - {name: person, match: {kind: elicitation}, effect: escalate, reviewer: ops}
"""


@asynccontextmanager
async def daemon(folder: Path) -> AsyncIterator[Gate]:
    (folder / "policy.yaml").write_text(POLICY)
    (folder / "cases.yaml").write_text(f"cases: [{{answer: {SECRET}, delay: 60s}}]\n")
    command, *arguments = asking("legacy+modern")
    servers = {
        "docs": {"command": command, "args": arguments},
        "gone": {"command": sys.executable, "args": ["-c", "raise SystemExit(3)"]},
    }
    (folder / "serve.yaml").write_text(json.dumps({"policy": "policy.yaml", "servers": servers, "drain_timeout": 1}))
    async with serving(folder, "--settings", "serve.yaml", forked=True) as gate:
        yield gate


async def status(gate: Gate, until: Callable[[dict[str, Any]], object] = lambda _: True) -> dict[str, Any]:
    """The status, asked for until it is as expected."""
    async with asyncio.timeout(BOUND):
        while True:
            code, text = await admin(gate, "/status", accept="application/json")
            assert 200 == code, text
            found: dict[str, Any] = json.loads(text)
            if until(found):
                return found


async def calling(stack: AsyncExitStack, gate: Gate, era: str, *asked: dict[str, Any]) -> list[asyncio.Task[Any]]:
    """A client that calls the tool once for each of these."""
    one: Client = await stack.enter_async_context(
        client(gate, "/servers/docs/mcp", capabilities={"elicitation": {}, "sampling": {}})
    )
    if era == "legacy":
        await one.begin()
    return [asyncio.create_task(one.call(era, number, **each)) for number, each in enumerate(asked, 1)]


async def test_the_status_tells_what_goes_on(tmp_path: Path) -> None:
    async with daemon(tmp_path) as gate, AsyncExitStack() as stack:
        first = await status(gate)
        assert ["idle", "idle"] == [server["state"] for server in first["servers"]["items"]]
        assert (0, 0, None) == (first["calls"]["total"], first["requests"]["total"], first["reload"])
        tasks = await calling(stack, gate, "legacy", ASK_FORM)
        tasks += await calling(stack, gate, "legacy", ASK_SAMPLE)
        tasks += await calling(stack, gate, "modern", ASK_SAMPLE)
        found = await status(
            gate,
            lambda now: (
                {"reviewer", "model", "limit"} == {one["waits_for"] for one in now["requests"]["items"]}
                and now["reviews"]["reviewers"]
            ),
        )
        asked = {one["waits_for"]: one for one in found["requests"]["items"]}
        assert ("ops", "trial", "day, room") == tuple(asked[what]["name"] for what in ("reviewer", "model", "limit"))
        assert {"do"} == {one["tool"] for one in asked.values()}
        assert ("person", "escalate") == (asked["reviewer"]["rule"], asked["reviewer"]["effect"])
        assert all(one["expires_in"] > 0 for one in asked.values())
        assert 3 == found["calls"]["total"] == found["servers"]["items"][0]["calls"]
        assert [(3, "ready"), (0, "idle")] == [
            (server["sessions"], server["state"]) for server in found["servers"]["items"]
        ]
        assert {"2025-11-25", "2026-07-28"} == {one["protocol"] for one in found["sessions"]["items"]}
        used = {one["limit"]: one for one in found["limits"]["items"]}
        assert (1.0, 1.0, 0.0, 1) == tuple(used["room"][name] for name in ("max", "used", "left", "waiting"))
        assert ({"caller": "local"}, 1.0, 4.0) == tuple(used["day"][name] for name in ("key", "used", "left"))
        assert 0 < used["day"]["resets_in"] <= 86_400
        assert [("ops", 1)] == [(one["reviewer"], one["pending"]) for one in found["reviews"]["reviewers"]]
        assert SECRET not in json.dumps(found)
        _, text = await admin(gate, "/status")
        assert "\x1b" not in text
        assert "    reviewer ops" in text
        await reload_and_fail(gate, tmp_path)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def reload_and_fail(gate: Gate, folder: Path) -> None:
    """A reload that changes the policy, one that is refused, and a server that dies at each start."""
    (folder / "policy.yaml").write_text(POLICY.replace("requests: 5", "requests: 50"))
    found = await status(gate, lambda now: now["reload"])
    assert ("changed", 0) == (found["reload"]["result"], found["reload"]["problems"])
    assert {49.0} == {one["left"] for one in found["limits"]["items"] if one["limit"] == "day"}
    (folder / "policy.yaml").write_text("version: 1\nrules: [{name: x}]\n")
    found = await status(gate, lambda now: now["reload"]["result"] == "refused")
    assert 1 <= found["reload"]["problems"]
    async with client(gate, "/servers/gone/mcp") as one:
        for _ in range(3):
            await one.begin()
    found = await status(gate, lambda now: now["servers"]["items"][1]["state"] in ("backoff", "failed"))
    assert "its process died" in found["servers"]["items"][1]["problem"]


async def test_fifty_requests_at_once_for_the_status_are_all_answered_beside_others(tmp_path: Path) -> None:
    async with daemon(tmp_path) as gate:
        async with asyncio.timeout(BOUND):
            *found, other = await asyncio.gather(*(admin(gate, "/status") for _ in range(50)), admin(gate, "/healthz"))
        assert {200} == {code for code, _ in found}
        assert (200, "alive\n") == other
