"""A gate behind a load balancer is killed under load: every call ends in time, and none reaches a server twice."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.fleet.balancers import NAMES, Door, balancing
from tests.fleet.gates import fleet
from tests.fleet.load import Load, client, notes, outcome
from tests.paths import TESTS

pytestmark = pytest.mark.anyio
COUNTING: Final = str(TESTS / "fleet" / "counting_server.py")
SERVERS: Final = ("local", "remote")
CLIENTS: Final = 6
SESSIONS: Final = 16
HELD: Final = 32
"""Calls that wait at the server during the kill. Tokens select gates by their hashes, so some of so many sessions and
calls are at the killed gate."""


@pytest.mark.parametrize("name", NAMES)
async def test_a_killed_gate_costs_calls_but_repeats_none(name: str, tmp_path: Path) -> None:
    file = tmp_path / "notes"
    local = {"command": sys.executable, "args": [COUNTING, str(file)]}
    for folder in ("behind", "gates", name):
        (tmp_path / folder).mkdir()
    async with AsyncExitStack() as stack:
        (behind,) = await stack.enter_async_context(fleet(tmp_path / "behind", 1, servers={"counting": local}))
        servers = {"local": local, "remote": {"url": f"{behind.url}/servers/counting/mcp"}}
        gates = await stack.enter_async_context(fleet(tmp_path / "gates", servers=servers))
        balancer = await stack.enter_async_context(balancing(name, tmp_path / name, gates))
        load, door, workers = Load(), Door(), []
        for server in SERVERS:
            for number in range(CLIENTS):
                c = await stack.enter_async_context(client(balancer.url, server, f"token-{number}"))
                workers.append(partial(load.calls, c, f"{server}-{number}"))
            for number in range(SESSIONS):
                c = await stack.enter_async_context(client(balancer.url, server, f"token-session-{server}-{number}"))
                workers.append(partial(load.sessions, c, f"session-{server}-{number}"))
        async with load.running(*workers):
            await load.more(50)
            held = []
            for number in range(HELD):
                c = await stack.enter_async_context(client(balancer.url, SERVERS[number % 2], f"token-held-{number}"))
                arguments = {"note": f"held-{number}", "door": door.address}
                held.append(asyncio.ensure_future(outcome(c.call("modern", 1, **arguments))))
            await door.wait_for(HELD)
            await gates[0].end(signal.SIGKILL)
            await load.more(200)
            door.open()
            ends = await asyncio.gather(*held)
            await gates[0].start()
            await load.more(200)
        seen = await asyncio.to_thread(notes, file)
    assert [] == [(note, times) for note, times in seen.items() if times != 1]
    assert "late" not in {*ends, *load.outcomes.values()}
    assert 0 < ends.count("answered") < HELD, "those at the killed gate failed, and no other gate repeated them"
    answered = {note for note, what in load.outcomes.items() if what == "answered" and not note.endswith(" opens")}
    assert answered <= set(seen)
    last = list(load.outcomes.values())[-100:]
    assert ["answered"] * len(last) == last, load.failures
    repeated = [what for note, what in load.outcomes.items() if "try" in note and not note.endswith(("try 0", "opens"))]
    assert "answered" in repeated, "a client opened a new session, and repeated its call"
