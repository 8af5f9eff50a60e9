"""Sessions and rounds through the recipes of deploy/balancers: clients of both protocol versions work as they do at one
gate. What belongs to another gate is refused with an answer that tells the client what to do."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import pytest

from samplegate.protocol.request_state import FOREIGN
from tests.acceptance.sdk import peers
from tests.acceptance.sdk.peers import Server, call
from tests.fakes.daemon import Client
from tests.fleet.balancers import NAMES, Balancer, balancing
from tests.fleet.gates import FleetGate, fleet
from tests.paths import TESTS

pytestmark = pytest.mark.anyio
COUNTING: Final = str(TESTS / "fleet" / "counting_server.py")
ABLE: Final[dict[str, Any]] = {"elicitation": {"form": {}}}
GIVEN: Final = {"action": "accept", "content": {"confirm": True}}
CALLERS: Final = 12


@dataclass
class Scene:
    """Three gates, and both load balancers in front of them. The server ``local`` is behind stdio, ``remote`` at a
    URL, and ``sdk`` is a server of the Python SDK."""

    gates: list[FleetGate]
    balancers: dict[str, Balancer]


@pytest.fixture(scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    folder = tmp_path_factory.mktemp("sessions")
    local = {"command": sys.executable, "args": [COUNTING, str(folder / "notes")]}
    command, *args = peers.servers()["sdk2"].words
    for name in ("behind", "gates", *NAMES):
        (folder / name).mkdir()
    async with fleet(folder / "behind", 1, servers={"counting": local}) as (behind,):
        servers = {
            "local": local,
            "remote": {"url": f"{behind.url}/servers/counting/mcp"},
            "sdk": {"command": command, "args": args},
        }
        async with (
            fleet(folder / "gates", servers=servers, files={"seal": "5" * 64}, seal_key_file="seal") as gates,
            balancing("haproxy", folder / "haproxy", gates) as haproxy,
            balancing("nginx", folder / "nginx", gates) as nginx,
        ):
            yield Scene(gates, {"haproxy": haproxy, "nginx": nginx})


@asynccontextmanager
async def clients(url: str, server: str, count: int = CALLERS, *, tokens: bool = True) -> AsyncIterator[list[Client]]:
    """Clients with a connection for each request. Each has its own Authorization header, or all have none."""
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=30)) as http:
        yield [
            Client(http, f"{url}/servers/{server}/mcp", ABLE, f"token-{number}" if tokens else None)
            for number in range(count)
        ]


def process(answer: dict[str, Any]) -> str:
    """The server process that answered a call."""
    text: str = answer["result"]["content"][0]["text"]
    return text


def given(answer: dict[str, Any]) -> Any:
    return answer["result"]["structuredContent"]["given"]


async def retry(c: Client, asked: dict[str, Any], id: int = 2) -> dict[str, Any]:
    """A modern client's retry with its answer."""
    state = asked["result"]["requestState"]
    answers = {"k": GIVEN}
    return await c.modern(
        "tools/call", id, name="do", arguments={"ask": True}, requestState=state, inputResponses=answers
    )


@pytest.mark.parametrize("server", ["local", "remote"])
@pytest.mark.parametrize("name", NAMES)
async def test_each_caller_has_its_session_and_its_rounds_at_one_of_the_gates(
    scene: Scene, name: str, server: str
) -> None:
    async with clients(scene.balancers[name].url, server) as found:
        for c in found:
            await c.begin()
            assert GIVEN == given(await c.call("legacy", 1, ask=True)), "over the stream of the call, at once"
            assert [1] == [len([one for one in c.heard if one.get("method") == "elicitation/create"])]
            assert "result" in await c.legacy("tools/list", 2)
            assert GIVEN == given(await retry(c, await c.call("modern", 1, ask=True)))
        if server == "local":  # a process of the server for each session, and one for the modern calls of a gate
            assert CALLERS == len({process(await c.call("legacy", 3)) for c in found})
            first, second = [[process(await c.call("modern", id)) for c in found] for id in (3, 4)]
            assert first == second
            assert 1 < len(set(first)) <= len(scene.gates)


