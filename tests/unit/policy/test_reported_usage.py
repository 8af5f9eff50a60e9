"""Usage that a provider reports for an answer, as it is charged: in full, up to what any model could have read or
written."""

from __future__ import annotations

import pytest

from samplegate.policy import cost
from samplegate.policy.catalogue import ModelFacts
from samplegate.policy.schema import Model

PARAMS = {"messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}], "maxTokens": 10}


@pytest.mark.parametrize(("reported", "booked"), [(12, 12), (10_000, 10_000), (10**27, 1_000_000)])
def test_a_count_that_cannot_be_is_booked_as_the_most_that_can(reported: int, booked: int) -> None:
    spent = cost.actual(Model("m", "openai/m"), ModelFacts(), PARAMS, reported, reported)
    assert (booked, booked) == (spent.input_tokens, spent.output_tokens)


def test_a_model_that_can_write_more_is_booked_with_more() -> None:
    facts = ModelFacts(max_output=3_000_000, context=4_000_000)
    spent = cost.actual(Model("m", "openai/m"), facts, PARAMS, 10**27, 10**27)
    assert (4_000_000, 3_000_000) == (spent.input_tokens, spent.output_tokens)
