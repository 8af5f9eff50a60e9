"""A model that writes more than the max tokens, through the whole gate: a small overrun is passed on, a larger one is
withheld. All of it is on record."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from samplegate.audit.record import Record
from samplegate.policy.prompt import Sampled
from samplegate.protocol.outcomes import Answered, Reason, Unanswered
from tests.fakes.dialogue import ALLOW, MODELS, sample
from tests.fakes.gate_ports import FakePorts, pushed

pytestmark = pytest.mark.anyio
MOST: Final = 10  # max tokens of the server's request


async def run_model(tokens: int, **given: Any) -> tuple[object, Record]:
    """The outcome and the record if the model writes ``tokens`` tokens; ``given`` is added to the rule."""
    rule = {**ALLOW, "with": {"models": ["m"], **given}}
    d, round = pushed(rule, params={**sample(), "maxTokens": MOST}, policy={"models": MODELS}, sampling={})
    ports = FakePorts(Sampled(({"type": "text", "text": "hi"},), "gpt", "endTurn", 3, tokens))
    outcome = (await ports.settled(d, round))[""].outcome
    (record,) = ports.records
    (attempt,) = record.attempts
    assert tokens == attempt.output_tokens
    return outcome, record


@pytest.mark.parametrize(
    ("tokens", "given", "stop"),
    [
        (10, {}, "endTurn"),
        (11, {}, "maxTokens"),
        (12, {}, "maxTokens"),
        (10, {"on_overrun": "withhold"}, "endTurn"),
        (5, {"max_tokens": 4}, "maxTokens"),
    ],
)
async def test_an_answer_a_little_over_the_limit_is_passed_on(tokens: int, given: dict[str, Any], stop: str) -> None:
    outcome, record = await run_model(tokens, **given)
    assert isinstance(outcome, Answered)
    said = json.loads(outcome.result)
    assert (stop, "hi", "answered") == (said["stopReason"], said["content"]["text"], record.outcome)


@pytest.mark.parametrize(("tokens", "given"), [(13, {}), (11, {"on_overrun": "withhold"}), (10_000, {})])
async def test_a_longer_answer_is_withheld(tokens: int, given: dict[str, Any]) -> None:
    outcome, record = await run_model(tokens, **given)
    assert isinstance(outcome, Unanswered)
    assert (Reason.MODEL, -1, "unanswered") == (outcome.reason, outcome.code, record.outcome)
    assert f"returned {tokens} output tokens, more than maxTokens ({MOST})" in (record.detail or "")
