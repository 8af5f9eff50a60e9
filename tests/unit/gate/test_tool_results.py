"""Questions in tool results through the whole gate: the decision, the record, and what the client gets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import pytest

from samplegate.audit.record import Record
from samplegate.protocol.rounds import Open, ToClient, ToServer
from tests.fakes.dialogue import ANSWER, DENY, FORWARD, FORWARD_URLS, Dialogue, form, modern, one, request, result
from tests.fakes.gate_ports import FakePorts
from tests.fakes.reviewed_gate import ASK, ReviewedGate
from tests.fakes.virtual_time import VIRTUAL

pytestmark = pytest.mark.anyio
POLICED: Final[dict[str, Any]] = {"servers": {"default": {"ui_results": "police"}}}
REVIEWED: Final = {**POLICED, "reviewers": {"ops": {"timeout": "15m"}}}
QUESTION: Final = {**form(), "ui": {"uri": "ui://default/picker"}}
ACCEPTED: Final = {"action": "accept", "content": {"confirm": True}}


@pytest.fixture
def anyio_backend() -> Any:
    return VIRTUAL


def held(
    *rules: Mapping[str, Any], era: str = "modern", question: Any = QUESTION, policy: Mapping[str, Any] = POLICED
) -> Any:
    """A dialogue with a round for the question in a tool's result. The client has declared nothing."""
    d = Dialogue(*rules, **policy)
    if era == "legacy":
        d.open_legacy()
        d.client(request(1, "tools/call", name="pick"))
    else:
        d.client(modern(1, "tools/call", name="pick"))
    return d, one(d.server(result(1, content=[], metadata={"elicitation": question})), Open).round


def given(d: Dialogue, round: Any, conclusion: Any) -> Any:
    """``metadata`` of what the client gets; the server gets nothing."""
    out = d.done(round, conclusion)
    assert [] == [effect for effect in out if isinstance(effect, ToServer)]
    return json.loads(one(out, ToClient).line)["result"]["metadata"]


def facts(record: Record) -> tuple[Any, ...]:
    return record.door, record.effect, record.outcome, record.action


SCARCE: Final = {**POLICED, "limits": {"rate": {"requests": 1, "per": "1h"}}}
CANCEL: Final = {"elicitationResult": {"action": "cancel"}}
DECIDED: Final[list[tuple[list[Any], Any, tuple[Any, ...]]]] = [
    ([ANSWER], {"elicitationResult": ACCEPTED}, ("answer", "answered", "accept")),
    ([DENY], CANCEL, ("deny", "denied", "cancel")),
    ([{**DENY, "as": "decline"}], {"elicitationResult": {"action": "decline"}}, ("deny", "denied", "decline")),
    ([], CANCEL, ("none", "unanswered", "cancel")),
    ([FORWARD], {"elicitation": QUESTION}, ("forward", "forwarded", None)),
]


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize(("rules", "metadata", "recorded"), DECIDED)
async def test_the_rules_decide_what_the_client_gets(
    era: str, rules: list[Any], metadata: Any, recorded: tuple[Any, ...]
) -> None:
    ports = FakePorts()
    d, round = held(*rules, era=era)
    assert metadata == given(d, round, await ports.gate(d).run(round))
    (record,) = ports.records
    assert ("tool_result", *recorded) == facts(record)
    assert {"mode": "form", **QUESTION} == record.request
    assert ["pick"] == [call.tool for call in record.calls]


async def test_a_question_that_matches_no_form_rule_is_not_answered() -> None:
    ports = FakePorts()
    d, round = held(FORWARD_URLS)
    assert CANCEL == given(d, round, await ports.gate(d).run(round))


async def test_a_malformed_question_is_recorded_and_cancelled_whatever_the_rules() -> None:
    ports = FakePorts()
    d, round = held(FORWARD, question={"message": 5})
    assert CANCEL == given(d, round, await ports.gate(d).run(round))
    (record,) = ports.records
    assert ("tool_result", "none", "unanswered", "cancel") == facts(record)
    assert "malformed" == record.reason


async def test_no_answer_goes_on_without_a_record() -> None:
    ports = FakePorts(broken_log=True)
    d, round = held(ANSWER)
    assert CANCEL == given(d, round, await ports.gate(d).run(round))
    d, round = held(FORWARD)
    assert CANCEL == given(d, round, await ports.gate(d).run(round))


async def test_a_reviewers_answer_reaches_the_client() -> None:
    gate = ReviewedGate()
    d, round = held(ASK, policy=REVIEWED)
    conclusion = await gate.run(d, round, gate.decides("answer", result=ACCEPTED))
    assert {"elicitationResult": ACCEPTED} == given(d, round, conclusion)
    (record,) = gate.ports.records
    assert ("tool_result", "escalate", "answered", "accept") == facts(record)
    assert ("human", "ana") == (record.decided_by, record.reviewed_by)


async def test_a_reviewer_declines() -> None:
    gate = ReviewedGate()
    d, round = held(ASK, policy=REVIEWED)
    conclusion = await gate.run(d, round, gate.decides("answer", result={"action": "decline"}))
    assert {"elicitationResult": {"action": "decline"}} == given(d, round, conclusion)


@pytest.mark.parametrize(
    ("on_timeout", "metadata", "outcome"),
    [
        ("unanswered", CANCEL, "unanswered"),
        ("deny", CANCEL, "denied"),
        ("next", {"elicitation": QUESTION}, "forwarded"),
    ],
)
async def test_a_reviewer_who_is_late_leaves_the_rest_to_on_timeout(
    on_timeout: str, metadata: Any, outcome: str
) -> None:
    gate = ReviewedGate()
    d, round = held({**ASK, "timeout": "1s", "on_timeout": on_timeout}, FORWARD, policy=REVIEWED)
    assert metadata == given(d, round, await gate.run(d, round))
    (record,) = gate.ports.records
    assert ("tool_result", outcome) == (record.door, record.outcome)


@pytest.mark.parametrize("rule", [ANSWER, FORWARD])
async def test_limits_are_drawn_on(rule: Any) -> None:
    ports = FakePorts()
    for metadata in (None, CANCEL):
        d, round = held({**rule, "limits": ["rate"]}, policy=SCARCE)
        found = given(d, round, await ports.gate(d).run(round))
        assert (metadata is None) == (found != CANCEL)
    assert [("rate",), ()] == [record.limits for record in ports.records]


@pytest.mark.parametrize(("recorded", "said"), [(ACCEPTED, {"elicitationResult": ACCEPTED}), ("no case", CANCEL)])
async def test_a_cassette_answers_in_place_of_the_client(recorded: Any, said: Any) -> None:
    async def replay(*_: Any) -> Any:
        return recorded

    ports = FakePorts(replay=replay)
    d, round = held(FORWARD)
    assert said == given(d, round, await ports.gate(d).run(round))
