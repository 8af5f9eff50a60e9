"""createMessage params -> chat model request: an allow-list, bounded, in text that UTF-8 can encode."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.sampler.worker.request import MAX_TOKENS, UnsupportedRequest, call

HI: dict[str, Any] = {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 10}
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("asked", "most", "expected"),
    [
        (10, None, 10),
        (10, 5, 5),
        (5, 10, 5),
        (10.0, None, 10),
        (10.9, None, 10),
        (10**30, None, MAX_TOKENS),
        (math.inf, 7, 7),
    ],
)
def test_max_tokens_is_the_least_of_the_servers_and_the_models(asked: float, most: int | None, expected: int) -> None:
    assert expected == call({**HI, "maxTokens": asked}, most)["max_tokens"]


@pytest.mark.parametrize("asked", [0, -1, 0.5, True, "10", None, math.nan])
def test_max_tokens_that_is_no_number_is_refused(asked: object) -> None:
    with pytest.raises(UnsupportedRequest, match=r"params\.maxTokens"):
        call({**HI, "maxTokens": asked}, None)


@pytest.mark.parametrize("temperature", [math.nan, math.inf, 10**400, True, "0.5", None])
def test_a_temperature_that_is_no_number_is_left_out(temperature: object) -> None:
    assert "temperature" not in call({**HI, "temperature": temperature}, None)


@pytest.mark.parametrize(
    ("system", "roles"), [("be brief", ["system", "user"]), ("", ["user"]), (None, ["user"]), (5, ["user"])]
)
def test_the_system_prompt_comes_first_if_there_is_one(system: object, roles: list[str]) -> None:
    assert roles == [message["role"] for message in call({**HI, "systemPrompt": system}, None)["messages"]]


def test_stop_sequences_are_texts_and_none_is_empty() -> None:
    assert ["a", "\ufffd"] == call({**HI, "stopSequences": ["a", "", 5, "\ud83d"]}, None)["stop"]
    assert "stop" not in call({**HI, "stopSequences": [""]}, None)


@given(
    params=st.fixed_dictionaries(
        {}, optional=dict.fromkeys(("maxTokens", "temperature", "systemPrompt", "metadata", "model"), ANY_JSON)
    )
)
def test_whatever_else_is_there_only_the_allow_list_comes_out_and_it_is_json(params: dict[str, Any]) -> None:
    try:
        asked = call({**HI, **params}, None)
    except UnsupportedRequest:
        return
    assert {"messages", "max_tokens", "temperature"} >= asked.keys()
    assert msgspec.json.encode(asked)
