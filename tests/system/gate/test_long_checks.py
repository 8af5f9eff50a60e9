"""The cost of deciding, checking and recording a request or an answer: at most 250 ms of CPU time between two turns of
the event loop."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from samplegate.policy import cost
from samplegate.protocol import http_headers
from samplegate.protocol.elicitation_schema import Form, check, field_problems, read_form
from samplegate.protocol.rawjson import Malformed
from samplegate.protocol.requests import BadRequest, Origin, SamplingRequest, parse
from samplegate.protocol.rounds import ClientReply
from samplegate.runtime import secret_patterns
from tests.fakes.dialogue import sample
from tests.fakes.gate_ports import FakePorts, pushed

MOST = 0.25  # seconds of the event loop's thread
MIB = 1024 * 1024
ORIGIN = Origin("s", "c", "legacy", "2025-11-25")
CHOICES = [f"choice {number:05}" for number in range(10_000)]
TITLED = [{"const": choice, "title": choice} for choice in CHOICES]
VERIFY = {"name": "person", "match": {"kind": "elicitation"}, "effect": "forward", "verify": True}
MODELS = {"models": [{"name": "trial", "model": "openai/gpt-4o-mini", "context": 100_000_000}]}
ALLOW = {
    "name": "models",
    "match": {"kind": "sampling"},
    "effect": "allow",
    "with": {"models": ["trial"], "secrets": {"prompt": "redact"}},
}

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]


async def longest_turn(act: Callable[[], Awaitable[object]]) -> float:
    """The most CPU time of this thread between two turns of the event loop while ``act`` runs."""
    worst, ended = 0.0, False

    async def turning() -> None:
        nonlocal worst
        while not ended:
            before = time.thread_time()
            await anyio.lowlevel.checkpoint()
            worst = max(worst, time.thread_time() - before)

    async with anyio.create_task_group() as group:
        group.start_soon(turning)
        await anyio.lowlevel.checkpoint()
        await act()
        ended = True
    return worst


async def least(begin: Callable[[], Callable[[], Awaitable[object]]]) -> float:
    """The least of three tries, because other load on the machine costs CPU time too."""
    took = []
    for _ in range(3):
        took.append(await longest_turn(begin()))
        if took[-1] < MOST:
            break
    return min(took)


def cheapest(step: Callable[[], object]) -> float:
    took = []
    for _ in range(3):
        before = time.thread_time()
        step()
        took.append(time.thread_time() - before)
        if took[-1] < MOST:
            break
    return min(took)


def items(**words: Any) -> dict[str, Any]:
    return {"a": {"type": "array", "items": words}}


PATTERNS = {f"f{number}": {"type": "string", "pattern": f"([a-z]{{1,20}}{number}){{1,4}}$"} for number in range(32)}
FORMS: dict[str, tuple[Mapping[str, Any], Mapping[str, Any], str]] = {
    "choices": (items(type="string", enum=CHOICES), {"a": [CHOICES[-1]] * 60_000}, "answered"),
    "titled choices": (items(anyOf=TITLED), {"a": CHOICES * 6}, "answered"),
    "titled choices, one of them": (items(oneOf=TITLED), {"a": CHOICES * 6}, "answered"),
    "one choice, listed 10,000 times": (items(anyOf=[TITLED[0]] * 10_000), {"a": [CHOICES[0]] * 60_000}, "answered"),
    "different choices": (
        {"a": {**items(type="string", enum=CHOICES)["a"], "uniqueItems": True}},
        {"a": CHOICES},
        "answered",
    ),
    "too many choices": ({"a": {**items(anyOf=TITLED)["a"], "maxItems": 3}}, {"a": CHOICES * 6}, "unanswered"),
    "long texts and patterns": (
        PATTERNS,
        {f"f{number}": "ab" * 150_000 + f"{number}" for number in range(32)},
        "unanswered",
    ),
    "texts and patterns": (PATTERNS, {f"f{number}": "ab" * 16_000 + f"{number}" for number in range(32)}, "answered"),
}


@pytest.mark.parametrize("name", FORMS)
async def test_checking_an_answer_to_a_form_leaves_the_event_loop_free(name: str) -> None:
    fields, content, outcome = FORMS[name]
    answer = json.dumps({"action": "accept", "content": content}).encode()
    params = {"message": "m", "requestedSchema": {"type": "object", "properties": fields}}
    outcomes = []

    def begin() -> Callable[[], Awaitable[object]]:
        d, round = pushed(VERIFY, method="elicitation/create", params=params, elicitation={})
        ports = FakePorts(reply=ClientReply(round.id, next(iter(round.items)), ok=True, payload=answer))

        async def act() -> None:
            await ports.settled(d, round)
            outcomes.append(ports.records[-1].outcome)

        return act

    assert MOST > await least(begin)
    assert {outcome} == set(outcomes)


TEXTS = {
    "no secret": "hello world ",
    "many keys": "AKIAIOSFODNN7EXAMPLE ",
    "many beginnings of keys": "-----BEGIN RSA PRIVATE KEY-----\n",
    "secrets of all kinds": (
        f"https://a:b@c/ ghp_{'a' * 36} AKIAIOSFODNN7EXAMPLE sk-ant-api03-{'b' * 50} hf_{'c' * 34} AIza{'d' * 35}"
        f" glpat-{'e' * 20} sk-{'f' * 20}T3BlbkFJ{'g' * 20} SG.{'h' * 22}.{'i' * 43}"
        f" eyJhbGciOiJIUzI1NiJ9.eyJhIjoxfQ.{'j' * 43} "
    ),
}


@pytest.mark.parametrize("name", TEXTS)
async def test_looking_for_secrets_leaves_the_event_loop_free(name: str) -> None:
    size = 8 * MIB if name == "secrets of all kinds" else 20 * MIB  # in the event loop's own thread it takes 500 ms
    text = TEXTS[name] * (size // len(TEXTS[name]))

    def begin() -> Callable[[], Awaitable[object]]:
        d, round = pushed(
            ALLOW, params=sample(text), policy={**MODELS, "secrets": dict(secret_patterns.known())}, sampling={}
        )
        ports = FakePorts()

        async def act() -> None:
            await ports.settled(d, round)
            assert ["answered"] == [record.outcome for record in ports.records]
            assert (text in str(ports.asked[-1].params["messages"])) is (name == "no secret")

        return act

    assert MOST > await least(begin)


def shared(count: int) -> dict[str, Any]:
    """A schema with many definitions of one name, each of which refers to all others."""
    return {"allOf": [{"$defs": {"x": {"$ref": "#/x"}}}] * count}


def chained(count: int) -> dict[str, Any]:
    """A schema whose definitions each refer twice to the next one."""
    twice = {f"d{n}": {"properties": {name: {"$ref": f"#/$defs/d{n + 1}"} for name in "ab"}} for n in range(count)}
    return {"$defs": twice, "properties": {"x": {"$ref": "#/$defs/d0"}}}


@pytest.mark.parametrize(
    ("count", "schema"),
    [(900, shared(100)), (20, shared(1_000)), (1, shared(10_000)), (900, chained(16)), (5, chained(1_000))],
)
def test_tools_whose_schemas_refer_to_one_another_are_counted_in_a_moment(
    count: int, schema: Mapping[str, Any]
) -> None:
    tools = [{"name": f"t{number}", "inputSchema": schema} for number in range(count)]
    assert MOST > cheapest(lambda: cost.reading({**sample(), "tools": tools}))


@pytest.mark.parametrize(
    "element",
    ["{}", "1", "[]", '{"name":"a"}', '{"name":"x-mcp-header"}', '{"name":"a","inputSchema":{"x-mcp-header":1}}'],
)
def test_a_list_of_a_million_tools_is_refused_in_a_moment(element: str) -> None:
    listed = b'{"tools":[' + b",".join([element.encode()] * (16 * MIB // (len(element) + 1))) + b"]}"

    def read() -> None:
        with pytest.raises(Malformed, match="a list "):
            http_headers.read_tool_list(listed)

    assert MOST > cheapest(read)


VALUES = {
    "broken characters": '"\\ud800",' * 249_000 + "1",
    "a broken character and many objects": '"\\ud800",' + '{"a":1},' * 124_000 + "1",
    "many members": '{"a":0' + "".join(f',"{number}":1' for number in range(249_000)) + "}",
    "many numbers": "1.5e1,12345678," * 124_000 + "1",
    "a long text of broken characters": '"' + "\\ud83d" * (16 * MIB // 6) + '"',
    "a long text of characters by their numbers": '"' + "\\ud83d\\ude00" * (16 * MIB // 12) + '"',
}


@pytest.mark.parametrize("name", VALUES)
def test_reading_a_request_takes_a_moment(name: str) -> None:
    params = b'{"messages":[],"maxTokens":1,"metadata":{"a":[' + VALUES[name].encode() + b"]}}"
    assert MOST > cheapest(lambda: parse("sampling/createMessage", params, ORIGIN))


def test_a_broken_character_is_replaced_wherever_it_stands() -> None:
    params = (
        rb'{"messages":[],"maxTokens":1,"metadata":{"a":["x\ud83dy",{"\ude00":"\ud83d\ude00"},["\ud83d\ud83d\ude00"]]}}'
    )
    request = parse("sampling/createMessage", params, ORIGIN)
    assert isinstance(request, SamplingRequest)
    assert {"a": ["x\ufffdy", {"\ufffd": "\U0001f600"}, ["\ufffd\U0001f600"]]} == request.params["metadata"]


@pytest.mark.parametrize(
    "text", ['"\\ud800\\ud800",' * 60_000 + "1", '"' + "\\ud83d" * 110_000 + '"'], ids=["many texts", "one text"]
)
def test_a_request_with_very_many_broken_characters_is_malformed(text: str) -> None:
    request = parse(
        "sampling/createMessage", b'{"messages":[],"maxTokens":1,"metadata":{"a":[' + text.encode() + b"]}}", ORIGIN
    )
    assert isinstance(request, BadRequest)
    assert "more than 100000 lone surrogates" in request.message


@given(data=st.data())
def test_a_list_of_choices_is_checked_as_its_schema_says(data: st.DataObject) -> None:
    words = st.sampled_from(["a", "b", "c", ""])
    choice = st.fixed_dictionaries({"const": words}, optional={"type": st.sampled_from(["string", "number"])})
    listed = st.lists(choice, min_size=1, max_size=5)
    kinds = [st.fixed_dictionaries({"type": st.just("string"), "enum": st.lists(words, min_size=1, max_size=5)})]
    titled: list[dict[Any, Any]] = [{name: listed} for name in ("anyOf", "oneOf")]
    kinds += [st.fixed_dictionaries(each, optional={"type": st.sampled_from(["string", "number"])}) for each in titled]
    bounds = {"minItems": st.integers(0, 3), "maxItems": st.integers(0, 3), "uniqueItems": st.booleans()}
    field = data.draw(st.fixed_dictionaries({"type": st.just("array"), "items": st.one_of(kinds)}, optional=bounds))
    schema = {"type": "object", "properties": {"a": field}}
    content = {"a": data.draw(st.lists(words, max_size=5))}
    form = read_form(schema, "2025-11-25")
    assert isinstance(form, Form)
    fits = Draft202012Validator(schema).is_valid(content)
    assert fits is (check(form, content) is None)
    assert fits is (not field_problems(form, content))
