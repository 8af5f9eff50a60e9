"""Gates behind a load balancer are restarted one after another under load, and get new seal keys on the way: no modern
call fails."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.fleet.balancers import NAMES, Balancer, balancing
from tests.fleet.gates import FleetGate, fleet
from tests.fleet.load import Load, client, notes
from tests.paths import TESTS

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(400)]
COUNTING: Final = str(TESTS / "fleet" / "counting_server.py")
OLD, NEW = "a1" * 32 + "\n", "b2" * 32 + "\n"
STEPS: Final = {"haproxy": (OLD + NEW, NEW + OLD, NEW), "nginx": (OLD + NEW,)}
"""The content of the key file before each round of restarts. One round shows what nginx does without a gate."""
CLIENTS: Final = 4
SETTINGS: Final[dict[str, Any]] = {"seal_key_file": "seal", "drain_delay": 4, "drain_timeout": 20}


class Restarts:
    """The restarts, and clients that answer a question only after the next one."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    async def wait(self) -> None:
        """Wait for the next restart."""
        await self._next.wait()

    def _done(self) -> None:
        before, self._next = self._next, asyncio.Event()
        before.set()

    async def all(self, gates: Sequence[FleetGate], balancer: Balancer, load: Load, key: str) -> None:
        """Restart each gate with this key file, as an operator does."""
        for gate in gates:
            await balancer.take_out(gate)
            assert 0 == await gate.end()
            await asyncio.to_thread((gate.folder / "seal").write_text, key)
            await gate.start()
            await balancer.put_back(gate)
            await load.more(20)
            self._done()

    def end(self) -> None:
        """Let all clients answer."""
        self._next.set()


@pytest.mark.parametrize("name", NAMES)
async def test_no_modern_call_and_no_round_is_lost(name: str, tmp_path: Path) -> None:
    """Behind stdio, calls without questions; at a URL, also rounds that begin before a restart and end after it. With
    HAProxy, half of the clients have no token, so that their rounds come to other gates all the time."""
    file = tmp_path / "notes"
    local = {"command": sys.executable, "args": [COUNTING, str(file)]}
    for folder in ("behind", "gates", name):
        (tmp_path / folder).mkdir()
    async with AsyncExitStack() as stack:
        (behind,) = await stack.enter_async_context(fleet(tmp_path / "behind", 1, servers={"counting": local}))
        servers = {"local": local, "remote": {"url": f"{behind.url}/servers/counting/mcp"}}
        gates = await stack.enter_async_context(
            fleet(tmp_path / "gates", servers=servers, files={"seal": OLD}, **SETTINGS)
        )
        balancer = await stack.enter_async_context(balancing(name, tmp_path / name, gates))
        load, restarts, workers = Load(), Restarts(), []
        for number in range(CLIENTS):
            token = None if number % 2 and name == "haproxy" else f"token-{number}"
            for server in servers:
                c = await stack.enter_async_context(client(balancer.url, server, token))
                workers.append(partial(load.calls, c, f"{server}-{number}"))
            for who, pause in (("round", partial(asyncio.sleep, 0)), ("long round", restarts.wait)):
                c = await stack.enter_async_context(client(balancer.url, "remote", token))
                workers.append(partial(load.rounds, c, f"{who}-{number}", pause))
        async with load.running(*workers):
            await load.more(50)
            for key in STEPS[name]:
                await restarts.all(gates, balancer, load, key)
            restarts.end()
        seen = await asyncio.to_thread(notes, file)
    assert {} == load.failures
    assert [] == [(note, times) for note, times in seen.items() if times != 1]
    long = [note for note in load.outcomes if note.startswith("long round")]
    assert len(long) >= CLIENTS * len(gates) * len(STEPS[name])
