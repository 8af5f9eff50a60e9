"""The worker's life cycle as seen by the gate. The workers are stand-ins of a few lines: litellm takes seconds to
import."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from samplegate.policy.file.load import PolicyError
from samplegate.policy.prompt import Sampled, SampleFailed, SampleRequest, SampleResult
from samplegate.policy.schema import Model
from samplegate.sampler import pool, process
from samplegate.sampler.client import Models
from samplegate.status.snapshot import WorkerStatus

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

READY = "import sys, json\nprint(json.dumps({'ready': True}), flush=True)\n"
DEAF = READY + "for line in sys.stdin: pass"
RUDE = READY + "for line in sys.stdin: print('Traceback: sk-secret', flush=True)"
MORTAL = READY + "sys.stdin.readline(); sys.exit(7)"
ENDLESS = READY + "import time\nwhile True: time.sleep(60)"
STILLBORN = "import sys; sys.exit(3)"
NEVER_READY = "import sys; sys.stdin.read()"
EXCUSED = "import sys, json\nprint(json.dumps({'died': 'no litellm here; install it'}), flush=True)\nsys.stdin.read()"
ECHO = (
    READY
    + """
for line in sys.stdin:
  frame = json.loads(line)
  content = [{'type': 'text', 'text': frame['target'].get('api_key', '-')}]
  print(json.dumps({'id': frame['id'], 'sampled': {'content': content, 'model': 'm', 'stop_reason': None}}), flush=True)
"""
)

UNPAID = (
    READY
    + """
for line in sys.stdin:
  said = {'failure': 'bad_key', 'message': 'model bare: the provider rejected the API key', 'free': True}
  print(json.dumps({'id': json.loads(line)['id'], 'failed': said}), flush=True)
