"""Setup for the SDK tests: the `real` marker, time for several programs to start, and a failure with the remedy if
these are not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.acceptance.sdk import peers
from tests.acceptance.sdk.http_peers import Places
from tests.acceptance.sdk.peers import Drive, Gate, Programs

HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.real)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(150))


@pytest.fixture(scope="session", autouse=True)
def installed() -> None:
    """Check that the counterparts' environments are installed."""
    words = [*(one.words for one in peers.servers().values()), *(one.words for one in peers.clients().values())]
    needed = {peers.environment("fastmcp"), *(line[0] for line in words)}
    missing = sorted(line for line in needed if not Path(line).exists())
    if missing or not peers.EVERYTHING.exists():
        pytest.fail(
            f"tests/acceptance/sdk: {', '.join(missing) or peers.EVERYTHING} is missing; run 'make counterparts'"
        )


@pytest.fixture(scope="session")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    """The counterparts over HTTP, with and without gates."""
    with ExitStack() as started:
        yield Places(started, tmp_path_factory.mktemp("places"))


@pytest.fixture(scope="session")
def drive() -> Iterator[Drive]:
    """Runs scenarios, with one process for each client program."""
    programs = Programs()
    yield programs.drive
    programs.end()


@pytest.fixture
def decisions(tmp_path: Path) -> Path:
    return tmp_path / "decisions.jsonl"


@pytest.fixture
def answers(decisions: Path) -> Gate:
    """A policy whose gate answers everything itself."""
    return Gate(peers.POLICIES / "answers.yaml", decisions)
