"""The result of a response: content blocks, or the matching failure."""

from __future__ import annotations

from itertools import count
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.policy.prompt import Sampled
from samplegate.sampler.worker.request import MAX_SIGNATURE, PROVIDER, AnswerBounds
from samplegate.sampler.worker.response import (
    MAX_DEPTH,
    AnswerRefused,
    PartialToolCall,
    ResponseAccumulator,
    sampled_fields,
)

OFFER = AnswerBounds({"a_b": "a.b", "c": "c"}, taken=("old",))
SECRET = "sk-secret-0123456789"


def answered(heard: ResponseAccumulator, offer: AnswerBounds = OFFER) -> dict[str, Any]:
    numbers = count(1)
    return sampled_fields(heard, offer, [SECRET], lambda: f"fresh-{next(numbers)}")


def refused(heard: ResponseAccumulator, offer: AnswerBounds = OFFER) -> tuple[str, str]:
    with pytest.raises(AnswerRefused) as raised:
        answered(heard, offer)
    return raised.value.failure, str(raised.value.what)


def accumulated(*words: str, **more: Any) -> ResponseAccumulator:
    return ResponseAccumulator(texts=list(words), stop="stop", **more)


def use(id: str | None = "1", name: str = "a_b", arguments: str = "{}", **more: Any) -> PartialToolCall:
    return PartialToolCall(id, name, [arguments], **more)


def test_text_then_images_then_uses() -> None:
    heard = accumulated("a", "b", images=["data:image/PNG;base64,YQ=="], calls=[use(arguments='{"x": 1}')])

    blocks = [
        {"type": "text", "text": "ab"},
        {"type": "image", "data": "YQ==", "mimeType": "image/png"},
        {"type": "tool_use", "id": "1", "name": "a.b", "input": {"x": 1}},
    ]
    assert blocks == answered(heard)["content"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["1", "2"], ["1", "2"]),
        (["1", "1"], ["1", "fresh-1"]),
        (["old"], ["fresh-1"]),
        ([None, ""], ["fresh-1", "fresh-2"]),
        (["a b", "é", "x" * 129], ["fresh-1", "fresh-2", "fresh-3"]),
        (["call_1__thought__c2ln"], ["call_1"]),
        (["fresh-1", None], ["fresh-1", "fresh-2"]),
    ],
)
def test_ids_are_unique_and_not_those_of_the_conversation(given: list[str | None], expected: list[str]) -> None:
    blocks = answered(accumulated(calls=[use(id) for id in given]))["content"]

    assert expected == [block["id"] for block in blocks]


@pytest.mark.parametrize(
    ("call", "signature"),
    [
        (use(signature="c2ln"), "c2ln"),
        (use("call_1__thought__c2ln"), "c2ln"),
        (use(signature="x" * MAX_SIGNATURE), "x" * MAX_SIGNATURE),
        (use(signature="x" * (MAX_SIGNATURE + 1)), None),
        (use(signature={"a": 1}), None),
        (use(signature="not one"), None),
        (use(), None),
    ],
)
def test_a_signature_is_kept_if_it_is_one(call: PartialToolCall, signature: str | None) -> None:
    (block,) = answered(accumulated(calls=[call]))["content"]

    assert (None if signature is None else {PROVIDER: {"thought_signature": signature}}) == block.get("_meta")


@pytest.mark.parametrize(
    "arguments", ['{"a":', "[1]", "5", "null", '"x"', "NaN", '{"a": NaN}', "{} {}", '{"a": "\\ud83d"}', "[" * 100_000]
)
def test_arguments_that_are_no_object_are_refused(arguments: str) -> None:
    assert (
        "error",
        "the arguments of tool call 1 are not a JSON object; raise max_tokens, or use another model",
    ) == refused(accumulated(calls=[use(arguments=arguments)]))


@pytest.mark.parametrize(("levels", "taken"), [(MAX_DEPTH - 2, True), (MAX_DEPTH + 1, False)])
def test_arguments_are_bounded_in_depth(levels: int, taken: bool) -> None:
    heard = accumulated(calls=[use(arguments='{"a":' + "[" * levels + "]" * levels + "}")])

    if taken:
        assert answered(heard)["content"]
    else:
        assert "error" == refused(heard)[0]


def test_no_arguments_are_an_empty_object() -> None:
    assert {} == answered(accumulated(calls=[use(arguments="")]))["content"][0]["input"]


