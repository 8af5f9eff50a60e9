"""Two policies in succession share their workers if the environment and the setting are the same."""

from __future__ import annotations

import pytest

from samplegate.policy.prompt import Sampled
from samplegate.policy.schema import Model
from tests.unit.sampler.test_client import ECHO, REAL, ignore_progress, is_running, request, running

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
KEYED = Model(name="real", model="openai/x", api_base="http://127.0.0.1:9/v1", api_key_env="A_KEY")


async def test_a_policy_of_the_same_environment_takes_the_worker_over(environment: dict[str, str]) -> None:
    async with running(ECHO, environment) as before, running(ECHO, environment, REAL) as after:
        await before.warm()
        (first,) = before.pids
        assert after.adopt(before)
        assert (first,) == after.pids
        await before.aclose()
        assert is_running(first)
        assert isinstance(await after.sample(request(), ignore_progress), Sampled)
        assert (first,) == after.pids


async def test_a_policy_of_another_environment_starts_its_own_which_has_the_new_key(
    environment: dict[str, str],
) -> None:
    old, new = ({**environment, "A_KEY": f"sk-{name}-0123456789"} for name in ("old", "new"))
    async with running(ECHO, old, KEYED) as before, running(ECHO, new, KEYED) as after:
        await before.warm()
        assert not after.adopt(before)
        assert () == after.pids
        await after.warm()
        assert 2 == len({*before.pids, *after.pids})
        answered = await after.sample(request(), ignore_progress)
        assert isinstance(answered, Sampled)
        assert "sk-new-0123456789" == answered.content[0]["text"]


async def test_a_policy_with_more_workers_starts_its_own(environment: dict[str, str]) -> None:
    async with running(ECHO, environment) as before, running(ECHO, environment, workers=2) as after:
        await before.warm()
        assert not after.adopt(before)
        assert isinstance(await after.sample(request(), ignore_progress), Sampled)
        assert 2 == len({*before.pids, *after.pids})
