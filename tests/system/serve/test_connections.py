"""The daemon's number of connections: thousands if the system allows them (five thousand in `make soak`), and never
more than the bound."""

from __future__ import annotations

import asyncio
import json
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.daemon import BOUND, Gate, admin, asking, client, serving

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]
POLICY = "version: 1\nrules: [{name: never, effect: deny}]\n"
MANY = 5_000
Held = list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]


@pytest.fixture(autouse=True)
def descriptors() -> Iterator[None]:
    """Raise the limit of descriptors for both ends, here and in the daemon, which inherits it."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * MANY
    assert before[1] == resource.RLIM_INFINITY or before[1] >= wanted, (
        f"ulimit -Hn is {before[1]}, and this test needs {wanted}"
    )
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], wanted), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def held(gate: Gate, count: int) -> Held:
    """Open this many idle connections."""
    host, port = gate.url.removeprefix("http://").split(":")
    found: Held = []
    while len(found) < count:
        found += await asyncio.gather(
            *(asyncio.open_connection(host, int(port)) for _ in range(min(500, count - len(found))))
        )
    return found


def let_go(connections: Held) -> None:
    for _, writer in connections:
        writer.transport.abort()


def settings(folder: Path, most: int) -> str:
    command, *arguments = asking("legacy+modern")
    (folder / "policy.yaml").write_text(POLICY)
    wanted = {
        "policy": "policy.yaml",
        "max_connections": most,
        "servers": {"one": {"command": command, "args": arguments}},
    }
    (folder / "serve.yaml").write_text(json.dumps(wanted))
    return str(folder / "serve.yaml")


@pytest.mark.parametrize("number", [1_500, pytest.param(MANY, marks=pytest.mark.soak)])
async def test_thousands_of_connections_keep_nobody_from_being_answered(tmp_path: Path, number: int) -> None:
    async with serving(tmp_path, "--settings", settings(tmp_path, 6_000)) as gate, client(gate) as c:
        idle = await held(gate, number)
        try:
            assert "result" in await c.call("modern")
            await c.begin()
            assert "result" in await c.call("legacy", 2)
            assert (
                f'samplegate_connections_open{{listener="public"}} {number + 1}.0' in (await admin(gate, "/metrics"))[1]
            )
        finally:
            let_go(idle)


async def test_one_connection_too_many_is_told_to_come_back_and_the_others_go_on(tmp_path: Path) -> None:
    async with serving(tmp_path, "--settings", settings(tmp_path, 50)) as gate, client(gate) as c:
        assert "result" in await c.call("modern")  # its connection stays
        idle = await held(gate, 49)
        ((reader, writer),) = await held(gate, 1)
        try:
            async with asyncio.timeout(BOUND):
                said = await reader.read()
            assert said.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: " in said
            assert "result" in await c.call("modern", 2)
            assert (
                'samplegate_http_refused_total{reason="busy",server="none"} 1.0' in (await admin(gate, "/metrics"))[1]
            )
        finally:
            let_go([*idle, (reader, writer)])
