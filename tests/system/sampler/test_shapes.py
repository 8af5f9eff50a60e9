"""The same request in three providers' formats, through the real worker and the real litellm, to real endpoints. One
worker for the file."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from anyio import to_thread

from samplegate.policy.prompt import Sampled, SampleFailed, SampleRequest, SampleResult
from samplegate.policy.schema import Model
from samplegate.sampler.client import Models
from samplegate.sampler.worker.call import MAX_LINE
from samplegate.sampler.worker.request import PROVIDER
from tests.fakes import anthropic_endpoint, gemini_endpoint, openai_endpoint, responses_endpoint
from tests.fakes.model_endpoint import FAULTS, SAID, STRANGE, Endpoint

KEY: Final = "sk-a-key-that-nobody-may-see-0123456789"
PNG: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WAV: Final = "UklGRiQAAABXQVZFZm10IA=="
STATUSES: Final = ("status-400", "status-401", "status-403", "status-404", "status-429", "status-500", "status-503")
SHAPES: Final[dict[str, type[Endpoint]]] = {
    "openai": openai_endpoint.Endpoint,
    "anthropic": anthropic_endpoint.Endpoint,
    "gemini": gemini_endpoint.Endpoint,
}
REAL: Final = {
    "openai": ("gpt-4o", "gpt-5-mini", "o3"),
    "anthropic": ("claude-sonnet-4-5", "claude-opus-4-1", "claude-3-haiku-20240307"),
    "gemini": ("gemini-2.5-flash", "gemini-3-pro-preview", "gemini-2.0-flash"),
}
"""Names that litellm knows, and treats by what it knows; the endpoints answer to them as to ``normal``."""
WEATHER: Final = {
    "name": "weather.now/ch",
    "title": "Weather",
    "description": "The weather in a city",
    "inputSchema": {
        "type": "object",
        "properties": {"city": {"type": "string", "x-mcp-header": "City"}},
        "required": ["city"],
    },
    "annotations": {"readOnlyHint": True},
    "_meta": {"api_base": "http://evil"},
}
USE: Final[dict[str, Any]] = {
    "type": "tool_use",
    "id": "server/s own id",
    "name": "weather.now/ch",
    "input": {"city": "Bern"},
}

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def endpoints() -> Iterator[dict[str, Endpoint]]:
    with ExitStack() as stack:
        yield {name: stack.enter_context(kind()) for name, kind in SHAPES.items()}


@pytest.fixture(scope="module")
def responses() -> Iterator[Endpoint]:
    with responses_endpoint.Endpoint() as running:
        yield running


@pytest.fixture(scope="module")
async def models(
    endpoints: dict[str, Endpoint], responses: Endpoint, environment: dict[str, str]
) -> AsyncIterator[Models]:
    listed = [
        Model(name=f"{shape}-{name}", model=f"{shape}/{name}", api_base=endpoint.url, api_key_env="TEST_KEY")
        for shape, endpoint in endpoints.items()
        for name in ("normal", "loop", "leak-answer", *SAID, *FAULTS, *STATUSES)
    ]
    listed += [
        Model(name=name, model=f"{shape}/{name}", api_base=endpoints[shape].url, api_key_env="TEST_KEY")
        for shape, names in REAL.items()
        for name in names
    ]
    # litellm streams the one, and splits the whole answer of the other
    for name in ("gpt-5-codex", "responses/somebody's"):
        listed.append(Model(name=name, model=f"openai/{name}", api_base=responses.url, api_key_env="TEST_KEY"))
    models = Models(listed, folder=Path(), environment={**environment, "TEST_KEY": KEY})
    try:
        await models.warm()
        yield models
    finally:
        await models.aclose()


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def endpoint(endpoints: dict[str, Endpoint], shape: str) -> Endpoint:
    endpoints[shape].forget()
    return endpoints[shape]


def deaf(pieces: int) -> None:
    """Ignores progress."""


def user(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def asked(model: str, *messages: dict[str, Any], timeout: float = 60.0, **params: Any) -> SampleRequest:
    return SampleRequest(model, {"messages": list(messages) or [user(text("hi"))], "maxTokens": 500, **params}, timeout)


async def sampled(models: Models, *args: Any, **params: Any) -> Sampled:
    result = await models.sample(asked(*args, **params), deaf)
    assert isinstance(result, Sampled), result
    return result


async def failed(models: Models, *args: Any, **params: Any) -> SampleFailed:
    result = await models.sample(asked(*args, **params), deaf)
    assert isinstance(result, SampleFailed), result
    return result


async def test_an_answer_comes_in_pieces_with_its_model_its_end_and_its_usage(models: Models, shape: str) -> None:
    assert Sampled((text("so many little words"),), "words-2026-01", "endTurn", 7, 4) == await sampled(
        models, f"{shape}-words"
    )


async def test_a_stream_is_asked_for_and_the_key_goes_with_it(models: Models, endpoint: Endpoint, shape: str) -> None:
    await sampled(models, f"{shape}-normal")

    arrived = endpoint.next()
    assert KEY in " ".join(arrived.headers.values())
    assert arrived.body.get("stream") or ":streamGenerateContent" in arrived.path


SYSTEM: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {
    "openai": lambda body: [message["content"] for message in body["messages"] if message["role"] == "system"],
    "anthropic": lambda body: [block["text"] for block in body["system"]],
    "gemini": lambda body: [part["text"] for part in body["system_instruction"]["parts"]],
}
PARTS: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {
    "openai": lambda body: body["messages"][-1]["content"],
    "anthropic": lambda body: body["messages"][-1]["content"],
    "gemini": lambda body: body["contents"][-1]["parts"],
}
MOST: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {
    "openai": lambda body: (body["max_tokens"], body["stop"]),
    "anthropic": lambda body: (body["max_tokens"], body["stop_sequences"]),
    "gemini": lambda body: (body["generationConfig"]["max_output_tokens"], body["generationConfig"]["stop_sequences"]),
}


async def test_the_system_prompt_bounds_and_blocks_arrive_in_order(
    models: Models, endpoint: Endpoint, shape: str
) -> None:
    said = await sampled(
        models, REAL[shape][0], user(text("first"), text("second")), systemPrompt="be brief", stopSequences=["END"]
    )

    body = endpoint.next().body
    assert "you said: first second" == said.content[0]["text"]
    assert ["be brief"] == SYSTEM[shape](body)
    assert (500, ["END"]) == MOST[shape](body)
    assert ["first", "second"] == [part["text"] for part in PARTS[shape](body)]


@pytest.mark.parametrize(
    ("shape", "model"), [(shape, name) for shape, names in REAL.items() for name in names], indirect=["shape"]
)
async def test_models_that_litellm_knows_get_tools_and_their_results(
    models: Models, endpoint: Endpoint, shape: str, model: str
) -> None:
    signed = {**USE, "_meta": {PROVIDER: {"thought_signature": "c2lnbmVk"}}}
    turn = [
        user(text("x")),
        {"role": "assistant", "content": [text("let me look"), signed]},
        user(result(USE["id"], "sunny")),
    ]
    said = await sampled(models, model, *turn, tools=[WEATHER], toolChoice={"mode": "auto"}, systemPrompt="be brief")

    assert "sunny" in said.content[0]["text"]
    body = endpoint.next().body
    assert {"weather_now_ch"} == {definition(shape, body)["name"]}
    assert "be brief" in str(body)
    assert "let me look" in str(body)
    assert "api_base" not in str(body)


IMAGE: Final[dict[str, Any]] = {
    "openai": {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
    "anthropic": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
    "gemini": {"inline_data": {"mime_type": "image/png", "data": PNG}},
}


async def test_an_image_arrives_as_it_was_sent(models: Models, endpoint: Endpoint, shape: str) -> None:
    await sampled(
        models,
        f"{shape}-normal",
        user(text("look"), {"type": "image", "data": PNG, "mimeType": "image/png"}, text("there")),
    )

    parts = PARTS[shape](endpoint.next().body)
    assert ["look", "there"] == [parts[0]["text"], parts[2]["text"]]
    assert IMAGE[shape] == parts[1]


async def test_audio_arrives_or_is_refused_by_name(models: Models, endpoint: Endpoint, shape: str) -> None:
    result = await models.sample(
        asked(f"{shape}-normal", user(text("hear"), {"type": "audio", "data": WAV, "mimeType": "audio/wav"})), deaf
    )

    if shape == "anthropic":
        assert isinstance(result, SampleFailed)
        assert ("bad_request", True, False) == (result.failure, result.free, result.started)
        assert "audio content in a message cannot be sent to anthropic" in result.message
        assert endpoint.arrived.empty()
        return
    assert isinstance(result, Sampled), result
    part = PARTS[shape](endpoint.next().body)[1]
    audio = {"openai": {"type": "input_audio", "input_audio": {"data": WAV, "format": "wav"}}}
    assert audio.get(shape, {"inline_data": {"mime_type": "audio/wav", "data": WAV}}) == part


def definition(shape: str, body: dict[str, Any]) -> dict[str, Any]:
    """The first tool as the provider receives it: name, description, schema."""
    tool = body["tools"][0]
    match shape:
        case "openai":
            assert {"type", "function"} == tool.keys()
            return dict(tool["function"])
        case "anthropic":
            return {"name": tool["name"], "description": tool["description"], "parameters": tool["input_schema"]}
        case _:
            return dict(tool["function_declarations"][0])


async def test_a_tool_arrives_with_its_name_made_safe_and_nothing_but_its_schema(
    models: Models, endpoint: Endpoint, shape: str
) -> None:
    said = await sampled(models, f"{shape}-call", tools=[WEATHER])

    arrived = endpoint.next()
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    assert {"name": "weather_now_ch", "description": "The weather in a city", "parameters": schema} == definition(
        shape, arrived.body
    )
    assert "evil" not in str(arrived.body)
    assert "toolUse" == said.stop_reason
    assert ("tool_use", "weather.now/ch", {"city": "Bern"}) == tuple(
        said.content[0][key] for key in ("type", "name", "input")
    )


async def test_text_comes_before_the_use_of_a_tool(models: Models, shape: str) -> None:
    said = await sampled(models, f"{shape}-call-and-text", tools=[WEATHER])

    assert ["text", "tool_use"] == [block["type"] for block in said.content]
    assert "let me look" == said.content[0]["text"]


@pytest.mark.parametrize("model", ["calls", "calls-one-id", "calls-no-id"])
async def test_parallel_uses_have_ids_of_their_own_whatever_the_provider_gives(
    models: Models, shape: str, model: str
) -> None:
    said = await sampled(models, f"{shape}-{model}", tools=[WEATHER])

    assert ["Bern", "Genf"] == [block["input"]["city"] for block in said.content]
    ids = [block["id"] for block in said.content]
    assert all(ids)
    assert 2 == len(set(ids))


async def test_an_id_of_the_conversation_is_not_used_again(models: Models, shape: str) -> None:
    before = [
        user(text("x")),
        {"role": "assistant", "content": [{**USE, "id": "use-1"}]},
        user(result("use-1", "sunny")),
    ]
    said = await sampled(models, f"{shape}-call", *before, tools=[WEATHER])

    assert said.content[0]["id"] != "use-1"


async def test_a_use_without_arguments_has_an_empty_object(models: Models, shape: str) -> None:
    assert {} == (await sampled(models, f"{shape}-call-nothing", tools=[WEATHER])).content[0]["input"]


def result(id: str, *words: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "toolUseId": id, "content": [text(one) for one in words], **more}


async def test_a_loop_of_two_turns_ends_with_an_answer(models: Models, endpoint: Endpoint, shape: str) -> None:
    question = user(text("the weather?"))
    first = await sampled(models, f"{shape}-loop", question, tools=[WEATHER])
    turn = [
        question,
        {"role": "assistant", "content": list(first.content)},
        user(result(first.content[0]["id"], "sunny")),
    ]
    last = await sampled(models, f"{shape}-loop", *turn, tools=[WEATHER])

    assert "sunny" in last.content[0]["text"]
    assert "endTurn" == last.stop_reason
    endpoint.next()
    use, answer = USED[shape](endpoint.next().body)
    assert ("weather_now_ch", {"city": "Bern"}) == use[:2]
    assert use[2] == answer[0]


def _openai_use(body: dict[str, Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    *_, use, answer = body["messages"]
    call = use["tool_calls"][0]
    assert {"id", "type", "function"} == call.keys()
    return (call["function"]["name"], json.loads(call["function"]["arguments"]), call["id"]), (
        answer["tool_call_id"],
        answer["content"],
    )


def _anthropic_use(body: dict[str, Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    *_, use, answer = body["messages"]
    call, given = use["content"][0], answer["content"][0]
    return (call["name"], call["input"], call["id"]), (given["tool_use_id"], given["content"])


def _gemini_use(body: dict[str, Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    *_, use, answer = body["contents"]
    call, given = use["parts"][0]["function_call"], answer["parts"][0]["function_response"]
    return (call["name"], call["args"], call.get("id", call["name"])), (
        given.get("id", given["name"]),
        given["response"],
    )


USED: Final = {"openai": _openai_use, "anthropic": _anthropic_use, "gemini": _gemini_use}


def results_of(shape: str, body: dict[str, Any]) -> list[Any]:
    """The content of every tool result, in order of arrival."""
    match shape:
        case "openai":
            return [message["content"] for message in body["messages"] if message["role"] == "tool"]
        case "anthropic":
            return [block["content"] for block in body["messages"][-1]["content"]]
        case _:
            return [part["function_response"]["response"]["content"] for part in body["contents"][-1]["parts"]]


async def test_results_arrive_in_the_order_of_their_uses(models: Models, endpoint: Endpoint, shape: str) -> None:
    uses = [{**USE, "id": "a"}, {**USE, "id": "b", "input": {"city": "Genf"}}]
    answers = user(result("b", "rain in Genf"), result("a", "sun in Bern", isError=True))
    await sampled(
        models, f"{shape}-normal", user(text("x")), {"role": "assistant", "content": uses}, answers, tools=[WEATHER]
    )

    first, second = results_of(shape, endpoint.next().body)
    assert "error: the tool failed\nsun in Bern" == first
    assert "rain in Genf" == second


async def test_an_image_in_a_result_arrives_in_it_or_right_after_it(
    models: Models, endpoint: Endpoint, shape: str
) -> None:
    seen = {
        "type": "tool_result",
        "toolUseId": USE["id"],
        "content": [text("a map"), {"type": "image", "data": PNG, "mimeType": "image/png"}],
    }
    turn = [user(text("x")), {"role": "assistant", "content": [USE]}, user(seen)]
    answer = await models.sample(asked(f"{shape}-normal", *turn, tools=[WEATHER]), deaf)

    assert isinstance(answer, Sampled), answer
    body = endpoint.next().body
    assert PNG in str(body)
    if shape == "openai":  # its tools answer with text only
        assert ["tool", "user"] == [message["role"] for message in body["messages"][-2:]]
        assert "a map\n[1 image of tool result 1: in the next message]" == body["messages"][-2]["content"]
        assert ["text", "image_url"] == [part["type"] for part in body["messages"][-1]["content"]]


async def test_a_conversation_with_uses_but_without_tools_is_taken(
    models: Models, endpoint: Endpoint, shape: str
) -> None:
    turn = [user(text("x")), {"role": "assistant", "content": [USE]}, user(result(USE["id"], "sunny"))]
    await sampled(models, f"{shape}-normal", *turn)

    assert "weather_now_ch" == definition_name(shape, endpoint.next().body)


def definition_name(shape: str, body: dict[str, Any]) -> str:
    tool = body["tools"][0]
    return str(
        {"openai": lambda: tool["function"]["name"], "anthropic": lambda: tool["name"]}.get(
            shape, lambda: tool["function_declarations"][0]["name"]
        )()
    )


CHOSEN: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {
    "openai": lambda body: body["tool_choice"],
    "anthropic": lambda body: body["tool_choice"]["type"],
    "gemini": lambda body: (body.get("toolConfig") or body["tool_config"])["functionCallingConfig"]["mode"],
}


async def test_required_goes_out_as_the_providers_word(models: Models, endpoint: Endpoint, shape: str) -> None:
    await sampled(models, f"{shape}-call", tools=[WEATHER], toolChoice={"mode": "required"})

    assert {"openai": "required", "anthropic": "any", "gemini": "ANY"}[shape] == CHOSEN[shape](endpoint.next().body)


async def test_required_and_not_obeyed_is_a_failure(models: Models, shape: str) -> None:
    result = await failed(models, f"{shape}-words", tools=[WEATHER], toolChoice={"mode": "required"})

    assert ("error", True, False, 7, 4) == (
        result.failure,
        result.started,
        result.free,
        result.input_tokens,
        result.output_tokens,
    )
    assert "the answer has no tool call although toolChoice requires one" in result.message


async def test_with_none_no_tool_goes_out_and_none_comes_back(models: Models, endpoint: Endpoint, shape: str) -> None:
    result = await failed(models, f"{shape}-call", tools=[WEATHER], toolChoice={"mode": "none"})

    assert "tools" not in endpoint.next().body
    assert "the answer calls an unknown tool (none was offered)" in result.message
    assert result.started


async def test_a_tool_that_nobody_offered_is_a_failure_that_was_paid_for(models: Models, shape: str) -> None:
    result = await failed(models, f"{shape}-call-unknown", tools=[WEATHER])

    assert "the answer calls an unknown tool (1 were offered)" in result.message
    assert (True, False, 7, 3) == (result.started, result.free, result.input_tokens, result.output_tokens)


@pytest.mark.parametrize("model", ["call-half", "call-list"])
async def test_arguments_that_are_no_object_are_a_failure(models: Models, shape: str, model: str) -> None:
    result = await failed(models, f"{shape}-{model}", tools=[WEATHER])

    assert "the arguments of tool call 1 are not a JSON object" in result.message


async def test_what_a_provider_signed_comes_back_to_it_in_the_next_turn(
    models: Models, endpoints: dict[str, Endpoint]
) -> None:
    question = user(text("the weather?"))
    first = await sampled(models, "gemini-call-signed", question, tools=[WEATHER])
    assert {PROVIDER: {"thought_signature": "c2lnbmVk"}} == first.content[0]["_meta"]
    assert "__thought__" not in first.content[0]["id"]

    turn = [
        question,
        {"role": "assistant", "content": list(first.content)},
        user(result(first.content[0]["id"], "sunny")),
    ]
    for shape, endpoint in endpoints.items():
        endpoint.forget()
        await sampled(models, f"{shape}-normal", *turn, tools=[WEATHER])
        assert (shape == "gemini") is ("c2lnbmVk" in str(endpoint.next().body))


@pytest.mark.parametrize("shape", ["openai", "gemini"], indirect=True)
async def test_an_image_in_the_answer_is_a_block(models: Models, shape: str) -> None:
    said = await sampled(models, f"{shape}-image")

    assert (text("here"), {"type": "image", "data": "aW1n", "mimeType": "image/png"}) == said.content


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("length", {"openai": "maxTokens", "anthropic": "maxTokens", "gemini": "maxTokens"}),
        ("sequence", {"openai": "endTurn", "anthropic": "stopSequence", "gemini": "endTurn"}),
        ("own-word", {"openai": "endTurn", "anthropic": "endTurn", "gemini": "endTurn"}),
        ("filtered-part", {"openai": "content_filter", "anthropic": "refusal", "gemini": "SAFETY"}),
    ],
)
async def test_stop_reasons_are_the_protocols_words_or_the_providers_own(
    models: Models, shape: str, model: str, expected: dict[str, str]
) -> None:
    assert expected[shape] == (await sampled(models, f"{shape}-{model}")).stop_reason


async def test_missing_usage_is_unknown_and_nothing_is_made_up(models: Models, shape: str) -> None:
    assert Sampled((text("free"),), "no-usage-2026-01", "endTurn", None, None) == await sampled(
        models, f"{shape}-no-usage"
    )


@pytest.mark.parametrize("model", ["cut", "silence", "breaks"])
async def test_a_stream_that_breaks_off_has_started_and_is_not_free(models: Models, shape: str, model: str) -> None:
    result = await failed(models, f"{shape}-{model}")

    assert (True, False, None) == (result.started, result.free, result.output_tokens)
    assert "so far" not in result.message


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("status-400", ("bad_request", True)),
        ("status-401", ("bad_key", True)),
        ("status-403", ("bad_key", True)),
        ("status-404", ("unknown_model", True)),
        ("status-429", ("rate_limited", True)),
        ("status-500", ("error", False)),
        ("status-503", ("unreachable", False)),
        ("garbage", ("error", False)),
        ("empty", ("empty", False)),
        ("none", ("empty", False)),
        ("filtered", ("refused", False)),
        ("drop", ("unreachable", False)),
    ],
)
async def test_what_goes_wrong_before_the_first_token_says_what_it_cost(
    models: Models, endpoint: Endpoint, shape: str, model: str, expected: tuple[str, bool]
) -> None:
    result = await failed(models, f"{shape}-{model}")

    assert (*expected, False) == (result.failure, result.free, result.started)
    assert 1 == endpoint.arrived.qsize()


async def test_retry_after_in_seconds_and_as_a_date(models: Models, shape: str) -> None:
    assert 17.0 == (await failed(models, f"{shape}-retry-after")).retry_after
    assert (await failed(models, f"{shape}-retry-date")).retry_after is None


@pytest.mark.parametrize("model", ["leak-400", "leak-401", "leak-500", "leak-answer"])
async def test_a_key_that_the_provider_echoes_goes_nowhere(models: Models, shape: str, model: str) -> None:
    assert KEY not in repr(await failed(models, f"{shape}-{model}"))


async def test_more_than_was_allowed_is_handed_on_with_its_count(models: Models, shape: str) -> None:
    said = await sampled(models, f"{shape}-too-much")

    assert (7, 10_000) == (said.input_tokens, said.output_tokens)


async def test_a_word_for_the_end_that_nobody_knows_is_kept_beside(models: Models, shape: str) -> None:
    assert "ran_out_of_ink" == (await sampled(models, f"{shape}-own-word")).unknown_stop
    assert (await sampled(models, f"{shape}-length")).unknown_stop is None


@pytest.mark.parametrize("shape", ["openai"], indirect=True)
async def test_a_complete_stream_without_a_reason_to_stop_is_an_answer(models: Models, shape: str) -> None:
    assert Sampled((text("all of it"),), "no-reason-2026-01", "endTurn", 7, 3) == await sampled(
        models, f"{shape}-no-reason"
    )


@pytest.mark.parametrize("shape", ["openai", "gemini"], indirect=True)
async def test_plain_json_in_place_of_a_stream_is_taken(models: Models, shape: str) -> None:
    assert Sampled((text("plain and whole"),), "plain-2026-01", "endTurn", 7, 3) == await sampled(
        models, f"{shape}-plain"
    )
    assert "tool_use" == (await sampled(models, f"{shape}-call-plain", tools=[WEATHER])).content[0]["type"]


async def test_tokens_are_heard_from_the_first_on_and_seldom(models: Models, shape: str) -> None:
    heard: list[int] = []
    said = await models.sample(asked(f"{shape}-pieces"), heard.append)

    assert isinstance(said, Sampled)  # litellm treats a hundred equal pieces as an error
    assert "yes " * 400 == said.content[0]["text"]
    assert heard
    assert heard[0] >= 1
    assert sorted(set(heard)) == heard
    assert len(heard) < 40


async def test_a_listener_that_fails_stops_nothing(models: Models, shape: str) -> None:
    def broken(pieces: int) -> None:
        raise RuntimeError

    assert isinstance(await models.sample(asked(f"{shape}-words"), broken), Sampled)
    assert 1 == len(models.pids)


async def started_then(models: Models, shape: str, act: Callable[[anyio.CancelScope], None]) -> list[SampleResult]:
    """Ask a model that stops in the middle of its answer. ``act`` runs when its first token arrives."""
    results: list[SampleResult] = []
    begun = anyio.Event()

    async def ask(scope: anyio.CancelScope) -> None:
        with scope:
            results.append(await models.sample(asked(f"{shape}-hang-later"), lambda _: begun.set()))

    scope = anyio.CancelScope()
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(ask, scope)
            await begun.wait()
            act(scope)
    return results


async def test_cancelling_in_the_middle_hangs_up(models: Models, endpoint: Endpoint, shape: str) -> None:
    pids = models.pids
    assert [] == await started_then(models, shape, lambda scope: scope.cancel())

    assert "hang-later" == await to_thread.run_sync(endpoint.next_hang_up)
    assert pids == models.pids


async def test_a_time_out_in_the_middle_has_started(models: Models, endpoint: Endpoint, shape: str) -> None:
    await models.warm()
    result = await failed(models, f"{shape}-hang-later", timeout=1.0)

    assert ("timeout", True, False) == (result.failure, result.started, result.free)
    assert "hang-later" == await to_thread.run_sync(endpoint.next_hang_up)


async def test_a_time_out_before_the_first_token_has_not_started(
    models: Models, endpoint: Endpoint, shape: str
) -> None:
    await models.warm()
    result = await failed(models, f"{shape}-hang", timeout=1.0)

    assert ("timeout", False, False) == (result.failure, result.started, result.free)
    assert "hang" == await to_thread.run_sync(endpoint.next_hang_up)


async def test_a_schema_whose_references_are_a_bomb_is_refused_before_the_call(
    models: Models, endpoint: Endpoint, shape: str
) -> None:
    pairs = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]} for n in range(30)}
    bomb = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/d0"}},
        "$defs": {**pairs, "d30": {"type": "string"}},
    }
    result = await failed(models, f"{shape}-call", tools=[{**WEATHER, "inputSchema": bomb}])

    assert "params.tools.0.inputSchema: too large with its references expanded" in result.message
    assert endpoint.arrived.empty()


RESPONDERS: Final = pytest.mark.parametrize("model", ["gpt-5-codex", "responses/somebody's"])


@RESPONDERS
@pytest.mark.parametrize(
    ("words", "content", "stop_reason"),
    [
        ("words", [text("so many little words")], "endTurn"),
        ("length", [text("cut sho")], "maxTokens"),
        ("call-nothing", [{"type": "tool_use", "id": "use-1", "name": "weather.now/ch", "input": {}}], "toolUse"),
        (
            "call-and-text",
            [
                text("let me look"),
                {"type": "tool_use", "id": "use-1", "name": "weather.now/ch", "input": {"city": "Bern"}},
            ],
            "toolUse",
        ),
    ],
)
async def test_models_that_only_take_responses_answer_too(
    models: Models, model: str, words: str, content: list[dict[str, Any]], stop_reason: str
) -> None:
    said = await sampled(models, model, user(text(words)), tools=[WEATHER])

    assert Sampled(tuple(content), f"{words}-2026-01", stop_reason, 7, SAID[words].output) == said


@RESPONDERS
async def test_parallel_uses_in_a_response_and_their_results(models: Models, responses: Endpoint, model: str) -> None:
    first = await sampled(models, model, user(text("calls")), tools=[WEATHER])
    assert ["Bern", "Genf"] == [block["input"]["city"] for block in first.content]

    responses.forget()
    answers = [result(block["id"], block["input"]["city"]) for block in first.content]
    await sampled(
        models,
        model,
        user(text("go on")),
        {"role": "assistant", "content": list(first.content)},
        user(*answers),
        tools=[WEATHER],
    )
    items = responses.next().body["input"]
    assert ["message", "function_call", "function_call", "function_call_output", "function_call_output"] == [
        item["type"] for item in items
    ]
    assert "Bern" in str(items[-2]["output"])


@RESPONDERS
@pytest.mark.parametrize(
    ("words", "failure", "free"),
    [("status-401", "bad_key", True), ("status-429", "rate_limited", True), ("garbage", "error", False)],
)
async def test_what_goes_wrong_with_a_response_says_what_it_cost(
    models: Models, model: str, words: str, failure: str, free: bool
) -> None:
    result = await failed(models, model, user(text(words)))

    assert (failure, free, False) == (result.failure, result.free, result.started)


@pytest.mark.parametrize("words", ["cut", "silence", "breaks"])
async def test_a_response_that_breaks_off_has_started(models: Models, words: str) -> None:
    result = await failed(models, "gpt-5-codex", user(text(words)))

    assert (True, False) == (result.started, result.free)


@RESPONDERS
async def test_an_image_arrives_in_a_response_and_audio_is_refused(
    models: Models, responses: Endpoint, model: str
) -> None:
    responses.forget()
    await sampled(models, model, user(text("look"), {"type": "image", "data": PNG, "mimeType": "image/png"}))
    _, part = responses.next().body["input"][0]["content"]
    assert ("input_image", f"data:image/png;base64,{PNG}") == (part["type"], part["image_url"])

    result = await failed(models, model, user(text("hear"), {"type": "audio", "data": WAV, "mimeType": "audio/wav"}))
    assert "audio content in a message cannot be sent to OpenAI's Responses API" in result.message
    assert responses.arrived.empty()


@RESPONDERS
async def test_what_a_response_has_no_place_for_is_said(models: Models, responses: Endpoint, model: str) -> None:
    responses.forget()
    said = await sampled(
        models,
        model,
        user(text("call")),
        tools=[WEATHER],
        toolChoice={"mode": "required"},
        stopSequences=["END"],
        systemPrompt="brief",
    )

    assert "stop" in said.dropped
    body = responses.next().body
    assert ("required", 500) == (body["tool_choice"], body["max_output_tokens"])
    assert "brief" in str(body)


@pytest.mark.parametrize("number", range(len(STRANGE)))
async def test_what_no_provider_says_is_a_failure_and_leaves_the_worker_alone(
    models: Models, shape: str, number: int
) -> None:
    await models.warm()
    pids = models.pids
    result = await failed(models, f"{shape}-strange-{number}")

    assert result.failure in ("error", "empty", "unreachable", "refused", "rate_limited", "timeout")
    assert not result.free
    assert pids == models.pids


@pytest.mark.parametrize("flood", ["flood-event", "flood-body", "flood-error"])
async def test_an_answer_without_an_end_is_cut_off_before_it_fills_the_memory(
    models: Models, endpoint: Endpoint, shape: str, flood: str
) -> None:
    result = await failed(models, f"{shape}-{flood}")

    assert (
        f"model {shape}-{flood}: the response has a line longer than {MAX_LINE} bytes; use another model"
        == result.message
    )
    assert ("error", False) == (result.failure, result.free)
    assert flood == await to_thread.run_sync(endpoint.next_hang_up)


async def test_with_none_in_a_conversation_with_uses_the_tools_go_out_forbidden(
    models: Models, endpoint: Endpoint, shape: str
) -> None:
    turn = [user(text("x")), {"role": "assistant", "content": [USE]}, user(result(USE["id"], "sunny"))]
    refused = await failed(models, f"{shape}-call", *turn, tools=[WEATHER], toolChoice={"mode": "none"})

    assert {"openai": "none", "anthropic": "none", "gemini": "NONE"}[shape] == CHOSEN[shape](endpoint.next().body)
    assert "the answer calls an unknown tool (none was offered)" in refused.message
