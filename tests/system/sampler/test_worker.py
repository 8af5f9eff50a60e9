"""Models through the real worker and the real litellm, with a real endpoint. One worker for the file, because each
import of litellm takes seconds."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from samplegate.policy.prompt import Sampled, SampleFailed, SampleRequest, SampleResult
from samplegate.policy.schema import Model
from samplegate.sampler.client import Models
from tests.fakes.openai_endpoint import ANSWERS, BIG, Endpoint

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

KEY = "sk-a-key-that-nobody-may-see-0123456789"
TIMEOUT = 60.0
STREAM = {"stream": True, "stream_options": {"include_usage": True}}
STATUSES = (
    "status-400",
    "status-401",
    "status-402",
    "status-403",
    "status-404",
    "status-422",
    "status-500",
    "status-503",
    "status-529",
)


@pytest.fixture(scope="module")
async def models(endpoint: Endpoint, environment: dict[str, str]) -> AsyncIterator[Models]:
    base = endpoint.url
    named = [
        Model(name=name, model=f"openai/{name}", api_base=base, api_key_env="TEST_KEY")
        for name in (*ANSWERS, *STATUSES, "gpt-5-mini", "hang-later")
    ]
    others = [
        Model(name="keyless", model="openai/normal", api_base=base),
        Model(name="unset", model="openai/normal", api_base=base, api_key_env="NOT_SET"),
        Model(name="short", model="openai/normal", api_base=base, api_key_env="TEST_KEY", max_tokens=5),
        Model(name="closed", model="openai/normal", api_base="http://127.0.0.1:9/v1", api_key_env="TEST_KEY"),
        Model(name="nobody", model="nosuchprovider/x", api_key_env="TEST_KEY"),
        Model(name="bare", model="nosuchmodel"),
        Model(name="openai", model="openai/gpt-5-mini"),
        Model(name="claude", model="anthropic/claude-sonnet-4-5"),
        Model(name="unbounded", model="v0/x", api_base=base, api_key_env="TEST_KEY"),
    ]
    models = Models([*named, *others], folder=Path(), environment={**environment, "TEST_KEY": KEY})
    try:
        yield models
    finally:
        await models.aclose()


@pytest.fixture(autouse=True)
def fresh(endpoint: Endpoint) -> None:
    """Drop the requests that earlier tests left at the endpoint."""
    endpoint.forget()


def asked(named: str, text: str = "hi", timeout: float = TIMEOUT, **params: Any) -> SampleRequest:
    return SampleRequest(
        named,
        {"messages": [{"role": "user", "content": {"type": "text", "text": text}}], "maxTokens": 50, **params},
        timeout,
    )


def deaf(pieces: int) -> None:
    """Ignores progress."""


def said(text: str) -> tuple[dict[str, str], ...]:
    return ({"type": "text", "text": text},)


def text_of(result: SampleResult) -> str:
    assert isinstance(result, Sampled), result
    return str(result.content[0]["text"])


async def failure(models: Models, model: str) -> tuple[str, str]:
    result = await models.sample(asked(model), deaf)
    assert isinstance(result, SampleFailed), result
    return result.failure, result.message


async def test_text_goes_out_and_comes_back(models: Models, endpoint: Endpoint) -> None:
    result = await models.sample(asked("normal", "good morning"), deaf)

    assert Sampled(said("you said: good morning"), "normal-2026-01", "endTurn", 7, 3) == result
    arrived = endpoint.next()
    assert {
        "model": "normal",
        "messages": [{"role": "user", "content": "good morning"}],
        "max_tokens": 50,
        **STREAM,
    } == arrived.body
    assert f"Bearer {KEY}" == arrived.headers["authorization"]


async def test_everything_on_the_allow_list_is_passed_and_nothing_else(models: Models, endpoint: Endpoint) -> None:
    message = {
        "role": "assistant",
        "content": [{"type": "text", "text": "a", "api_base": "http://evil"}, {"type": "text", "text": "b"}],
        "name": "x",
    }
    hostile: dict[str, Any] = {
        "metadata": {"api_base": "http://evil"},
        "api_key": "mine",
        "model": "other",
        "includeContext": "allServers",
        "num_retries": 9,
        "n": 5,
    }
    user = {"role": "user", "content": {"type": "text", "text": "c"}}
    params: dict[str, Any] = {
        "systemPrompt": "be brief",
        "temperature": 0.5,
        "stopSequences": ["END"],
        "messages": [message, user],
        **hostile,
    }

    assert isinstance(await models.sample(asked("normal", **params), deaf), Sampled)

    expected = {
        "model": "normal",
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "user", "content": "c"},
        ],
        "max_tokens": 50,
        "temperature": 0.5,
        "stop": ["END"],
        **STREAM,
    }
    assert expected == endpoint.next().body


@pytest.mark.parametrize(
    ("model", "text", "stop_reason"),
    [
        ("length", "cut sho", "maxTokens"),
        ("filtered-part", "so far", "content_filter"),
        ("surrogate", "half \ufffd an emoji", "endTurn"),
    ],
)
async def test_stop_reasons_are_told_in_the_protocols_words_or_the_providers_own(
    models: Models, model: str, text: str, stop_reason: str
) -> None:
    assert Sampled(said(text), f"{model}-2026-01", stop_reason, 7, 3) == await models.sample(asked(model), deaf)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("status-400", "bad_request"),
        ("status-401", "bad_key"),
        ("status-402", "bad_key"),
        ("status-403", "bad_key"),
        ("status-404", "unknown_model"),
        ("status-422", "bad_request"),
        ("status-500", "error"),
        ("status-503", "unreachable"),
        ("status-529", "unreachable"),
        ("policy", "refused"),
        ("refusal", "refused"),
        ("filtered", "refused"),
        ("garbage", "error"),
        ("wrong-shape", "error"),
        ("no-choices", "error"),
        ("empty", "empty"),
        ("none", "empty"),
        ("call", "error"),
        ("drop", "unreachable"),
        ("closed", "unreachable"),
        ("nobody", "unknown_model"),
        ("bare", "unknown_model"),
        ("unset", "bad_key"),
        ("openai", "bad_key"),
        ("claude", "bad_key"),
        ("unbounded", "bad_request"),
        ("nameless", "unknown_model"),
    ],
)
async def test_errors_are_told_apart(models: Models, model: str, expected: str) -> None:
    assert expected == (await failure(models, model))[0]


async def test_a_call_that_reached_nobody_is_free(models: Models) -> None:
    result = await models.sample(asked("closed"), deaf)
    assert isinstance(result, SampleFailed)
    assert ("unreachable", True) == (result.failure, result.free)


async def test_the_message_names_the_model_the_status_and_what_to_do(models: Models) -> None:
    _, message = await failure(models, "status-401")

    assert "model status-401: the provider rejected the API key; " in message
    assert "(status 401)" in message


async def test_retry_after_is_passed_on_and_nothing_is_retried(models: Models, endpoint: Endpoint) -> None:
    result = await models.sample(asked("retry-after"), deaf)

    assert isinstance(result, SampleFailed)
    assert ("rate_limited", 17.0) == (result.failure, result.retry_after)
    assert 1 == endpoint.arrived.qsize()


@pytest.mark.parametrize("model", ["leak-400", "leak-401", "leak-500", "leak-answer"])
async def test_a_key_that_the_provider_echoes_goes_nowhere(models: Models, model: str) -> None:
    result = await models.sample(asked(model), deaf)

    assert isinstance(result, SampleFailed)
    assert KEY not in repr(result)


async def test_missing_usage_is_unknown_and_not_zero(models: Models) -> None:
    assert Sampled(said("free"), "no-usage-2026-01", "endTurn", None, None) == await models.sample(
        asked("no-usage"), deaf
    )


async def test_the_models_own_bound_caps_the_servers(models: Models, endpoint: Endpoint) -> None:
    await models.sample(asked("short", maxTokens=10**30), deaf)

    assert 5 == endpoint.next().body["max_tokens"]


async def test_a_reasoning_model_is_bounded_by_its_own_word_and_what_it_does_not_take_is_said(
    models: Models, endpoint: Endpoint
) -> None:
    result = await models.sample(asked("gpt-5-mini", temperature=0.3, stopSequences=["x"]), deaf)

    assert isinstance(result, Sampled)
    assert {"temperature", "stop"} == set(result.dropped)
    body = endpoint.next().body
    assert (50, None, None) == (body["max_completion_tokens"], body.get("max_tokens"), body.get("temperature"))


async def test_an_endpoint_without_a_named_key_gets_none(models: Models, endpoint: Endpoint) -> None:
    assert isinstance(await models.sample(asked("keyless"), deaf), Sampled)
    assert "Bearer none" == endpoint.next().headers["authorization"]


@pytest.mark.parametrize(
    "params",
    [
        {"tools": [{"inputSchema": {}}]},
        {"messages": [{"role": "user", "content": {"type": "image", "data": "", "mimeType": "image/png"}}]},
        {"messages": []},
        {"messages": [{"role": "system", "content": {"type": "text", "text": "x"}}]},
        {"maxTokens": 0},
        {"maxTokens": True},
        {"maxTokens": None},
    ],
)
async def test_what_a_text_model_cannot_be_asked_is_never_sent(
    models: Models, endpoint: Endpoint, params: dict[str, Any]
) -> None:
    result = await models.sample(asked("normal", **params), deaf)

    assert isinstance(result, SampleFailed)
    assert "bad_request" == result.failure
    assert endpoint.arrived.empty()


async def test_two_mebibytes_pass_both_ways(models: Models, endpoint: Endpoint) -> None:
    text = "é" * (BIG // 2)
    result = await models.sample(asked("big", text), deaf)

    assert isinstance(result, Sampled)
    assert BIG == len(text_of(result))
    assert text == endpoint.next().body["messages"][0]["content"]


async def test_a_call_that_outlasts_its_time_out_fails_and_its_connection_ends(
    models: Models, endpoint: Endpoint
) -> None:
    await models.warm()
    result = await models.sample(asked("hang", timeout=0.5), deaf)

    assert isinstance(result, SampleFailed)
    assert "timeout" == result.failure
    assert "hang" == await to_thread.run_sync(endpoint.next_hang_up)


async def test_cancelling_ends_the_http_call_and_leaves_the_others_alone(models: Models, endpoint: Endpoint) -> None:
    await models.warm()
    pids = models.pids
    results: list[SampleResult] = []

    async def stay(scope: anyio.CancelScope) -> None:
        with scope:
            results.append(await models.sample(asked("hang"), deaf))

    first, second = anyio.CancelScope(), anyio.CancelScope()
    async with anyio.create_task_group() as group:
        group.start_soon(stay, first)
        await to_thread.run_sync(endpoint.next)
        group.start_soon(stay, second)
        await to_thread.run_sync(endpoint.next)
        first.cancel()
        assert "hang" == await to_thread.run_sync(endpoint.next_hang_up)
        assert isinstance(await models.sample(asked("normal"), deaf), Sampled)
        assert endpoint.hung_up.empty()
        second.cancel()
    assert "hang" == await to_thread.run_sync(endpoint.next_hang_up)
    assert [] == results
    assert pids == models.pids


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps to the limit")
async def test_the_worker_is_held_to_four_gibibytes(models: Models) -> None:
    import resource

    await models.warm()
    assert 1 == len(models.pids)
    assert 4 * 1024**3 >= resource.prlimit(models.pids[0], resource.RLIMIT_DATA)[0] > 0


async def test_calls_run_side_by_side(models: Models, endpoint: Endpoint) -> None:
    await models.warm()
    results: dict[str, SampleResult] = {}

    async def one(text: str) -> None:
        results[text] = await models.sample(asked("normal", text), deaf)

    with anyio.CancelScope() as held:
        async with anyio.create_task_group() as group:
            group.start_soon(models.sample, asked("hang"), deaf)
            await to_thread.run_sync(endpoint.next)
            async with anyio.create_task_group() as side:
                for number in range(20):
                    side.start_soon(one, str(number))
            held.cancel()
    assert "hang" == await to_thread.run_sync(endpoint.next_hang_up)  # here, not during the next test
    assert {str(n): f"you said: {n}" for n in range(20)} == {text: text_of(result) for text, result in results.items()}


async def test_a_worker_killed_during_calls_fails_them_and_is_replaced(models: Models, endpoint: Endpoint) -> None:
    results: dict[str, SampleResult] = {}
    begun = anyio.Event()

    async def ask(model: str) -> None:
        results[model] = await models.sample(asked(model), lambda _: begun.set())

    async with anyio.create_task_group() as group:
        for model in ("hang", "hang-later"):
            group.start_soon(ask, model)
            await to_thread.run_sync(endpoint.next)
        with anyio.fail_after(TIMEOUT):
            await begun.wait()
        assert 1 == len(models.pids)
        os.kill(models.pids[0], signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL)
    failed = {model: result for model, result in results.items() if isinstance(result, SampleFailed)}
    assert {"hang": ("crashed", False), "hang-later": ("crashed", True)} == {
        model: (result.failure, result.started) for model, result in failed.items()
    }
    assert not any(result.free for result in failed.values())
    assert {"hang", "hang-later"} == {await to_thread.run_sync(endpoint.next_hang_up) for _ in range(2)}
    assert isinstance(await models.sample(asked("normal"), deaf), Sampled)
