"""A daemon's shutdown: when load balancers, sessions and new clients notice it, and what it still serves until then."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.fakes.daemon import ACCEPT, Client, Gate, admin, asking, client, serving
from tests.fakes.door import door

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
HELLO = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
}


def settings(folder: Path, **more: Any) -> str:
    command, *arguments = asking("legacy+modern")
    (folder / "policy.yaml").write_text("version: 1\nrules: []\n")
    (folder / "samplegate.yaml").write_text(
        json.dumps({"policy": "policy.yaml", "servers": {"one": {"command": command, "args": arguments}}, **more})
    )
    return "samplegate.yaml"


async def stop(gate: Gate) -> None:
    gate.process.send_signal(signal.SIGTERM)
    gate.ending = True
    await gate.said("drain.began")


async def posted(c: Client, frame: dict[str, Any], **headers: str) -> tuple[int, str | None]:
    """The status and Retry-After of a request on its own connection."""
    async with (
        aiohttp.ClientSession() as http,
        http.post(c.url, data=json.dumps(frame), headers={**ACCEPT, **headers}) as response,
    ):
        await response.read()
        return response.status, response.headers.get("retry-after")


async def test_balancers_see_not_ready_while_new_clients_are_still_served(tmp_path: Path) -> None:
    async with serving(tmp_path, "--settings", settings(tmp_path), env={"SAMPLEGATE_DRAIN_DELAY": "600"}) as gate:
        await stop(gate)
        assert 503 == (await admin(gate, "/readyz"))[0]
        async with client(gate) as new:
            await new.begin()
            assert ["x", "x"] == [
                (await new.call(era, 1))["result"]["content"][0]["text"] for era in ("legacy", "modern")
            ]
        gate.process.send_signal(signal.SIGTERM)  # after a second signal it does not wait out the delay
        assert 0 == await gate.end()


async def test_during_a_drain_sessions_are_served_reads_and_all_else_is_told_when_to_come_back(tmp_path: Path) -> None:
    async with (
        door() as held,
        serving(tmp_path, "--settings", settings(tmp_path)) as gate,
        client(gate) as a,
        client(gate) as b,
    ):
        await a.begin()
        await b.begin()
        call = asyncio.ensure_future(a.call("legacy", 9, door=held.at))
        await held.reached()
        await stop(gate)
        tools = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        assert (200, None) == await posted(b, tools, **b.session)
        again = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "do", "arguments": {}}}
        for frame, headers in ((again, b.session), (HELLO, {}), (tools, {"mcp-session-id": "ended"})):
            status, retry = await posted(b, frame, **headers)
            assert 503 == status
            assert int(retry or 0) > 0
        held.open()
        assert "x" == (await call)["result"]["content"][0]["text"]
        assert [(200, None), (200, None)] == [await posted(c, tools, **c.session) for c in (a, b)], (
            "right after the last answer"
        )
        assert 0 == await gate.end()


async def test_the_calls_of_a_server_have_its_own_time_to_be_answered(tmp_path: Path) -> None:
    """``drain_timeout`` is longer than any test waits. The call without an answer ends by its server's setting, and the
    other is answered."""
    legacy, modern = ({"command": command, "args": words} for command, *words in map(asking, ("legacy", "modern")))
    servers = {"hangs": {**legacy, "end_of_input_timeout": 0}, "slow": modern}
    options = settings(tmp_path, servers=servers, drain_timeout=3600)
    async with (
        door() as closed,
        door() as held,
        serving(tmp_path, "--settings", options) as gate,
        client(gate, "/servers/hangs/mcp") as a,
        client(gate, "/servers/slow/mcp") as b,
    ):
        await a.begin()
        waiting = (("legacy", a, closed), ("modern", b, held))
        calls = [asyncio.ensure_future(c.call(era, 9, door=at.at)) for era, c, at in waiting]
        await closed.reached()
        await held.reached()
        await stop(gate)
        cut_off = (await calls[0])["error"]
        assert (-32603, "the gate is shutting down (setting end_of_input_timeout)") == (
            cut_off["code"],
            cut_off["message"],
        )
        held.open()
        assert "x" == (await calls[1])["result"]["content"][0]["text"]
        assert 0 == await gate.end()
        assert any("drain.cut_off" in line and "hangs" in line for line in gate.lines)
        assert any("some calls were cut off" in line for line in gate.lines)


async def test_a_delay_of_zero_is_no_delay(tmp_path: Path) -> None:
    """The file has ten minutes, and the variable, which takes precedence, has 0. If 0 were ignored, the daemon would
    not end."""
    async with serving(
        tmp_path, "--settings", settings(tmp_path, drain_delay=600), env={"SAMPLEGATE_DRAIN_DELAY": "0"}
    ) as gate:
        await stop(gate)
        assert 0 == await gate.end()


async def test_a_process_over_max_children_is_503_until_another_ends(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, "--settings", settings(tmp_path, max_children=1)) as gate,
        client(gate) as first,
        client(gate) as second,
    ):
        await first.begin()
        status, retry = await posted(second, HELLO)
        assert 503 == status
        assert int(retry or 0) > 0
        async with aiohttp.ClientSession() as http, http.delete(first.url, headers=first.session) as response:
            assert response.status < 300
        async with asyncio.timeout(60):
            while (await posted(second, HELLO))[0] != 200:  # the process of the first is still ending
                pass
