"""Totals over decision logs."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest

from samplegate.audit import report as reporting
from samplegate.audit.record import Attempt, RecordLine
from samplegate.audit.report import NO_CALL, OTHERS, Durations, Report, ServerReport
from samplegate.policy.schema import AllowRule, DenyRule, ForwardRule, Match
from tests.fakes import logged
from tests.fakes.requests import compiled, form, sampling, tool

ALLOW = AllowRule(name="models", match=Match(kind="sampling"))
BOOK = compiled(
    DenyRule(name="no", match=Match(text="secret")), ALLOW, ForwardRule(name="person", match=Match(kind="elicitation"))
)


def asked(what: str = "hello", *calls: Any, server: str = "docs", **more: Any) -> RecordLine:
    return logged.line(logged.record(BOOK, sampling(what, *calls, server=server), can=True, **more), "hash")


def summed(*lines: RecordLine, since: str = "") -> Report:
    report = Report(since)
    for line in lines:
        report.add(line)
    return report


def docs(*lines: RecordLine) -> ServerReport:
    return summed(*lines).servers["docs"]


def counts(names: Any, by: str = "requests") -> dict[str, int]:
    return {name: counter[by] for name, counter in names.items()}


def test_requests_are_counted_by_server_kind_and_outcome() -> None:
    report = summed(
        asked(),
        asked("secret"),
        asked(server="db"),
        logged.line(logged.record(BOOK, form(a="string"), can=True), "hash"),
    )
    assert {"docs": 3, "db": 1} == {name: server.requests for name, server in report.servers.items()}
    kinds = report.servers["docs"].kinds
    assert {"sampling": {"answered": 1, "denied": 1}, "elicitation": {"answered": 1}} == {
        name: dict(kind.outcomes) for name, kind in kinds.items()
    }


def test_rules_refusals_and_tools_are_counted() -> None:
    server = docs(asked("hi", tool("look")), asked("secret", tool("look"), tool("read")), asked())
    assert {"allow: models": 2, "deny: no": 1} == counts(server.rules)
    assert {"rule: no": 1} == counts(server.refusals)
    assert {"look": 2, "read": 1, NO_CALL: 1} == counts(server.tools)


def test_reviews_are_counted_by_reviewer_and_what_came_of_them() -> None:
    at: dict[str, Any] = {"reviewer": "ops", "review": "rv_1", "review_door": "page", "reviewed_ms": 2000.0}
    server = docs(
        asked(**at, attempts=(Attempt("smart", "ok"),)),
        asked(**at),
        asked(**at, outcome="denied", reason="review"),
        asked(
            **{**at, "review_door": "cli"},
            outcome="unanswered",
            reason="model",
            attempts=(Attempt("smart", "refused"),),
        ),
        asked(
            **{**at, "reviewer": "desk", "review_door": None, "reviewed_ms": 60_000.0},
            outcome="unanswered",
            reason="timeout",
        ),
        asked(),
    )
    assert {"reviews": 4, "approved": 2, "answered": 1, "rejected": 1} == dict(server.reviews["ops"])
    assert {"reviews": 1, "undecided": 1} == dict(server.reviews["desk"])
    assert {"page": 3, "cli": 1} == counts(server.doors)
    assert server.reviewed.quantile(1.0) == pytest.approx(2000, rel=0.02)


def test_models_tokens_and_money_are_summed() -> None:
    paid: dict[str, Any] = {"model": "gpt-5", "input_tokens": 7, "output_tokens": 3}
    server = docs(
        asked(**paid, usd=None),
        *(asked(**paid, attempts=(Attempt("smart", "rate_limited"), Attempt("cheap", "ok"))) for _ in range(2)),
    )
    assert {"requests": 3, "input_tokens": 21, "output_tokens": 9} == dict(server.models["gpt-5"])
    assert {"smart": (2, 2), "cheap": (2, 0)} == {
        name: (counter["calls"], counter["rate_limited"]) for name, counter in server.attempts.items()
    }


def test_each_model_has_its_own_tokens_and_dollars() -> None:
    tries = (Attempt("smart", "rate_limited", usd=0), Attempt("cheap", "ok", 7, 3, 250_000_000_000))
    calls = docs(
        asked(attempts=tries, usd=250_000_000_000),
        asked(attempts=tries[1:], usd=250_000_000_000),
        asked(attempts=(Attempt("own", "ok"),)),
    ).attempts
    assert {"smart": 0, "cheap": 500_000_000_000, "own": 0} == counts(calls, "units")
    assert {"smart": 0, "cheap": 0, "own": 1} == counts(calls, "unpriced")
    assert {"smart": (0, 0), "cheap": (14, 6), "own": (0, 0)} == {
        name: (one["input_tokens"], one["output_tokens"]) for name, one in calls.items()
    }


def test_of_several_tries_what_is_known_is_summed_and_what_is_not_is_said() -> None:
    known = Attempt("cheap", "error", usd=500_000_000_000)
    for outcome in ("answered", "unanswered"):
        server = docs(asked(outcome=outcome, attempts=(known, Attempt("own", "ok")), usd=None))
        assert (0.5, 1) == (server.usd, server.unpriced)


def test_a_price_that_is_not_known_is_counted_and_not_taken_for_zero() -> None:
    lines = [
        logged.line(logged.record(BOOK, sampling(), model="m"), "hash", **more)
        for more in ({"cost_usd": 0.25}, {"cost_usd": 0.5}, {})
    ]
    server = docs(*lines)
    assert (0.75, 1) == (server.usd, server.unpriced)


def test_a_failed_try_costs_what_it_cost() -> None:
    server = docs(
        logged.line(logged.record(BOOK, sampling(), outcome="unanswered"), "hash", cost_usd=0.5, reason="model")
    )
    assert (0.5, 0) == (server.usd, server.unpriced)


def test_a_model_that_took_too_long_is_paid_whatever_rule_came_then() -> None:
    late = Attempt("slow", "timeout", usd=500_000_000_000)
    server = docs(asked("secret", outcome="answered", attempts=(late,), usd=late.usd, model="samplegate/canned"))
    assert ({"deny: no": 1}, 0.5, {}) == (counts(server.rules), server.usd, server.models)


def test_limits_without_room_are_counted() -> None:
    line = logged.line(
        logged.record(BOOK, sampling(), outcome="unanswered"), "hash", reason="limit", refused_by="team-day"
    )
    assert {"team-day": 1} == counts(docs(line).limits)


def test_the_two_records_of_a_modern_forward_are_one_request() -> None:
    first, second = (
        logged.line(logged.record(BOOK, form(a="string"), can=True, outcome=outcome), "hash")
        for outcome in ("forwarded", "answered")
    )
    server = docs(first, second)
    assert 1 == server.requests
    assert {"answered": 1} == {name: number for name, number in server.kinds["elicitation"].outcomes.items() if number}


def test_the_two_records_of_a_request_whose_answer_was_looked_at_later_are_one_and_paid_once() -> None:
    tried = Attempt("smart", "ok", 3, 4, usd=500_000_000_000)
    at: dict[str, Any] = {"reviewer": "ops", "review": "rv_1", "model": "gpt", "door": "input_required"}
    first = asked(outcome="put_off", attempts=(tried,), usd=tried.usd, input_tokens=3, output_tokens=4, **at)
    last = asked(outcome="answered", usd=None, input_tokens=None, output_tokens=None, review_door="page", **at)
    alone, both = docs(first), docs(first, last)
    assert ({"put_off": 1}, {}, 0.5) == (dict(alone.kinds["sampling"].outcomes), dict(alone.reviews), alone.usd)
    assert (1, {"answered": 1}) == (
        both.requests,
        {name: number for name, number in both.kinds["sampling"].outcomes.items() if number},
    )
    assert ({"reviews": 1, "approved": 1}, 0.5, 0) == (dict(both.reviews["ops"]), both.usd, both.unpriced)
    assert {"requests": 1, "input_tokens": 3, "output_tokens": 4} == dict(both.models["gpt"])


def test_a_forward_that_never_came_back_stays_one() -> None:
    server = docs(logged.line(logged.record(BOOK, form(a="string"), can=True, outcome="forwarded"), "hash"))
    assert {"forwarded": 1} == dict(server.kinds["elicitation"].outcomes)


def test_what_is_older_is_left_out() -> None:
    lines = [asked(time=time) for time in (1_800_000_000.0, 1_800_000_060.0, 1_800_000_120.0)]
    report = summed(*lines, since="2027-01-15T08:01:00.000Z")
    assert (2, "2027-01-15T08:01:00.000Z", "2027-01-15T08:02:00.000Z") == (
        report.servers["docs"].requests,
        report.first,
        report.last,
    )


def test_no_log_makes_the_sums_large(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1_000 == reporting.MAX_NAMES
    monkeypatch.setattr(reporting, "MAX_NAMES", most := 20)
    server = docs(*(asked("hi", tool(f"tool {number}")) for number in range(most + 50)))
    assert (most + 1, 50) == (len(server.tools), server.tools[OTHERS]["requests"])
    report = summed(*(asked(server=f"server {number}") for number in range(most + 50)))
    assert (most + 1, 50) == (len(report.servers), report.servers[OTHERS].requests)


def test_words_that_no_gate_wrote_are_counted_as_others() -> None:
    line = logged.line(
        logged.record(BOOK, sampling()),
        "hash",
        outcome="vanished",
        attempts=[{"model": "m", "result": f"odd {n}"} for n in range(99)],
    )
    server = docs(line)
    assert {"other": 1} == dict(server.kinds["sampling"].outcomes)
    assert (99, 99) == (server.attempts["m"]["calls"], server.attempts["m"]["other"])


def durations(milliseconds: Iterable[float]) -> Durations:
    found = Durations()
    for one in milliseconds:
        found.add(one)
    return found


@pytest.mark.parametrize(("share", "expected"), [(0.5, 500.0), (0.95, 950.0), (1.0, 1000.0)])
def test_quantiles_are_right_within_a_percent(share: float, expected: float) -> None:
    milliseconds = [float(number) for number in range(1, 1001)]
    random.Random(1).shuffle(milliseconds)
    assert durations(milliseconds).quantile(share) == pytest.approx(expected, rel=0.0101)


def test_no_durations_have_no_quantile_and_the_shortest_has_one() -> None:
    assert durations([]).quantile(0.5) is None
    assert durations([0.0, -1.0]).quantile(0.5) == pytest.approx(0.001, rel=0.0101)
