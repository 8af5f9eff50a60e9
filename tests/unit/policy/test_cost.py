"""The cost of a call, as an upper bound whatever a server sends, and as the actual amount."""

from __future__ import annotations

import base64
import json
import time
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.policy import cost
from samplegate.policy.catalogue import MAX_TOKENS, ModelFacts, Rates, Tier, Worst
from samplegate.policy.cost import actual, least, reading, worst
from samplegate.policy.schema import Model

MODEL: Final = Model(name="m", model="a/b", margin=1, image_tokens=500)
FACTS: Final = ModelFacts(Rates(10, 100, audio=50, tiers=(Tier(1000, 20, 300), Tier(5000, 15, 200))))


def asked(*content: Any, most: int = 10, **params: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": each} for each in content], "maxTokens": most, **params}


def text(what: str) -> dict[str, Any]:
    return {"type": "text", "text": what}


def media(type_: str, size: int) -> dict[str, Any]:
    return {"type": type_, "data": base64.b64encode(b"x" * size).decode(), "mimeType": "a/b"}


def tokens(params: dict[str, Any], model: Model = MODEL) -> int:
    return worst(model, FACTS, params).input_tokens


def test_input_and_output_are_priced_each_at_its_rate() -> None:
    found = worst(MODEL, FACTS, asked(text("x" * 100), most=7))
    assert 7 == found.output_tokens
    assert 100 <= found.input_tokens < 200
    assert found.input_tokens * 10 + 700 == found.usd


def test_an_unknown_price_is_said_and_the_tokens_are_counted_all_the_same() -> None:
    found = worst(MODEL, ModelFacts(), asked(text("x" * 100)))
    assert found.usd is None
    assert found.input_tokens >= 100


def test_a_price_of_zero_is_zero() -> None:
    assert 0 == worst(MODEL, ModelFacts(Rates(0, 0)), asked(text("x"))).usd


def test_the_dearest_tier_that_the_input_reaches_counts() -> None:
    rates = FACTS.rates
    assert rates is not None
    found = worst(MODEL, FACTS, asked(text("x" * 500)))
    assert found.input_tokens * 10 + 1000 == found.usd
    # the second tier is cheaper than the first; we do not guess which one is right
    for size in (1500, 6000):
        found = worst(MODEL, FACTS, asked(text("x" * size)))
        assert found.input_tokens * 20 + 3000 == found.usd


def test_with_audio_all_of_the_input_is_charged_as_audio() -> None:
    found = worst(MODEL, FACTS, asked(text("x" * 100), media("audio", 160)))
    assert found.input_tokens * 50 + 1000 == found.usd
    cheap = ModelFacts(Rates(10, 100, audio=1))
    assert (
        worst(MODEL, cheap, asked(media("audio", 16))).input_tokens * 10 + 1000
        == worst(MODEL, cheap, asked(media("audio", 16))).usd
    )


def test_a_charge_for_each_request_is_added() -> None:
    assert 5000 == worst(MODEL, ModelFacts(Rates(0, 0, request=5000)), asked(text("x"))).usd


def test_the_margin_is_for_input_and_rounds_up() -> None:
    plain, wide = (
        tokens(asked(text("x" * 101))),
        tokens(asked(text("x" * 101)), Model(name="m", model="a/b", margin=1.25)),
    )
    assert plain * 1.25 <= wide < plain * 1.25 + 1


def test_no_more_input_than_the_model_reads() -> None:
    assert 50 == worst(MODEL, ModelFacts(context=50), asked(text("x" * 100))).input_tokens


def test_what_runs_at_an_address_of_ones_own_may_read_more_than_the_table_says_of_its_name() -> None:
    elsewhere = Model(name="m", model="a/b", margin=1, api_base="http://127.0.0.1:8000/v1")
    assert 100 <= worst(elsewhere, ModelFacts(context=50), asked(text("x" * 100))).input_tokens
    stated = Model(name="m", model="a/b", margin=1, api_base="http://127.0.0.1:8000/v1", context=50)
    assert 50 == worst(stated, ModelFacts(context=50), asked(text("x" * 100))).input_tokens


@pytest.mark.parametrize(
    ("content", "most", "just"),
    [
        (text("é" * 100), 200, 300),
        (text("日" * 100), 300, 400),
        (text("😀" * 100), 400, 500),
        (text("\ud800" * 100), 300, 400),
        (media("image", 5), 500, 600),
        (media("image", 500_000), 500, 600),
        (media("audio", 32_000), 2000, 2100),
        # its tool is declared, and offered or not
        ({"type": "tool_use", "id": "1", "name": "n", "input": {"a": "x" * 100}}, 710, 800),
        ({"type": "tool_result", "toolUseId": "1", "content": [text("x" * 100), media("image", 9)]}, 600, 750),
        ({"type": "tool_result", "toolUseId": "1", "content": [], "structuredContent": {"a": "x" * 100}}, 110, 200),
        (
            {
                "type": "tool_result",
                "toolUseId": "1",
                "content": [{"type": "resource", "resource": {"uri": "a:", "text": "x" * 100}}],
            },
            110,
            300,
        ),
        (
            {
                "type": "tool_result",
                "toolUseId": "1",
                "content": [{"type": "resource", "resource": {"uri": "a:", "blob": "aGk="}}],
            },
            500,
            700,
        ),
        (
            {
                "type": "tool_result",
                "toolUseId": "1",
                "content": [{"type": "tool_use", "x": "x" * 100}, {"type": "tool_result"}],
            },
            110,
            300,
        ),
        ([text("x" * 50), text("x" * 50)], 100, 200),
    ],
    ids=str,
)
def test_everything_that_a_model_reads_is_counted(content: Any, most: int, just: int) -> None:
    assert most <= tokens(asked(content)) <= just


def test_the_system_prompt_and_the_tools_are_counted() -> None:
    bare = tokens(asked(text("x")))
    assert bare + 100 <= tokens(asked(text("x"), systemPrompt="x" * 100))
    tool = {"name": "n" * 10, "description": "d" * 100, "inputSchema": {"type": "object", "title": "t" * 100}}
    assert bare + 610 <= tokens(asked(text("x"), tools=[tool]))
    assert tokens(asked(text("x"), tools=[tool])) + 200 <= tokens(asked(text("x"), tools=[tool, tool]))
    assert bare == tokens(asked(text("x"), tools=[]))


def test_the_references_of_a_schema_are_counted_written_out() -> None:
    large = {"description": "x" * 1000}
    schemas = [
        {"$defs": {"a": large}, "properties": {key: {"$ref": "#/$defs/a"} for key in names}} for names in ("p", "pqrs")
    ]
    one, four = (tokens(asked(text("x"), tools=[{"name": "n", "inputSchema": schema}])) for schema in schemas)
    assert one >= 2000
    assert four >= one + 3000


TEXTS: Final = st.text(st.characters(codec="utf-8"))
VALUES: Final = st.recursive(
    TEXTS | st.integers() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=15,
)


@given(st.dictionaries(TEXTS, VALUES, max_size=5))
def test_json_is_counted_at_least_as_long_as_anybody_writes_it(value: dict[str, Any]) -> None:
    counted = tokens(asked({"type": "tool_use", "id": "1", "name": "n", "input": value}))
    assert counted >= len(json.dumps(value).encode())
    assert counted >= len(json.dumps(value, ensure_ascii=False).encode())


@given(st.lists(st.text(), max_size=5))
def test_no_tokenizer_that_writes_a_token_for_each_byte_gets_beyond_it(texts: list[str]) -> None:
    size = sum(len(each.encode("utf-8", "replace")) for each in texts)
    params = asked(*map(text, texts))
    assert size <= tokens(params)
    assert reading(params).least * cost.CHARACTERS_PER_TOKEN <= size


@given(st.lists(st.text(), min_size=1, max_size=5), st.text())
def test_more_text_never_comes_to_less(texts: list[str], more: str) -> None:
    first, second = (
        worst(MODEL, FACTS, asked(*map(text, texts))),
        worst(MODEL, FACTS, asked(*map(text, [*texts, more]))),
    )
    assert first.input_tokens <= second.input_tokens
    assert (first.usd or 0) <= (second.usd or 0)


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ((5, 3), Worst(5, 3, 350)),
        ((2000, 3), Worst(2000, 3, 2000 * 20 + 900)),
        ((5, 1000), Worst(5, 1000, 100_050)),
        ((0, 0), Worst(0, 0, 0)),
    ],
)
def test_what_it_came_to_is_by_the_counts_of_the_provider(given_: tuple[int, int], expected: Worst) -> None:
    assert expected == actual(MODEL, FACTS, asked(text("x" * 100)), *given_)


