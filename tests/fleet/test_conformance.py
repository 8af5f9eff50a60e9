"""The official server suite through the load balancers: what passes without gates passes with three of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.acceptance.sdk.peers import POLICIES
from tests.conformance.listening import known_good, listening
from tests.conformance.suite import REVISIONS, server_suite, worse
from tests.fleet.balancers import NAMES, Balancer, balancing
from tests.fleet.gates import fleet

pytestmark = [pytest.mark.anyio, pytest.mark.real, pytest.mark.timeout(330)]


@dataclass
class Scene:
    """A server without a gate, and behind three of them."""

    direct: str
    balancers: dict[str, Balancer]


@pytest.fixture(scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    folder = tmp_path_factory.mktemp("conformance")
    async with AsyncExitStack() as stack:
        server = stack.enter_context(listening(known_good("http")))
        policy = yaml.safe_load((POLICIES / "forwards.yaml").read_text("utf-8"))
        servers = {"default": {"url": server.url}}
        files = {"seal": "5" * 64}
        # what gates know of tasks must be shared: by the database, or here, on one machine, by the state folder
        gates = await stack.enter_async_context(
            fleet(
                folder, policy=policy, files=files, servers=servers, seal_key_file="seal", state=str(folder / "shared")
            )
        )
        balancers = {}
        for name in NAMES:
            (folder / name).mkdir()
            balancers[name] = await stack.enter_async_context(balancing(name, folder / name, gates))
        yield Scene(server.url, balancers)


@pytest.mark.parametrize("revision", REVISIONS)
async def test_what_passes_without_gates_passes_through_a_load_balancer(
    scene: Scene, revision: str, tmp_path: Path
) -> None:
    direct = await asyncio.to_thread(server_suite, scene.direct, revision, tmp_path / "direct")
    for name, balancer in scene.balancers.items():
        gated = await asyncio.to_thread(server_suite, f"{balancer.url}/mcp", revision, tmp_path / name)
        lost = {scenario: worse(checks, gated.get(scenario, {})) for scenario, checks in direct.items()}
        assert {} == {scenario: lines for scenario, lines in lost.items() if lines}, name