@pytest.mark.parametrize(
    ("heard", "failure", "what"),
    [
        (accumulated(calls=[use(name="rm")]), "error", "the answer calls an unknown tool (2 were offered)"),
        (accumulated(calls=[use(name="a.b")]), "error", "the answer calls an unknown tool"),
        (accumulated(calls=[use(name="")]), "error", "the answer calls an unknown tool"),
        (accumulated("x", audio=True), "error", "the answer contains audio, which is not supported"),
        (
            accumulated("x", images=["http://evil/x.png"]),
            "error",
            "the answer has an image that is not embedded as base64; use another model",
        ),
        (accumulated("x", images=[None]), "error", "the answer has an image that is not embedded"),
        (
            accumulated("x", images=["data:image/png;base64,%%"]),
            "error",
            "the answer has an image that is not embedded",
        ),
        (
            accumulated("x", images=["data:text/html;base64,YQ=="]),
            "error",
            "the answer has an image that is not embedded",
        ),
        (accumulated(f"the key is {SECRET}"), "error", "the answer contains an API key of the gate and is withheld"),
        (accumulated(SECRET[:5], SECRET[5:]), "error", "the answer contains an API key of the gate and is withheld"),
        (
            accumulated(calls=[use(arguments=f'{{"a": "{SECRET}"}}')]),
            "error",
            "the answer contains an API key of the gate and is withheld",
        ),
        (
            accumulated(calls=[use(arguments=f'{{"a": "\\u0073{SECRET[1:]}"}}')]),
            "error",
            "the answer contains an API key of the gate and is withheld",
        ),
        (accumulated(calls=[use(id=SECRET)]), "error", "the answer contains an API key of the gate and is withheld"),
        (
            accumulated(calls=[use(signature=SECRET)]),
            "error",
            "the answer contains an API key of the gate and is withheld",
        ),
        (
            ResponseAccumulator(texts=["x"], stop=SECRET),
            "error",
            "the answer contains an API key of the gate and is withheld",
        ),
        (accumulated(), "empty", "None"),
        (accumulated(refusal=True), "refused", "None"),
        (ResponseAccumulator(stop="SAFETY", mapped="content_filter"), "refused", "None"),
        (ResponseAccumulator(stop="content_filter"), "refused", "None"),
    ],
)
def test_what_is_not_taken_is_named(heard: ResponseAccumulator, failure: str, what: str) -> None:
    found = refused(heard)

    assert failure == found[0]
    assert what in found[1]
    assert SECRET not in found[1]


def test_a_required_use_must_be_there() -> None:
    offer = AnswerBounds({"c": "c"}, required=True)

    assert (
        "the answer has no tool call although toolChoice requires one; use another model"
        == refused(accumulated("x"), offer)[1]
    )
    assert answered(accumulated("x", calls=[use(name="c")]), offer)["content"]


@pytest.mark.parametrize(
    ("stop", "uses", "expected"),
    [
        ("stop", False, "endTurn"),
        ("STOP", False, "endTurn"),
        ("STOP", True, "toolUse"),
        ("end_turn", True, "toolUse"),
        ("tool_calls", True, "toolUse"),
        ("tool_use", True, "toolUse"),
        ("function_call", True, "toolUse"),
        ("tool_calls", False, "endTurn"),
        ("length", False, "maxTokens"),
        ("MAX_TOKENS", True, "maxTokens"),
        ("stop_sequence", False, "stopSequence"),
        ("ran_out_of_ink", False, "endTurn"),
        (None, False, "endTurn"),
        (None, True, "toolUse"),
    ],
)
def test_stop_reasons(stop: str | None, uses: bool, expected: str | None) -> None:
    assert (
        expected == answered(ResponseAccumulator(texts=["x"], stop=stop, calls=[use()] if uses else []))["stop_reason"]
    )


@pytest.mark.parametrize(
    ("model", "expected"), [("m-1", "m-1"), (None, None), ("a\nb", None), ("x" * 257, None), (f"m-{SECRET}", None)]
)
def test_the_model_is_a_name_or_nothing(model: str | None, expected: str | None) -> None:
    assert expected == answered(accumulated("x", model=model))["model"]


CALLS = st.builds(
    PartialToolCall,
    st.none() | st.text(max_size=12),
    st.sampled_from(["a_b", "c", "rm", ""]),
    st.lists(st.sampled_from(["{", "}", '"a":', "1", "[", "]"]), max_size=6),
    st.none() | st.text() | st.integers(),
)


@given(
    texts=st.lists(st.text(st.characters(exclude_categories=()), max_size=5), max_size=3),
    calls=st.lists(CALLS, max_size=4),
    stop=st.none() | st.text(),
)
def test_whatever_a_model_says_it_is_refused_or_well_formed(
    texts: list[str], calls: list[PartialToolCall], stop: str | None
) -> None:
    try:
        fields = answered(ResponseAccumulator(texts=texts, calls=calls, stop=stop))
    except AnswerRefused:
        return
    sampled = msgspec.json.decode(msgspec.json.encode(fields), type=Sampled)
    uses = [block for block in sampled.content if block["type"] == "tool_use"]
    assert len(calls) == len(uses) == len({block["id"] for block in uses})
    assert sampled.content
