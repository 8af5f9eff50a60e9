"""Every test in this folder is marked `real`, gets time for several programs to start, and fails with what to do where
they are not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.real import peers
from tests.real.http_peers import Places
from tests.real.peers import Client, Gate, Server

HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.real)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(150))


@pytest.fixture(scope="session", autouse=True)
def installed() -> None:
    """The counterparts' environments are there."""
    words = [*(one.words for one in peers.servers().values()), *(one.words for one in peers.clients().values())]
    missing = sorted({line[0] for line in words if not Path(line[0]).exists()})
    if missing or not peers.EVERYTHING.exists():
        pytest.fail(f"tests/real: {', '.join(missing) or peers.EVERYTHING} is missing; run 'make counterparts'")


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Server:
    return peers.servers()[request.param]


@pytest.fixture
def client(request: pytest.FixtureRequest) -> Client:
    return peers.clients()[request.param]


@pytest.fixture(scope="session")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    """The counterparts over HTTP, with gates and without."""
    with ExitStack() as started:
        yield Places(started, tmp_path_factory.mktemp("places"))


@pytest.fixture
def decisions(tmp_path: Path) -> Path:
    return tmp_path / "decisions.jsonl"


@pytest.fixture
def answers(decisions: Path) -> Gate:
    """The gate answers everything itself."""
    return Gate(peers.POLICIES / "answers.yaml", decisions)


@pytest.fixture
def forwards(decisions: Path) -> Gate:
    """The gate lets the client answer everything."""
    return Gate(peers.POLICIES / "forwards.yaml", decisions)


@pytest.fixture
def mixed(decisions: Path) -> Gate:
    """The gate answers sampling and lets the client answer elicitations."""
    return Gate(peers.POLICIES / "mixed.yaml", decisions)


@pytest.fixture
def denies(decisions: Path) -> Gate:
    return Gate(peers.POLICIES / "denies.yaml", decisions)