async def test_haproxy_learns_the_session_of_a_client_without_a_token(scene: Scene) -> None:
    async with clients(scene.balancers["haproxy"].url, "local", tokens=False) as found:
        for c in found:
            await c.begin()
        for number in range(3):
            for c in found:
                assert GIVEN == given(await c.call("legacy", number, ask=True))
        assert CALLERS == len({process(await c.call("legacy", 9)) for c in found})


async def test_a_session_survives_its_callers_new_token_with_haproxy_and_begins_anew_with_nginx(scene: Scene) -> None:
    found_again: dict[str, set[int]] = {}
    for name in NAMES:
        async with clients(scene.balancers[name].url, "local") as found:
            for number, c in enumerate(found):
                await c.begin()
                c.headers["authorization"] = f"Bearer renewed-{number}"
                frame = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
                status, _ = await c.post(frame, c.session)
                found_again.setdefault(name, set()).add(status)
                if status == 404:
                    c.session = {}
                    assert "result" in await c.begin()
    assert {"haproxy": {200}, "nginx": {404}} == {**found_again, "nginx": found_again["nginx"] - {200}}


async def test_a_round_at_another_gate_goes_on_for_a_server_at_a_url_and_is_refused_for_a_stdio_server(
    scene: Scene,
) -> None:
    """HAProxy spreads requests without Authorization over all gates, so most retries come to another gate."""
    outcomes = {}
    for server in ("remote", "local"):
        async with clients(scene.balancers["haproxy"].url, server, 1, tokens=False) as (c,):
            answers = [await retry(c, await c.call("modern", 1, ask=True)) for _ in range(CALLERS)]
        outcomes[server] = {
            str(answer["error"]["message"] if "error" in answer else given(answer)) for answer in answers
        }
    assert {"remote": {str(GIVEN)}, "local": {FOREIGN}} == {**outcomes, "local": outcomes["local"] - {str(GIVEN)}}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("client", ["python1", "python2-legacy", "python2-auto", "python2-pinned"])
async def test_the_official_sdk_works_through_a_balancer(scene: Scene, name: str, client: str) -> None:
    url = f"{scene.balancers[name].url}/servers/sdk/mcp"
    steps = [{"do": "tools"}, {"do": "ping"}, call("add", a=1, b=2)]
    seen = [
        await asyncio.to_thread(peers.drive, peers.clients()[client], Server("sdk", (at,)), None, steps)
        for at in (url, f"{scene.gates[0].url}/servers/sdk/mcp")
    ]
    assert seen[0].results == seen[1].results


# -- sessions of others
# ----------------------------------------------------------------------------------------------------------------------


async def statuses(c: Client, session: str) -> list[int]:
    """The statuses of a call, an answer, a stream, a resumed stream and an end with this session ID."""
    headers = {**c.headers, "mcp-session-id": session, "mcp-protocol-version": "2025-11-25"}
    frames: list[dict[str, Any]] = [
        {"jsonrpc": "2.0", "id": 7, "method": "tools/list"},
        {"jsonrpc": "2.0", "id": "q1", "result": {}},
    ]
    found = [(await c.post(frame, headers))[0] for frame in frames]
    for method, more in (("GET", {}), ("GET", {"last-event-id": "1-1"}), ("DELETE", {})):
        async with c.http.request(method, c.url, headers={**headers, **more}) as response:
            found.append(response.status)
    return found


async def test_a_session_of_another_gate_or_a_forged_or_ended_one_is_not_found(scene: Scene) -> None:
    one, two = scene.gates[:2]
    async with clients(one.url, "local", 1) as (c,), clients(two.url, "local", 1) as (other,):
        await c.begin()
        id = c.session["mcp-session-id"]
        assert [404] * 5 == await statuses(other, id)
        assert "result" in await c.legacy("tools/list", 2), "the gate of the session still has it"
        assert [404] * 5 == await statuses(c, id[:-1] + ("A" if id[-1] != "A" else "B"))
        async with c.http.delete(c.url, headers={**c.headers, **c.session}) as response:
            assert 204 == response.status
        assert [404] * 5 == await statuses(c, id)
        assert "result" in await c.begin(), "the client opens another one"
