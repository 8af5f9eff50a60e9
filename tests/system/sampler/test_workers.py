"""Two real workers of one gate: under load, with calls that end early, and after the gate was killed.
tests/unit/sampler/test_pool.py has the distribution of calls, tests/system/serve/test_warm_models.py a daemon's
workers."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from samplegate.policy.prompt import Sampled, SampleFailed, SampleRequest, SampleResult
from samplegate.policy.schema import Model
from samplegate.sampler.client import Models
from tests.fakes.openai_endpoint import Endpoint

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(240),
    pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no /proc here"),
]
KEY = "sk-a-key-that-nobody-may-see-0123456789"
WAIT = 120.0
CALLERS = 12


@pytest.fixture(scope="module")
async def models(endpoint: Endpoint, environment: dict[str, str]) -> AsyncIterator[Models]:
    named = [
        Model(name=name, model=f"openai/{name}", api_base=endpoint.url, api_key_env="TEST_KEY")
        for name in ("normal", "hang")
    ]
    models = Models(named, folder=Path(), environment={**environment, "TEST_KEY": KEY}, workers=2)
    try:
        yield models
    finally:
        await models.aclose()


def asked(model: str, text: str = "hi", timeout: float = WAIT) -> SampleRequest:
    message = {"role": "user", "content": {"type": "text", "text": text}}
    return SampleRequest(model, {"messages": [message], "maxTokens": 50}, timeout)


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(WAIT):
        while not condition():  # noqa: ASYNC110 - processes give no event
            await anyio.sleep(0.01)


def busy(models: Models) -> list[int]:
    return [worker.calls for worker in models.workers if worker.state == "ready"]


def cpu(pid: int) -> float:
    """Seconds of CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def pipes(pid: int) -> set[str]:
    return {name for fd in Path(f"/proc/{pid}/fd").iterdir() if (name := str(fd.readlink())).startswith("pipe:")}


async def load(models: Models, results: list[SampleResult], number: int) -> None:
    """One caller that asks again and again until it is cancelled."""
    while True:
        result = await models.sample(asked("normal", str(number)), lambda _: None)
        results.append(result)
        if isinstance(result, Sampled):
            assert f"you said: {number}" == result.content[0]["text"]


async def test_of_two_workers_under_load_one_is_killed_and_replaced(models: Models, endpoint: Endpoint) -> None:
    results: list[SampleResult] = []
    async with anyio.create_task_group() as group:
        for number in range(CALLERS):
            group.start_soon(load, models, results, number)
        await until(lambda: 2 == len(models.pids))
        first, second = models.pids
        await until(lambda: CALLERS // 2 == busy(models)[1])
        assert 0 == sum(isinstance(result, SampleFailed) for result in results)
        assert not pipes(first) & pipes(second), "each worker has pipes of its own"

        os.kill(second, signal.SIGSTOP)  # so that its calls are surely in flight when it is killed
        held = busy(models)[1]
        os.kill(second, signal.SIGKILL)
        await until(lambda: (first,) == models.pids)
        answered = len(results)
        await until(lambda: CALLERS < len(results) - answered)

        await until(lambda: 2 == len(models.pids))
        assert first == models.pids[0]
        third = models.pids[1]
        before = {pid: cpu(pid) for pid in (first, third)}
        answered = len(results)
        await until(lambda: 20 * CALLERS < len(results) - answered)
        assert all(cpu(pid) > before[pid] for pid in (first, third)), "both are used"
        group.cancel_scope.cancel()
    failed = Counter(
        (result.failure, result.free, result.message) for result in results if isinstance(result, SampleFailed)
    )
    message = "model normal: the worker process exited with code -9; try again, the next request uses another one"
    assert {("crashed", False, message): held} == failed
    endpoint.forget()


async def test_a_cancelled_call_and_a_timeout_end_at_the_worker_that_has_them(
    models: Models, endpoint: Endpoint
) -> None:
    async with anyio.create_task_group() as group:
        for _ in range(CALLERS):
            group.start_soon(models.sample, asked("hang"), lambda _: None)
        await until(lambda: 2 == len(models.pids))
        for _ in range(CALLERS):
            group.start_soon(models.sample, asked("hang"), lambda _: None)
        await until(lambda: 2 == len(busy(models)) and CALLERS == busy(models)[1])
        arrived = 0
        while arrived < 2 * CALLERS:  # a request of the test before may still be on its way
            arrived += (await to_thread.run_sync(endpoint.next)).body["model"] == "hang"

        result = await models.sample(asked("hang", timeout=1.0), lambda _: None)
        assert isinstance(result, SampleFailed)
        assert "timeout" == result.failure
        assert "hang" == await to_thread.run_sync(endpoint.next_hang_up)
        group.cancel_scope.cancel()
    for _ in range(2 * CALLERS):
        assert "hang" == await to_thread.run_sync(endpoint.next_hang_up)
    assert [0, 0] == busy(models)
    assert isinstance(await models.sample(asked("normal"), lambda _: None), Sampled)


async def test_workers_end_with_a_gate_that_is_killed(environment: dict[str, str], endpoint: Endpoint) -> None:
    program = f"""
import anyio, os, sys
from pathlib import Path
from samplegate.policy.prompt import SampleRequest
from samplegate.policy.schema import Model
from samplegate.sampler.client import Models

async def main():
    model = Model(name="hang", model="openai/hang", api_base={endpoint.url!r})
    models = Models([model], folder=Path(), environment=dict(os.environ), workers=2)
    params = {{"messages": [{{"role": "user", "content": {{"type": "text", "text": "hi"}}}}], "maxTokens": 5}}
    async with anyio.create_task_group() as group:
        for _ in range({CALLERS}):
            group.start_soon(models.sample, SampleRequest("hang", params, {WAIT}), lambda _: None)
        while len(models.pids) < 2:
            await anyio.sleep(0.01)
        print(*models.pids, flush=True)

anyio.run(main)
"""
    paths = os.pathsep.join(path for path in sys.path if path)
    async with await anyio.open_process(
        [sys.executable, "-c", program], env={**environment, "PYTHONPATH": paths}, stdin=None, stderr=None
    ) as gate:
        assert gate.stdout is not None
        with anyio.fail_after(WAIT):
            workers = [int(pid) for pid in (await gate.stdout.receive()).split()]
        gate.kill()
        await until(lambda: not any(map(alive, workers)))
    assert 2 == len(workers)


def alive(pid: int) -> bool:
    """Whether a process runs: one that has ended stays listed until its parent has read its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
