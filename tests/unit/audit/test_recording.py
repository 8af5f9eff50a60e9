"""The decision record of a request that a model answered: calls, cost and limits."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from samplegate.audit.record import Attempt, Done, Record, describe
from samplegate.policy.decide import decide
from samplegate.policy.decisions import Situation
from samplegate.protocol.outcomes import Answered, Denied, Outcome, Reason, Unanswered, Withdrawn
from samplegate.protocol.requests import BadRequest
from samplegate.protocol.rounds import Open
from tests.fakes.dialogue import ALLOW, Dialogue, one, request, sample

ATTEMPTS = (Attempt("cheap", "rate_limited", usd=0), Attempt("smart", "ok", 12, 7, 4_200))


def recorded(outcome: Outcome, **more: Any) -> Record:
    d = Dialogue(ALLOW)
    d.open_legacy()
    round = one(d.server(request(7, "sampling/createMessage", **sample())), Open).round
    ((key, item),) = round.items.items()
    assert not isinstance(item.request, BadRequest)
    done = msgspec.structs.replace(Done(outcome, decide(d.compiled, item.request, Situation())), **more)
    return describe(round, key, item, "d1", done, policy_hash="h", time=1.0, duration=0.5)


def test_the_calls_of_models_and_what_they_came_to_are_on_record() -> None:
    spent = {
        "attempts": ATTEMPTS,
        "usd": 4_200,
        "reserved_usd": 9_000,
        "limits": ("team-day", "loop"),
        "refused_by": "rate",
        "redacted": {"aws-key": 2},
    }
    record = recorded(Answered(b"{}", "policy"), model="gpt-5-2026", **spent)
    assert spent == {name: getattr(record, name) for name in spent}
    assert "gpt-5-2026" == record.model


def test_nothing_is_said_of_money_where_no_model_was_asked() -> None:
    record = recorded(Answered(b"{}", "policy"))
    assert ((), None, None, (), None, {}) == (
        record.attempts,
        record.usd,
        record.reserved_usd,
        record.limits,
        record.refused_by,
        record.redacted,
    )


@pytest.mark.parametrize("reason", [Reason.LIMIT, Reason.BRAKE, Reason.CONTENT])
@pytest.mark.parametrize("refusal", [Denied, Unanswered])
def test_a_limit_a_brake_and_a_withheld_answer_are_the_policys_doing(
    refusal: type[Denied | Unanswered], reason: Reason
) -> None:
    record = recorded(refusal(reason, detail="why"))
    assert (reason, "policy", "why") == (record.reason, record.decided_by, record.detail)


def test_what_was_spent_on_a_request_that_was_taken_back_stays_on_record() -> None:
    assert ("withdrawn", ATTEMPTS) == ((record := recorded(Withdrawn(), attempts=ATTEMPTS)).outcome, record.attempts)


def test_a_secret_that_was_found_in_the_prompt_is_not_kept() -> None:
    cleaned = {"messages": [], "maxTokens": 1}
    assert cleaned == recorded(Answered(b"{}", "policy"), cleaned=cleaned).request
    assert sample() == recorded(Answered(b"{}", "policy")).request


def test_a_record_that_revokes_another_leaves_what_was_spent_to_that_one() -> None:
    spent = {
        "attempts": ATTEMPTS,
        "usd": 4_200,
        "reserved_usd": 9_000,
        "limits": ("day",),
        "refused_by": "rate",
        "input_tokens": 12,
        "output_tokens": 7,
    }
    lost = Unanswered(Reason.REVIEW, detail="why")
    record = recorded(lost, **spent, revokes=True)
    assert recorded(lost, revokes=True) == record
    assert ("unanswered", Reason.REVIEW, "why", True) == (record.outcome, record.reason, record.detail, record.revokes)
    assert (False, spent) == ((kept := recorded(lost, **spent)).revokes, {name: getattr(kept, name) for name in spent})
