"""What the sampler's tests share: the real endpoint on loopback, and an environment in which nothing else can be
reached."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.fakes.openai_endpoint import Endpoint


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """For the module, so that its tests can share one worker: litellm takes seconds to import."""
    return "asyncio"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as running:
        yield running


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    """What a client gives the commands it starts, and a proxy that nobody answers: a call that leaves loopback
    fails."""
    bare = {name: os.environ[name] for name in ("PATH", "HOME", "SYSTEMROOT", "TEMP", "TMPDIR") if name in os.environ}
    nowhere = "http://127.0.0.1:9"
    return {**bare, "HTTP_PROXY": nowhere, "HTTPS_PROXY": nowhere, "NO_PROXY": "127.0.0.1"}