def test_a_missing_count_is_taken_at_its_worst() -> None:
    params = asked(text("x" * 100))
    most = worst(MODEL, FACTS, params)
    assert most == actual(MODEL, FACTS, params, None, None)
    assert Worst(5, 10, 1050) == actual(MODEL, FACTS, params, 5, None)
    assert Worst(most.input_tokens, 1, most.input_tokens * 10 + 100) == actual(MODEL, FACTS, params, None, 1)


def test_the_least_that_any_request_comes_to_is_more_than_nothing_and_no_more_than_a_short_one() -> None:
    smallest, short = least(MODEL, FACTS), worst(MODEL, FACTS, asked(text("hello")))
    assert 0 < smallest.input_tokens <= short.input_tokens
    assert 1 == smallest.output_tokens
    assert 0 < (smallest.usd or 0) <= (short.usd or 0)


def test_an_amount_fits_what_a_ledger_holds() -> None:
    dear = ModelFacts(Rates(10**12, 10**12))
    assert cost.MAX_USD_UNITS == worst(MODEL, dear, asked(text("x" * 10), most=MAX_TOKENS)).usd


def test_ten_megabytes_are_counted_in_a_moment() -> None:
    params = asked(text("日" * 3_500_000))
    start = time.thread_time()
    worst(MODEL, FACTS, params)
    assert time.thread_time() - start < 0.5  # takes 0.01 s of CPU time; counting letter by letter takes seconds
