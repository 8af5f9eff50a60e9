"""Facts about models: the policy's take precedence over the table's, and none are made up."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplegate.policy.catalogue import ModelFacts, Rates, Tier, catalogue_of
from samplegate.policy.schema import Model, Price

PRICED: Final[dict[str, Any]] = {"input_cost_per_token": 2.5e-07, "output_cost_per_token": 2e-06}


def facts(entry: Any = None, **keys: Any) -> ModelFacts:
    model = Model(name="m", **{"model": "a/b", **keys})
    return catalogue_of([model], {} if entry is None else {model.model: entry})["m"]


def rates(**entry: Any) -> Rates | None:
    return facts({**PRICED, **entry}).rates


def test_of_a_model_that_nobody_lists_nothing_is_known_and_it_takes_text_only() -> None:
    assert ModelFacts(rates=None, context=None, max_output=None, accepts=frozenset()) == facts()


def test_the_table_says_price_bounds_and_abilities() -> None:
    entry = {
        **PRICED,
        "max_input_tokens": 1000,
        "max_output_tokens": 100.0,
        "supports_vision": True,
        "supports_function_calling": True,
    }
    assert ModelFacts(Rates(250_000, 2_000_000), 1000, 100, frozenset({"image", "tools"})) == facts(entry)


def test_what_the_policy_says_goes_first() -> None:
    entry = {**PRICED, "max_input_tokens": 1000, "max_output_tokens": 100, "supports_vision": True}
    told = facts(entry, price=Price(input=0.3, output=0.0000001), context=50, accepts=["audio"])
    assert ModelFacts(Rates(300_000, 1), 50, 100, frozenset({"audio"})) == told
    assert frozenset() == facts(entry, accepts=[]).accepts


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, ModelFacts(Rates(0, 0), None, None, frozenset({"image", "audio", "tools"}))),
        (
            {"price": Price(input=1, output=2), "accepts": []},
            ModelFacts(Rates(10**6, 2 * 10**6), None, None, frozenset()),
        ),
        ({"context": 10}, ModelFacts(Rates(0, 0), 10, None, frozenset({"image", "audio", "tools"}))),
    ],
)
def test_scripted_costs_nothing_and_takes_everything_unless_the_policy_says_otherwise(
    keys: dict[str, Any], expected: ModelFacts
) -> None:
    assert expected == facts({**PRICED, "max_input_tokens": 1}, model="scripted", cases="c.yaml", **keys)


@pytest.mark.parametrize(
    "entry",
    [
        {"input_cost_per_token": None},
        {"output_cost_per_token": None},
        {"input_cost_per_token": "1e-6"},
        {"input_cost_per_token": -1e-6},
        {"input_cost_per_token": True},
        {"input_cost_per_token": float("nan")},
        {"input_cost_per_token": float("inf")},
        {"input_cost_per_token": 1e300},
        {"output_cost_per_reasoning_token": "x"},
        {"input_cost_per_audio_token": -1},
        {"input_cost_per_request": "x"},
        {"input_cost_per_token_above_200k_tokens": "x"},
        {"tiered_pricing": [{"range": ["x", 2], **PRICED}]},
        {"tiered_pricing": [{"range": [1000, 2000], **PRICED}]},
        {"tiered_pricing": ["x"]},
        {"tiered_pricing": []},
        {"tiered_pricing": [{"range": [0, 2000]}]},
        {"citation_cost_per_token": 1e-6},
        {"input_cost_per_image": 0.5},
        {"input_cost_per_token": 0, "output_cost_per_token": 0.0},
        {"input_cost_per_token": 0.0, "litellm_provider": "openai"},
        {"output_cost_per_token": 0, "litellm_provider": "vertex_ai-llama_models"},
        {"output_cost_per_token": 0, "litellm_provider": ["ollama"]},
    ],
    ids=str,
)
def test_half_a_price_and_one_that_is_none_are_unknown_never_zero(entry: dict[str, Any]) -> None:
    assert rates(**entry) is None


@pytest.mark.parametrize("entry", [{}, {"input_cost_per_token": 1e-6}, {"output_cost_per_token": 1e-6}], ids=str)
def test_a_price_that_is_not_there_is_unknown_never_zero(entry: dict[str, Any]) -> None:
    assert facts(entry).rates is None


@pytest.mark.parametrize("entry", [None, [], "x", 1])
def test_an_entry_that_is_none_says_nothing(entry: Any) -> None:
    assert ModelFacts() == catalogue_of([Model(name="m", model="a/b")], {"a/b": entry})["m"]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"input_cost_per_token": 0, "output_cost_per_token": 0.0, "litellm_provider": "ollama"}, Rates(0, 0)),
        ({"input_cost_per_token": 1e-15}, Rates(1, 2_000_000)),
        ({"input_cost_per_token": 1.4e-12}, Rates(2, 2_000_000)),
        ({"output_cost_per_reasoning_token": 4e-06}, Rates(250_000, 4_000_000)),
        ({"output_cost_per_reasoning_token": 1e-06}, Rates(250_000, 2_000_000)),
        ({"input_cost_per_image_token": 5e-07}, Rates(500_000, 2_000_000)),
        ({"input_cost_per_image": 0.0011}, Rates(250_000, 2_000_000)),
        ({"input_cost_per_audio_token": 1e-06}, Rates(250_000, 2_000_000, audio=1_000_000)),
        ({"input_cost_per_request": 0.005}, Rates(250_000, 2_000_000, request=5 * 10**9)),
        (
            {"input_cost_per_token_above_200k_tokens": 5e-07},
            Rates(250_000, 2_000_000, tiers=(Tier(200_000, 500_000, 2_000_000),)),
        ),
        (
            {"output_cost_per_token_above_128k_tokens": 3e-06, "input_cost_per_token_above_128k_tokens": 5e-07},
            Rates(250_000, 2_000_000, tiers=(Tier(128_000, 500_000, 3_000_000),)),
        ),
        (
            {"input_cost_per_token_above_200k_tokens_priority": 9, "input_cost_per_token_batches": 9},
            Rates(250_000, 2_000_000),
        ),
        ({"cache_creation_input_token_cost": 9}, Rates(250_000, 2_000_000)),
        (
            {
                "tiered_pricing": [
                    {**PRICED, "range": [0, 256e3]},
                    {**dict.fromkeys(PRICED, 4e-6), "range": [256e3, 1e6]},
                ]
            },
            Rates(250_000, 2_000_000, tiers=(Tier(256_000, 4_000_000, 4_000_000),)),
        ),
        ({"search_context_cost_per_query": {"search_context_size_high": 0.01}}, Rates(250_000, 2_000_000)),
        (
            {"litellm_provider": "perplexity", "search_context_cost_per_query": {"low": 0.005, "high": 0.01}},
            Rates(250_000, 2_000_000, request=10**10),
        ),
    ],
    ids=str,
)
def test_prices_of_the_table(entry: dict[str, Any], expected: Rates) -> None:
    assert expected == rates(**entry)


def test_a_model_that_searches_by_itself_is_charged_for_a_search() -> None:
    entry = {**PRICED, "search_context_cost_per_query": {"search_context_size_high": 0.01}}
    found = facts(entry, model="openai/gpt-4o-search-preview").rates
    assert found is not None
    assert 10**10 == found.request


@pytest.mark.parametrize("bad", [0, -1, "1000", None, True, float("nan"), float("inf")], ids=str)
def test_a_bound_that_is_no_number_of_tokens_is_unknown(bad: Any) -> None:
    told = facts({"max_input_tokens": bad, "max_output_tokens": bad})
    assert (None, None) == (told.context, told.max_output)


@pytest.mark.parametrize("bad", ["true", 1, None, [True]], ids=str)
def test_only_true_is_an_ability(bad: Any) -> None:
    assert (
        frozenset()
        == facts({"supports_vision": bad, "supports_audio_input": bad, "supports_function_calling": bad}).accepts
    )


@given(st.floats(0, 1000), st.floats(0, 1000))
def test_a_price_of_the_policy_is_never_rounded_down(paid: float, written: float) -> None:
    found = facts(price=Price(input=paid, output=written)).rates
    assert found is not None
    for price, units in ((paid, found.input), (written, found.output)):
        assert price * 10**6 - 0.01 <= units <= price * 10**6 + 1
        assert (units > 0) is (price > 0)


SIMPLE: Final = st.none() | st.booleans() | st.floats() | st.integers() | st.text()
KEYS: Final = st.sampled_from(
    [
        *PRICED,
        "input_cost_per_audio_token",
        "tiered_pricing",
        "input_cost_per_token_above_200k_tokens",
        "max_input_tokens",
    ]
)
JSON: Final = st.recursive(
    SIMPLE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.just("range"), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(KEYS, JSON))
def test_whatever_stands_in_the_table_is_a_price_or_unknown(entry: dict[str, Any]) -> None:
    found = facts(entry)
    assert found.rates is None or (found.rates.input >= 0 and found.rates.output >= 0)