"""
)

REAL = Model(name="real", model="openai/x", api_base="http://127.0.0.1:9/v1")
ASKED = {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 5}


def request(model: str = "real", timeout: float = 60.0) -> SampleRequest:
    return SampleRequest(model, ASKED, timeout)


@asynccontextmanager
async def running(
    program: str, environment: dict[str, str], *models: Model, folder: Path = Path(), workers: int = 1
) -> AsyncIterator[Models]:
    command = [sys.executable, "-c", program]
    made = Models(models or [REAL], folder=folder, environment=environment, workers=workers, command=command)
    try:
        yield made
    finally:
        await made.aclose()


def ignore_progress(pieces: int) -> None:
    """Ignores progress."""


def failed(result: SampleResult) -> tuple[str, str]:
    assert isinstance(result, SampleFailed), result
    return result.failure, result.message


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def calls_in_flight(models: Models) -> int:
    return sum(worker.calls for worker in models.workers)


async def test_a_scripted_model_answers_and_starts_no_worker(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "trial.yaml").write_text("cases: [{answer: scripted words}]", "utf-8")
    trial = Model(name="trial", model="scripted", cases="trial.yaml")

    async with running(STILLBORN, environment, trial, folder=tmp_path) as models:
        await models.warm()
        result = await models.sample(request("trial"), ignore_progress)

        assert Sampled(({"type": "text", "text": "scripted words"},), "scripted", "endTurn", 1, 2) == result
        assert () == models.pids
        assert [] == models.problems()


async def test_every_problem_of_every_case_file_is_told(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("cases: 5", "utf-8")
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe")
    named = [Model(name=str(file), model="scripted", cases=file) for file in ("a.yaml", "b.yaml", "c.yaml", None)]

    with pytest.raises(PolicyError) as raised:
        Models(named, folder=tmp_path, environment=environment)
    assert ["a.yaml", "b.yaml", "c.yaml", "policy"] == [problem.file for problem in raised.value.problems]


async def test_nothing_is_started_before_the_first_request(environment: dict[str, str]) -> None:
    async with running(ECHO, environment) as models:
        assert () == models.pids
        assert isinstance(await models.sample(request(), ignore_progress), Sampled)
        assert 1 == len(models.pids)


async def test_the_state_of_the_worker_is_known_at_each_moment(environment: dict[str, str]) -> None:
    async with running(NEVER_READY, environment) as models, anyio.create_task_group() as group:
        assert (WorkerStatus(state="not started"),) == models.workers
        group.start_soon(models.warm)
        await anyio.wait_all_tasks_blocked()
        assert (WorkerStatus(state="starting"),) == models.workers
        group.cancel_scope.cancel()
    async with running(DEAF, environment) as models, anyio.create_task_group() as group:
        await models.warm()
        assert (WorkerStatus(state="ready", pid=models.pids[0]),) == models.workers
        group.start_soon(models.sample, request(), ignore_progress)
        with anyio.fail_after(60):
            while not calls_in_flight(models):  # noqa: ASYNC110 - a call gives no event
                await anyio.sleep(0.001)
        group.cancel_scope.cancel()
    async with running(MORTAL, environment) as models:
        await models.sample(request(), ignore_progress)
        (worker,) = models.workers
        assert ("not started", True) == (worker.state, "exited with code 7" in str(worker.problem))
    async with running(STILLBORN, environment) as models:
        await models.sample(request(), ignore_progress)
        (worker,) = models.workers
        assert "failed" == worker.state
        assert "exited with code 3" in str(worker.problem)
        assert worker.retry_in is not None
        assert 0 < worker.retry_in <= pool.FIRST_PAUSE


async def test_a_crash_fails_the_call_in_flight_and_the_next_call_has_a_new_worker(environment: dict[str, str]) -> None:
    async with running(MORTAL, environment) as models:
        await models.warm()
        first = models.pids
        failure, message = failed(await models.sample(request(), ignore_progress))

        assert (
            "crashed",
            "model real: the worker process exited with code 7; try again, the next request uses another one",
        ) == (failure, message)
        assert not models.pids
        await models.warm()
        assert 1 == len(models.pids)
        assert first != models.pids


async def test_a_worker_that_dies_at_its_start_is_not_started_again_at_once(environment: dict[str, str]) -> None:
    async with running(STILLBORN, environment) as models:
        assert (
            "crashed",
            "model real: the worker process exited with code 3; try again, the next request uses another one",
        ) == failed(await models.sample(request(), ignore_progress))
        failure, message = failed(await models.sample(request(), ignore_progress))

        assert "crashed" == failure
        assert "(failed start 1; the next attempt is in " in message


async def test_a_worker_that_cannot_start_says_why(environment: dict[str, str]) -> None:
    async with running(EXCUSED, environment) as models:
        assert ("crashed", "model real: the worker process cannot start: no litellm here; install it") == failed(
            await models.sample(request(), ignore_progress)
        )


async def test_a_command_that_is_not_there_is_a_failure_and_no_exception(
    environment: dict[str, str], tmp_path: Path
) -> None:
    models = Models([REAL], folder=Path(), environment=environment, command=[str(tmp_path / "nothing")])

    assert "crashed" == failed(await models.sample(request(), ignore_progress))[0]
    await models.aclose()


async def test_a_worker_that_breaks_the_protocol_is_killed_and_not_quoted(environment: dict[str, str]) -> None:
    async with running(RUDE, environment) as models:
        failure, message = failed(await models.sample(request(), ignore_progress))

        assert "crashed" == failure
        assert "sk-secret" not in message


async def test_a_worker_that_answers_with_too_long_a_line_is_killed(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "MAX_LINE", 1000)
    async with running(
        READY + "sys.stdin.readline(); print('x' * 5000, flush=True); sys.stdin.read()", environment
    ) as models:
        assert "crashed" == failed(await models.sample(request(), ignore_progress))[0]


async def test_a_worker_that_does_not_confirm_a_cancel_is_killed(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "CANCEL_GRACE", 0.05)
    async with running(DEAF, environment) as models:
        await models.warm()
        other: list[SampleResult] = []

        async def wait() -> None:
            other.append(await models.sample(request(), ignore_progress))

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            assert "timeout" == failed(await models.sample(request(timeout=0.05), ignore_progress))[0]
        assert "crashed" == failed(other[0])[0]
        assert "did not cancel a call" in failed(other[0])[1]


async def test_a_time_out_counts_the_start_and_does_not_end_it(environment: dict[str, str]) -> None:
    async with running("import sys\nsys.stdin.read()", environment) as models:
        assert "timeout" == failed(await models.sample(request(timeout=0.05), ignore_progress))[0]
    assert () == models.pids


TALKATIVE = (
    READY
    + """
id = json.loads(sys.stdin.readline())['id']
for pieces in (1, 5, 9):
    print(json.dumps({'id': id, 'heard': pieces}), flush=True)
