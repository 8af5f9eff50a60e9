"""Metrics of a process's decision records: outcomes, cost, limits that refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from samplegate.audit.record import Attempt, Record
from samplegate.policy.decisions import Shadow
from samplegate.protocol.outcomes import Reason
from samplegate.telemetry import observers as tallying
from samplegate.telemetry.metrics import Metrics
from samplegate.telemetry.observers import Tally
from tests.fakes.metrics import value

PLAIN = Record(
    decision_id="d1",
    time=1_795_000_000.5,
    server="docs",
    caller="local",
    era="legacy",
    revision="2025-11-25",
    door="push",
    kind="sampling",
    effect="allow",
    reason=Reason.RULE,
    outcome="answered",
    policy_hash="abc",
    rule="drafts",
    decided_by="policy",
)
CHEAP = Attempt("cheap", "rate_limited", usd=0)
SMART = Attempt("smart", "ok", 12, 7, 4_200_000_000)
REFUSED = replace(PLAIN, outcome="unanswered", effect="none", reason=Reason.LIMIT, refused_by="team-day")


def taken(*records: Record) -> tuple[Tally, Metrics]:
    metrics = Metrics()
    tally = Tally(metrics)
    for record in records:
        tally.count(record)
    return tally, metrics


def test_a_request_is_counted_by_its_rule_and_what_came_of_it() -> None:
    _, metrics = taken(
        PLAIN, replace(PLAIN, rule=None, effect="none", outcome="unanswered", reason=Reason.NO_RULE, decided_by=None)
    )
    labels = {
        "server": "docs",
        "kind": "sampling",
        "rule": "drafts",
        "effect": "allow",
        "outcome": "answered",
        "reason": "rule",
        "decided_by": "policy",
    }
    assert 1 == value(metrics, "samplegate_requests_total", **labels)
    assert 1 == value(metrics, "samplegate_requests_total", rule=None, decided_by=None, reason="no_rule")


def test_what_a_shadow_rule_would_have_done_is_counted_by_its_name() -> None:
    _, metrics = taken(replace(PLAIN, shadows=(Shadow("trial", "deny"), Shadow("other", "deny"))))
    assert 1 == value(
        metrics, "samplegate_shadow_decisions_total", server="docs", kind="sampling", rule="trial", effect="deny"
    )


def test_each_model_is_counted_at_what_it_cost_and_a_failed_one_as_left_for_the_next() -> None:
    _, metrics = taken(replace(PLAIN, attempts=(CHEAP, SMART), usd=SMART.usd))
    costs = [
        value(metrics, "samplegate_cost_usd_total", server="docs", model=model, rule="drafts")
        for model in ("cheap", "smart")
    ]
    assert [0, 0.0042] == costs
    assert 1 == value(
        metrics, "samplegate_fallbacks_total", model_from="cheap", model_to="smart", reason="rate_limited"
    )
    assert 1 == value(metrics, "samplegate_fallbacks_total")


def test_an_unknown_price_is_counted_by_itself_and_said() -> None:
    tally, metrics = taken(
        replace(PLAIN, attempts=(Attempt("local", "ok"),)), replace(PLAIN, attempts=(SMART,), usd=SMART.usd)
    )
    assert 1 == value(metrics, "samplegate_unpriced_calls_total", server="docs", model="local", rule="drafts")
    assert 0 == value(metrics, "samplegate_cost_usd_total", model="local")
    assert "2 requests: 2 answered; $0.0042 and 1 model call with unknown price" == tally.summary()


def test_the_summary_says_the_cost_and_the_limits_that_refused() -> None:
    tally, _ = taken(replace(PLAIN, attempts=(SMART,)), REFUSED, REFUSED, replace(PLAIN, refused_by="loop"))
    assert (
        "4 requests: 2 answered, 2 unanswered; $0.0042; limit loop refused 1; limit team-day refused 2"
        == tally.summary()
    )


def test_the_summary_says_nothing_of_money_where_none_was_spent() -> None:
    free = replace(PLAIN, attempts=(CHEAP,), usd=0)
    assert "1 request: 1 answered" == taken(free)[0].summary()


def test_small_sums_are_added_without_loss() -> None:
    tally, _ = taken(*[replace(PLAIN, attempts=(Attempt("smart", "ok", usd=1),))] * 1000)
    assert "1000 requests: 1000 answered; $0.000000001" == tally.summary()


def test_money_that_was_spent_in_vain_is_counted() -> None:
    late = replace(
        PLAIN, outcome="unanswered", reason=Reason.TIMEOUT, attempts=(Attempt("smart", "timeout", usd=10**12),)
    )
    gone = replace(PLAIN, outcome="withdrawn", decided_by=None, attempts=(Attempt("smart", "cancelled", usd=10**12),))
    assert "2 requests: 1 unanswered, 1 withdrawn; $2.00" == taken(late, gone)[0].summary()


def test_calls_of_models_are_counted_by_what_is_on_record() -> None:
    late = replace(
        PLAIN, outcome="unanswered", reason=Reason.TIMEOUT, attempts=(CHEAP, Attempt("smart", "timeout", usd=10**12))
    )
    _, metrics = taken(late, replace(PLAIN, attempts=(SMART,)))
    calls = {
        (model, result): value(metrics, "samplegate_model_calls_total", model=model, result=result)
        for model, result in (("cheap", "rate_limited"), ("smart", "timeout"), ("smart", "ok"), ("smart", "cancelled"))
    }
    assert {
        ("cheap", "rate_limited"): 1,
        ("smart", "timeout"): 1,
        ("smart", "ok"): 1,
        ("smart", "cancelled"): 0,
    } == calls


def test_the_two_records_of_a_modern_forward_are_one_request() -> None:
    away = replace(PLAIN, effect="forward", outcome="forwarded", decided_by=None, door="input_required")
    back = replace(away, outcome="answered", decided_by="client")
    assert "1 request: 1 forwarded" == taken(away)[0].summary()
    assert "1 request: 1 answered" == taken(away, back)[0].summary()
    looked_at = replace(away, effect="allow", outcome="put_off")
    assert "1 request: 1 put off" == taken(looked_at)[0].summary()
    assert "1 request: 1 answered" == taken(looked_at, replace(back, effect="allow"))[0].summary()
    urls = replace(away, door="url_error")
    assert "2 requests: 2 forwarded" == taken(urls, replace(urls, decision_id="d2"))[0].summary()


REVIEWED = replace(
    PLAIN,
    effect="escalate",
    review="rv_1",
    decided_by="human",
    attempts=(CHEAP, SMART),
    usd=SMART.usd,
    refused_by="rate",
    duration_ms=10.0,
)
LOST = replace(
    PLAIN,
    effect="escalate",
    review="rv_1",
    outcome="unanswered",
    reason=Reason.REVIEW,
    refused_by=None,
    duration_ms=12.0,
    revokes=True,
)


def test_a_revoked_request_is_one_and_paid_once() -> None:
    tally, metrics = taken(REVIEWED, replace(PLAIN, decision_id="d2"), LOST)
    assert "2 requests: 1 answered, 1 unanswered; $0.0042; limit rate refused 1" == tally.summary()
    assert 1 == tally.counts.unanswered == len(tally.failures())
    assert (0.0042, 2, 1) == tuple(
        value(metrics, f"samplegate_{name}")
        for name in ("cost_usd_total", "model_calls_total", "request_duration_seconds")
    )


def test_a_counter_never_goes_down_so_a_revoked_request_is_counted_under_both() -> None:
    _, metrics = taken(
        replace(REVIEWED, shadows=(Shadow("trial", "deny"),)), replace(LOST, shadows=(Shadow("trial", "deny"),))
    )
    assert [1, 1] == [
        value(metrics, "samplegate_requests_total", outcome=outcome) for outcome in ("answered", "unanswered")
    ]
    assert 1 == value(metrics, "samplegate_requests_total", outcome="unanswered", reason="review")
    assert 1 == value(metrics, "samplegate_shadow_decisions_total")


def test_a_denied_request_that_was_revoked_is_listed_once() -> None:
    tally, _ = taken(replace(REVIEWED, outcome="denied", reason=Reason.REVIEW), LOST)
    assert "1 request: 1 unanswered; $0.0042; limit rate refused 1" == tally.summary()
    (line,) = tally.failures()
    assert "unanswered (review, " in line
    assert 1 == tally.counts.denied + tally.counts.unanswered


def test_a_revoking_record_whose_first_is_not_known_is_a_request() -> None:
    assert "1 request: 1 unanswered" == taken(LOST)[0].summary()


def test_what_may_be_revoked_is_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tallying, "MAX_REVIEWED", 2)
    reviewed = [replace(REVIEWED, decision_id=f"r{number}", attempts=(), refused_by=None) for number in range(3)]
    lost = [replace(LOST, decision_id=one.decision_id) for one in reviewed]
    assert "4 requests: 1 answered, 3 unanswered" == taken(*reviewed, *lost)[0].summary()


def test_records_of_reviews_push_no_forward_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tallying, "MAX_HANDED_ON", 2)
    monkeypatch.setattr(tallying, "MAX_REVIEWED", 2)
    away = replace(PLAIN, effect="forward", outcome="forwarded", decided_by=None, door="input_required")
    reviewed = [replace(REVIEWED, decision_id=f"r{number}", attempts=(), refused_by=None) for number in range(5)]
    lost = [replace(LOST, decision_id=one.decision_id) for one in reviewed]
    back = replace(away, outcome="answered", decided_by="client")
    assert "6 requests: 4 answered, 2 unanswered" == taken(away, *reviewed, *lost[3:], back)[0].summary()


@pytest.mark.parametrize("outcome", ["forwarded", "put_off"])
def test_a_request_that_the_client_never_returned_fails_at_the_end_only(outcome: Any) -> None:
    away = replace(PLAIN, outcome=outcome, decided_by=None, door="input_required")
    tally, _ = taken(away)
    assert (0, 1) == (tally.counts.unanswered, tally.final_counts.unanswered)
    assert ["1 request for the client to answer or retry: it did not return"] == tally.failures()
    tally.count(replace(away, outcome="answered"))
    assert (0, []) == (tally.final_counts.unanswered, tally.failures())
    urls = replace(away, outcome="forwarded", door="url_error")
    assert 0 == taken(urls)[0].final_counts.unanswered, "the error itself was the end"
