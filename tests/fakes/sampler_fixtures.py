"""Fixtures of the sampler's tests: the endpoint on loopback, and an environment that can reach nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.fakes.openai_endpoint import Endpoint


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Module-scoped, so that tests can share a worker: litellm takes seconds to import."""
    return "asyncio"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as running:
        yield running


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    """The environment that a client gives the commands it starts, with a proxy that does not answer: calls that leave
    loopback fail."""
    bare = {name: os.environ[name] for name in ("PATH", "HOME", "SYSTEMROOT", "TEMP", "TMPDIR") if name in os.environ}
    nowhere = "http://127.0.0.1:9"
    return {**bare, "HTTP_PROXY": nowhere, "HTTPS_PROXY": nowhere, "NO_PROXY": "127.0.0.1"}