print(json.dumps({'id': 999, 'heard': 4}), flush=True)
"""
)
ANSWERING = (
    TALKATIVE + "print(json.dumps({'id': id, 'sampled': {'content': [{'type': 'text', 'text': 'x'}], 'model': None,"
    " 'stop_reason': None}}), flush=True)\nsys.stdin.read()"
)
SPEECHLESS = READY + "id = json.loads(sys.stdin.readline())['id']\nprint(json.dumps({'id': id, 'sampled': "
SPEECHLESS += "{'content': [], 'model': None, 'stop_reason': None}}), flush=True)\nsys.stdin.read()"


async def test_tokens_are_told_while_the_answer_comes(environment: dict[str, str]) -> None:
    heard: list[int] = []
    async with running(ANSWERING, environment) as models:
        result = await models.sample(request(), heard.append)

    assert Sampled(({"type": "text", "text": "x"},), None, None) == result
    assert [1, 5, 9] == heard


async def test_a_listener_that_raises_does_not_end_the_call(environment: dict[str, str]) -> None:
    def raising(pieces: int) -> None:
        raise RuntimeError

    async with running(ANSWERING, environment) as models:
        assert isinstance(await models.sample(request(), raising), Sampled)


async def test_a_worker_that_dies_after_the_first_token_leaves_a_call_that_had_started(
    environment: dict[str, str],
) -> None:
    async with running(TALKATIVE, environment) as models:
        result = await models.sample(request(), ignore_progress)

    assert isinstance(result, SampleFailed)
    assert ("crashed", True, False) == (result.failure, result.started, result.free)


async def test_an_answer_without_content_is_a_failure(environment: dict[str, str]) -> None:
    async with running(SPEECHLESS, environment) as models:
        assert "error" == failed(await models.sample(request(), ignore_progress))[0]


@pytest.mark.parametrize(
    ("program", "named", "free"),
    [(STILLBORN, "real", True), (MORTAL, "real", False), (DEAF, "nobody", True), (DEAF, "keyless", True)],
    ids=["no-worker", "dead-worker", "no-model", "no-key"],
)
async def test_what_was_never_sent_is_free(environment: dict[str, str], program: str, named: str, free: bool) -> None:
    keyless = Model(name="keyless", model="openai/x", api_key_env="NOT_SET")
    async with running(program, environment, REAL, keyless) as models:
        result = await models.sample(request(named), ignore_progress)

    assert isinstance(result, SampleFailed)
    assert (free, False) == (result.free, result.started)


async def test_a_time_out_before_anything_was_sent_is_free(environment: dict[str, str]) -> None:
    async with running("import sys\nsys.stdin.read()", environment) as models:
        result = await models.sample(request(timeout=0.05), ignore_progress)

    assert isinstance(result, SampleFailed)
    assert ("timeout", True) == (result.failure, result.free)
    assert result.message == (
        "model real: the model worker process was not ready in time; the first start after an"
        " installation takes longest. Set warm: true on the model, or give the rule a longer timeout"
    )


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ({}, "no API key: set OPENAI_API_KEY, or add api_key_env or api_key_file to the model"),
        ({"OPENAI_API_KEY": "wrong"}, "the provider rejected the API key"),
    ],
)
async def test_a_key_that_is_missing_was_not_rejected(
    environment: dict[str, str], variables: dict[str, str], why: str
) -> None:
    environment.pop("OPENAI_API_KEY", None)
    async with running(UNPAID, environment | variables, Model(name="bare", model="openai/x")) as models:
        failure, message = failed(await models.sample(request("bare"), ignore_progress))
    assert ("bad_key", f"model bare: {why}") == (failure, message)


async def test_a_scripts_delay_is_kept_within_the_time_out(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "trial.yaml").write_text("cases: [{answer: late, delay: 50ms}]", "utf-8")
    trial = Model(name="trial", model="scripted", cases="trial.yaml")
    async with running(STILLBORN, environment, trial, folder=tmp_path) as models:
        began = anyio.current_time()
        assert isinstance(await models.sample(request("trial"), ignore_progress), Sampled)
        assert anyio.current_time() - began >= 0.05
        result = await models.sample(request("trial", timeout=0.01), ignore_progress)

    assert isinstance(result, SampleFailed)
    assert ("timeout", True) == (result.failure, result.free)


async def test_closing_ends_a_worker_that_will_not_go(environment: dict[str, str]) -> None:
    async with running(ENDLESS, environment) as models:
        await models.warm()
        (pid,) = models.pids
    assert not is_running(pid)


async def test_closing_fails_the_calls_in_flight_and_those_that_come_later(environment: dict[str, str]) -> None:
    results: list[SampleResult] = []
    async with running(DEAF, environment) as models:
        await models.warm()

        async def ask() -> None:
            results.append(await models.sample(request(), ignore_progress))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await anyio.lowlevel.checkpoint()
            await models.aclose()
        results.append(await models.sample(request(), ignore_progress))
    assert ["crashed", "crashed"] == [failed(result)[0] for result in results]


async def test_a_request_that_is_too_large_is_not_sent(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("samplegate.sampler.process.MAX_FRAME", 100)
    async with running(DEAF, environment) as models:
        assert "bad_request" == failed(await models.sample(request(), ignore_progress))[0]


async def test_a_key_file_is_read_for_each_call(environment: dict[str, str], tmp_path: Path) -> None:
    keyed = Model(name="keyed", model="openai/x", api_key_file="key")
    async with running(ECHO, environment, keyed, folder=tmp_path) as models:
        assert ("bad_key", 1) == (
            failed(await models.sample(request("keyed"), ignore_progress))[0],
            len(models.problems()),
        )
        assert () == models.pids
        for key in ("first", "second"):
            (tmp_path / "key").write_text(f" {key}\n", "utf-8")
            result = await models.sample(request("keyed"), ignore_progress)
            assert isinstance(result, Sampled)
            assert key == result.content[0]["text"]
        assert [] == models.problems()
