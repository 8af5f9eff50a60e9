"""Two daemons with one database: a token that is withdrawn at one of them is refused at both."""

from __future__ import annotations

import asyncio
import hashlib
import json
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from tests.fakes import postgresql
from tests.fakes.daemon import BOUND, Client, Gate, asking, serving

pytestmark = pytest.mark.anyio

POLICY = {"version": 1, "models": [{"name": "m", "model": "openai/gpt-5-mini"}], "rules": []}


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with postgresql.postgresql("fsync = off") as place:
        yield postgresql.url(place)


def write_settings(folder: Path, database: str, *names: str) -> None:
    tokens = [{"name": name, "sha256": hashlib.sha256(f"secret-of-{name}".encode()).hexdigest()} for name in names]
    program, *arguments = asking("legacy+modern")
    settings = {
        "policy": "policy.yaml",
        "database": database,
        "servers": {"one": {"command": program, "args": arguments}},
        "callers": {"tokens": tokens},
        "watch": False,
    }
    (folder / "serve.yaml").write_text(json.dumps(settings))
    (folder / "policy.yaml").write_text(json.dumps(POLICY))


@pytest.fixture
async def gates(tmp_path: Path, database: str) -> AsyncIterator[list[Gate]]:
    async with AsyncExitStack() as stack:
        found = []
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            write_settings(tmp_path / name, database, "ann", "ben")
            found.append(
                await stack.enter_async_context(serving(tmp_path / name, "--settings", "serve.yaml", forked=True))
            )
            await found[-1].said("listening on")
        yield found


async def status_of(http: aiohttp.ClientSession, gate: Gate, name: str) -> int:
    headers = {**Client(http, gate.url, token=f"secret-of-{name}").headers, "mcp-protocol-version": "2026-07-28"}
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {}}
    async with http.post(f"{gate.url}/mcp", json=ping, headers=headers) as response:
        return response.status


async def until(http: aiohttp.ClientSession, gate: Gate, name: str, *, refused: bool) -> None:
    async with asyncio.timeout(BOUND):
        while (await status_of(http, gate, name) == 401) != refused:  # noqa: ASYNC110 - the other process tells nothing
            await asyncio.sleep(0.1)


async def test_a_token_that_is_withdrawn_at_one_gate_is_refused_at_the_other(
    gates: list[Gate], tmp_path: Path, database: str
) -> None:
    first, second = gates
    async with aiohttp.ClientSession() as http:
        for gate in gates:
            assert 401 != await status_of(http, gate, "ann")
        write_settings(tmp_path / "a", database, "ben")
        first.process.send_signal(signal.SIGHUP)
        await first.said("reload.taken")
        assert 401 == await status_of(http, first, "ann")
        await until(http, second, "ann", refused=True)
        assert 401 != await status_of(http, second, "ben")
        assert "ann" in await second.said("database.tokens_withdrawn")
        said = len(second.lines)
        second.process.send_signal(signal.SIGHUP)
        await second.said("reload.", said)
        assert 401 == await status_of(http, second, "ann"), "a reload with the old settings does not allow it again"

        write_settings(tmp_path / "a", database, "ann", "ben")
        said = len(first.lines)
        first.process.send_signal(signal.SIGHUP)
        await first.said("reload.taken", said)
        await until(http, second, "ann", refused=False)


async def test_the_status_has_the_problems_of_the_database(tmp_path: Path) -> None:
    nowhere = "postgresql://gates:secret@127.0.0.1:1/gates"
    write_settings(tmp_path, nowhere, "ann")
    async with serving(tmp_path, "--settings", "serve.yaml") as gate, aiohttp.ClientSession() as http:
        await gate.said("database.problem")
        async with http.get(f"{gate.admin}/status", headers={"accept": "application/json"}) as response:
            status = await response.json()
        assert any(
            "database postgresql://gates@127.0.0.1:1/gates: it cannot be reached" in one for one in status["problems"]
        )
        async with http.get(f"{gate.admin}/readyz") as response:
            assert 200 == response.status
        assert "secret" not in "\n".join(gate.lines) + json.dumps(status)
